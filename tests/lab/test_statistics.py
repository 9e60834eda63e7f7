"""Warm-up, means and intervals: against known answers, and against their own promises."""

from __future__ import annotations

import math
import random

import pytest

from tools.flitnet.lab.measures import cut_of, jain, measures, part_of
from tools.flitnet.lab.statistics import Estimate, estimate, t_quantile, warm_up


def test_estimate_of_known_numbers() -> None:
    found = estimate([1, 2, 3, 4, 5])
    assert found.mean == 3
    assert found.half == pytest.approx(2.776 * math.sqrt(2.5 / 5))
    assert estimate([7]).half == math.inf
    assert math.isnan(estimate([1, math.nan]).mean)


def test_intervals_hold_what_they_promise() -> None:
    """95 of 100 intervals of a normal contain its mean."""
    draw = random.Random(1)
    held = 0
    for _ in range(2000):
        found = estimate([draw.gauss(10, 3) for _ in range(5)])
        held += found.low <= 10 <= found.high
    assert held / 2000 == pytest.approx(0.95, abs=0.015)


def test_quantiles_fall_towards_the_normal() -> None:
    values = [t_quantile(n) for n in range(1, 60)]
    assert values == sorted(values, reverse=True)
    # Tables print 2.040, 2.021, 2.000 and 1.980 for these; a jump behind 30 is too narrow.
    for freedom, quantile in {31: 2.040, 40: 2.021, 60: 2.000, 120: 1.980}.items():
        assert t_quantile(freedom) == pytest.approx(quantile, abs=0.004)
    assert t_quantile(10**6) == pytest.approx(1.960, abs=0.0005)


def test_excess_is_the_width_over_the_wanted_one() -> None:
    assert Estimate(10, 3, 5).excess(0.1, 0.5) == pytest.approx(3)
    assert Estimate(10, 3, 5).excess(0.1, 6) == pytest.approx(0.5)
    assert Estimate(0, 0, 5).excess(0.1, 0) == 0
    assert Estimate(0, 1, 5).excess(0.1, 0) == math.inf
    assert estimate([1, math.nan]).excess(0.1, 6) == math.inf


def test_only_separate_intervals_are_below() -> None:
    low = Estimate(1, 0.5, 5)
    assert low.below(Estimate(2.1, 0.5, 5))
    assert not low.below(Estimate(1.9, 0.5, 5))
    assert not low.below(Estimate(math.nan, math.inf, 0))


@pytest.mark.parametrize("length", [0, 3, 7])
def test_warm_up_is_found(length: int) -> None:
    draw = random.Random(length)
    series = [50 * 0.3**i for i in range(length)]
    series += [draw.gauss(0, 0.5) for _ in range(40 - length)]
    cut, steady = warm_up(series)
    assert abs(cut - length) <= 3
    assert steady


def test_a_growing_queue_is_not_steady() -> None:
    cut, steady = warm_up([float(i) for i in range(30)])
    assert cut == 15
    assert not steady


def test_a_constant_series_needs_no_warm_up() -> None:
    assert warm_up([4.0] * 10) == (0, True)


def output(**changes: list[float]) -> dict:
    """Four batches of 1000 cycles of 100 ns with nothing in them but `changes`."""
    fields = ("messages", "flits", "network_cycles", "queue_cycles", "host_cycles", "offered_flits")
    found: dict = {f"{c}_{f}": [0, 0, 0, 0] for c in ("control", "real_time", "best_effort")
                   for f in fields}  # fmt: skip
    for name in ("frames", "missed", "late_ms", "intervals", "deviation_ms", "deviation_sq",
                 "energy_pj", "window_pj"):  # fmt: skip
        found[name] = [0, 0, 0, 0]
    found |= {"asked": 0, "granted": 0, "nodes": 2, "cycle_ps": 100_000, "batch_cycles": 1000}
    found |= {"stuck": "", "tails_from_cycle": 2000}
    found |= {f"{c}_{q}_cycles": 0 for c in ("control", "real_time", "best_effort")
              for q in ("p50", "p99", "p999")}  # fmt: skip
    found |= {"node_flits": [], "node_offered_flits": [], "flow_labels": [], "flow_flits": []}
    found["flit_payload_bytes"] = 16
    return found | changes


def test_measures_of_known_batches() -> None:
    found = measures(
        output(
            best_effort_messages=[10, 10, 10, 10], best_effort_flits=[400] * 4,
            best_effort_network_cycles=[500] * 4, best_effort_queue_cycles=[100] * 4,
            best_effort_host_cycles=[300] * 4,
            best_effort_offered_flits=[500] * 4, energy_pj=[1e8] * 4,
            real_time_messages=[30] * 4, real_time_network_cycles=[300] * 4,
        )  # fmt: skip
    )
    assert found["warm_up_batches"] == 0
    assert found["best_effort_network_us"] == pytest.approx(5)
    assert found["real_time_network_us"] == pytest.approx(1)
    assert found["network_us"] == pytest.approx(2)  # of 10 that take 5 and 30 that take 1
    assert found["best_effort_message_us"] == pytest.approx(6)
    assert found["best_effort_total_us"] == pytest.approx(9)
    assert found["best_effort_load"] == pytest.approx(0.2)
    assert found["best_effort_accepted"] == pytest.approx(0.8)
    assert found["power_w"] == pytest.approx(1.0)  # 100 uJ in 100 us
    assert math.isnan(found["sd_ms"]) and math.isnan(found["dmp"])


def test_tails_fairness_and_flows() -> None:
    found = measures(
        output(
            best_effort_p99_cycles=400, node_flits=[300, 0, 100], flow_labels=["a", "a", "b"],
            node_offered_flits=[900, 0, 900, 900], nodes=4,
            flow_flits=[[100] * 4, [300] * 4, [0, 0, 0, 0]],
        )  # fmt: skip
    )
    assert found["best_effort_p99_us"] == pytest.approx(40)
    # Of three that send: nothing of the last arrives. The second is kept silent by its pattern.
    assert found["jain"] == pytest.approx(400**2 / (3 * (300**2 + 100**2)))
    # 400 flits of 16 bytes in 100 us.
    assert found["a_mb_s"] == pytest.approx(64)
    assert found["a_least_mb_s"] == pytest.approx(16) and found["a_most_mb_s"] == pytest.approx(48)
    assert found["all_mean_mb_s"] == pytest.approx(64 / 3)
    assert found["b_mb_s"] == 0
    assert math.isnan(measures(output(best_effort_p99_cycles=None))["best_effort_p99_us"])
    assert jain([1, 1, 1, 1]) == 1 and jain([1, 0, 0, 0]) == 0.25


def test_a_phase_is_measured_as_a_run_of_its_own() -> None:
    whole = output(
        best_effort_messages=[10, 10, 10, 10], best_effort_network_cycles=[500, 500, 900, 900],
        frames=[10] * 4, missed=[4, 2, 1, 3], late_ms=[4, 2, 3, 3], energy_pj=[1e8] * 4,
        best_effort_p99_cycles=400, node_flits=[300, 100],
    )  # fmt: skip
    first, second = (measures(part_of(whole, n, 2), transient=True) for n in (0, 1))
    assert [p["best_effort_network_us"] for p in (first, second)] == pytest.approx([5, 9])
    assert [p["dmp"] for p in (first, second)] == pytest.approx([0.3, 0.2])
    assert [p["dmt_ms"] for p in (first, second)] == pytest.approx([1, 1.5])
    assert second["power_w"] == pytest.approx(1.0)
    # What is known of the whole run is said of no part.
    assert not {"jain", "best_effort_p99_us"} & set(first)
    with pytest.raises(ValueError, match="4 batches in 3 parts"):
        part_of(whole, 0, 3)


def test_frames_wait_for_a_frame_of_every_stream() -> None:
    one = output(
        frames=[0, 2, 10, 10], intervals=[0, 2, 10, 10], missed=[0, 2, 1, 1],
        late_ms=[0, 9, 0.5, 0.5], deviation_ms=[0, 5, 1, -1], deviation_sq=[0, 50, 2, 2],
    )  # fmt: skip
    assert cut_of(one)[0] == 2
    found = measures(one)
    assert found["warm_up_batches"] == 2
    # Load in pulses: what follows the start is what is measured.
    assert measures(one, transient=True)["warm_up_batches"] == 0
    assert found["interval_ms"] == pytest.approx(1000 / 30)
    assert found["sd_ms"] == pytest.approx(math.sqrt(0.2))
    assert found["dmp"] == pytest.approx(0.1)
    assert found["dmt_ms"] == pytest.approx(0.5)


def test_phases_of_a_failure() -> None:
    failed = {"links_down": [0, 0, 3, 0], "asked_again": 4, "granted_again": 3,
              "asked_again_cycles": 400, "given_up": 7}  # fmt: skip
    found = measures(
        output(
            real_time_messages=[1, 2, 4, 2], real_time_flits=[0, 200, 400, 800],
            real_time_network_cycles=[0, 200, 4000, 400], frames=[0, 10, 10, 10],
            missed=[0, 0, 5, 1], late_ms=[0, 0, 20, 1], window_pj=[9, 1e8, 2e8, 1e8],
        )
        | failed  # fmt: skip
    )
    phases = ("before", "during", "after")
    assert [found[f"real_time_load_{p}"] for p in phases] == pytest.approx([0.1, 0.2, 0.4])
    assert [found[f"real_time_message_us_{p}"] for p in phases] == pytest.approx([10, 100, 20])
    assert [found[f"dmp_{p}"] for p in phases] == pytest.approx([0, 0.5, 0.1])
    assert [found[f"late_us_{p}"] for p in phases] == pytest.approx([0, 2000, 100])
    assert found["power_max_w_during"] == pytest.approx(2 * found["power_max_w_before"])
    assert found["refused_again"] == 1 and found["asked_again_us"] == pytest.approx(10)
    assert "dmp_during" not in measures(output())
