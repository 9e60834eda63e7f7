"""Counters of a port in /sys/class/infiniband: programs read what is counted at that moment, though
the exporter writes the files once a second."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.test_half_dead import until
from tests.apps.test_verbs import PORTS, pingpong
from tools.flitnet.cluster import Cluster

PACKETS = "/sys/class/infiniband/flitnet0/ports/1/counters/port_xmit_packets"

READS_A_COUNTER = f"""
import ctypes, os, subprocess, sys
path = {PACKETS!r}
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.fgets.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
libc.fclose.argtypes = [ctypes.c_void_p]

def by_stream():
    text = ctypes.create_string_buffer(64)
    stream = libc.fopen(path.encode(), b"re")
    libc.fgets(text, 64, stream)
    libc.fclose(stream)
    return text.value

def from_the_beginning(fd):
    os.lseek(fd, 0, os.SEEK_SET)
    text = os.read(fd, 64)
    assert os.read(fd, 64) == b""
    return text

opened = os.open(path, os.O_RDONLY)
again = os.dup(opened)
reused = os.dup(opened)
os.close(reused)
null = os.open("/dev/null", os.O_RDONLY)  # where a counter was
assert null == reused and os.read(null, 9) == b""

def all_ways():
    with open(path, "rb") as file:
        yield file.read()
    yield os.pread(opened, 64, 0)
    yield from_the_beginning(opened)
    yield from_the_beginning(again)
    yield by_stream()
    yield subprocess.run(["cat", path], capture_output=True).stdout
    folder, name = os.path.split(path)
    yield subprocess.run(["cat", name], cwd=folder, capture_output=True).stdout
    at = os.open(folder, os.O_RDONLY)
    with open(os.open(name, os.O_RDONLY, dir_fd=at), "rb") as file:
        yield file.read()
    os.close(at)
    with open(path, "rb") as file:
        yield subprocess.run(["cat"], stdin=file, capture_output=True).stdout

for line in sys.stdin:
    print(*(int(text) for text in all_ways()), flush=True)
"""


@pytest.fixture(scope="module")
def counted() -> Iterator[Cluster]:
    with Cluster({"network": {"nodes": 2}}, exporter="127.0.0.1:0") as cluster:
        until(lambda: all(list(folder(cluster, node).glob("*")) for node in ("n0", "n1")))
        yield cluster


def folder(cluster: Cluster, node: str) -> Path:
    return cluster.run / "sys/nodes" / node / "class/infiniband/flitnet0/ports/1/counters"


def send(cluster: Cluster, argv: list[str]) -> str:
    client, server_said, code = pingpong(cluster, argv, next(PORTS))
    assert client.returncode == 0 and code == 0, client.stdout + client.stderr + server_said
    return client.stdout


def test_perftest_counts_short_runs_exactly(counted: Cluster) -> None:
    """It follows the links to the file, opens it once and reads it again at the end."""
    names = ("port_xmit_data", "port_xmit_packets", "symbol_error")
    files = ",".join(f"counters/{name}" for name in names)
    told = {}
    for messages in (10, 70):
        said = send(counted, ["ib_write_bw", "-F", "-n", str(messages), "-s", "4096", "-W", files])
        told[messages] = [int(re.search(rf"{name}=(\d+)", said)[1]) for name in names]
    words, packets, errors = told[10]
    assert words >= 10 * 4096 // 4 and packets >= 10 and errors == 0, told
    assert told[70] == [7 * words, 7 * packets, 0], told


@pytest.mark.parametrize("dropin", [False, True], ids=["preload", "dropin"])
def test_however_a_program_reads(counted: Cluster, dropin: bool) -> None:
    argv = ["python3", "-c", READS_A_COUNTER]
    with counted.popen("n1", argv, dropin=dropin, stdin=subprocess.PIPE) as reader:
        assert reader.stdin and reader.stdout
        seen = []
        for _ in range(3):
            send(counted, ["ib_send_bw", "-F", "-n", "5", "-s", "64"])
            reader.stdin.write("\n")
            reader.stdin.flush()
            seen.append(reader.stdout.readline().split())
        reader.stdin.close()
        assert reader.wait(30) == 0
    assert all(len(ways) == 9 and len(set(ways)) == 1 for ways in seen), seen
    first, second, third = (int(ways[0]) for ways in seen)
    assert second - first == third - second >= 5, seen


def test_of_several_nodes_each_its_own(counted: Cluster) -> None:
    send(counted, ["ib_send_bw", "-F", "-n", "5", "-s", "64"])
    by_node = [counted.exec(node, ["cat", PACKETS]).stdout for node in ("n0", "n1")]
    assert by_node[0] != by_node[1]
    both = [PACKETS.replace("flitnet0", device) for device in ("flitnet1", "flitnet0")]
    assert counted.exec("n1,n0", ["cat", *both]).stdout.splitlines() == [
        text.strip() for text in by_node
    ]


def test_what_hcad_counted_last_stays_when_it_has_gone() -> None:
    with Cluster({"network": {"nodes": 2}}, exporter="127.0.0.1:0") as cluster:
        file = folder(cluster, "n1") / "port_xmit_packets"
        until(file.exists)
        send(cluster, ["ib_send_bw", "-F", "-n", "5", "-s", "64"])
        now = cluster.exec("n1", ["cat", PACKETS]).stdout
        until(lambda: file.read_text() == now)  # as the exporter saw it
        cluster.kill("hcad:n1")
        done = cluster.exec("n1", ["cat", PACKETS])
        assert (done.stdout, done.stderr) == (now, "")


def test_files_that_hcad_does_not_serve_are_as_before(counted: Cluster) -> None:
    port = "/sys/class/infiniband/flitnet0/ports/1"
    for path, error in (
        (f"{port}/counters/nothing", "No such file"),
        (f"{port}/counters", "Is a directory"),
        ("/sys/class/infiniband/none0/ports/1/counters/port_xmit_data", "No such file"),
    ):
        assert error in counted.exec("n1", ["cat", path]).stderr
    listed = counted.exec("n1", ["ls", f"{port}/counters"]).stdout.split()
    assert "port_xmit_packets" in listed and "VL15_dropped" in listed
