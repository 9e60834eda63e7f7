"""What stands between programs and verbs elsewhere, unmodified from Debian's packages: UCX,
libfabric, Open MPI over either, uDAPL, rsockets under a program of TCP, and qperf. Each moves its
bytes through the fabric: the host's shared memory and TCP are left out of its choice."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.apps.test_verbs import PORTS
from tools.flitnet import paths
from tools.flitnet.cluster import Cluster
from tools.flitnet.process import listens

ROOT = paths.ROOT
MESSAGES = 100


@pytest.fixture(scope="module")
def cluster3() -> Iterator[Cluster]:
    with Cluster({"network": {"nodes": 3}}) as cluster:
        yield cluster


def packets(cluster: Cluster) -> int:
    """That the fabric has delivered so far."""
    return sum(one["packets"] for one in cluster.status()["classes"].values())


def between(cluster: Cluster, server: list[str], client: list[str], port: int, **env: str) -> str:
    """A server on n1, and a client on n0 that is told of it by its name."""
    before = packets(cluster)
    serving = cluster.popen("n1", server, env=env)
    try:
        for _ in range(500):
            if listens(port) or serving.poll() is not None:
                break
            time.sleep(0.02)
        done = cluster.exec("n0", client, env=env)
    finally:
        serving.kill()
        said, _ = serving.communicate()
    assert done.returncode == 0, done.stdout + done.stderr + said
    assert packets(cluster) > before + MESSAGES, "it went another way"
    return done.stdout


def ask_until(
    ask: Callable[[], subprocess.CompletedProcess[str]],
    server: subprocess.Popen[str],
    served: Callable[[subprocess.CompletedProcess[str]], bool] = lambda done: done.returncode == 0,
) -> str:
    """Servers listen on the HCA, where nobody can see it: the client asks until it is served."""
    for _ in range(100):
        done = ask()
        if served(done) or server.poll() is not None:
            break
        time.sleep(0.1)
    assert served(done), done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("dropin", [False, True], ids=["preload", "dropin"])
def test_what_they_look_for_first(cluster3: Cluster, dropin: bool) -> None:
    """Character devices that they may use, a device in sysfs, and the HCAs' IP interfaces."""
    done = cluster3.exec("n2,n1", ["/usr/bin/python3", "-c", LOOK], dropin=dropin)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == [
        "uverbs0 uverbs1 rdma_cm umad0", "flitnet0 flitnet1", "ib0 127.1.0.3", "ib1 127.1.0.2",
        "scandir 4",
        "ib0 127.1.0.3 255.255.0.0 0x1041 65536 True",
        "ib1 127.1.0.2 255.255.0.0 0x1041 65537 True",
        "ib2: no address, no index", "65538: no name", "lo 127.0.0.1", "",
    ]  # fmt: skip


@pytest.mark.parametrize("dropin", [False, True], ids=["preload", "dropin"])
def test_what_was_built_elsewhere_looks_by(cluster3: Cluster, dropin: bool) -> None:
    """Wheels are linked to C libraries before 2.33, where stat had other names; and what was
    fortified calls some functions by others."""
    done = cluster3.exec("n2", ["/usr/bin/python3", "-c", ELSEWHERE], dropin=dropin)
    assert (done.returncode, done.stdout) == (0, "as any other\n"), done.stderr


@pytest.mark.parametrize("transport", ["rc_verbs", "ud_verbs"])
def test_ucx_finds_the_device(cluster3: Cluster, transport: str) -> None:
    said = cluster3.exec("n0,n2", ["ucx_info", "-d"]).stdout
    of_transport = said.split(f"Transport: {transport}")
    assert len(of_transport) == 3, "one a device"
    for part, device in zip(of_transport[1:], ("flitnet0", "flitnet1")):
        assert f"Device: {device}:1" in part


@pytest.mark.parametrize("transport", ["rc_v", "ud_v"])
@pytest.mark.parametrize("test", ["tag_lat", "tag_bw", "ucp_put_lat", "ucp_get", "stream_bw"])
@pytest.mark.parametrize("size", ["8", "10000"])
def test_ucx(cluster3: Cluster, transport: str, test: str, size: str) -> None:
    port = next(PORTS)
    ucx = ["ucx_perftest", "-p", str(port)]
    client = [*ucx, "n1", "-t", test, "-s", size, "-n", str(2 * MESSAGES), "-w", "10"]
    said = between(cluster3, ucx, client, port, UCX_TLS=transport)
    assert "Final:" in said


@pytest.mark.parametrize("provider, kind", [
    ("verbs", "msg"), ("verbs;ofi_rxm", "rdm"), ("verbs", "dgram"),
])  # fmt: skip
def test_libfabric(cluster3: Cluster, provider: str, kind: str) -> None:
    port = next(PORTS)
    fabric = ["fi_pingpong", "-p", provider, "-e", kind, "-I", str(MESSAGES), "-S", "1024", "-c"]
    said = between(cluster3, [*fabric, "-B", str(port)], [*fabric, "-P", str(port), "n1"], port)
    assert f"={MESSAGES}" in said


@pytest.mark.parametrize("test", [
    "rc_lat", "rc_bw", "uc_lat", "ud_lat", "rc_rdma_read_lat", "rc_rdma_write_bw",
    "ver_rc_compare_swap", "ver_rc_fetch_add",
])  # fmt: skip
def test_qperf(cluster3: Cluster, test: str) -> None:
    port = str(next(PORTS))
    client = ["qperf", "-lp", port, "-t", "1", "n1", test]
    said = between(cluster3, ["qperf", "-lp", port], client, int(port))
    assert said.startswith(f"{test}:") and "=" in said


DAT = """
scm u2.0 nonthreadsafe default libdaploscm.so.2 dapl.2.0 "flitnet0 1" ""
ucm u2.0 nonthreadsafe default libdaploucm.so.2 dapl.2.0 "flitnet0 1" ""
cma u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "ib0 0" ""
"""


@pytest.mark.parametrize("provider, test", [
    ("scm", "dtest -b 4096"), ("ucm", "dtest -b 4096"), ("cma", "dtest -b 4096"),
    ("cma", "dtestx"), ("cma", "dtestsrq"),
])  # fmt: skip
def test_udapl(cluster3: Cluster, tmp_path: Path, provider: str, test: str) -> None:
    """By each of its ways to connect: sockets beside, datagrams of verbs, rdma_cm."""
    (tmp_path / "dat.conf").write_text(DAT)
    env = {"DAT_OVERRIDE": str(tmp_path / "dat.conf")}
    argv = [*test.split(), "-P", provider]
    server = cluster3.popen("n1", argv, env=env)
    before = packets(cluster3)
    try:
        ask_until(
            lambda: cluster3.exec("n0", [*argv, "-h", "127.1.0.2"], env=env), server,
            lambda done: "PASSED" in done.stdout or "Test Complete" in done.stdout,
        )  # fmt: skip
    finally:
        server.kill()
        server.communicate()
    assert packets(cluster3) > before + 10, "it went another way"


def test_a_program_of_tcp_over_rsockets(cluster3: Cluster) -> None:
    port = str(next(PORTS))
    (library,) = Path("/usr/lib").glob("*/rsocket/librspreload.so")
    preload = f"{cluster3.env('n0')['LD_PRELOAD']}:{library}"
    before = packets(cluster3)
    server = cluster3.popen("n1", ["iperf", "-s", "-p", port], env={"LD_PRELOAD": preload})
    client = ["iperf", "-c", "127.1.0.2", "-p", port, "-n", "1M"]
    try:
        said = ask_until(
            lambda: cluster3.exec("n0", client, env={"LD_PRELOAD": preload}), server,
            lambda done: "connected with 127.1.0.2" in done.stdout,
        )  # fmt: skip
    finally:
        server.kill()
        server.communicate()
    assert "1.00 MBytes" in said, said
    assert packets(cluster3) > before + (1 << 20) // 4096


@pytest.mark.parametrize("choice", [
    "--mca pml ucx -x UCX_TLS=rc_v,self",
    "--mca pml ucx -x UCX_TLS=ud_v,self",
    "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm",
    # To warn of a device that it has no parameters of can crash mpirun (4.1.4) while it ends.
    "--mca pml ob1 --mca btl openib,self --mca btl_openib_allow_ib 1"
    " --mca btl_openib_warn_no_device_params_found 0",
], ids=["ucx-rc", "ucx-ud", "libfabric", "openib"])  # fmt: skip
def test_open_mpi(cluster3: Cluster, choice: str) -> None:
    """A rank on each node, as `flitnet exec` starts them: a ring, and then most of what MPI has."""
    before = packets(cluster3)
    ring = ["-m", "mpi4py.bench", "ringtest", "-l", str(MESSAGES), "-n", "5000"]
    said = mpirun(cluster3, choice, ring)
    assert f"{MESSAGES} loops" in said and "3 processes" in said
    assert packets(cluster3) > before + 3 * MESSAGES, "it went another way"
    exchange = [str(ROOT / "tests/apps/mpi_exchange.py")]
    assert mpirun(cluster3, choice, exchange) == "all as it was sent\n"


def mpirun(cluster: Cluster, choice: str, program: list[str]) -> str:
    argv = ["mpirun.openmpi", "--oversubscribe", *choice.split()]
    for n in range(3):
        argv += [":"] if n > 0 else []
        argv += ["-np", "1", str(ROOT / "flitnet"), "exec", f"n{n}", "--", "/usr/bin/python3"]
        argv += program
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        argv, env=os.environ | as_root | {"FLITNET_RUN": str(cluster.run)}, timeout=90,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


ELSEWHERE = """
import ctypes as c, os, platform, stat
libc, room = c.CDLL(None), c.create_string_buffer(4096)
version = {"x86_64": 1}.get(platform.machine(), 0)
mode = lambda: c.c_uint.from_buffer(room, 24 if version else 16).value
file, folder = b"/dev/infiniband/uverbs0", b"/sys/class/infiniband"
link = folder + b"/flitnet0"
for size in "", "64":
    for name in "__xstat", "__lxstat":
        look = getattr(libc, name + size)
        assert look(version, file, room) == 0 and stat.S_ISCHR(mode()), name
        assert look(version, folder, room) == 0 and stat.S_ISDIR(mode()), name
    look = getattr(libc, "__fxstatat" + size)
    assert look(version, -100, file, room, 0) == 0 and stat.S_ISCHR(mode())
    opened = getattr(libc, f"__open{size}_2")
    fd = opened(b"/dev/infiniband/rdma_cm", os.O_RDWR)
    assert getattr(libc, "__fxstat" + size)(version, fd, room) == 0 and stat.S_ISCHR(mode())
    os.close(fd)
    for fd in opened(folder, 0), getattr(libc, f"__openat{size}_2")(-100, folder, 0):
        assert os.listdir(fd) == ["flitnet0"]
        os.close(fd)
assert libc.__readlink_chk(link, room, 4096, c.c_size_t(4096)) > 0
libc.__realpath_chk.restype = c.c_char_p
real = libc.__realpath_chk(folder, room, c.c_size_t(4096))
assert real.endswith(b"sys/nodes/n2/class/infiniband")
print("as any other")
"""
LOOK = """
import ctypes as c, fcntl, os, socket, stat, struct
names = ["uverbs0", "uverbs1", "uverbs2", "rdma_cm", "umad0"]
files = [name for name in names if os.access("/dev/infiniband/" + name, os.R_OK | os.W_OK)]
assert all(stat.S_ISCHR(os.stat("/dev/infiniband/" + name).st_mode) for name in files)
assert all(os.access("/dev/infiniband/" + name, os.R_OK, effective_ids=True) for name in files)
print(*files)
print(*sorted(os.listdir("/sys/class/infiniband")))
class Entry(c.Structure):
    pass
Entry._fields_ = [("next", c.POINTER(Entry)), ("name", c.c_char_p), ("flags", c.c_uint),
                  ("address", c.POINTER(c.c_ubyte * 16)), ("rest", c.c_void_p * 3)]
libc = c.CDLL(None)
for turn in range(3):
    first = c.POINTER(Entry)()
    assert libc.getifaddrs(c.byref(first)) == 0
    entry = first
    while entry:
        one = entry.contents
        if turn == 2 and one.name.startswith(b"ib"):
            print(one.name.decode(), socket.inet_ntoa(bytes(one.address.contents[4:8])))
        entry = one.next
    libc.freeifaddrs(first)
names = c.c_void_p()
print("scandir", libc.scandir(b"/sys/class/infiniband", c.byref(names), None, None))
asking = socket.socket()
def asked(name, request):
    return fcntl.ioctl(asking, request, struct.pack("16s16x", name.encode()))
def address(name, request=0x8915):
    return socket.inet_ntoa(asked(name, request)[20:24])
for name in "ib0", "ib1":
    flags, = struct.unpack_from("H", asked(name, 0x8913), 16)
    index, = struct.unpack_from("i", asked(name, 0x8933), 16)
    same = socket.if_nametoindex(name) == index and socket.if_indextoname(index) == name
    print(name, address(name), address(name, 0x891b), hex(flags), index, same)
for wrong in lambda: address("ib2"), lambda: socket.if_nametoindex("ib2"):
    try:
        wrong()
        print("ib2 is there")
    except OSError:
        pass
print("ib2: no address, no index")
try:
    socket.if_indextoname(65538)
except OSError:
    print("65538: no name")
print("lo", address("lo"))
"""
