"""A workload is one value: the same for a simulated point and for generators on a cluster."""

from __future__ import annotations

import pytest

from tools.flitnet.errors import UsageError
from tools.flitnet.lab.catalog import ALL
from tools.flitnet.workload import PATTERNS, Workload

NAMES = tuple(f"n{i}" for i in range(8))


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
    found = workload.generators(NAMES, 400, seed=3, seconds=1)
    goals = {g.node: g.to for g in found}
    for generator in found:
        assert generator.node not in generator.to
        assert generator.kinds == ("best-effort=200000000",)
        for goal in generator.to:
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
    kinds = workload.generators(NAMES[:2], 100, seed=1, seconds=1)[0].kinds
    # 40 Mb/s of ON/OFF are 160 while it is ON.
    assert kinds == ("best-effort=10000000", "on-off=160000000", "control=384000")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_one_node_sends_to_nobody(pattern: str) -> None:
    workload = Workload(load=0.5, streams="none", pattern=pattern)
    assert workload.generators(("n0",), 400, seed=3, seconds=1) == []


def words_after(options: tuple[str, ...], name: str) -> list[str]:
    return [options[i + 1] for i, word in enumerate(options) if word == name]


def test_phases_change_the_mix_and_divide_the_run() -> None:
    workload = Workload(load=0.5, streams="on_off", phases=(0.2, 0.8, 0.6))
    one = workload.generators(NAMES, 400, seed=1, seconds=6)[0]
    assert one.kinds == ("best-effort=160000000", "on-off=320000000")
    assert words_after(one.options, "--profile") == ["best-effort=1,0.25,0.5", "on-off=0.25,1,0.75"]
    assert words_after(one.options, "--profile-step-ms") == ["2000"]


def test_pulses_hot_spots_and_bursts() -> None:
    workload = Workload(
        load=0.2, streams="none", pulse_load=0.8, pulse_cycles=100_000, pattern="hot_spot",
        hot_share=0.3, arrivals="self_similar", pareto_shape=1.5,
    )  # fmt: skip
    found = workload.generators(NAMES, 400, seed=1, seconds=6)
    assert words_after(found[1].options, "--profile") == ["best-effort=1,4"]
    assert words_after(found[1].options, "--profile-step-ms") == ["32"]  # 320 ns a cycle
    assert words_after(found[1].options, "--arrivals") == ["self_similar"]
    assert words_after(found[1].options, "--pareto-shape") == ["1.5"]
    assert words_after(found[1].options, "--hot") == ["n0=0.3"]
    assert words_after(found[0].options, "--hot") == []


def test_what_only_a_simulation_can() -> None:
    for workload in (
        Workload(pulse_cycles=100, streams="on_off", phases=(0.2, 0.8)),
        Workload(phases=(0.2, 0.8)), Workload(streams="mpeg2"),
        Workload(flows=("0>1",), streams="none"), Workload(other={"header_flits": 2}),
    ):  # fmt: skip
        with pytest.raises(UsageError):
            workload.generators(NAMES, 400, 1, 1)
    with pytest.raises(UsageError, match="workload.header_flits"):
        Workload(other={"header_flits": 2}).generators(NAMES, 400, 1, 1)
