"""`flitnet bench verbs`: what it measures is there, and what cannot be measured is a reason."""

from __future__ import annotations

import pytest

from tools.flitnet import bench_scale, bench_verbs
from tools.flitnet.cluster import Cluster


def test_the_programs_figures_over_a_fabric_that_adds_nothing() -> None:
    with Cluster(bench_verbs.PASS_THROUGH) as cluster:
        figures = bench_verbs.programs(cluster, quick=True)
    assert "emulated_latency_ns" in figures  # 0 unless hcad was too late for a launch time
    for name in (
        "latency_median_ns", "write_latency_median_ns", "slept_latency_median_ns",
        "messages_per_second", "list_messages_per_second", "block_bytes_per_second",
        "shared_block_bytes_per_second", "two_lanes_bits_per_emulated_second",
        "shared_memory_median_ns", "relayed_median_ns", "chain_median_ns", "wakeups_median_ns",
        "memcpy_bytes_per_second",
    ):  # fmt: skip
        assert figures[name] > 0, name


def test_what_was_asked_stands_beside_what_was_measured() -> None:
    figures = {
        "cores": 2, "latency_over_relayed": 2.5, "write_latency_over_relayed": 3.5,
        "slept_latency_median_ns": 41_000, "list_messages_per_second": 600e3,
        "idle_percent_of_a_core": {"fabricd": 1.0, "hcad:n0": 0.9},
        "network": {"of_payload_share": 0.985},
    }  # fmt: skip
    table = bench_verbs.asked(figures)
    assert {name: row["met"] for name, row in table.items()} == {
        "latency_over_relayed": True, "write_latency_over_relayed": False,
        "slept_latency_us": False, "list_messages_per_second": True,
        "idle_percent_of_a_core": True, "network_of_payload_share": False,
    }  # fmt: skip


def test_without_ucx_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "ucx-utils" in bench_verbs.ucx("posix,self", quick=True)["skipped"]


def test_scale_measures_every_call_beside_every_number() -> None:
    results = bench_scale.run(quick=True, prints=False)
    assert all(r["median_ns"] > 0 for r in results)
    qps, mrs = (bench_scale.curves(results, objects) for objects in ("QPs", "MRs"))
    assert {"create_qp", "destroy_qp", "to_rts", "send_done", "write_done"} < set(qps)
    assert {"reg_mr", "dereg_mr", "post_write", "poll_empty"} < set(mrs)
    assert all([count for count, _ in c] == [1, 4, 16, 64, 256, 1000] for c in qps.values())
    assert all([count for count, _ in c] == [1, 10, 100, 1000, 10000] for c in mrs.values())
