"""The fabric and its nodes in one process (hca.process): programs see no difference, and commands
say what dies together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.apps.test_half_dead import until
from tests.apps.test_node import flitnet
from tests.apps.test_verbs import PORTS, assert_done, ended, pingpong, running_pair
from tools.flitnet import config, ctl, operate, pages
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import UsageError

TOGETHER: dict[str, Any] = {"network": {"nodes": 2}, "hca": {"process": "fabric"}}
PASSING: dict[str, Any] = {
    "network": {"nodes": 2, "pass_through": True}, "hca": {"process": "fabric", "mtu": 4096},
}  # fmt: skip


@pytest.fixture(scope="module", params=[TOGETHER, PASSING], ids=["network", "pass_through"])
def together(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(request.param) as cluster:
        yield cluster


@pytest.mark.parametrize("argv", [
    ["ibv_rc_pingpong", "-c"], ["ibv_rc_pingpong", "-e", "-n", "200"],
    ["ibv_rc_pingpong", "-s", "65536", "-n", "50", "-c"], ["ibv_uc_pingpong", "-c"],
    ["ibv_ud_pingpong", "-c"], ["ibv_srq_pingpong", "-c"],
], ids="_".join)  # fmt: skip
def test_pingpongs(together: Cluster, argv: list[str]) -> None:
    assert_done(pingpong(together, [*argv, "-g", "0"], next(PORTS)))


def test_one_process_has_all_places(together: Cluster) -> None:
    found = together.record().processes
    assert len({found[role] for role in ("fabricd", "hcad:n0", "hcad:n1")}) == 1
    status = together.status()
    assert [node["attached"] for node in status["nodes"]] == [True, True]
    for node in ("n0", "n1"):
        told = together.node_status(node)
        assert told["node"] == node and told["pid"] == found["fabricd"].pid
        log = together.lines(f"hcad:{node}")
        assert log[0].endswith(f"node {node} serves") and log[1].endswith("attached to the fabric")
    assert sum("attached" in line for line in together.lines("fabricd")) == 2
    assert operate.status(together.run, as_json=True) == 0


def test_each_node_counts_for_itself(together: Cluster) -> None:
    def sent(node: str) -> float:
        found = pages.read(together.run)
        return found.total("flitnet_class_transmitted_packets_total", node=node)

    before = [sent("n0"), sent("n1")]
    assert_done(pingpong(together, ["ibv_rc_pingpong", "-n", "100"], next(PORTS)))
    for node, was in zip(("n0", "n1"), before, strict=True):
        until(lambda node=node, was=was: sent(node) >= was + 100)  # pages are written now and then


def test_a_set_control_reaches_all(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(TOGETHER)
    operate.set_control(cluster.run, "congestion", "alo")
    told = [cluster.status()["congestion"]] + [
        cluster.node_status(node)["congestion"] for node in cluster.nodes
    ]
    assert told == ["alo"] * 3
    assert flitnet(cluster, "fabric", "kill").returncode == 0
    assert flitnet(cluster, "fabric", "start").returncode == 0
    assert [cluster.node_status(node)["congestion"] for node in cluster.nodes] == ["alo"] * 2


def test_all_die_and_come_back_together(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(PASSING, owned=False)
    server, client = running_pair(cluster, [])
    done = flitnet(cluster, "fabric", "kill")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the fabric and its nodes were killed; start it again with: ")
    for program in (server, client):  # their device is gone
        assert ended(program)
    assert cluster.dead() == ["fabricd", "hcad:n0", "hcad:n1"]
    status = flitnet(cluster, "status")
    assert status.returncode == 1
    assert status.stdout.count("is dead") == 1 and "flitnet fabric start" in status.stdout
    done = flitnet(cluster, "exec", "n1", "--", "true")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "n1 is dead; start it with: flitnet fabric start" in done.stderr
    done = flitnet(cluster, "fabric", "start")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "the fabric serves 2 of 2 nodes again\n"
    assert cluster.dead() == []
    assert_done(pingpong(cluster, ["ibv_rc_pingpong", "-n", "50"], next(PORTS)))
    done = flitnet(cluster, "down")
    assert (done.returncode, done.stdout) == (0, "stopped 1 processes\n")
    assert not cluster.run.exists()


def test_who_died_is_named_and_nobody_else(make_cluster: Callable[..., Cluster]) -> None:
    # A dead exporter was once called a dead fabric.
    cluster = make_cluster(TOGETHER, exporter="off")
    cluster.kill("exporter")
    status = flitnet(cluster, "status")
    assert status.returncode == 1
    assert "exporter is dead" in status.stdout and "fabricd" not in status.stdout


@pytest.mark.parametrize("action", ["kill", "stop", "start"])
def test_a_node_has_no_death_of_its_own(together: Cluster, action: str) -> None:
    done = flitnet(together, "node", "n1", action)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert 'n1 shares the fabric\'s process (hca.process = "own"' in done.stderr
    assert "flitnet fabric kill" in done.stderr
    assert together.dead() == []


def test_a_stop_of_one_ends_all(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(TOGETHER)
    assert ctl.ask(cluster.node_dir("n1") / "hcad.ctl", {"cmd": "stop"})["ok"]
    assert cluster.process("fabricd").wait(10)
    assert cluster.lines("hcad:n0")[-1].endswith("ends")
    assert cluster.lines("fabricd")[-1].endswith("ends")


def test_sixteen_nodes(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster({"network": {"nodes": 16}, "hca": {"process": "fabric"}})
    server = cluster.popen("n15", ["ibv_rc_pingpong", "-g", "0", "-p", str(port := next(PORTS))])
    client = ["ibv_rc_pingpong", "-g", "0", "-p", str(port), "127.0.0.1"]
    for _ in range(100):
        done = cluster.exec("n3", client)
        if "onnect" not in done.stderr:  # the server listens
            break
    assert done.returncode == 0, done.stdout + done.stderr
    assert server.wait(30) == 0


@pytest.mark.parametrize(("cores", "tables", "process"), [
    (2, {"network": {"pass_through": True}}, "fabric"),
    (4, {"network": {"pass_through": True}}, "fabric"),
    (5, {"network": {"pass_through": True}}, "own"),
    (2, {"network": {"pass_through": True}, "attach": {"kind": "udp"}}, "own"),
    (2, {"network": {"pass_through": True}, "hca": {"process": "own"}}, "own"),
    (2, {}, "own"),
    (64, {"hca": {"process": "fabric"}}, "fabric"),
], ids=str)  # fmt: skip
def test_who_shares_a_process(
    monkeypatch: pytest.MonkeyPatch, cores: int, tables: dict[str, Any], process: str
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(cores)))
    assert config.parse(config.to_toml(tables)).hca_process == process


@pytest.mark.parametrize(("tables", "says"), [
    ({"hca": {"process": "fabric"}, "attach": {"kind": "udp"}},
     'hca.process = "fabric": must have attach.kind shm'),
    ({"hca": {"process": "mine"}}, "must be one of"),
], ids=["udp", "word"])  # fmt: skip
def test_what_cannot_be(tables: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match="hca.process") as refused:
        config.check(config.parse(config.to_toml(tables)))
    assert says in str(refused.value)
