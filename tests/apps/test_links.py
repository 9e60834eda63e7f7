"""Links go out of service and come back under unmodified programs: `flitnet link`."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.apps.test_udp import free_port
from tests.apps.test_verbs import assert_done, ended, pingpong, running_pair, start_server
from tools.flitnet import ctl, operate, paths, traffic
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import FlitnetError, UsageError

PORTS = itertools.count(19100)
TREE = {"network": {"topology": "tree:2x3"}}  # 8 nodes; every leaf router has two ways up


def ask(cluster: Cluster, **request: str) -> dict:
    return ctl.ask(cluster.run / "fabricd.ctl", request)


def down(cluster: Cluster) -> list[str]:
    return [link["link"] for link in ask(cluster, cmd="links")["links"] if not link["up"]]


def wait_state(cluster: Cluster, node: str, state: str, reason: str = "") -> None:
    """Until the node says so: its loop looks every few milliseconds, and asks why now and then."""
    for _ in range(1000):
        status = cluster.node_status(node)
        if status["state"] == state and reason in status["reason"]:
            return
        time.sleep(0.01)
    raise AssertionError(status)


def events(watch: subprocess.Popen[str], count: int) -> list[str]:
    return [watch.stdout.readline().strip() for _ in range(count)]


@pytest.mark.parametrize("kind", ["shm", "udp"])
def test_a_pulled_cable(make_cluster: Callable[..., Cluster], kind: str) -> None:
    """The port is down and says so, the peer's requests fail, and all works again afterwards."""
    attach = {"kind": kind} | ({"listen": f"127.0.0.1:{free_port()}"} if kind == "udp" else {})
    cluster = make_cluster({"network": {"nodes": 2}, "attach": attach})
    watch = cluster.popen("n0", ["stdbuf", "-oL", "ibv_asyncwatch"])
    assert "flitnet0" in watch.stdout.readline()
    server, client = running_pair(cluster, [])
    operate.set_link(cluster.run, "n0", "down")
    assert down(cluster) == ["n0"]
    wait_state(cluster, "n0", "down", "flitnet link")
    assert "Failed status 12:" in ended(client)  # IBV_WC_RETRY_EXC_ERR
    server.kill()
    server.communicate(timeout=10)
    assert "IBV_EVENT_PORT_ERR" in (said := watch.stdout.readline()), said
    info = cluster.exec("n0", ["ibv_devinfo"], timeout=20)
    assert "PORT_DOWN" in info.stdout
    operate.set_link(cluster.run, "n0", "up")
    wait_state(cluster, "n0", "attached")
    assert "IBV_EVENT_PORT_ACTIVE" in (said := watch.stdout.readline()), said
    assert_done(pingpong(cluster, ["ibv_rc_pingpong", "-n", "50"], next(PORTS)))
    watch.kill()
    watch.communicate(timeout=10)


def test_the_sender_without_a_cable_hears_no_answer(make_cluster: Callable[..., Cluster]) -> None:
    """Its HCA has no link to send by, and its programs are told as by any other: retries end."""
    cluster = make_cluster()
    server, client = running_pair(cluster, [])
    operate.set_link(cluster.run, "n1", "down")
    assert "Failed status 12:" in ended(client)  # IBV_WC_RETRY_EXC_ERR
    server.kill()
    server.communicate(timeout=10)
    operate.set_link(cluster.run, "n1", "up")
    wait_state(cluster, "n1", "attached")
    assert_done(pingpong(cluster, ["ibv_rc_pingpong", "-n", "50"], next(PORTS)))


def test_a_stream_without_an_answer_was_refused_by_nobody(
    make_cluster: Callable[..., Cluster], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its probe stays behind the pulled cable: it counts as one that was not admitted."""
    cluster = make_cluster({"network": {"nodes": 2}})
    operate.set_link(cluster.run, "n1", "down")
    wait_state(cluster, "n1", "down")
    clip = paths.ROOT / "traces/t2_city.ts"
    with pytest.raises(FlitnetError, match="1 of 1 streams not admitted: .* see: flitnet status"):
        traffic.replay(
            cluster.run, clip, "n1", "n0", seconds=1, copies=1, trace={}, as_json=False
        )  # fmt: skip
    assert "0 of 1 admitted" in capsys.readouterr().out


def test_programs_hear_of_a_fabric_that_was_away(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    watch = cluster.popen("n1", ["stdbuf", "-oL", "ibv_asyncwatch"])
    assert "flitnet0" in watch.stdout.readline()
    cluster.kill("fabricd")
    cluster.start_fabricd()
    said = events(watch, 2)
    assert "PORT_ERR" in said[0] and "PORT_ACTIVE" in said[1], said
    watch.kill()
    watch.communicate(timeout=10)


def test_traffic_goes_round_links_that_are_down(make_cluster: Callable[..., Cluster]) -> None:
    """A checked stream with a reservation crosses the tree while links of its way flap; its booking
    moves with it, is on today's way only, and is gone at the end."""
    cluster = make_cluster(TREE)
    clip = paths.ROOT / "traces" / "t2_city.ts"
    replay = subprocess.Popen(
        [str(paths.ROOT / "flitnet"), "replay", str(clip), "--from", "n0", "--to", "n7",
         "--seconds", "2", "--json"],
        stdout=subprocess.PIPE, text=True, env=dict(os.environ) | {"FLITNET_RUN": str(cluster.run)},
    )  # fmt: skip
    flapped = 0
    booked_while_down = set()
    for link in itertools.cycle(("0:2", "0:3", "3:2", "3:3")):
        if replay.poll() is not None:
            break
        operate.set_link(cluster.run, link, "down")
        assert down(cluster) != []
        time.sleep(0.02)
        booked_while_down.add(booked(cluster))
        operate.set_link(cluster.run, link, "up")
        flapped += 1
    said, _ = replay.communicate(timeout=120)
    assert replay.returncode == 0, said
    (stream,) = json.loads(said)
    assert stream["frames_delivered"] == stream["frames_sent"] > 0, said
    assert (stream["bytes_corrupt"], stream["lost"], stream["duplicated"]) == (0, 0, 0), said
    assert flapped > 3
    assert 5 in booked_while_down, "up three routers and down: all of them"
    assert max(booked_while_down) <= 5, "and nothing stays where it went before"
    for _ in range(500):
        if booked(cluster) == 0:
            break
        time.sleep(0.01)
    assert booked(cluster) == 0


def booked(cluster: Cluster) -> int:
    return sum(router["bookings"] for router in ask(cluster, cmd="bookings")["routers"])


def test_bytes_stay_exact_while_links_flap(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(TREE)
    argv = ["ibv_rc_pingpong", "-c", "-n", "3000", "-s", "8192"]
    server = start_server(cluster, argv, port := next(PORTS))
    client = cluster.popen("n7", [*argv, "-p", str(port), "127.0.0.1"])
    links = itertools.cycle(("0:2", "0:3", "3:2", "3:3"))
    try:
        while client.poll() is None:
            link = next(links)
            operate.set_link(cluster.run, link, "down")
            operate.set_link(cluster.run, link, "up")
        said = [process.communicate(timeout=60)[0] for process in (client, server)]
    finally:  # one that goes on listening would be found by a later run
        client.kill()
        server.kill()
    assert (client.returncode, server.returncode) == (0, 0), said


@pytest.mark.parametrize(
    ("link", "state", "says"),
    [
        ("n9", "down", "no node of this name"),
        ("7:0", "down", "no port of a router"),
        ("0:9", "down", "ports 0 to 1"),
        ("n0", "sideways", "up or down"),
    ],
)
def test_what_is_no_link(cluster2: Cluster, link: str, state: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        operate.set_link(cluster2.run, link, state)
    assert down(cluster2) == []


def test_where_there_is_no_way_round(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster({"network": {"topology": "mesh:2x2"}})
    link = next(l["link"] for l in ask(cluster, cmd="links")["links"] if ":" in l["link"])
    with pytest.raises(UsageError, match="up_down"):
        operate.set_link(cluster.run, link, "down")


def test_the_command(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(TREE)
    env = dict(os.environ) | {"FLITNET_RUN": str(cluster.run)}

    def flitnet(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(paths.ROOT / "flitnet"), *argv], env=env, capture_output=True, text=True,
            timeout=60,
        )  # fmt: skip

    assert flitnet("link", "0:2", "down").returncode == 0
    listed = json.loads(flitnet("link", "--json").stdout)["links"]
    down_now = [link for link in listed if not link["up"]]
    assert down_now == [{"link": "0:2", "to": "4:0", "up": False}]
    assert "down" in flitnet("link").stdout
    for _ in range(3):  # said at once, though metrics come ten times a second
        assert flitnet("link", "0:2", "up").returncode == 0
        assert json.loads(flitnet("status", "--json").stdout)["links_down"] == 0
        assert flitnet("link", "0:2", "down").returncode == 0
        said = flitnet("status").stdout
        assert "links down: 1" in " ".join(said.split()), said
        assert "link 0:2 is down; back into service with: flitnet link 0:2 up" in said
    wrong = flitnet("link", "0:3", "down")
    assert wrong.returncode == 2 and len(wrong.stderr.splitlines()) == 1, wrong.stderr
    assert flitnet("link", "0:2").returncode == 2
    cluster.kill("fabricd", signal.SIGKILL)
    cluster.start_fabricd()
    assert down(cluster) == [], "a new fabric has all its links"
