"""`flitnet exporter start`: what programs read below /sys/class/infiniband is true again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.apps.test_half_dead import until
from tests.apps.test_node import flitnet
from tests.apps.test_udp import free_port
from tools.flitnet import exporter, operate, paths, surroundings
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import FlitnetError, UsageError

STATE = "/sys/class/infiniband/flitnet0/ports/1/state"


def state_of(cluster: Cluster) -> str:
    """As a program of n0 reads it."""
    return cluster.exec("n0", ["cat", STATE]).stdout.strip()


def test_ports_are_up_when_the_cluster_is(make_cluster: Callable[..., Cluster]) -> None:
    """The exporter has less to do with few nodes, and lost the race all the same. Once all is
    written it looks every second."""
    cluster = make_cluster({"network": {"topology": "mesh:5x5"}}, exporter="off")

    def states() -> list[str]:
        files = cluster.run.glob("sys/class/infiniband/*/ports/1/state")
        return sorted(file.read_text().strip() for file in files)

    assert states() == ["4: ACTIVE"] * 25
    assert flitnet(cluster, "node", "n1", "kill").returncode == 0
    until(lambda: states() == ["1: DOWN", *["4: ACTIVE"] * 24])
    assert flitnet(cluster, "node", "n1", "start").returncode == 0
    assert states() == ["4: ACTIVE"] * 25
    assert flitnet(cluster, "fabric", "kill").returncode == 0
    until(lambda: states() == ["1: DOWN"] * 25)
    assert flitnet(cluster, "fabric", "start").returncode == 0
    assert states() == ["4: ACTIVE"] * 25


def test_a_tree_that_cannot_be_written_holds_nobody_up(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that ask verbs alone can do without."""
    monkeypatch.setattr(surroundings, "PORTS_S", 3600.0)
    start = Cluster.start_exporter

    def behind_a_file(cluster: Cluster, listen: str) -> None:
        (cluster.run / "sys" / "class").touch()
        start(cluster, listen)

    monkeypatch.setattr(Cluster, "start_exporter", behind_a_file)
    cluster = make_cluster(exporter="off")
    assert "no sysfs tree: cannot make" in cluster.last_line("exporter")


def test_one_that_died_is_started_again(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    port = free_port()
    cluster = make_cluster(owned=False, exporter=f"127.0.0.1:{port}")
    assert state_of(cluster) == "4: ACTIVE"
    cluster.kill("exporter")
    operate.set_link(cluster.run, "n0", "down")
    said = flitnet(cluster, "status")
    assert said.returncode == 1 and "then: flitnet exporter start\n" in said.stdout, said
    assert state_of(cluster) == "4: ACTIVE", "nobody writes what is true"
    reader = tmp_path / "reader.sh"
    reader.write_text(f"#!/bin/sh\nexec cat {STATE}\n")
    reader.chmod(0o700)
    for argv in (["cat", STATE], [str(reader)]):
        told = flitnet(cluster, "exec", "n0", "--", *argv)
        assert told.returncode == 0 and "flitnet exporter start" in told.stderr, told
    told = flitnet(cluster, "exec", "n0", "--", "true")
    assert (told.returncode, told.stderr) == (0, ""), "it reads nothing of that"
    done = flitnet(cluster, "exporter", "start")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"the exporter serves again on 127.0.0.1:{port}\n"
    assert state_of(cluster) == "1: DOWN"
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        assert b"flitnet_clock_emulated_seconds_total" in page.read()
    operate.set_link(cluster.run, "n0", "up")
    until(lambda: state_of(cluster) == "4: ACTIVE")
    assert flitnet(cluster, "status").returncode == 0
    assert flitnet(cluster, "exec", "n0", "--", "cat", STATE).stderr == ""


def test_what_cannot_be_started(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="^this cluster was started without an exporter$"):
        exporter.start(make_cluster().run)
    cluster = make_cluster(exporter="off")
    with pytest.raises(UsageError, match="^the exporter runs$"):
        exporter.start(cluster.run)
    assert flitnet(cluster, "exporter", "kill").returncode == 2
    cluster.kill("exporter")
    with monkeypatch.context() as patched:
        patched.setitem(paths.PROGRAMS, "flitnet-exporter", paths.PROGRAMS["fabricd"])
        with pytest.raises(FlitnetError, match="^the exporter stopped at its start; "):
            exporter.start(cluster.run)
    assert cluster.dead() == ["exporter"]
    exporter.start(cluster.run)
    assert cluster.dead() == []
