"""Programs that misuse hcad's socket: the node goes on, and its log stays short."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable

from tools.flitnet.cluster import Cluster

ATTEMPTS = 2_000
LOG_LINES_MAX = 40  # hcad says 20 things at once, then few; beside them what every start says


def connect(cluster: Cluster, node: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(20)
    connection.connect(str(cluster.run / "nodes" / node / "hcad.sock"))
    return connection


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
