"""Topologies on the command line: clusters on meshes, tori, trees and files; what is refused."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.flitnet import ctl
from tools.flitnet.cluster import Cluster
from tools.flitnet.topology import node_count

ROOT = Path(__file__).resolve().parents[2]
Flitnet = Callable[..., subprocess.CompletedProcess[str]]
PORTS = itertools.count(19300)
ATTEMPTS = 200
# Two switches as ibnetdiscover prints them, three hosts.
IBNETDISCOVER = """\
Switch\t8 "S-0001"\t\t# "left" base port 0 lid 1 lmc 0
[1]\t"H-000a"[1](a1) \t\t# "host a" lid 3 4xSDR
[8]\t"S-0002"[8]\t\t# "right" lid 2 4xSDR

Switch\t8 "S-0002"\t\t# "right" base port 0 lid 2 lmc 0
[1]\t"H-000b"[1](b1) \t\t# "host b" lid 4 4xSDR
[2]\t"H-000c"[1](c1) \t\t# "host c" lid 5 4xSDR
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "r"


@pytest.fixture
def flitnet(run: Path) -> Iterator[Flitnet]:
    def command(*argv: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ROOT / "flitnet", *map(str, argv)], capture_output=True, text=True, timeout=120,
            env=dict(os.environ) | {"FLITNET_RUN": str(run)},
        )  # fmt: skip

    yield command
    command("down")


def pingpong(run: Path, last: str) -> None:
    """Between n0 and the last node of the running cluster."""
    cluster = Cluster.open(run)
    argv = ["ibv_rc_pingpong", "-n", "100", "-p", str(next(PORTS))]
    server = cluster.popen("n0", argv)
    try:
        for _ in range(ATTEMPTS):  # until the server listens its client is refused
            client = cluster.exec(last, [*argv, "127.0.0.1"])
            if client.returncode == 0:
                break
            assert server.poll() is None, client.stderr
            time.sleep(0.05)
        assert "100 iters" in client.stdout, client.stderr
        assert server.wait(timeout=30) == 0
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("topology", "routing", "nodes"),
    [("mesh:3x2", "", 6), ("torus:3x3", "", 9), ("torus:3x2", "adaptive", 6), ("tree:2x3", "", 8)],
)
def test_up(flitnet: Flitnet, run: Path, topology: str, routing: str, nodes: int) -> None:
    more = ["--routing", routing] if routing else []
    done = flitnet("up", "--topology", topology, *more)
    assert done.returncode == 0, done.stderr
    status = ctl.ask(run / "fabricd.ctl", {"cmd": "status"})
    assert len(status["nodes"]) == nodes and status["stuck"] == ""
    pingpong(run, f"n{nodes - 1}")


def test_up_with_engine_threads(flitnet: Flitnet, run: Path, tmp_path: Path) -> None:
    tasks = []
    for threads in (1, 2):
        file = tmp_path / "c.toml"
        file.write_text(f'[network]\ntopology = "mesh:4x4"\nthreads = {threads}\n')
        done = flitnet("up", file)
        assert done.returncode == 0, done.stderr
        pid = Cluster.open(run).record().processes["fabricd"].pid
        tasks.append(len(os.listdir(f"/proc/{pid}/task")))
        pingpong(run, "n15")
        assert flitnet("down").returncode == 0
    assert tasks[1] == tasks[0] + 1


def test_up_from_a_file(flitnet: Flitnet, run: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.txt"
    path.write_text(IBNETDISCOVER)
    done = flitnet("up", "--topology", f"file:{path}")
    assert done.returncode == 0 and done.stdout.startswith("3 nodes"), done.stderr
    pingpong(run, "n2")
    # Other programs read in the run directory how far apart the nodes are.
    assert 'links_to = "011"' in (run / "cluster.toml").read_text()
    path.write_text(IBNETDISCOVER.replace('"S-0002"[8]', '"S-0002"[9]'))
    done = flitnet("up", "--topology", f"file:{path}")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert f'{path}:3: "S-0002" has no port 9' in done.stderr


def test_a_cluster_file_names_a_topology_file_beside_it(
    flitnet: Flitnet, run: Path, tmp_path: Path
) -> None:
    (tmp_path / "net.txt").write_text(IBNETDISCOVER)
    file = tmp_path / "c.toml"
    file.write_text('[network]\ntopology = "file:net.txt"\n')
    done = flitnet("up", file)
    assert done.returncode == 0 and done.stdout.startswith("3 nodes"), done.stderr
    assert flitnet("down").returncode == 0
    # Nodes with names of their own are counted by who wrote them.
    file.write_text('[network]\ntopology = "file:net.txt"\n[[node]]\nname = "only"\n')
    done = flitnet("up", file)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    file.write_text('[network]\ntopology = "file:none.txt"\n')
    done = flitnet("up", file)
    assert done.returncode == 2 and "none.txt: is empty or cannot be read" in done.stderr


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--topology", "torus:4x4", "--routing", "dor"],
         "routing could deadlock: (0,0) lane 14 -> (1,0) lane 14 -> (2,0) lane 14 -> "
         "(3,0) lane 14 -> (0,0)"),
        (["--topology", "mesh:2x2", "--routing", "dateline"], "dateline needs a torus"),
        (["--topology", "fat_tree", "--routing", "adaptive"], "adaptive needs a mesh or torus"),
        (["--topology", "mesh:9x9"], "network.nodes = 81: must be 1 … 64 in a live cluster"),
        (["--topology", "hypercube"], "network.topology"),
        (["--topology", "tree:4"], "network.topology"),
        (["--routing", "random"], "network.routing"),
        (["--topology", "file:/nonexistent"], "/nonexistent: is empty or cannot be read"),
    ],
)  # fmt: skip
def test_refused(flitnet: Flitnet, run: Path, argv: list[str], words: str) -> None:
    done = flitnet("up", *argv)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert words in done.stderr
    assert not run.exists()


def test_demo_on_a_mesh(flitnet: Flitnet, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    done = flitnet(
        "demo", "--topology", "mesh:2x2", "--seconds", 2, "--load", 0.3, "--json", path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "dilation" in done.stdout
    value = json.loads(path.read_text())
    assert value["nodes"] == 4 and value["problems"] == []
    assert any(stream["admitted"] for stream in value["streams"])


def test_the_command_line_counts_as_the_fabric_does() -> None:
    counted = {
        "single:5": 5, "mesh": 16, "mesh:3x2": 6, "torus:2x3x4": 24, "fat_tree": 64, "tree:3x2": 9,
    }  # fmt: skip
    for topology, nodes in counted.items():
        assert node_count({"topology": topology}) == nodes, topology
    assert node_count({"topology": "mesh:2x2", "nodes_per_router": 3}) == 12
    assert node_count({"topology": "single"}) is None
    assert node_count({"topology": "file:/net.txt"}) is None
