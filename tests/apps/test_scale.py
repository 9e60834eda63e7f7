"""Many at once: sixteen nodes, programs of many QPs, a thousand QPs on a node."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.apps.test_verbs import PORTS
from tools.flitnet.cluster import Cluster
from tools.flitnet.process import listens

NODES = 16
QPS_PROGRAM = 256
# One of each kind; every pair of nodes runs another one, all at the same time.
PROGRAMS = (
    ["ibv_rc_pingpong", "-n", "300", "-c"], ["ibv_ud_pingpong", "-n", "300", "-c"],
    ["ibv_srq_pingpong", "-n", "300"], ["ib_send_bw", "-F", "-n", "100", "-q", "8"],
    ["ib_write_bw", "-F", "-n", "5", "-q", str(QPS_PROGRAM), "-s", "1024"],
    ["ib_read_lat", "-F", "-n", "100"], ["ib_atomic_bw", "-F", "-n", "100"],
    ["ib_send_bw", "-F", "-c", "UD", "-n", "100", "-e"],
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster16() -> Iterator[Cluster]:
    with Cluster({"network": {"nodes": NODES}}) as cluster:
        yield cluster


def start(cluster: Cluster, node: str, argv: list[str], running: ExitStack) -> subprocess.Popen:
    program = cluster.popen(node, argv)
    running.callback(program.wait)
    running.callback(program.kill)
    return program


def run_at_once(cluster: Cluster, works: list[tuple[str, str, list[str]]]) -> None:
    """(server's node, client's node, program) each; all must end well."""
    with ExitStack() as running:
        ports = [next(PORTS) for _ in works]
        programs = []
        for (node, _, argv), port in zip(works, ports, strict=True):
            programs.append(start(cluster, node, [*argv, "-p", str(port)], running))
        for server, port in zip(list(programs), ports, strict=True):
            deadline = time.monotonic() + 60  # against a hang only
            while not listens(port):
                assert server.poll() is None, server.stdout.read()
                assert time.monotonic() < deadline
                time.sleep(0.02)
        for (_, node, argv), port in zip(works, ports, strict=True):
            argv = [*argv, "-p", str(port), "127.0.0.1"]
            programs.append(start(cluster, node, argv, running))
        for program in programs:
            said, _ = program.communicate(timeout=150)
            assert program.returncode == 0, f"{program.args}\n{said}"
            assert "flitnet:" not in said


def assert_nothing_left(cluster: Cluster) -> None:
    for node in cluster.nodes:
        status = cluster.node_status(node)
        assert status["clients"] == 0 and not any(status["objects"].values()), status


def test_sixteen_nodes_at_once(cluster16: Cluster) -> None:
    works = [(f"n{2 * i}", f"n{2 * i + 1}", argv) for i, argv in enumerate(PROGRAMS)]
    run_at_once(cluster16, works)
    assert_nothing_left(cluster16)


def test_several_programs_per_node(cluster16: Cluster) -> None:
    """Every program between the same two nodes, in both directions, beside one between others."""
    works = [("n0", "n1", argv) for argv in PROGRAMS[:4]]
    works += [("n1", "n0", argv) for argv in PROGRAMS[4:]]
    run_at_once(cluster16, [*works, ("n2", "n3", PROGRAMS[0])])
    assert_nothing_left(cluster16)


@pytest.mark.parametrize("program", ["ib_send_bw", "ib_read_bw", "ib_atomic_bw"])
def test_256_qps_in_a_program(cluster16: Cluster, program: str) -> None:
    argv = [program, "-F", "-n", "5", "-q", str(QPS_PROGRAM)]
    argv += [] if "atomic" in program else ["-s", "256"]
    run_at_once(cluster16, [("n4", "n5", argv)])


def test_a_thousand_qps_on_a_node(cluster16: Cluster) -> None:
    """Four programs of 256 on n0, whose peers are spread over four nodes."""
    argv = ["ib_write_bw", "-F", "-n", "5", "-q", str(QPS_PROGRAM), "-s", "1024"]
    run_at_once(cluster16, [("n0", f"n{i}", argv) for i in (1, 5, 10, 15)])
    assert_nothing_left(cluster16)
