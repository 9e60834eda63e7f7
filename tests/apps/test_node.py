"""`flitnet node NAME kill|stop|start`: what programs see of it, and what the record says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.apps.test_half_dead import until
from tests.apps.test_udp import free_port
from tests.apps.test_verbs import PORTS, assert_done, ended, pingpong, running_pair
from tools.flitnet import controls, operate, nodes, page, pages, paths, programs, record
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import FlitnetError, UsageError


def flitnet(cluster: Cluster, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [paths.ROOT / "flitnet", *argv], capture_output=True, text=True, timeout=60,
        env=dict(os.environ) | {"FLITNET_RUN": str(cluster.run)}, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_peers_get_retry_exc_and_a_new_connection_works(
    make_cluster: Callable[..., Cluster], how: str
) -> None:
    cluster = make_cluster()
    before = cluster.record().processes
    server, client = running_pair(cluster, [])  # from n1 to n0
    done = flitnet(cluster, "node", "n0", how)
    assert done.returncode == 0 and "flitnet node n0 start" in done.stdout, done.stderr
    assert "SIGKILL" not in done.stdout
    assert "Failed status 12:" in ended(client)  # IBV_WC_RETRY_EXC_ERR
    server.kill()
    server.communicate(timeout=10)
    assert cluster.dead() == ["hcad:n0"]
    done = flitnet(cluster, "node", "n0", "start")
    assert (done.returncode, done.stdout) == (0, "n0 serves again\n"), done.stderr
    assert operate.status(cluster.run, as_json=True) == 0
    assert_done(pingpong(cluster, ["ibv_rc_pingpong", "-n", "50"], next(PORTS)))
    after = cluster.record().processes
    assert [role for role in before if before[role] != after[role]] == ["hcad:n0"]
    assert after.keys() == before.keys()


def test_status_exec_and_up_say_how_to_have_it_back(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(owned=False)
    assert flitnet(cluster, "node", "n1", "kill").returncode == 0
    status = flitnet(cluster, "status")
    assert status.returncode == 1
    assert "n1 is dead; see: flitnet log n1; then: flitnet node n1 start\n" in status.stdout
    assert "n1 does not answer" not in status.stdout and "flitnet down" not in status.stdout
    for argv in (("exec", "n1", "--", "true"), ("up",)):
        done = flitnet(cluster, *argv)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert "n1 is dead" in done.stderr and "flitnet node n1 start" in done.stderr
    assert cluster.dead() == ["hcad:n1"], "nobody else was touched"
    assert flitnet(cluster, "exec", "n0", "--", "ibv_devices").returncode == 0
    assert flitnet(cluster, "node", "n1", "start").returncode == 0
    done = flitnet(cluster, "down")
    assert done.returncode == 0 and not cluster.run.exists()


def test_its_own_programs_hear_that_the_device_is_gone(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster()
    watch = cluster.popen("n1", ["stdbuf", "-oL", "ibv_asyncwatch"])
    assert "flitnet0" in watch.stdout.readline()
    nodes.kill(cluster.run, "n1")
    assert "IBV_EVENT_DEVICE_FATAL" in (said := watch.stdout.readline()), said
    watch.kill()
    watch.communicate(timeout=10)


@pytest.mark.parametrize(
    ("node", "action", "says"),
    [("n9", "kill", "no node 'n9'; this cluster has 2: n0 … n1"),
     ("n1", "frob", "node n1 'frob': one of kill, stop, start"),
     ("n1", "start", "n1 runs; first: flitnet node n1 kill")],
)  # fmt: skip
def test_what_cannot_be_asked(cluster2: Cluster, node: str, action: str, says: str) -> None:
    done = flitnet(cluster2, "node", node, action)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert says in done.stderr and cluster2.dead() == []


def test_nobody_dies_twice(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    nodes.kill(cluster.run, "n1")
    for again in (nodes.kill, nodes.stop):
        with pytest.raises(UsageError, match="^n1 is dead; start it with: flitnet node n1 start$"):
            again(cluster.run, "n1")
    cluster.kill("fabricd")
    with pytest.raises(FlitnetError, match="^fabricd is dead; first: flitnet fabric start$"):
        nodes.start(cluster.run, "n1")
    assert cluster.dead() == ["fabricd", "hcad:n1"]


def test_the_page_sees_it_go_and_come(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(exporter="off")

    def up() -> list[str]:
        return [name for name, node in page.look(cluster.run)["nodes"].items() if node["up"]]

    state = cluster.run / "sys/class/infiniband/n1-flitnet0/ports/1/state"
    for _ in range(2):
        until(lambda: up() == ["n0", "n1"] and "ACTIVE" in state.read_text())
        nodes.kill(cluster.run, "n1")
        until(lambda: up() == ["n0"] and "DOWN" in state.read_text())
        nodes.start(cluster.run, "n1")
    until(lambda: up() == ["n0", "n1"] and "ACTIVE" in state.read_text())


def test_what_was_set_holds_for_who_comes_back(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    operate.set_control(cluster.run, "completion_queues", "separate")
    operate.set_control(cluster.run, "congestion", "none")
    operate.set_control(cluster.run, "completion_queues", "quad")
    assert list(controls.read(cluster.run)) == ["congestion", "completion_queues"]
    nodes.kill(cluster.run, "n1")
    nodes.start(cluster.run, "n1")
    said = cluster.node_status("n1")
    assert (said["congestion"], said["completion_queues"]) == ("none", "quad")


def test_a_death_beside_programs_is_named(make_cluster: Callable[..., Cluster]) -> None:
    """Not the figures that the others printed at their end."""
    cluster = make_cluster()
    trace = str(paths.ROOT / "traces/t7_city.trace")
    for arrived, argv in (
        ("load_received_messages", ["load", "control", "--rate", "1M"]),
        ("stream_delivered_frames", ["replay", trace, "--from", "n0", "--to", "n1"]),
    ):
        command = subprocess.Popen(
            [paths.ROOT / "flitnet", *argv, "--seconds", "300"], stderr=subprocess.PIPE, text=True,
            env=dict(os.environ) | {"FLITNET_RUN": str(cluster.run)},
        )  # fmt: skip
        until(lambda: pages.read(cluster.run).total(f"flitnet_{arrived}_total") > 0)
        nodes.kill(cluster.run, "n1")
        _, said = command.communicate(timeout=90)
        assert (command.returncode, said) == (1, "flitnet: n1 died; see: flitnet status\n")
        nodes.start(cluster.run, "n1")


def test_a_complaint_is_no_line_of_figures(tmp_path: Path) -> None:
    for name in ("nodes", "log"):
        (tmp_path / name).mkdir()
    (tmp_path / "cluster.toml").touch()
    record.write(tmp_path, record.Record())
    cluster = Cluster.open(tmp_path)
    log = tmp_path / "log" / "l1-n0.log"
    log.write_text("flitnet-load: n1 is gone, nothing more goes to it\ncontrol: 12 sent\n")
    assert programs.why(cluster, "l1:n0", 1) == "n1 is gone, nothing more goes to it"
    log.write_text("control: 12 sent\n")
    assert programs.why(cluster, "l1:n0", 1) == "ended with 1"
    log.write_text("--seconds: Value 0 not in range\nRun with --help for more information.\n")
    assert programs.why(cluster, "l1:n0", 2) == "--seconds: Value 0 not in range"


@pytest.mark.parametrize("kind", ["shm", "udp"])
def test_a_pulled_cable_stays_pulled(make_cluster: Callable[..., Cluster], kind: str) -> None:
    attach = {"kind": kind} | ({"listen": f"127.0.0.1:{free_port()}"} if kind == "udp" else {})
    cluster = make_cluster({"network": {"nodes": 2}, "attach": attach})
    operate.set_link(cluster.run, "n1", "down")
    nodes.stop(cluster.run, "n1")
    done = flitnet(cluster, "node", "n1", "start")
    assert done.returncode == 0 and "flitnet link n1 up" in done.stdout, done.stderr
    operate.set_link(cluster.run, "n1", "up")
    until(lambda: cluster.node_status("n1")["attached"])
    assert_done(pingpong(cluster, ["ibv_rc_pingpong", "-n", "50"], next(PORTS)))


def test_a_start_that_fails_leaves_the_node_dead(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster()
    nodes.kill(cluster.run, "n1")

    def never(*_: object) -> None:
        raise FlitnetError("n1 is not attached")

    with monkeypatch.context() as patched:
        patched.setattr(Cluster, "wait_serving", never)
        with pytest.raises(FlitnetError, match="n1 is not attached"):
            nodes.start(cluster.run, "n1")
    assert cluster.dead() == ["hcad:n1"]
    nodes.start(cluster.run, "n1")
    assert cluster.dead() == []


def test_a_replay_needs_its_own_nodes_alone(make_cluster: Callable[..., Cluster]) -> None:
    # It asked the first node how packets are cut.
    cluster = make_cluster({"network": {"nodes": 3}})
    nodes.kill(cluster.run, "n0")
    argv = ["traces/t7_city.trace", "--from", "n1", "--to", "n2", "--seconds", "0.3"]
    done = flitnet(cluster, "replay", str(paths.ROOT / argv[0]), *argv[1:])
    assert done.returncode == 0, done.stderr
