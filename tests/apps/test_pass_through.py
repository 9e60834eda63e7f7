"""A fabric that adds nothing: unmodified programs on it, and what it says of its time."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.apps.test_capture import Capture, dissected
from tests.apps.test_rdma_cm import address, assert_good, run_pair
from tests.apps.test_verbs import assert_done, pingpong
from tools.flitnet import operate, page, paths
from tools.flitnet.cluster import Cluster

PORTS = iter(range(18900, 18950))


@pytest.fixture(scope="module")
def passing() -> Iterator[Cluster]:
    tables = {"network": {"nodes": 2, "pass_through": True}, "hca": {"mtu": 4096}}
    with Cluster(tables) as cluster:
        yield cluster


@pytest.mark.parametrize("argv", [
    ["ibv_rc_pingpong", "-c"], ["ibv_rc_pingpong", "-s", "65536", "-n", "50", "-c", "-m", "4096"],
    ["ibv_rc_pingpong", "-e"], ["ibv_uc_pingpong", "-c"], ["ibv_ud_pingpong", "-c"],
    ["ibv_srq_pingpong", "-c"],
], ids="_".join)  # fmt: skip
def test_pingpongs(passing: Cluster, argv: list[str]) -> None:
    assert_done(pingpong(passing, [*argv, "-g", "0"], next(PORTS)))


def test_no_emulated_time_passes_and_nothing_stays(passing: Cluster) -> None:
    assert_done(pingpong(passing, ["ibv_rc_pingpong", "-n", "500"], next(PORTS)))
    status = passing.status()
    best_effort = status["classes"]["best_effort"]
    assert best_effort["packets"] > 1000
    assert best_effort["latency_us_mean"] == best_effort["queueing_us_mean"] == 0
    assert status["in_flight"] == 0
    assert all(node["violations"] == 0 for node in status["nodes"])


def test_what_is_said_of_it_has_no_rate_and_no_cap(
    passing: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert operate.status(passing.run, as_json=False) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "nodes, packets pass at once " in said and "no cap" in said and "Mb/s" not in said
    assert operate.status(passing.run, as_json=True) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["pass_through"] is True and value["power"]["cap_w"] == 0
    assert page.look(passing.run)["pass_through"] is True


def test_buffers_of_routers_do_not_matter(make_cluster: Callable[..., Cluster]) -> None:
    # A packet of more flits than cut-through routers buffer was taken for a fault of its node.
    cluster = make_cluster({
        "network": {"nodes": 2, "pass_through": True, "router": "vct", "packet_size": 64,
                    "vc_buf_size": 64, "flit_bits": 256},
        "hca": {"mtu": 2048},
    })  # fmt: skip
    argv = ["ibv_rc_pingpong", "-g", "0", "-c", "-s", "8192", "-m", "2048", "-n", "20"]
    assert_done(pingpong(cluster, argv, next(PORTS)))
    assert all(node["violations"] == 0 for node in cluster.status()["nodes"])


def shared_blocks(cluster: Cluster, blocks: int, abandoned: int) -> None:
    program = str(paths.program("shared_blocks"))
    port, counts = str(next(PORTS)), [str(blocks), str(abandoned)]
    server = [program, "server", port, *counts]
    client = [program, "client", address(cluster, "n0"), port, *counts]
    assert_good(run_pair(cluster, server, client))


@pytest.mark.parametrize("process", ["own", "fabric"])
def test_shared_memory_is_the_programs_once_completed(
    make_cluster: Callable[..., Cluster], process: str, tmp_path: Path
) -> None:
    """Within one process large payloads are not copied before the receiver has them."""
    cluster = make_cluster({
        "network": {"nodes": 2, "pass_through": True}, "hca": {"process": process, "mtu": 4096},
    })  # fmt: skip
    shared_blocks(cluster, 100, 50)
    assert (cluster.node_status("n1")["payloads_lent"] > 75) == (process == "fabric")
    file = tmp_path / "blocks.pcap"
    capture = Capture(cluster, "-w", str(file)).ready(file)
    shared_blocks(cluster, 12, 0)
    capture.end()
    captured = file.read_bytes()
    for block in range(12):
        if block % 4 != 0:  # the small ones
            # Of the third packet: what a train has behind its first.
            words = struct.pack("<64I", *(block << 20 | word for word in range(2048, 2112)))
            assert words in captured, block
    assert len(dissected(file)) > 12 * 12
    assert all(node["violations"] == 0 for node in cluster.status()["nodes"])
