"""A workload is one value: the same for a simulated point and for generators on a cluster."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from tools.flitnet.errors import UsageError
from tools.flitnet.lab.catalog import ALL
from tools.flitnet.scenario import read_clip
from tools.flitnet.workload import PATTERNS, PLACEMENTS, Generator, Link, Workload

NAMES = tuple(f"n{i}" for i in range(8))
FAST = Link(400)


def generators(
    workload: Workload, nodes: tuple[str, ...] = NAMES, link: Link = FAST, seconds: float = 6
) -> list[Generator]:
    return workload.live(nodes, link, 3, seconds).generators


@pytest.mark.parametrize("one", [e for e in ALL.values() if e.points], ids=lambda one: one.id)
def test_every_point_of_the_lab_is_such_a_value(one) -> None:
    for point in one.points:
        table = dict(point.config["workload"])
        workload = Workload.of(table)
        again = Workload.of(workload.table())
        assert again == workload
        # Nothing that was said is lost; what is left out is the default.
        plain = vars(Workload())
        for key, value in workload.table().items():
            assert table[key] == value
        for key in set(table) - set(workload.table()):
            assert plain[key] == (tuple(table[key]) if isinstance(table[key], list) else table[key])


def test_toml() -> None:
    text = '[workload]\nload = 0.4\nstreams = "none"\npattern = "shuffle"\n'
    workload = Workload.from_toml(text)
    assert (workload.load, workload.pattern) == (0.4, "shuffle")
    for wrong, says in (
        ("[workload]\nlaod = 1\n", "laod: unknown key"),
        ('[workload]\npattern = "film"\n', "one of uniform"),
        ("[workload]\nload = 3\n", "x.toml: workload.load = 3: a number from 0 to 2"),
        ('[workload]\nload = "much"\n', "workload.load = 'much': a number"),
        ("[workload]\nload = nan\n", "workload.load = nan: a number"),
        ("[workload]\nload = true\n", "workload.load = True: a number"),
        ("[workload]\non_ms = 0\n", "workload.on_ms = 0: a number from 0.001"),
        ("[workload]\nframe_ms = inf\n", "workload.frame_ms = inf: a number"),
        ("[workload]\nstream_kbps = 0.5\n", "workload.stream_kbps = 0.5: a number from 1 to"),
        ("[workload]\nmessage_flits = 4.5\n", "workload.message_flits = 4.5: a whole number"),
        ("[workload]\nphases = 0.5\n", "workload.phases = 0.5: a list of numbers"),
        ('[workload]\nphases = [0.5, "x"]\n', "workload.phases = .*: a list of numbers"),
        ("[workload]\nflows = [3]\n", "workload.flows = .3,.: a list of texts"),
        ("[workload]\nstreams = 3\n", "workload.streams = 3: one of none"),
        ("[workload]\nplacement = []\n", "workload.placement = .*: one of balanced"),
        ("[workload]\nload = " + "9" * 5000, "x.toml: "),
        ("a = " + "[" * 5000, "x.toml: "),
        ("load = 1\n", "no table"),
        ("[workload", "x.toml"),
    ):
        with pytest.raises(UsageError, match=says):
            Workload.from_toml(wrong, "x.toml")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_who_sends_to_whom(pattern: str) -> None:
    workload = Workload(load=0.5, streams="none", pattern=pattern)
    found = generators(workload)
    goals = {g.node: g.peers for g in found}
    for generator in found:
        assert generator.node not in generator.peers
        assert generator.kinds == ("best-effort=200000000",)
        for goal in generator.peers:
            assert generator.node in next(g for g in found if g.node == goal).senders
    if pattern in ("uniform", "hot_spot"):
        assert all(len(to) == 7 for to in goals.values())
    if pattern == "bit_reversal":
        assert goals["n1"] == ("n4",) and "n0" not in goals  # 000 reversed is itself
    if pattern == "pairs":
        assert all(goals[to[0]] == (node,) for node, to in goals.items())
    if pattern == "permutation":
        assert sorted(to[0] for to in goals.values()) == sorted(NAMES)


def test_rates_of_a_mix() -> None:
    workload = Workload(
        load=0.5, streams="on_off", real_time_share=0.8, on_ms=1, off_ms=3, message_flits=20,
        control_per_frame=10, control_flits=10,
    )  # fmt: skip
    one = generators(workload, NAMES[:2], Link(100))[0]
    # 40 Mb/s are ten connections of 4; each has four times as much while it is ON, and a flit of
    # headers beside nineteen of payload.
    assert one.kinds == ("best-effort=10000000", "on-off=16842105", "control=384000")
    assert one.to["on-off"] == ("n1",) * 10


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_connections_are_placed_as_streams(placement: str) -> None:
    workload = Workload(load=0.5, streams="on_off", real_time_share=1, placement=placement)
    found = generators(workload)
    assert [one.kinds for one in found] == [("on-off=8205128",)] * 8
    for one in found:
        assert len(one.to["on-off"]) == 50 and one.node not in one.to["on-off"]
        assert len(set(one.to["on-off"])) > 4
    arriving = [sum(one.to["on-off"].count(node) for one in found) for node in NAMES]
    assert sum(arriving) == 400
    assert (set(arriving) == {50}) == (placement == "balanced")


def test_each_kind_goes_where_it_does_in_the_laboratory() -> None:
    """Control messages go to everybody, whatever the pattern of best effort."""
    workload = Workload(load=0.2, streams="none", pattern="bit_reversal", control_per_frame=1)
    found = {one.node: one for one in generators(workload)}
    assert found["n1"].to["best-effort"] == ("n4",) and found["n0"].to["best-effort"] == ()
    for node, one in found.items():
        assert set(one.to["control"]) == set(NAMES) - {node}
        assert set(one.senders) == set(NAMES) - {node}


@pytest.mark.parametrize("streams", ["cbr", "vbr", "mpeg2"])
def test_streams_of_frames(streams: str) -> None:
    workload = Workload(load=0.5, real_time_share=0.8, streams=streams, stream_kbps=8000)
    live = workload.live(NAMES, FAST, 3, 6)
    assert live.generators[0].kinds == ("best-effort=40000000",)
    assert live == workload.live(NAMES, FAST, 3, 6)
    arriving = [sum(one.target == node for one in live.streams) for node in NAMES]
    assert len(set(arriving)) == 1 and all(s.source != s.target for s in live.streams)
    assert len({(s.clip, s.first_frame, s.phase_us) for s in live.streams}) == len(live.streams)
    mine = [one for one in live.streams if one.source == "n5"]
    if streams == "mpeg2":
        offered = [read_clip(one.clip).video_bps for one in mine]
        assert abs(sum(offered) - 160e6) < max(offered)
        assert len({one.clip for one in mine}) == 7
    else:
        assert len(mine) == 20 and all(one.clip.endswith(":33333") for one in mine)


def test_frames_of_another_time() -> None:
    workload = Workload(load=0.2, real_time_share=1, streams="cbr", frame_ms=10)
    assert {(one.fps, one.clip) for one in workload.live(NAMES, FAST, 3, 6).streams} == {
        (100, "cbr:5000")
    }  # fmt: skip


@pytest.mark.parametrize("streams", ["cbr", "mpeg2"])
def test_fractions_live_as_in_the_laboratory(streams: str) -> None:
    """What the schema calls a number need not be whole: frames of 33.3 ms, streams of 4.5 Mb/s."""
    text = f'[workload]\nstreams = "{streams}"\nframe_ms = 33.3\nstream_kbps = 4500.5\n'
    workload = Workload.from_toml(text)
    streams_live = workload.live(NAMES, FAST, 3, 6).streams
    assert {one.fps for one in streams_live} == {Fraction(10000, 333)}
    assert all(one.line().endswith(",fps=10000/333\n") for one in streams_live)
    if streams == "cbr":
        assert {one.clip for one in streams_live} == {f"cbr:{round(4500.5 * 33.3 / 8)}"}
        return
    twice = Workload(streams=streams, frame_ms=1000 / 60).live(NAMES, FAST, 3, 6).streams
    assert {one.fps for one in twice} == {60} and len(twice) < 0.6 * len(streams_live)


def test_a_fraction_of_the_replayer_is_the_frame_time() -> None:
    rng = random.Random(11)  # the seed
    for _ in range(1000):
        frame_ms = 10 ** rng.uniform(0, 3)
        fps = Workload(frame_ms=frame_ms)._fps()
        assert max(fps.numerator, fps.denominator) <= 65535 and 1 <= fps <= 1000
        assert abs(1000 / float(fps) - frame_ms) < 2e-5 * frame_ms


@pytest.mark.parametrize("pattern", PATTERNS)
def test_one_node_sends_to_nobody(pattern: str) -> None:
    workload = Workload(load=0.5, streams="none", pattern=pattern)
    assert generators(workload, ("n0",)) == []


def words_after(options: tuple[str, ...], name: str) -> list[str]:
    return [options[i + 1] for i, word in enumerate(options) if word == name]


def test_phases_change_the_mix_and_divide_the_run() -> None:
    workload = Workload(load=0.5, streams="on_off", phases=(0.2, 0.8, 0.6))
    one = generators(workload)[0]
    assert one.kinds == ("best-effort=160000000", "on-off=8205128")
    assert len(one.to["on-off"]) == 40  # 160 Mb/s in the second phase, 40 and 120 in the others
    assert words_after(one.options, "--profile") == ["best-effort=1,0.25,0.5", "on-off=0.25,1,0.75"]
    assert words_after(one.options, "--profile-step-ms") == ["2000"]


def test_pulses_hot_spots_and_bursts() -> None:
    workload = Workload(
        load=0.2, streams="none", pulse_load=0.8, pulse_cycles=100_000, pattern="hot_spot",
        hot_share=0.3, arrivals="self_similar", pareto_shape=1.5,
    )  # fmt: skip
    found = generators(workload)
    assert found[1].kinds == ("best-effort=320000000",)
    assert words_after(found[1].options, "--profile") == ["best-effort=0.25,1"]
    assert words_after(found[1].options, "--profile-step-ms") == ["32"]  # 320 ns a cycle
    assert words_after(found[1].options, "--arrivals") == ["self_similar"]
    assert words_after(found[1].options, "--pareto-shape") == ["1.5"]
    assert words_after(found[1].options, "--hot") == ["n0=0.3"]
    assert words_after(found[0].options, "--hot") == []


def test_what_only_a_simulation_can() -> None:
    for workload, says in (
        (Workload(pulse_cycles=100, streams="on_off", phases=(0.2, 0.8)), "pulse_cycles and ph"),
        (Workload(phases=(0.2, 0.8)), "phases with streams = 'vbr'"),
        (Workload(frame_ms=0.3), "frame_ms = 0.3, live 1 to 1000"),
        (Workload(frame_ms=1e3, stream_kbps=2e5), "frames of 25000000 bytes, live 1 to 16000000"),
        (Workload(streams="none", load=1e-9), "load = 1e-09: 0.4 b/s of a node, live 1 to 1e"),
        (Workload(streams="none", control_per_frame=1e-9), "control_per_frame = 1e-09: "),
        (Workload(streams="none", control_per_frame=1e6, frame_ms=1), "b/s of a node, live 1 to"),
        (Workload(streams="on_off", stream_kbps=10**5, on_ms=0.001, off_ms=1e3), "stream_kbps = 1"),
        (Workload(streams="none", pulse_cycles=1), "pulse_cycles: each for 0.00032 ms, live"),
        (Workload(streams="none", pulse_cycles=10**12), "pulse_cycles: each for 3.2e.08 ms"),
        (Workload(message_flits=4), "message_flits = 4, live 5 to 130"),
        (Workload(control_per_frame=1, control_flits=200), "control_flits = 200, live 5 to 130"),
        (Workload(stream_kbps=1000), "workload: 1536 streams, live at most 1024"),
        (Workload(stream_kbps=100, streams="on_off"), "1920 streams a node, live at most 1024"),
        (Workload(flows=("0>1",), streams="none"), "workload.flows"),
        (Workload(other={"header_flits": 2}), "workload.header_flits: only in virtual time"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=says):
            generators(workload)


def test_messages_fit_a_packet_of_the_cluster() -> None:
    for link, low, high in (
        (Link(400, 128, 256), 5, 18),
        (Link(400, 512, 2048), 2, 32),
        (Link(400, 32, 4096), 19, 1032),
        (Link(400, 128, 1024, 74), 8, 68),  # RoCE: a GRH in each
    ):
        for flits in (low, high):
            assert generators(Workload(message_flits=flits), link=link)
        for flits in (low - 1, high + 1):
            workload = Workload(streams="on_off", real_time_share=1, message_flits=flits)
            says = rf"workload.message_flits = {flits}, live {low} to {high} .network.flit_bits = "
            with pytest.raises(UsageError, match=says):
                generators(workload, link=link)
    # Frames go in the cluster's packets: no message is of that many flits.
    frames = Workload(real_time_share=1)
    assert frames.live(NAMES, Link(400, 128, 256), 3, 6).streams
