"""Programs that misuse hcad's socket: the node goes on, and its log stays short."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import resource
import socket
import struct
from pathlib import Path

from tests.apps.test_half_dead import until
from tools.flitnet import paths
from tools.flitnet.cluster import Cluster

ATTEMPTS = 2_000
LOG_LINES_MAX = 40  # hcad says 20 things at once, then few; beside them what every start says


# Asks for as many queues as there are, larger ones first, until not even the smallest is to be had.
GREEDY = """
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPCap, QPInitAttr
import pyverbs.enums as e

ctx = Context(name=get_device_list()[0].name.decode())
pd = PD(ctx)
cq = CQ(ctx, 16)

def make(depth):
    cap = QPCap(max_send_wr=depth, max_send_sge=32, max_inline_data=1024)
    return QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap))

qps, depth = [], 32768
while depth > 0:
    try:
        qps.append(make(depth))
    except PyverbsRDMAError as error:
        print(error.error_code)
        depth //= 2
qps.pop().close()
qps.append(make(1))
"""


def connect(cluster: Cluster, node: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(20)
    connection.connect(str(cluster.run / "nodes" / node / "hcad.sock"))
    return connection


class Speaker:
    """A program that speaks hcad's language itself (hca/abi/control.h)."""

    OPS = (
        "hello create_pd destroy_pd register_mr reregister_mr deregister_mr create_channel "
        "destroy_channel create_cq resize_cq destroy_cq create_qp modify_qp query_qp destroy_qp "
        "set_rate create_srq modify_srq query_srq destroy_srq open_cm alloc_mw dealloc_mw "
        "advise attach_mcast detach_mcast open_xrcd close_xrcd open_qp find_gid adopt_cq "
        "fire_cq open_umad goodbye read_counter"
    ).split()
    BODY_BYTES = 88

    def __init__(self, cluster: Cluster, first: str = "hello") -> None:
        self.socket = connect(cluster, "n0")
        self.read_end, self.write_end = os.pipe()
        header = (paths.ROOT / "hca" / "abi" / "control.h").read_text()
        limits = (paths.ROOT / "hca" / "abi" / "limits.h").read_text()
        version = int(re.search(r"kControlVersion = (\d+)", header)[1])
        abi_version = int(re.search(r"kAbiVersion = (\d+)", limits)[1])
        self.hello = struct.pack("<IIII", 0x54434C46, version, abi_version, 0)
        if first:
            assert self.ask(first, 0, self.hello, self.write_end)[0] == 0

    def send(self, op: str, number: int = 0, body: bytes = b"", fd: int | None = None) -> None:
        message = struct.pack("<II", 1 + self.OPS.index(op), number)
        fds = [] if fd is None else [fd]
        socket.send_fds(self.socket, [message + body.ljust(self.BODY_BYTES, b"\0")], fds)

    def ask(
        self, op: str, number: int = 0, body: bytes = b"", fd: int | None = None
    ) -> tuple[int, int]:
        """errno and the number of what was made."""
        self.send(op, number, body, fd)
        data, fds, _, _ = socket.recv_fds(self.socket, 256, 8)
        for one in fds:
            os.close(one)
        return struct.unpack_from("<iI", data, 4)

    def make_qp(self) -> int:
        pd = self.ask("create_pd")[1]
        cq = self.ask("create_cq", 0, struct.pack("<II", 16, 0xFFFFFFFF))[1]
        wanted = struct.pack("<IIIIIIIIIBB2x", cq, cq, 0xFFFFFFFF, 0, 4, 4, 1, 1, 0, 2, 0)
        error, number = self.ask("create_qp", pd, wanted)
        assert error == 0
        return number


def test_states_that_do_not_exist(cluster2: Cluster) -> None:
    speaker = Speaker(cluster2)
    number = speaker.make_qp()
    for state in range(7, 256):
        for mask in (1, 2, 3):  # state, cur_state
            attributes = bytes([state, state]) + bytes(70) + struct.pack("<II", mask, 0)
            assert speaker.ask("modify_qp", number, attributes)[0] == errno.EINVAL
    assert cluster2.node_status("n0")["ok"]


def test_counters_that_do_not_exist(cluster2: Cluster) -> None:
    speaker = Speaker(cluster2, "")
    known = b"port_xmit_data"
    for name in (b"", b"x" * 72, known + b"x", known[:-1], known.ljust(72, b"x"), b"\xff" * 40):
        assert speaker.ask("read_counter", 0, speaker.hello + name)[0] == errno.ENOENT, name
    assert speaker.ask("read_counter", 0, speaker.hello[:-8] + known)[0] == errno.EPROTO
    assert speaker.ask("read_counter", 0, speaker.hello + known)[0] == 0
    speaker.send("create_pd")  # no device was opened
    assert speaker.socket.recv(256) == b""
    assert cluster2.node_status("n0")["ok"]


def test_an_answer_that_nobody_reads_holds_nobody_up(cluster2: Cluster) -> None:
    """What a umad asks is answered into what comes along, if that is a pipe with room."""
    speaker = Speaker(cluster2, "open_umad")
    agent = struct.pack("<IIBBHIQQIB3x", 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)  # ib_user_mad_reg_req2
    read_end, full = os.pipe()
    os.set_blocking(full, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(full, bytes(4096))
    os.set_blocking(full, True)
    closed, unread = os.pipe()
    os.close(closed)
    ours, theirs = socket.socketpair()
    null = os.open("/dev/null", os.O_RDWR)
    given = [[], [full], [unread], [theirs.fileno()], [null], [full, null, unread]]
    for fds in given:
        socket.send_fds(speaker.socket, [agent], fds)
    answers, write_end = os.pipe()
    socket.send_fds(speaker.socket, [agent], [write_end])
    os.close(write_end)
    assert os.read(answers, 64) == struct.pack("<iI", 0, len(given))  # the next number
    assert os.read(answers, 64) == b""
    for fd in (read_end, full, unread, null, answers):
        os.close(fd)
    ours.close()
    theirs.close()


def test_a_pipe_that_is_full_and_blocks_holds_nobody_up(cluster2: Cluster) -> None:
    """hcad writes events into it: by a descriptor of its own, whatever the program's is set to."""
    speaker = Speaker(cluster2)
    _, write_end = os.pipe()
    channel = speaker.ask("create_channel", 0, b"", write_end)[1]
    cq = speaker.ask("create_cq", 0, struct.pack("<II", 16, channel))[1]
    os.set_blocking(write_end, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write_end, bytes(4096))
    os.set_blocking(write_end, True)
    speaker.send("fire_cq", cq)
    assert cluster2.node_status("n0")["ok"]


def test_a_socket_that_lingers_is_closed_at_once(cluster2: Cluster) -> None:
    """Its last owner would wait for bytes that nobody takes."""
    speaker = Speaker(cluster2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sender = socket.create_connection(server.getsockname())
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
        sender.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                sender.send(bytes(65536))
        speaker.send("create_pd", 0, b"", sender.fileno())
        os.close(sender.detach())  # what is in the message is the last one
        assert cluster2.node_status("n0")["ok"], "within the time that an answer may take"
        assert speaker.ask("create_pd")[0] == 0


def test_memory_that_is_registered_anew_is_mapped_once(cluster2: Cluster) -> None:
    speaker = Speaker(cluster2)
    pid = cluster2.process("hcad:n0").pid
    pd = speaker.ask("create_pd")[1]
    memory = os.memfd_create("again", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, 4096)
    fcntl.fcntl(memory, 1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK
    region = struct.pack("<QQQQIII", 4096, 4096, 4096, 0, 1, 0, 0)
    error, key = speaker.ask("register_mr", pd, region, memory)
    assert error == 0

    def mappings() -> int:
        return Path(f"/proc/{pid}/maps").read_text().count("memfd:again")

    assert mappings() == 1
    again = struct.pack("<QQQQIII", 4096, 4096, 4096, 0, 1, 4, pd)  # the access alone
    for _ in range(50):
        error, key = speaker.ask("reregister_mr", key, again, memory)
        assert error == 0
    assert mappings() == 1
    assert speaker.ask("deregister_mr", key)[0] == 0 and mappings() == 0


class Sharer(Speaker):
    """Has one TiB of memory that hcad can map, and registers it as often as it likes."""

    BYTES = 1 << 40

    def __init__(self, cluster: Cluster, memory: int) -> None:
        super().__init__(cluster)
        self.pd = self.ask("create_pd")[1]
        self.memory = memory

    def share(self) -> int:
        region = struct.pack("<QQQQIII", 4096, 4096, self.BYTES, 0, 1, 0, 0)
        error, key = self.ask("register_mr", self.pd, region, self.memory)
        assert error == 0
        return key

    def share_again(self, key: int) -> int:
        region = struct.pack("<QQQQIII", 4096, 4096, self.BYTES, 0, 1, 1, self.pd)
        error, key = self.ask("reregister_mr", key, region, self.memory)
        assert error == 0
        return key

    def give_up(self, key: int) -> None:
        assert self.ask("deregister_mr", key)[0] == 0


def test_programs_that_share_all_addresses_there_are(make_cluster: Callable[..., Cluster]) -> None:
    """hcad maps so much of each program and of all; the rest is copied, and others find room."""
    cluster = make_cluster()
    pid = cluster.process("hcad:n0").pid
    memory = os.memfd_create("greedy", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, Sharer.BYTES)
    fcntl.fcntl(memory, 1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK

    def mapped() -> int:  # neighbours may stand in one line
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        ends = [line.split()[0].split("-") for line in lines if "memfd:greedy" in line]
        return sum(int(end, 16) - int(start, 16) for start, end in ends) // Sharer.BYTES

    first = Sharer(cluster, memory)
    keys = [first.share() for _ in range(4)]
    assert mapped() == 2
    for key in keys[1:]:  # one that is mapped, two that are not
        first.give_up(key)
    assert mapped() == 1
    key = first.share_again(keys[0])
    assert mapped() == 1
    first.share()
    assert mapped() == 2
    first.give_up(key)

    others = [Sharer(cluster, memory) for _ in range(70)]
    for other in others:
        other.share()
    most = mapped()
    assert most <= 64
    first.make_qp()
    others[0].socket.close()
    until(lambda: mapped() == most - 1)
    first.share()
    assert mapped() == most
    os.close(memory)


def log_of(cluster: Cluster) -> list[str]:
    return (cluster.run / "log" / "hcad-n0.log").read_text().splitlines()


def test_bad_requests_do_not_fill_the_log(cluster2: Cluster) -> None:
    for i in range(ATTEMPTS):
        with connect(cluster2, "n0") as connection:
            connection.send(os.urandom(1 + i % 700))
            assert connection.recv(4096) == b""  # hcad hangs up
    log = log_of(cluster2)
    wrong = [line for line in log if "another version of the verbs library" in line]
    assert 1 <= len(wrong) <= LOG_LINES_MAX
    assert len(log) <= LOG_LINES_MAX
    assert cluster2.node_status("n0")["ok"]
    done = cluster2.exec("n0", ["ibv_devinfo"])
    assert done.returncode == 0, done.stderr


def test_hcad_takes_all_descriptors_that_it_may_have(make_cluster: Callable[..., Cluster]) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
    try:
        cluster = make_cluster()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    pid = cluster.process("hcad:n0").pid
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (before[1], before[1])


def test_more_connections_than_descriptors(make_cluster: Callable[..., Cluster]) -> None:
    """Out of descriptors hcad neither spins nor ends; later comers are served again."""
    cluster = make_cluster()
    pid = cluster.process("hcad:n0").pid
    used = len(os.listdir(f"/proc/{pid}/fd"))
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 3, before[1]))
    held = [connect(cluster, "n0") for _ in range(12)]
    assert cluster.node_status("n1")["ok"]
    for connection in held:
        connection.close()
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    done = cluster.exec("n0", ["ibv_devinfo"])
    assert done.returncode == 0, done.stderr
    assert cluster.node_status("n0")["ok"]
    assert len(log_of(cluster)) <= LOG_LINES_MAX


def test_a_program_that_takes_all_memory(make_cluster: Callable[..., Cluster]) -> None:
    """It ends for who asks, with ENOMEM; the node and its other programs go on."""
    cluster = make_cluster()
    pid = cluster.process("hcad:n0").pid
    with open(f"/proc/{pid}/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (used + (300 << 20), resource.RLIM_INFINITY))
    done = cluster.exec("n0", ["/usr/bin/python3", "-c", GREEDY], timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(errno.ENOMEM)] * 16, done.stdout
    assert int(cluster.node_status("n0")["objects"]["qps"]) == 0
    done = cluster.exec("n0", ["ibv_devinfo"])
    assert done.returncode == 0, done.stderr
