"""Routers, crossbars and schedulers on the command line: each carries unmodified programs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.apps.test_topology import flitnet, pingpong, run  # noqa: F401  (fixtures)
from tests.apps.test_verbs import PORTS, assert_done
from tests.apps.test_verbs import pingpong as both
from tools.flitnet import ctl, paths
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import UsageError

Flitnet = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    "flags",
    [
        ["--router", "tr"],
        ["--crossbar", "full", "--scheduler", "fgfq"],
        ["--router", "p", "--scheduler", "fgvc"],
        ["--router", "p", "--topology", "torus:3x3"],
        ["--router", "pcs"],
        ["--router", "vct"],
        ["--router", "cell"],
        ["--topology", "single:9"],
    ],
    ids=" ".join,
)
def test_up(flitnet: Flitnet, run: Path, flags: list[str]) -> None:  # noqa: F811
    done = flitnet("up", *flags)
    assert done.returncode == 0, done.stderr
    status = ctl.ask(run / "fabricd.ctl", {"cmd": "status"})
    assert status["stuck"] == ""
    pingpong(run, f"n{len(status['nodes']) - 1}")


def test_cut_through_needs_buffers_for_whole_packets(
    flitnet: Flitnet, run: Path, tmp_path: Path  # noqa: F811
) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[network]\nvc_buf_size = 10\n")
    done = flitnet("up", file, "--router", "vct")
    assert done.returncode == 2
    assert "network.vc_buf_size = 10: must be at least 40 for router vct" in done.stderr
    file.write_text("[network]\nnodes = 2\nvc_buf_size = 80\n")
    done = flitnet("up", file, "--router", "vct")
    assert done.returncode == 0, done.stderr
    pingpong(run, "n1")


def test_datagrams_fit_into_the_buffers_of_cut_through(
    make_cluster: Callable[..., Cluster],
) -> None:
    """A UD message is one packet: the port has the MTU that a buffer holds, programs ask for it."""
    cut_through = {"router": "vct", "vc_buf_size": 40, "nodes": 2}
    cluster = make_cluster({"network": cut_through})
    assert "active_mtu:\t\t512" in cluster.exec("n0", ["ibv_devinfo"]).stdout
    assert_done(both(cluster, ["ibv_ud_pingpong", "-n", "50", "-s", "512"], next(PORTS)))
    done = cluster.exec("n0", ["ibv_ud_pingpong", "-s", "1024"])
    assert done.returncode != 0 and "512" in done.stderr
    # Connections cut their messages, whatever path MTU they have.
    assert_done(both(cluster, ["ibv_rc_pingpong", "-n", "50", "-m", "2048"], next(PORTS)))
    assert cluster.absent() == {}
    # With a GRH, too: too long a packet cost its node the fabric.
    roce = make_cluster({"network": cut_through, "hca": {"link_layer": "roce_v2"}})
    argv = ["ibv_rc_pingpong", "-n", "50", "-m", "2048", "-g", "1"]
    assert_done(both(roce, argv, next(PORTS)))
    assert [node["violations"] for node in roce.status()["nodes"]] == [0, 0]
    small = {"network": cut_through | {"vc_buf_size": 20, "packet_size": 16}}
    with pytest.raises(UsageError, match="vc_buf_size = 20: must be at least 21 for router vct"):
        make_cluster(small)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--router", "fast"], "network.router"),
        (["--crossbar", "half"], "network.crossbar"),
        (["--scheduler", "random"], "qos.scheduler"),
    ],
)
def test_refused(flitnet: Flitnet, flags: list[str], words: str) -> None:  # noqa: F811
    done = flitnet("up", *flags)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert words in done.stderr


def test_every_design_of_the_readme_names_a_test_that_exists() -> None:
    shown = re.findall(r"`([A-Z]\w+)\.([A-Z]\w+)`", (paths.ROOT / "README.md").read_text())
    assert len(shown) >= 40
    text = "\n".join(path.read_text() for path in (paths.ROOT / "tests").rglob("*_test.cc"))
    there = set(re.findall(r"^TEST(?:_[FP])?\((\w+), (\w+)\)", text, re.MULTILINE))
    assert not [".".join(one) for one in shown if one not in there]
