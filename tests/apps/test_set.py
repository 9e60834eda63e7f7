"""Controls change in a running cluster: `flitnet set`, and what status and metrics say of it."""

from __future__ import annotations

import pytest

from tools.flitnet import operate, pages
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import FlitnetError, UsageError


def schemes(cluster: Cluster, node: str) -> dict[str, float]:
    found = pages.read(cluster.run).series("flitnet_congestion_scheme")
    return {labels["scheme"]: value for labels, value in found if labels["node"] == node}


def test_congestion_control_changes_live(cluster2: Cluster) -> None:
    run = cluster2.run
    assert cluster2.node_status("n1")["congestion"] == "credit"
    operate.set_control(run, "congestion", "none")
    for node in ("n0", "n1"):
        assert cluster2.node_status(node)["congestion"] == "none"
    operate.set_control(run, "congestion", "credit")
    operate.set_control(run, "completion_queues", "separate")
    status = cluster2.node_status("n0")
    assert (status["congestion"], status["completion_queues"]) == ("credit", "separate")
    operate.set_control(run, "congestion_control", "false")
    assert cluster2.node_status("n0")["congestion"] == "none"
    operate.set_control(run, "congestion_control", "true")
    done = cluster2.exec("n0", ["ibv_devinfo"], timeout=20)
    assert done.returncode == 0, "and the node works on"


def test_metrics_say_which_scheme(cluster2: Cluster) -> None:
    operate.set_control(cluster2.run, "congestion", "none")
    assert wait_for(cluster2, "none") == {"none": 1, "credit": 0, "alo": 0, "self_tuned": 0}
    operate.set_control(cluster2.run, "congestion", "credit")
    assert wait_for(cluster2, "credit")["none"] == 0


def wait_for(cluster: Cluster, scheme: str) -> dict[str, float]:
    """hcad publishes now and then: asks until it has, as a user's dashboard would."""
    for _ in range(200):
        found = schemes(cluster, "n0")
        if found.get(scheme) == 1:
            return found
        cluster.node_status("n0")  # a round trip to hcad: its loop has turned
    raise AssertionError(found)


def test_admission_is_told_to_the_fabric_too(cluster2: Cluster) -> None:
    operate.set_control(cluster2.run, "admission", "false")
    operate.set_control(cluster2.run, "admission", "true")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("congestion", "alo", "virtual time"),
        ("congestion", "hope", "no scheme"),
        ("completion_queues", "many", "global, separate or quad"),
        ("power_control", "maybe", "true or false"),
        ("link_mbps", "1", "cannot be set"),
    ],
)
def test_what_cannot_be_set(cluster2: Cluster, key: str, value: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        operate.set_control(cluster2.run, key, value)
    assert cluster2.node_status("n0")["congestion"] == "credit"


def test_a_scheme_that_only_virtual_time_has_does_not_start(make_cluster) -> None:
    with pytest.raises(FlitnetError, match="virtual time"):
        make_cluster({"network": {"nodes": 2}, "controls": {"congestion": "alo"}})
