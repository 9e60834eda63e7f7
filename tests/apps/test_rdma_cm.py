"""rdma_cm: stock librdmacm and Debian's programs over it, between two nodes."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.apps.test_half_dead import until
from tools.flitnet import paths, process
from tools.flitnet.cluster import Cluster

PORTS = iter(range(19200, 19400))


def listens(cluster: Cluster, node: str, before: int) -> bool:
    return int(cluster.node_status(node)["cm_listeners"]) > before


def run_pair(
    cluster: Cluster, server_argv: list[str], client_argv: list[str], dropin: bool = False
) -> tuple[subprocess.CompletedProcess[str], str, int | None]:
    """The server on n0, the client on n1 once a new listener is there."""
    before = int(cluster.node_status("n0")["cm_listeners"])
    server = cluster.popen("n0", server_argv, dropin=dropin)
    try:
        for _ in range(500):
            if listens(cluster, "n0", before):
                break
            assert server.poll() is None, server.stdout.read()
            time.sleep(0.02)
        client = cluster.exec("n1", client_argv, timeout=60, dropin=dropin)
        try:
            said, _ = server.communicate(timeout=20)
            code: int | None = server.returncode
        except subprocess.TimeoutExpired:
            server.kill()
            said, _ = server.communicate()
            code = None
    finally:
        server.kill()
    return client, said, code


def address(cluster: Cluster, node: str) -> str:
    return cluster.node_status(node)["address"]


def assert_good(pair: tuple[subprocess.CompletedProcess[str], str, int | None]) -> str:
    client, said, code = pair
    assert client.returncode == 0 and code == 0, client.stdout + client.stderr + said
    return client.stdout


def served(
    cluster: Cluster, server_argv: list[str], client_argv: list[str],
    ready: Callable[[], bool] | None = None,
) -> str:
    """What the client on n1 said, of a server on n0 that would serve for ever."""
    server = cluster.popen("n0", server_argv)
    try:
        while not (ready or (lambda: listens(cluster, "n0", 0)))():
            assert server.poll() is None, server.stdout.read()
            time.sleep(0.02)
        client = cluster.exec("n1", client_argv, timeout=60)
    finally:
        server.kill()
        server.communicate(timeout=10)
    assert client.returncode == 0, client.stdout + client.stderr
    return client.stdout


def test_rping(cluster2: Cluster) -> None:
    port = str(next(PORTS))
    to = ["-a", address(cluster2, "n0"), "-p", port, "-C", "20", "-v", "-V"]
    said = assert_good(
        run_pair(cluster2, ["rping", "-s", "-p", port, "-C", "20", "-V"], ["rping", "-c", *to])
    )
    assert said.count("ping data: rdma-ping-") == 20


@pytest.mark.parametrize("programs", [
    ("rping -s -C 5 -V -p {port}", "rping -c -a {to} -C 5 -V -p {port}"),
    ("udaddy -c 2 -C 5", "udaddy -s {to} -c 2 -C 5"),
    ("rdma_xserver -c x -p {port}", "rdma_xclient -c x -s {to} -p {port}"),
    ("ib_send_bw -R -F -n 50 -p {port}", "ib_send_bw -R -F -n 50 -p {port} {to}"),
    ("rstream -p {port} -T a -C 5 -I 2 -S 64", "rstream -s {to} -p {port} -T a -C 5 -I 2 -S 64"),
], ids=lambda programs: programs[0].split()[0])  # fmt: skip
def test_with_the_dropin(cluster2: Cluster, programs: tuple[str, str]) -> None:
    words = {"port": next(PORTS), "to": address(cluster2, "n0")}
    server, client = (program.format(**words).split() for program in programs)
    done, said, code = run_pair(cluster2, server, client, dropin=True)
    # rstream: see test_rsockets.
    assert done.returncode in (0, 16) and code == 0, done.stdout + done.stderr + said


@pytest.mark.parametrize("program", ["ucmatose", "udaddy"])
def test_data_transfers(cluster2: Cluster, program: str) -> None:
    # The port of udaddy is its own; -p says the port space there.
    port = ["-p", str(next(PORTS))] if program == "ucmatose" else []
    flags = [*port, "-c", "5", "-C", "20", "-S", "1000"]
    said = assert_good(
        run_pair(cluster2, [program, *flags], [program, "-s", address(cluster2, "n0"), *flags])
    )
    assert "data transfers complete" in said and "return status 0" in said


def test_a_migrated_id(cluster2: Cluster) -> None:
    """ucmatose -m moves its ids to another channel."""
    flags = ["-p", str(next(PORTS)), "-m"]
    to = ["-s", address(cluster2, "n0")]
    assert_good(run_pair(cluster2, ["ucmatose", *flags], ["ucmatose", *to, *flags]))


def test_blocking_calls(cluster2: Cluster) -> None:
    port = str(next(PORTS))
    said = assert_good(
        run_pair(
            cluster2,
            ["rdma_server", "-p", port],
            ["rdma_client", "-s", address(cluster2, "n0"), "-p", port],
        )
    )
    assert "rdma_client: end 0" in said


@pytest.mark.parametrize("service", ["r", "x"], ids=["rc", "xrc"])
def test_the_server_chooses_its_srq(cluster2: Cluster, service: str) -> None:
    """By XRC the server tells the number of its SRQ when it accepts."""
    flags = ["-p", str(next(PORTS)), "-c", service]
    to = ["-s", address(cluster2, "n0"), *flags]
    said = assert_good(run_pair(cluster2, ["rdma_xserver", *flags], ["rdma_xclient", *to]))
    assert "end 0" in said


@pytest.mark.parametrize("flags", [[], ["-T", "a"], ["-T", "b"]], ids="_".join)
@pytest.mark.parametrize("program", ["rstream", "riostream"])
def test_rsockets(cluster2: Cluster, program: str, flags: list[str]) -> None:
    flags = ["-p", str(next(PORTS)), "-S", "4096", "-C", "20", "-I", "10", *flags]
    to = ["-s", address(cluster2, "n0"), *flags]
    client, said, code = run_pair(cluster2, [program, *flags], [program, *to])
    # 16 is POLLHUP: polling, they take it for an error that the last bytes and the end of the
    # stream are there together.
    assert client.returncode in (0, 16) and code == 0, client.stdout + client.stderr + said
    assert "custom" in said


@pytest.mark.parametrize("argv", [
    ["ib_send_bw"], ["ib_send_lat"], ["ib_write_bw"], ["ib_read_lat"], ["ib_send_bw", "-c", "UD"],
], ids="_".join)  # fmt: skip
def test_perftest_by_rdma_cm(cluster2: Cluster, argv: list[str]) -> None:
    argv = [*argv, "-R", "-F", "-n", "100", "-s", "1024", "-p", str(next(PORTS))]
    said = assert_good(run_pair(cluster2, argv, [*argv, address(cluster2, "n0")]))
    assert "rdma_cm QPs" in said


def assert_multicasts(cluster: Cluster, count: int, size: int) -> None:
    """mckey's receiver tells that it has joined; the sender's copies cross the fabric."""
    flags = ["mckey", "-m", "239.1.1.1", "-C", str(count), "-S", str(size)]
    receiver = cluster.popen("n0", ["stdbuf", "-oL", *flags])
    while "receiving" not in (line := receiver.stdout.readline()):
        assert line, "the receiver ended"
    sender = cluster.exec("n1", [*flags, "-s"], timeout=30)
    said, _ = receiver.communicate(timeout=30)
    assert sender.returncode == 0 and receiver.returncode == 0, sender.stdout + said
    assert "data transfers complete" in said


def test_multicast(cluster2: Cluster) -> None:
    assert_multicasts(cluster2, 10, 100)


def test_multicast_is_counted_apart(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster({"network": {"nodes": 3}}, exporter="off")

    def count(node: str, name: str) -> int:
        folder = cluster.run / f"sys/class/infiniband/{node}-flitnet0/ports/1/counters"
        return int((folder / f"{name}_packets").read_text())

    assert_multicasts(cluster, 10, 100)
    # A copy for each other node.
    until(lambda: count("n1", "multicast_xmit") == 20 and count("n0", "multicast_rcv") == 10)
    for way, other in (("xmit", "rcv"), ("rcv", "xmit")):
        node = "n1" if way == "xmit" else "n0"
        assert count(node, f"unicast_{way}") == 0 and count(node, f"multicast_{other}") == 0
        assert count(node, f"port_{way}") == count(node, f"multicast_{way}")


def test_datagrams_leave_before_their_qp_goes(make_cluster: Callable[..., Cluster]) -> None:
    """mckey asks for no completion and destroys its QP, a tenth of a second before all has left."""
    cluster = make_cluster({"network": {"nodes": 2, "link_mbps": 10}, "hca": {"mtu": 1024}})
    assert_multicasts(cluster, 100, 900)


def test_a_file_is_copied(cluster2: Cluster, tmp_path: Path) -> None:
    """rcopy's server serves for ever."""
    port = str(next(PORTS))
    source, copied = tmp_path / "source", tmp_path / "copied"
    source.write_bytes(os.urandom(300_001))
    to = f"{address(cluster2, 'n0')}:{copied}"
    served(cluster2, ["rcopy", "-p", port], ["rcopy", str(source), to, "-p", port])
    assert copied.read_bytes() == source.read_bytes()


def test_datagrams_of_rsockets(cluster2: Cluster) -> None:
    """udpong asks a socket that it has connected for its own address; its server does not end."""
    port, to = str(next(PORTS)), address(cluster2, "n0")
    options = ["-p", port, "-C", "50", "-S", "500", "-T", "e"]
    server, client = ["udpong", "-b", to, *options], ["udpong", "-s", to, *options]
    said = served(cluster2, server, client, lambda: process.listens(int(port), "udp"))
    assert "custom" in said


# What stands before an IPv4 address that an IPv6 socket is told.
both_families = pytest.mark.parametrize("mapped", ["", "::ffff:"], ids=["IPv4", "mapped"])


@both_families
def test_tcp_comes_from_the_address_of_its_node(cluster2: Cluster, mapped: str) -> None:
    """It does not where the program, or the peer's address, says something else."""
    here, there = address(cluster2, "n0"), address(cluster2, "n1")
    listener = socket.create_server(("0.0.0.0", 0))
    port = listener.getsockname()[1]
    come = f"""
import socket
for to, by in ("{here}", None), ("{here}", ("{mapped}127.1.0.77", 0)), ("127.0.0.1", None):
    to = "{mapped}" + to
    socket.create_connection((to, {port}), source_address=by).close()
    try:
        socket.create_connection((to, 1), source_address=by)
    except ConnectionRefusedError as error:
        print(error)
"""
    done = cluster2.exec("n1", ["python3", "-c", come], timeout=30)
    assert done.returncode == 0 and done.stdout.count("refused") == 3, done.stdout + done.stderr
    listener.settimeout(10)
    assert [listener.accept()[1][0] for _ in range(3)] == [there, "127.1.0.77", "127.0.0.1"]
    listener.close()


REFUSED = """
import ctypes, select, socket, sys
mapped, here, there, port = sys.argv[1:4] + [int(sys.argv[4])]
family = socket.AF_INET6 if mapped else socket.AF_INET
connect = ctypes.CDLL(None, use_errno=True).connect
def refused(kind, sender=None, blocking=True):
    sender = sender or socket.socket(family, kind)
    sender.setblocking(blocking)
    assert sender.connect_ex((mapped + here, 1)) != 0
    if not blocking:  # it says so once more when it is asked the next time
        select.select([], [sender], [])
        assert sender.connect_ex((mapped + here, 1)) != 0
        sender.setblocking(True)
    return sender
def goes(sender, to, source):
    sender.connect((mapped + to, port))
    assert sender.getsockname()[0] == mapped + source, sender.getsockname()
for blocking in True, False:
    goes(refused(socket.SOCK_STREAM, None, blocking), "127.0.0.1", "127.0.0.1")
    goes(refused(socket.SOCK_STREAM, None, blocking), here, there)
again = refused(socket.SOCK_STREAM, refused(socket.SOCK_STREAM))
assert again.getsockname()[:2] == (("::" if mapped else "0.0.0.0"), 0), again.getsockname()
again.bind((mapped + "127.0.0.1", 0))
assert again.getsockname()[1] != 0
goes(again, "127.0.0.1", "127.0.0.1")
named = socket.socket(family)
named.bind((mapped + there, 0))
assert named.connect_ex((mapped + here, 1)) != 0
goes(named, "127.0.0.1", there)
datagrams = socket.socket(family, socket.SOCK_DGRAM)
goes(datagrams, here, there)
assert connect(datagrams.fileno(), bytes(28), 28) == 0, ctypes.get_errno()  # AF_UNSPEC
goes(datagrams, "127.0.0.1", "127.0.0.1")
"""


@both_families
def test_a_socket_that_was_refused_has_no_address(cluster2: Cluster, mapped: str) -> None:
    """A socket that a node has refused, or that leaves it, goes elsewhere as if it were new; where
    the program has named its address it keeps it."""
    here, there = address(cluster2, "n0"), address(cluster2, "n1")
    with socket.create_server(("0.0.0.0", 0)) as listener:
        argv = ["python3", "-c", REFUSED, mapped, here, there, listener.getsockname()[1]]
        done = cluster2.exec("n1", [*map(str, argv)], timeout=30)
    assert done.returncode == 0, done.stderr


SENDMMSG = """
import ctypes, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
def sendmmsg(sender, to):
    port = socket.htons(to[1])
    if sender.family == socket.AF_INET:
        address = struct.pack("=HH4s8x", socket.AF_INET, port, socket.inet_aton(to[0]))
    else:
        host = socket.inet_pton(socket.AF_INET6, to[0])
        address = struct.pack("=HHI16sI", socket.AF_INET6, port, 0, host, 0)
    length = len(address)
    address = ctypes.create_string_buffer(address, length)
    said = [ctypes.create_string_buffer(words, 3) for words in (b"one", b"two")]
    pieces = [(ctypes.c_size_t * 2)(ctypes.addressof(words), 3) for words in said]
    messages = (ctypes.c_uint64 * 16)(*(
        word for piece in pieces
        for word in (ctypes.addressof(address), length, ctypes.addressof(piece), 1, 0, 0, 0, 0)
    ))
    assert libc.sendmmsg(sender.fileno(), messages, 2, 0) == 2, ctypes.get_errno()
    assert [messages[7] & 0xffffffff, messages[15] & 0xffffffff] == [3, 3]
"""


@both_families
def test_datagrams_come_from_the_address_of_their_node(cluster2: Cluster, mapped: str) -> None:
    """They do not where the program, or the peer's address, says something else."""
    here, there = address(cluster2, "n0"), address(cluster2, "n1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("0.0.0.0", 0))
        receiver.settimeout(10)
        port = receiver.getsockname()[1]
        come = f"""{SENDMMSG}
family = socket.AF_INET6 if "{mapped}" else socket.AF_INET
any_, other = ("{here}", "::" if "{mapped}" else "0.0.0.0"), ("{here}", "{mapped}127.1.0.77")
for to, by in ("{here}", None), any_, other, ("127.0.0.1", None):
    to = "{mapped}" + to
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        if by is not None:
            sender.bind((by, 0))
        assert sender.sendto(b"sendto", (to, {port})) == 6
        assert sender.sendmsg([b"send", b"msg"], [], 0, (to, {port})) == 7
        sendmmsg(sender, (to, {port}))
with socket.socket(family, socket.SOCK_DGRAM) as sender:
    from_77 = bytes(4) + socket.inet_aton("127.1.0.77") + bytes(4)  # IP_PKTINFO
    control = [(socket.IPPROTO_IP, 8, from_77)]
    sender.sendmsg([b"sendmsg"], control, 0, ("{mapped}{here}", {port}))
"""
        done = cluster2.exec("n1", ["python3", "-c", come], timeout=30)
        assert done.returncode == 0, done.stdout + done.stderr
        came = [receiver.recvfrom(64) for _ in range(17)]
    sources = [there, there, "127.1.0.77", "127.0.0.1"]
    assert [(said, source[0]) for said, source in came] == [
        *((said, source) for source in sources for said in (b"sendto", b"sendmsg", b"one", b"two")),
        (b"sendmsg", "127.1.0.77"),
    ]


RSOCKET = """
import ctypes, socket, struct, sys
rs = ctypes.CDLL("librdmacm.so.1", use_errno=True)
who, to, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ":" in to else socket.AF_INET
layout = "=HH4s8x" if family == socket.AF_INET else "=HH4x16s4x"
address = struct.pack(layout, family, socket.htons(port), socket.inet_pton(family, to))
mine = rs.rsocket(family, socket.SOCK_DGRAM, 0)
peer, size = ctypes.create_string_buffer(len(address)), ctypes.c_uint(len(address))
buffer = ctypes.create_string_buffer(64)
def receive():
    assert rs.rrecvfrom(mine, buffer, 64, 0, peer, ctypes.byref(size)) > 0, ctypes.get_errno()
    host = struct.unpack(layout, peer.raw)[2]
    return socket.inet_ntop(family, host).encode()
if who == "server":
    assert rs.rbind(mine, address, len(address)) == 0, ctypes.get_errno()
    asker = receive()
    assert rs.rsendto(mine, asker, len(asker), 0, peer, size) == len(asker), ctypes.get_errno()
else:
    assert rs.rsendto(mine, b"who am I", 8, 0, address, len(address)) == 8, ctypes.get_errno()
    print("from", receive().decode(), "you are", buffer.value.decode())
rs.rclose(mine)
"""


@both_families
def test_an_rsocket_that_is_never_connected_is_answered(cluster2: Cluster, mapped: str) -> None:
    port, to = str(next(PORTS)), mapped + address(cluster2, "n0")
    server, client = (["python3", "-c", RSOCKET, who, to, port] for who in ("server", "client"))
    said = served(cluster2, server, client, lambda: process.listens(int(port), "udp"))
    assert said == f"from {to} you are {mapped}{address(cluster2, 'n1')}\n"


def test_many_connections(cluster2: Cluster) -> None:
    """cmtime's server serves for ever."""
    port = str(next(PORTS))
    to = ["-s", address(cluster2, "n0"), "-p", port, "-c", "50"]
    said = served(cluster2, ["cmtime", "-p", port, "-c", "50"], ["cmtime", *to])
    assert "disconnect" in said


def test_nobody_listens(cluster2: Cluster) -> None:
    to = ["-a", address(cluster2, "n0"), "-p", str(next(PORTS)), "-C", "1"]
    done = cluster2.exec("n1", ["rping", "-c", *to], timeout=30)
    assert done.returncode != 0 and "REJECTED" in done.stdout + done.stderr
    done = cluster2.exec("n1", ["rping", "-c", "-a", "10.255.255.1", "-C", "1"], timeout=30)
    assert done.returncode != 0 and "ADDR_ERROR" in done.stdout + done.stderr


def test_a_killed_peer_is_a_disconnect(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    port = str(next(PORTS))
    server = cluster.popen("n0", ["rping", "-s", "-p", port])
    while not listens(cluster, "n0", 0):
        time.sleep(0.02)
    client = cluster.popen("n1", ["rping", "-c", "-a", address(cluster, "n0"), "-p", port, "-v"])
    assert "ping data" in client.stdout.readline()
    client.kill()
    client.communicate(timeout=10)
    said, _ = server.communicate(timeout=30)
    assert "DISCONNECT" in said, said
    for node in ("n0", "n1"):
        for _ in range(100):
            status = cluster.node_status(node)
            if status["cm_ids"] == 0 and status["clients"] == 0:
                break
            time.sleep(0.05)
        assert status["cm_ids"] == 0 and status["clients"] == 0


def test_a_thread_that_waits_outlives_its_channel(cluster2: Cluster) -> None:
    """rping's did not: once in many runs it said "Bad file descriptor" instead of ending."""
    program = paths.build_dir() / "tests/abi/cm_probe"
    done = cluster2.exec("n0", [str(program), address(cluster2, "n0")], timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", ["readable", "close_range", "closefrom", "dup2", "dup", "child"])
@pytest.mark.parametrize("dropin", [False, True], ids=["preloaded", "dropin"])
def test_the_descriptor_of_a_channel(cluster2: Cluster, case: str, dropin: bool) -> None:
    """Readable if and only if an event waits; another file with its number is no channel."""
    program = paths.build_dir() / "tests/abi/cm_files_probe"
    argv = [str(program), case, address(cluster2, "n0")]
    done = cluster2.exec("n0", argv, timeout=30, dropin=dropin)
    assert done.returncode == 0 and case in done.stdout, done.stdout + done.stderr


def idle_server(cluster: Cluster) -> tuple[list[str], subprocess.Popen[str]]:
    """On n0, once it listens; and the command of a client, who connects and then does nothing."""
    argv = [str(paths.build_dir() / "tests/abi/cm_idle_probe"), "connect"]
    argv += [address(cluster, "n0"), str(next(PORTS))]
    server = cluster.popen("n0", [argv[0], "serve", *argv[2:]])
    while not listens(cluster, "n0", 0):
        time.sleep(0.02)
    return argv, server


def test_a_node_that_started_anew_connects_again(make_cluster: Callable[..., Cluster]) -> None:
    """Its ids count from the beginning, and its server's node still knows those of its old life."""
    cluster = make_cluster()
    argv, server = idle_server(cluster)
    first = ["RDMA_CM_EVENT_CONNECT_REQUEST\n", "RDMA_CM_EVENT_ESTABLISHED\n"]
    client = cluster.popen("n1", argv)
    assert [server.stdout.readline() for _ in range(2)] == first
    cluster.kill("hcad:n1")
    client.kill()
    client.communicate(timeout=10)
    cluster.start_node("n1")
    client = cluster.popen("n1", argv)
    events = [server.stdout.readline() for _ in range(3)]
    assert events == ["RDMA_CM_EVENT_DISCONNECTED\n", *first]
    assert client.stdout.readline() == "established\n"
    for process in (client, server):
        process.kill()
        process.communicate(timeout=10)


def test_a_disconnect_that_is_lost_with_the_fabric_is_said_again(
    make_cluster: Callable[..., Cluster],
) -> None:
    """Its program has gone, and nobody sends anything else on the connection."""
    cluster = make_cluster()
    argv, server = idle_server(cluster)
    client = cluster.popen("n1", argv)
    assert client.stdout.readline() == "established\n"
    first = ["RDMA_CM_EVENT_CONNECT_REQUEST\n", "RDMA_CM_EVENT_ESTABLISHED\n"]
    assert [server.stdout.readline() for _ in range(2)] == first
    cluster.kill("fabricd", signal.SIGSTOP)
    client.kill()
    client.communicate(timeout=10)
    while cluster.node_status("n1")["cm_ids"] != 0:
        time.sleep(0.02)
    time.sleep(0.2)  # what its node says is with the fabric by then
    cluster.kill("fabricd")
    cluster.start_fabricd()
    heard, _, _ = select.select([server.stdout], [], [], 60)
    assert heard and server.stdout.readline() == "RDMA_CM_EVENT_DISCONNECTED\n"
    server.kill()
    server.communicate(timeout=10)


CHANNELS = """
import ctypes, errno, resource, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
library = ctypes.CDLL("librdmacm.so.1", use_errno=True)
library.rdma_create_event_channel.restype = ctypes.c_void_p
opened = 0
while opened < int(sys.argv[1]) and library.rdma_create_event_channel(): opened += 1
print(opened, errno.errorcode.get(ctypes.get_errno()), flush=True)
sys.stdin.read()
"""


def test_one_program_leaves_channels_for_others(cluster2: Cluster) -> None:
    """It has a quarter of a node's at most, and is told so; each of rsockets has one, too."""
    argv = [sys.executable, "-c", CHANNELS, "9999"]
    program = cluster2.popen("n0", argv, stdin=subprocess.PIPE)
    try:
        assert program.stdout.readline() == "2048 EMFILE\n"
        log = (cluster2.run / "log" / "hcad-n0.log").read_text()
        assert f"program {program.pid} has 2048 files of rdma_cm and umad open" in log
        argv[-1] = "100"
        other = cluster2.exec("n0", argv, stdin=subprocess.DEVNULL)
        assert other.stdout.split()[0] == "100", other.stdout + other.stderr
        devices = cluster2.exec("n0", ["ibv_devinfo"])
        assert devices.returncode == 0, devices.stderr
    finally:
        program.communicate()
