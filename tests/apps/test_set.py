"""Controls change in a running cluster: `flitnet set`, and what status and metrics say of it."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.apps.test_udp import free_port
from tests.apps.test_verbs import assert_done, pingpong
from tools.flitnet import controls, ctl, operate, pages, paths, traffic
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import EXIT_OK, FlitnetError, UsageError


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


def test_several_at_once_are_all_remembered(cluster2: Cluster) -> None:
    """The last value of each that was set is, whoever else sets something else meanwhile."""
    said = ("power_control", "admission", "completion_queues")
    with ThreadPoolExecutor(3) as setters:
        for word in ("true", "false") * 5:
            values = [word, word, "separate" if word == "false" else "quad"]
            list(setters.map(operate.set_control, [cluster2.run] * 3, said, values))
            remembered = controls.read(cluster2.run)
            assert [remembered[key] for key in said] == values
    for key, value in zip(said, ("true", "true", "separate"), strict=True):
        operate.set_control(cluster2.run, key, value)


def test_what_cannot_be_remembered_is_not_set(cluster2: Cluster) -> None:
    """On a full disk: else a node that starts later would be told another control than the rest."""
    before = {node: cluster2.node_status(node)["congestion"] for node in cluster2.nodes}
    remembered = controls.read(cluster2.run)
    (cluster2.run / f"{controls.NAME}.new").symlink_to("/dev/full")
    with pytest.raises(FlitnetError, match="No space left on device; nothing was changed$"):
        operate.set_control(cluster2.run, "congestion", "alo")
    assert before == {node: cluster2.node_status(node)["congestion"] for node in cluster2.nodes}
    with pytest.raises(UsageError):
        operate.set_control(cluster2.run, "congestion", "prayer")
    assert controls.read(cluster2.run) == remembered
    assert not (cluster2.run / f"{controls.NAME}.new").exists()


def test_metrics_say_which_scheme(cluster2: Cluster) -> None:
    operate.set_control(cluster2.run, "congestion", "none")
    found = wait_for(cluster2, "none")
    assert {"none", "credit", "alo", "self_tuned", "vct1"} <= set(found)
    assert [name for name, value in found.items() if value] == ["none"]
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


def test_routers_book_power_while_somebody_keeps_it(make_cluster) -> None:
    """A stream that is refused for want of power passes where power control is off."""
    cluster = make_cluster({"network": {"nodes": 2}, "controls": {"power_rt_share": 0}})
    clip = paths.ROOT / "traces/t2_city.ts"

    def played() -> int:
        return traffic.replay(
            cluster.run, clip, "n0", "n1", seconds=1, copies=1, trace={}, as_json=True
        )

    with pytest.raises(FlitnetError, match="1 of 1 streams refused by"):
        played()
    operate.set_control(cluster.run, "power_control", "false")
    assert played() == EXIT_OK
    operate.set_control(cluster.run, "power_control", "true")
    with pytest.raises(FlitnetError, match="1 of 1 streams refused by"):
        played()


@pytest.mark.parametrize(
    "tables", [{"controls": {"peak_power": "powerherd"}}, {"network": {"pass_through": True}}],
    ids=["powerherd", "pass_through"],
)  # fmt: skip
def test_hcas_keep_to_no_cap_that_is_not_theirs(make_cluster, tables) -> None:
    cluster = make_cluster(tables | {"network": {"nodes": 2} | tables.get("network", {})})
    with pytest.raises(UsageError, match="controls.peak_power"):
        operate.set_control(cluster.run, "power_control", "true")


def test_what_the_nodes_refuse_is_not_left_with_the_fabric(make_cluster) -> None:
    udp = {"kind": "udp", "listen": f"127.0.0.1:{free_port()}"}
    cluster = make_cluster({"network": {"nodes": 2}, "attach": udp})
    with pytest.raises(UsageError, match="attach.kind shm.*; nothing was changed"):
        operate.set_control(cluster.run, "congestion", "alo")


def test_status_names_the_scheme(cluster2: Cluster) -> None:
    operate.set_control(cluster2.run, "congestion", "none")
    for _ in range(200):  # each node publishes now and then
        if (said := operate.current(cluster2.run).congestion) == ["none"]:
            break
        cluster2.node_status("n1")
    operate.set_control(cluster2.run, "congestion", "credit")
    assert said == ["none"]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("congestion", "vct1", 'network.router = "vct"'),
        ("congestion", "dcqcn", 'network.engine = "general"'),
        ("congestion", "hope", "no scheme 'hope'; one of credit, alo, "),
        ("completion_queues", "many", "global, separate or quad"),
        ("power_control", "maybe", "true or false"),
        ("link_mbps", "1", "cannot be set"),
    ],
)
def test_what_cannot_be_set(cluster2: Cluster, key: str, value: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        operate.set_control(cluster2.run, key, value)
    assert cluster2.node_status("n0")["congestion"] == "credit"


def test_a_scheme_that_needs_the_shared_page_does_not_start_without(make_cluster) -> None:
    tables = {"network": {"nodes": 2}, "attach": {"kind": "udp"},
              "controls": {"congestion": "ibcc"}}  # fmt: skip
    with pytest.raises(FlitnetError, match="must be credit or none for attach.kind udp"):
        make_cluster(tables)


# Four nodes that send to each other as much as their links carry: some output is wanted by many.
TOLD = {
    "vct1": {"router": "vct", "vc_buf_size": 96},
    "vct2": {"router": "vct", "vc_buf_size": 96},
    "ibcc": {"engine": "general"},
    "dcqcn": {"engine": "general"},
}


@pytest.mark.parametrize("notice", ["instant", "message"])
@pytest.mark.parametrize("scheme", TOLD)
def test_routers_tell_sources_live(make_cluster, scheme: str, notice: str) -> None:
    """They hold back while the network is full; by message the notices cross the network as control
    traffic. What waited leaves when the scheme is taken away."""
    tables = {
        "network": {"topology": "mesh:2x2"} | TOLD[scheme],
        "controls": {"congestion": "none", "notice": notice, "admission": False,
                     "power_control": False},
    }  # fmt: skip
    cluster = make_cluster(tables)
    operate.set_control(cluster.run, "congestion", scheme)
    argv = ["load", "best-effort", "--rate", "390M", "--seconds", "0.5", "--json"]
    load = subprocess.Popen(
        [str(paths.ROOT / "flitnet"), *argv], stdout=subprocess.PIPE, text=True,
        env=dict(os.environ) | {"FLITNET_RUN": str(cluster.run)},
    )  # fmt: skip
    told = delayed = False
    passed_on = notice == "instant"  # the first notices may be of the very HCAs that pass them on
    while load.poll() is None and not (told and delayed and passed_on):
        snapshot = pages.read(cluster.run)
        told |= snapshot.total("flitnet_congestion_notices_total", kind="congestion") > 0
        delayed |= snapshot.total("flitnet_congestion_delay_cycles") > 0
        passed_on |= control_packets(cluster) > 0
        time.sleep(0.01)
    assert told and delayed, (told, delayed)
    operate.set_control(cluster.run, "congestion", "none")
    said, _ = load.communicate(timeout=120)
    assert load.returncode == 0, said
    assert all(kind["lost"] == 0 for kind in json.loads(said)), said
    assert passed_on, "by message they cross the network"
    if notice == "instant":
        assert control_packets(cluster) == 0, "nothing else is control here"


def control_packets(cluster: Cluster) -> float:
    return pages.read(cluster.run).total(
        "flitnet_class_transmitted_packets_total", **{"class": "control"}
    )


def moves(cluster: Cluster, turns: int) -> bool:
    """Whether the picture of the routers in the shared page is renewed (emu/wire/state_page.h)
    within so many turns of all loops: emulated time waits for a node that the host does not run."""

    def cycle() -> int:
        return struct.unpack_from("<Q", (cluster.run / "fabric.state").read_bytes(), 16)[0]

    before = cycle()
    for _ in range(turns):
        ctl.ask(cluster.run / "fabricd.ctl", {"cmd": "status"})  # its loop has turned
        for node in ("n0", "n1"):
            cluster.node_status(node)
        if cycle() != before:
            return True
    return False


def waits(cluster: Cluster, node: str) -> float:
    """How often best effort of a node was held back."""
    found = pages.read(cluster.run).series("flitnet_credit_waits_total")
    return sum(value for labels, value in found if labels.get("node") == node)


@pytest.mark.parametrize(("scheme", "port"), [("alo", 18901), ("self_tuned", 18902)])
def test_schemes_that_look_at_routers_act_live(cluster2: Cluster, scheme: str, port: int) -> None:
    """Traffic runs on under them, and what they see of the routers makes them hold it back."""
    operate.set_control(cluster2.run, "power_control", "false")
    operate.set_control(cluster2.run, "congestion", scheme)
    assert cluster2.node_status("n0")["congestion"] == scheme
    assert wait_for(cluster2, scheme)[scheme] == 1
    before = waits(cluster2, "n1")
    argv = ["ibv_rc_pingpong", "-s", "65536", "-n", "100", "-c"]
    assert_done(pingpong(cluster2, argv, port))
    # Two nodes fill no buffers, so Self-Tuned has nothing to hold back; ALO sees lanes in use.
    for _ in range(200):
        if scheme == "self_tuned" or waits(cluster2, "n1") > before:
            break
        cluster2.node_status("n1")
    else:
        raise AssertionError(f"{scheme} never held anything back")
    assert moves(cluster2, turns=5000), "routers are shown while a scheme wants to see them, ..."
    operate.set_control(cluster2.run, "congestion", "credit")
    assert not moves(cluster2, turns=200), "... and not otherwise"
    operate.set_control(cluster2.run, "power_control", "true")


def test_a_cluster_starts_with_self_tuned(make_cluster) -> None:
    cluster = make_cluster({"network": {"nodes": 2}, "controls": {"congestion": "self_tuned"}})
    assert cluster.node_status("n1")["congestion"] == "self_tuned"
    assert wait_for(cluster, "self_tuned")["self_tuned"] == 1
    assert_done(pingpong(cluster, ["ibv_rc_pingpong", "-n", "100"], 18903))
