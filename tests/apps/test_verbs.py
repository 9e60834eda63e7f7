"""Unmodified verbs programs of Debian between two nodes, and what they see when processes die."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.flitnet import pages, paths
from tools.flitnet.cluster import Cluster
from tools.flitnet.process import listens

DONE = re.compile(r"\d+ bytes in [\d.]+ seconds|^success$", re.MULTILINE)  # the latter: xsrq
Pair = tuple[subprocess.CompletedProcess[str], str, int]


def start_server(cluster: Cluster, argv: list[str], port: int, **options) -> subprocess.Popen[str]:
    """A pingpong that listens; returns when it does (its socket is in the kernel's table)."""
    server = cluster.popen("n0", [*argv, "-p", str(port)], **options)
    for _ in range(500):
        if listens(port):
            return server
        assert server.poll() is None, server.stdout.read()
        time.sleep(0.02)
    server.kill()
    pytest.fail("the server does not listen")


def pingpong(
    cluster: Cluster, argv: list[str], port: int, dropin: bool = False, to: str = "127.0.0.1"
) -> Pair:
    server = start_server(cluster, argv, port, dropin=dropin)
    try:
        client = cluster.exec("n1", [*argv, "-p", str(port), to], dropin=dropin)
        said, _ = server.communicate(timeout=30)
    finally:
        server.kill()
    return client, said, server.returncode


def assert_done(pair: Pair) -> None:
    client, server_said, server_code = pair
    assert client.returncode == 0 and server_code == 0, client.stdout + client.stderr + server_said
    assert DONE.search(client.stdout) and DONE.search(server_said)
    assert "flitnet:" not in client.stderr


PORTS = iter(range(18600, 18900))


@pytest.mark.parametrize("dropin", [False, True], ids=["preload", "dropin"])
def test_devices_and_devinfo(cluster2: Cluster, dropin: bool) -> None:
    listed = cluster2.exec("n1", ["ibv_devices"], dropin=dropin)
    assert listed.returncode == 0 and "flitnet0" in listed.stdout
    info = cluster2.exec("n1", ["ibv_devinfo", "-v"], dropin=dropin)
    assert info.returncode == 0, info.stderr
    for said in ("hca_id:\tflitnet0", "PORT_ACTIVE (4)", "port_lid:\t\t2", "GID[  0]"):
        assert said in info.stdout
    # SPDK's target does not answer with SEND with invalidate where a device does not say so.
    assert "MEM_MGT_EXTENSIONS" in info.stdout


DEVICES = """
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  if (list == NULL || list[0] == NULL) return 1;
  printf("%s %s\\n", ibv_get_device_name(list[0]), strrchr(getenv("ASAN_OPTIONS"), ':') + 1);
  ibv_free_device_list(list);
  return 0;
}
"""


@pytest.mark.parametrize("dropin", [False, True], ids=["preload", "dropin"])
@pytest.mark.parametrize("how", ["linked", "preloaded"])
def test_address_sanitizer(
    cluster2: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, dropin: bool
) -> None:
    """Its runtime wants to be first, or not to be told that it is not."""
    program, source = tmp_path / "devices", tmp_path / "devices.c"
    source.write_text(DEVICES)
    sanitized = ["-fsanitize=address"] if how == "linked" else []
    subprocess.run(["gcc", *sanitized, "-o", program, source, "-libverbs"], check=True)
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")
    if how == "preloaded":
        found = subprocess.check_output(["gcc", "-print-file-name=libasan.so"], text=True)
        monkeypatch.setenv("LD_PRELOAD", str(Path(found.strip()).resolve()))
        monkeypatch.setenv("ASAN_OPTIONS", "verify_asan_link_order=1:detect_leaks=0")
    ran = cluster2.exec("n0", [str(program)], dropin=dropin)
    assert (ran.returncode, ran.stdout) == (0, "flitnet0 detect_leaks=0\n"), ran.stderr


@pytest.mark.parametrize("library", [":libibverbs.a", "ibverbs"])
def test_library_within(cluster2: Cluster, tmp_path: Path, library: str) -> None:
    """A program with a libibverbs of its own finds no device, and is told why."""
    program, source = tmp_path / "devices", tmp_path / "devices.c"
    source.write_text(DEVICES)
    libraries = [f"-l{library}", "-lnl-route-3", "-lnl-3"]
    linked = subprocess.run(["gcc", "-o", program, source, *libraries], capture_output=True)
    if linked.returncode != 0:
        pytest.skip("libnl is missing: apt-get install libnl-route-3-dev")
    argv = [paths.ROOT / "flitnet", "--run", cluster2.run, "exec", "n0", "--", program]
    env = os.environ | {"ASAN_OPTIONS": "a=b"}
    ran = subprocess.run(argv, capture_output=True, text=True, env=env)
    within = library == ":libibverbs.a"
    assert ran.returncode == (1 if within else 0), ran.stdout + ran.stderr
    assert ("has libibverbs within it" in ran.stderr) == within


NAMES = """
import ctypes, socket
assert socket.gethostbyname_ex("n0") == ("n0", [], ["127.1.0.1"])  # gethostbyname_r
found = socket.getaddrinfo("n0", 7, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME)
assert [(name, to) for *_, name, to in found] == [("n0", ("127.1.0.1", 7))], found
try:
    raise AssertionError(socket.getaddrinfo("n0", 7, flags=socket.AI_NUMERICHOST))
except socket.gaierror as error:
    assert error.errno == socket.EAI_NONAME, error
# As of any host: letters large or small, a dot at the end of a whole name.
assert [socket.gethostbyname(name) for name in ("N0", "n1.", "N1.")] == [
    "127.1.0.1", "127.1.0.2", "127.1.0.2"]
for name in b"n0..", b".", b"n":
    try:
        raise AssertionError(name, socket.gethostbyname(name))
    except OSError:
        pass
c = ctypes.CDLL(None)
c.gethostbyname.restype = c.gethostbyname2.restype = ctypes.POINTER(ctypes.c_char_p)
for _ in range(2):
    first = c.gethostbyname(first[0] if _ else b"n0")
assert first[0] == b"n0" and c.gethostbyname2(b"n1", socket.AF_INET)[0] == b"n1"
entry, result, error = ctypes.create_string_buffer(64), ctypes.c_void_p(), ctypes.c_int()
for size in range(1024):  # what is too little room is said, and nothing is written behind it
    text = ctypes.create_string_buffer(b"\\xee" * 1024, 1024)
    failed = c.gethostbyname2_r(b"n1", socket.AF_INET, entry, text, ctypes.c_size_t(size),
                                ctypes.byref(result), ctypes.byref(error))
    assert text.raw[size:] == b"\\xee" * (1024 - size), size
    assert failed in (0, 34) and bool(result) == (failed == 0), (size, failed)  # ERANGE
assert ctypes.cast(entry, ctypes.POINTER(ctypes.c_char_p))[0] == b"n1"
"""


@pytest.mark.parametrize("dropin", [False, True], ids=["preload", "dropin"])
def test_nodes_are_found_by_their_names(cluster2: Cluster, dropin: bool) -> None:
    for call in ("ahostsv4", "hosts"):  # getaddrinfo and gethostbyname2
        for name, address in (("n0", "127.1.0.1"), ("n1", "127.1.0.2")):
            found = cluster2.exec("n1", ["getent", call, name], dropin=dropin)
            assert found.stdout.split()[:1] == [address], found.stderr
    asked = cluster2.exec("n1", ["python3", "-c", NAMES], dropin=dropin)
    assert asked.returncode == 0, asked.stderr
    other = cluster2.exec("n1", ["getent", "ahostsv4", "localhost"], dropin=dropin)
    assert other.stdout.startswith("127.0.0.1"), "names of others are as before"
    argv = ["ibv_rc_pingpong", "-n", "50"]
    assert_done(pingpong(cluster2, argv, next(PORTS), dropin=dropin, to="n0"))


def test_a_name_as_it_is_written_comes_first(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster({"node": [{"name": "A"}, {"name": "a"}]})
    for name, address in (("A", "127.1.0.1"), ("a", "127.1.0.2"), ("a.", "127.1.0.2")):
        found = cluster.exec("a", ["getent", "ahostsv4", name])
        assert found.stdout.split()[:1] == [address], name


@pytest.mark.parametrize("flags", [
    [], ["-e"], ["-c"], ["-e", "-c"], ["-g", "0"], ["-s", "1"], ["-s", "65536", "-n", "50", "-c"],
    ["-m", "256"], ["-m", "2048"], ["-r", "1"], ["-l", "1"], ["-t"], ["-N"], ["-N", "-e"],
    ["-o", "-c"], ["-j"], ["-j", "-N"],
], ids="_".join)  # fmt: skip
def test_rc_pingpong(cluster2: Cluster, flags: list[str]) -> None:
    assert_done(pingpong(cluster2, ["ibv_rc_pingpong", "-n", "200", *flags], next(PORTS)))


@pytest.mark.parametrize("flags", [
    [], ["-e"], ["-c"], ["-e", "-c"], ["-g", "0", "-c"], ["-s", "1"], ["-s", "2000", "-c"],
], ids="_".join)  # fmt: skip
def test_ud_pingpong(cluster2: Cluster, flags: list[str]) -> None:
    assert_done(pingpong(cluster2, ["ibv_ud_pingpong", "-n", "200", *flags], next(PORTS)))


@pytest.mark.parametrize("flags", [
    [], ["-e"], ["-c"], ["-e", "-c"], ["-g", "0"], ["-s", "65536", "-n", "50", "-c"], ["-m", "256"],
], ids="_".join)  # fmt: skip
def test_uc_pingpong(cluster2: Cluster, flags: list[str]) -> None:
    assert_done(pingpong(cluster2, ["ibv_uc_pingpong", "-n", "200", *flags], next(PORTS)))


@pytest.mark.parametrize("program", [
    "ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_xsrq_pingpong",
])  # fmt: skip
def test_pingpong_with_the_dropin(cluster2: Cluster, program: str) -> None:
    assert_done(pingpong(cluster2, [program, "-n", "200", "-e"], next(PORTS), dropin=True))


@pytest.mark.parametrize("flags", [
    [], ["-e"], ["-o"], ["-q", "4"], ["-e", "-q", "16", "-s", "20000"], ["-g", "0", "-c"],
], ids="_".join)  # fmt: skip
def test_srq_pingpong(cluster2: Cluster, flags: list[str]) -> None:
    assert_done(pingpong(cluster2, ["ibv_srq_pingpong", "-n", "200", *flags], next(PORTS)))


@pytest.mark.parametrize("flags", [
    [], ["-e"], ["-o"], ["-s", "20000", "-n", "50"], ["-m", "256"], ["-l", "1"], ["-g", "0"],
], ids="_".join)  # fmt: skip
def test_xsrq_pingpong(cluster2: Cluster, flags: list[str]) -> None:
    assert_done(pingpong(cluster2, ["ibv_xsrq_pingpong", "-n", "100", *flags], next(PORTS)))


def test_xsrq_pingpong_with_two_clients(cluster2: Cluster) -> None:
    """Clients of one node share a domain by its file: each is also reached by the other's QP."""
    port = next(PORTS)
    server = start_server(cluster2, ["ibv_xsrq_pingpong", "-n", "50", "-c", "2"], port)
    argv = ["ibv_xsrq_pingpong", "-n", "50", "-p", str(port), "127.0.0.1"]
    clients = [cluster2.popen(node, argv) for node in ("n1", "n1")]
    for process in (*clients, server):
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0 and DONE.search(said), said


def test_without_a_node_a_program_finds_no_device(cluster2: Cluster) -> None:
    env = cluster2.env("n0") | {"FLITNET_NODE_SOCKET": str(cluster2.run / "nowhere.sock")}
    done = subprocess.run(["ibv_devices"], env=env, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0 and "flitnet0" not in done.stdout
    assert done.stderr.count("\n") == 1 and "nowhere.sock" in done.stderr


# What happens when a process dies. perftest's sender always waits for an acknowledgement, so it
# must notice; a pingpong that waits for its partner's turn cannot know.


def running_pair(cluster: Cluster, flags: list[str]) -> tuple[subprocess.Popen, subprocess.Popen]:
    """A receiver on n0 and an endless sender on n1, when packets flow."""
    port = next(PORTS)
    argv = ["ib_send_bw", "-F", "-s", "2048", "-n", "100000000", *flags]
    server = start_server(cluster, argv, port)
    before = sent_packets(cluster)
    client = cluster.popen("n1", [*argv, "-p", str(port), "127.0.0.1"])
    wait_for_packets(cluster, before)
    return server, client


@pytest.mark.parametrize("controls", [
    {"congestion": "alo"}, {"best_effort_credits": 5}, {"congestion": "self_tuned"},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("program", ["ibv_rc_pingpong", "ibv_uc_pingpong"])
def test_packets_keep_their_order_whoever_holds_them_back(
    make_cluster: Callable[..., Cluster], controls: dict[str, object], program: str
) -> None:
    """Power spaces them, and congestion control lets a message go in several turns."""
    cluster = make_cluster({"network": {"nodes": 2}, "controls": controls})
    assert_done(pingpong(cluster, [program, "-s", "8192", "-n", "60", "-c"], next(PORTS)))
    wait_for_packets(cluster, 2 * 60 * 8192 // 612)
    metrics = pages.read(cluster.run)
    assert metrics.total("flitnet_device_out_of_sequence_packets_total") == 0
    assert metrics.total("flitnet_device_dropped_packets_total") == 0
    assert metrics.total("flitnet_power_waits_total") > 0


def sent_packets(cluster: Cluster) -> int:
    return int(pages.read(cluster.run).total("flitnet_class_transmitted_packets_total"))


def wait_for_packets(cluster: Cluster, before: int) -> None:
    for _ in range(1500):
        if sent_packets(cluster) > before + 20:
            return
        time.sleep(0.02)
    pytest.fail("no packets flow")


def ended(process: subprocess.Popen) -> str:
    """What a program said that ended by itself, with an error."""
    said, _ = process.communicate(timeout=60)
    assert process.returncode not in (0, -signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT), said
    return said


@pytest.mark.parametrize("flags", [[], ["-e"]], ids=["polling", "events"])
def test_a_killed_program_is_seen_by_its_peer(
    make_cluster: Callable[..., Cluster], flags: list[str]
) -> None:
    cluster = make_cluster()
    server, client = running_pair(cluster, flags)
    server.kill()
    server.communicate(timeout=10)
    assert "Failed status 12:" in ended(client)  # IBV_WC_RETRY_EXC_ERR
    # Nobody else notices, and both nodes serve on.
    assert_done(pingpong(cluster, ["ibv_rc_pingpong", "-n", "50"], next(PORTS)))


@pytest.mark.parametrize("flags", [[], ["-e"]], ids=["polling", "events"])
def test_a_killed_hcad_ends_its_programs_and_is_seen_by_peers(
    make_cluster: Callable[..., Cluster], flags: list[str]
) -> None:
    cluster = make_cluster()
    server, client = running_pair(cluster, flags)
    cluster.kill("hcad:n0")
    assert "Failed status 5:" in ended(server)  # IBV_WC_WR_FLUSH_ERR
    assert "Failed status 12:" in ended(client)  # IBV_WC_RETRY_EXC_ERR
    cluster.start_node("n0")
    assert_done(pingpong(cluster, ["ibv_rc_pingpong", "-n", "50"], next(PORTS)))


@pytest.mark.parametrize("flags", [[], ["-e"]], ids=["polling", "events"])
def test_a_sender_whose_hcad_is_killed_ends(
    make_cluster: Callable[..., Cluster], flags: list[str]
) -> None:
    cluster = make_cluster()
    server, client = running_pair(cluster, flags)
    cluster.kill("hcad:n1")
    assert "Failed status 5:" in ended(client)  # IBV_WC_WR_FLUSH_ERR
    server.kill()
    server.communicate(timeout=10)


def test_connections_outlive_the_fabric(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    server, client = running_pair(cluster, [])
    cluster.kill("fabricd")
    cluster.start_fabricd()
    wait_for_packets(cluster, sent_packets(cluster))
    assert server.poll() is None and client.poll() is None
    for process in (server, client):
        process.kill()
        process.communicate(timeout=10)


def test_asyncwatch(make_cluster: Callable[..., Cluster]) -> None:
    """It waits for events of the device, and hears of the last one."""
    cluster = make_cluster()
    watch = cluster.popen("n0", ["stdbuf", "-oL", "ibv_asyncwatch"])
    assert "flitnet0" in watch.stdout.readline()
    cluster.kill("hcad:n0")
    assert "event_type" in (said := watch.stdout.readline()), said
    watch.kill()
    watch.communicate(timeout=10)


@pytest.mark.parametrize("service", ["RC", "UC", "UD", "XRC"])
@pytest.mark.parametrize("program", [
    "ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat",
])  # fmt: skip
def test_perftest(cluster2: Cluster, program: str, service: str) -> None:
    if service == "UD" and "send" not in program or service == "UC" and "read" in program:
        pytest.skip("the service does not have it")
    client, server_said, server_code = pingpong(
        cluster2, [program, "-F", "-c", service, "-n", "100", "-s", "1024"], next(PORTS)
    )
    assert client.returncode == 0 and server_code == 0, client.stdout + server_said
    assert re.search(r"^ 1024 +100 ", client.stdout, re.MULTILINE)


@pytest.mark.parametrize("flags", [
    ["--use-srq", "-q", "4"], ["-q", "8", "-b"], ["-e"], ["-S", "1"], ["-I", "64", "-s", "64"],
    ["-c", "UD", "-b"], ["-c", "UC", "-e"], ["-r", "1", "-Q", "1"], ["-x", "0"],
    ["--use-srq", "-c", "UD"],
], ids="_".join)  # fmt: skip
def test_perftest_options(cluster2: Cluster, flags: list[str]) -> None:
    client, server_said, server_code = pingpong(
        cluster2, ["ib_send_bw", "-F", "-n", "50", *flags], next(PORTS)
    )
    assert client.returncode == 0 and server_code == 0, client.stdout + server_said
    assert re.search(r"^ \d+ +\d+ ", client.stdout, re.MULTILINE)


@pytest.mark.parametrize("argv", [
    ["ib_send_lat", "-e"], ["ib_read_bw", "-e"], ["ib_write_bw", "-q", "8", "-b", "-s", "4096"],
    ["ib_read_bw", "-q", "8", "-s", "4096"], ["ib_write_lat", "-I", "32", "-s", "32"],
    ["ib_write_bw", "-S", "1"], ["ib_send_lat", "-c", "UD", "-e"], ["ib_send_lat", "-x", "0"],
    ["ib_send_bw", "-c", "XRC", "-q", "4", "-e"], ["ib_atomic_bw", "-c", "XRC"],
    ["ib_send_bw", "-c", "XRC", "-b"], ["ib_send_lat", "-c", "XRC", "-e"],
], ids="_".join)  # fmt: skip
def test_perftest_extents(cluster2: Cluster, argv: list[str]) -> None:
    client, server_said, server_code = pingpong(
        cluster2, [argv[0], "-F", "-n", "50", *argv[1:]], next(PORTS)
    )
    assert client.returncode == 0 and server_code == 0, client.stdout + server_said
    assert re.search(r"^ \d+ +\d+ ", client.stdout, re.MULTILINE)


def test_perftest_all_sizes(cluster2: Cluster) -> None:
    """2 bytes to the MTU, which is where UD ends; RC's 8 MiB take a quarter of a minute."""
    argv = ["ib_send_bw", "-F", "-a", "-n", "5", "-c", "UD"]
    client, server_said, server_code = pingpong(cluster2, argv, next(PORTS))
    assert client.returncode == 0 and server_code == 0, client.stdout + server_said
    assert re.findall(r"^ (\d+) +5 ", client.stdout, re.MULTILINE)[-1] == "2048"


def test_perftest_for_a_time(cluster2: Cluster) -> None:
    client, server_said, server_code = pingpong(
        cluster2, ["ib_write_bw", "-F", "-D", "1", "-s", "4096"], next(PORTS)
    )
    assert client.returncode == 0 and server_code == 0, client.stdout + server_said
    assert int(re.search(r"^ 4096 +(\d+) ", client.stdout, re.MULTILINE)[1]) > 100


@pytest.mark.parametrize("flags", [["-A", "FETCH_AND_ADD"], ["-A", "CMP_AND_SWAP"]], ids="_".join)
@pytest.mark.parametrize("program", ["ib_atomic_bw", "ib_atomic_lat"])
def test_perftest_atomics(cluster2: Cluster, program: str, flags: list[str]) -> None:
    client, server_said, server_code = pingpong(
        cluster2, [program, "-F", "-n", "100", *flags], next(PORTS)
    )
    assert client.returncode == 0 and server_code == 0, client.stdout + server_said
    assert re.search(r"^ 8 +100 ", client.stdout, re.MULTILINE)


def test_perftest_by_the_extended_calls(make_cluster: Callable[..., Cluster]) -> None:
    """To this part perftest posts by ibv_wr_*; with --use_old_post_send it does not."""
    cluster = make_cluster({"network": {"nodes": 2}, "hca": {"vendor_part_id": 4119}})
    for flags in ([], ["--use_old_post_send"], ["-I", "64", "-s", "64"]):
        argv = ["ib_write_bw", "-F", "-n", "100", "-s", "2048", *flags]
        client, server_said, server_code = pingpong(cluster, argv, next(PORTS))
        assert client.returncode == 0 and server_code == 0, client.stdout + server_said
        extended = "OFF" if "--use_old_post_send" in flags else "ON"
        assert re.search(rf"ibv_wr\* API +: {extended}\n", client.stdout)


def test_a_program_that_scribbles_disturbs_nobody(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    hcad = cluster.process("hcad:n0")
    scribbler = str(paths.build_dir() / "tests/abi/scribbler")
    hostiles = [cluster.popen("n0", [scribbler, str(seed), "20"]) for seed in (1, 2)]
    for flags in (["-c"], ["-e", "-c"]):
        assert_done(pingpong(cluster, ["ibv_rc_pingpong", "-n", "300", *flags], next(PORTS)))
    for hostile in hostiles:
        said, _ = hostile.communicate(timeout=60)
        # It may spoil its own library's memory so far that it dies; that is its own affair.
        assert hostile.returncode in (0, -signal.SIGSEGV, -signal.SIGBUS), said
        assert "seed" in said
    assert cluster.process("hcad:n0") == hcad and cluster.alive("hcad:n0")
    assert_done(pingpong(cluster, ["ibv_ud_pingpong", "-n", "100", "-c"], next(PORTS)))
    assert cluster.node_status("n0")["clients"] == 0  # all that they left is reclaimed
