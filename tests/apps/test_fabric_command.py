"""`flitnet fabric kill|stop|start`: programs and controls outlive the fabric."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.apps.test_node import flitnet
from tests.apps.test_verbs import (
    PORTS, assert_done, pingpong, running_pair, sent_packets, wait_for_packets,
)  # fmt: skip
from tools.flitnet import fabric, nodes, operate
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import FlitnetError, UsageError


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_connections_go_on_when_it_is_back(
    make_cluster: Callable[..., Cluster], how: str
) -> None:
    cluster = make_cluster()
    before = cluster.record().processes
    server, client = running_pair(cluster, [])
    done = flitnet(cluster, "fabric", how)
    assert done.returncode == 0 and "flitnet fabric start" in done.stdout, done.stderr
    assert "SIGKILL" not in done.stdout
    assert cluster.dead() == ["fabricd"]
    done = flitnet(cluster, "fabric", "start")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "the fabric serves 2 of 2 nodes again\n"
    wait_for_packets(cluster, sent_packets(cluster))
    assert server.poll() is None and client.poll() is None, "its connection lives"
    for process in (server, client):
        process.kill()
        process.communicate(timeout=10)
    after = cluster.record().processes
    assert [role for role in before if before[role] != after[role]] == ["fabricd"]


def test_status_and_up_say_how_to_have_it_back(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(owned=False)
    began = json.loads(flitnet(cluster, "status", "--json").stdout)["seconds"]
    fabric.kill(cluster.run)
    status = flitnet(cluster, "status")
    assert status.returncode == 1 and "flitnet fabric start" in status.stdout
    stands = json.loads(flitnet(cluster, "status", "--json").stdout)["seconds"]
    assert 0 < began < stands, "emulated time stands still, and is not 0"
    assert stands == json.loads(flitnet(cluster, "status", "--json").stdout)["seconds"]
    up = flitnet(cluster, "up")
    assert (up.returncode, up.stderr.count("\n")) == (1, 1), up.stderr
    assert "flitnet fabric start" in up.stderr
    assert flitnet(cluster, "fabric", "start").returncode == 0
    assert flitnet(cluster, "status").returncode == 0


def test_what_was_set_holds_for_the_new_one(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    before = cluster.status()
    operate.set_control(cluster.run, "congestion", "alo")
    operate.set_control(cluster.run, "admission", "false")
    operate.set_control(cluster.run, "completion_queues", "quad")  # the nodes' alone
    told = cluster.status()
    assert told["congestion"] != before["congestion"] and told["admission"] != before["admission"]
    fabric.stop(cluster.run)
    fabric.start(cluster.run)
    said = cluster.status()
    for key in ("congestion", "admission"):
        assert said[key] == told[key]


def test_nodes_that_are_dead_are_not_waited_for(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    nodes.kill(cluster.run, "n1")
    fabric.kill(cluster.run)
    with pytest.raises(FlitnetError, match="^fabricd is dead; first: flitnet fabric start$"):
        nodes.start(cluster.run, "n1")
    fabric.start(cluster.run)
    assert cluster.dead() == ["hcad:n1"]
    nodes.start(cluster.run, "n1")
    assert_done(pingpong(cluster, ["ibv_rc_pingpong", "-n", "50"], next(PORTS)))


def test_what_was_set_holds_where_no_node_lives(make_cluster: Callable[..., Cluster]) -> None:
    """With nobody to wait for, the new one was told before it could hear, and ended for that."""
    cluster = make_cluster()
    operate.set_control(cluster.run, "congestion", "none")
    for node in cluster.nodes:
        nodes.kill(cluster.run, node)
    fabric.kill(cluster.run)
    done = flitnet(cluster, "fabric", "start")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the fabric serves 0 of 2 nodes again\n"
    assert cluster.status()["congestion"] == "none"
    for node in cluster.nodes:
        nodes.start(cluster.run, node)
    assert_done(pingpong(cluster, ["ibv_rc_pingpong", "-n", "50"], next(PORTS)))


def test_it_does_not_die_twice(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    with pytest.raises(UsageError, match="^the fabric runs; first: flitnet fabric kill"):
        fabric.start(cluster.run)
    fabric.kill(cluster.run)
    for again in (fabric.kill, fabric.stop):
        with pytest.raises(UsageError, match="^the fabric is dead; start it again with: flitnet"):
            again(cluster.run)


def test_a_start_that_fails_leaves_it_dead(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster()
    fabric.kill(cluster.run)

    def never(*_: object) -> None:
        raise FlitnetError("not attached")

    with monkeypatch.context() as patched:
        patched.setattr(Cluster, "wait_attached", never)
        with pytest.raises(FlitnetError, match="^not attached$"):
            fabric.start(cluster.run)
    assert cluster.dead() == ["fabricd"]
    fabric.start(cluster.run)
    assert cluster.dead() == []


def test_what_cannot_be_asked(cluster2: Cluster) -> None:
    done = flitnet(cluster2, "fabric", "frob")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "fabric 'frob': one of kill, stop, start" in done.stderr and cluster2.dead() == []
