"""Deaths in the middle of real traffic: who goes on, who is told, what is given back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.flitnet import ctl, pages, paths, programs
from tools.flitnet.cluster import Cluster, attached_nodes
from tools.flitnet.report import StreamReport, streams_of

CLIP = paths.ROOT / "traces" / "t5_bikes.mpg"
SECONDS = 6.0  # emulated, of every stream here
RELEASE_NS = 1_000_000_000


def start_streams(cluster: Cluster, pairs: list[tuple[str, str]], name: str) -> None:
    """A replayer on every node that sends or receives one of the streams."""
    plan = cluster.run / "plans" / f"{name}.txt"
    plan.write_text(
        "".join(f"name={name}-{a}-{b},clip={CLIP},from={a},to={b}\n" for a, b in pairs)
    )
    for node in sorted({node for pair in pairs for node in pair}):
        argv = programs.replay_argv(cluster, node, plan, SECONDS, name)
        cluster.start(f"{name}:{node}", argv, cluster.env(node))


def until(what: Callable[[], bool], why: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(0.02)


def delivered(cluster: Cluster) -> dict[str, int]:
    return {s.name: s.frames_delivered for s in streams_of(pages.read(cluster.run))}


def wait_for_frames(cluster: Cluster, count: int, frames: int = 20) -> None:
    def flowing() -> bool:
        found = delivered(cluster)
        return len(found) == count and min(found.values()) >= frames

    until(flowing, f"streams flow: {delivered(cluster)}")


def exit_code(cluster: Cluster, role: str) -> int:
    until(lambda: cluster.exit_code(role) is not None, f"{role} ends", 60.0)
    code = cluster.exit_code(role)
    assert code is not None
    return code


def booked_bps(cluster: Cluster) -> int:
    answer = ctl.ask(cluster.run / "fabricd.ctl", {"cmd": "bookings"})
    return sum(port["out_bps"] for router in answer["routers"] for port in router["ports"])


def emulated_ns(cluster: Cluster) -> int:
    return cluster.status()["clock"]["emulated_ns"]


def assert_whole(streams: list[StreamReport]) -> None:
    assert streams
    for s in streams:
        assert s.admitted and s.frames_sent == s.frames_delivered > 0, s
        assert (s.bytes_corrupt, s.lost, s.duplicated) == (0, 0, 0), s


@pytest.fixture
def four(make_cluster: Callable[..., Cluster]) -> Cluster:
    return make_cluster({"network": {"nodes": 4}})


def replay_works(cluster: Cluster, source: str, target: str, name: str) -> None:
    start_streams(cluster, [(source, target)], name)
    for node in (source, target):
        code = exit_code(cluster, f"{name}:{node}")
        assert code == 0, cluster.last_line(f"{name}:{node}")
    assert_whole(programs.results(cluster, name, (source, target)))


def test_a_killed_replayer(four: Cluster) -> None:
    start_streams(four, [("n0", "n1")], "dying")
    start_streams(four, [("n2", "n3")], "living")
    wait_for_frames(four, 2)
    one = booked_bps(four) // 2
    assert one > 1_000_000
    four.kill("dying:n0")
    died_ns = emulated_ns(four)
    until(lambda: booked_bps(four) <= one * 1.1, "the dead stream's bandwidth is given back")
    assert emulated_ns(four) - died_ns <= RELEASE_NS
    assert exit_code(four, "dying:n1") == 1, "the receiver is told"
    for node in ("n2", "n3"):
        assert exit_code(four, f"living:{node}") == 0, four.last_line(f"living:{node}")
    assert_whole(programs.results(four, "living", ("n2", "n3")))
    assert attached_nodes(four.status()) == set(four.nodes)
    replay_works(four, "n0", "n1", "again")


def test_a_killed_receiver(four: Cluster) -> None:
    start_streams(four, [("n0", "n1")], "dying")
    wait_for_frames(four, 1)
    four.kill("dying:n1")
    assert exit_code(four, "dying:n0") == 1, "the sender is told"
    until(lambda: booked_bps(four) == 0, "nothing stays booked")


def test_a_killed_hcad(four: Cluster) -> None:
    start_streams(four, [("n0", "n1")], "dying")
    start_streams(four, [("n2", "n3")], "living")
    wait_for_frames(four, 2)
    one = booked_bps(four) // 2
    four.kill("hcad:n0")
    died_ns = emulated_ns(four)
    until(lambda: booked_bps(four) <= one * 1.1, "the dead node's bandwidth is given back")
    assert emulated_ns(four) - died_ns <= RELEASE_NS
    assert exit_code(four, "dying:n0") == 1, "its program is told"
    assert exit_code(four, "dying:n1") == 1, "the peer is told"
    for node in ("n2", "n3"):
        assert exit_code(four, f"living:{node}") == 0, four.last_line(f"living:{node}")
    assert_whole(programs.results(four, "living", ("n2", "n3")))
    four.start_node("n0")
    replay_works(four, "n0", "n1", "again")


def test_a_killed_fabric(four: Cluster) -> None:
    """Streams in flight end whole or with an error; nodes live on and use the new fabric."""
    hcads = [four.process(f"hcad:{node}") for node in four.nodes]
    start_streams(four, [("n0", "n1"), ("n2", "n3")], "over")
    wait_for_frames(four, 2)
    before_ns = emulated_ns(four)
    four.kill("fabricd")
    time.sleep(0.3)
    four.start_fabricd()
    assert all(process.alive() for process in hcads)
    assert emulated_ns(four) >= before_ns, "emulated time never runs backwards"
    codes = [exit_code(four, f"over:{node}") for node in four.nodes]
    streams = programs.results(four, "over", four.nodes)
    if codes == [0, 0, 0, 0]:
        assert_whole(streams)
    else:
        assert all(s.bytes_corrupt == 0 and s.duplicated == 0 for s in streams)
    replay_works(four, "n0", "n3", "again")


def test_down_in_the_middle_of_traffic(four: Cluster, tmp_path: Path) -> None:
    start_streams(four, [("n0", "n1"), ("n1", "n2")], "busy")
    wait_for_frames(four, 2)
    processes = list(four.record().processes.values())
    assert four.down() == [], "nobody needs SIGKILL"
    assert not any(process.alive() for process in processes)
    assert not four.run.exists()
