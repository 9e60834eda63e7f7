"""An experiment's small form on a live cluster, real processes, beside the same in virtual time.

Small: four nodes on links of 100 Mb/s. Every node is an hcad with a generator of its own; times are
emulated on both sides, so that a slow host changes nothing but how long it takes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.flitnet import programs
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import FlitnetError, UsageError
from tools.flitnet.lab.experiment import Experiment, Plot, Point, Tables
from tools.flitnet.lab.measures import measures
from tools.flitnet.lab.simulator import complete, run_text, to_toml
from tools.flitnet.lab.statistics import Estimate, estimate
from tools.flitnet.report import StreamReport
from tools.flitnet.workload import Workload

LINK_MBPS = 100
FLIT_BITS = 128
NODES = 4
PART = 0.05  # a larger difference is said
BATCHES = 10


@dataclass(frozen=True)
class Form:
    """Which points of an experiment run live, for how long, and what is compared."""

    points: tuple[tuple[str, float], ...]
    measures: tuple[str, ...]
    seconds: float = 0.4
    frames: bool = False  # with streams and their deadlines; else best effort's part alone


BEST_EFFORT = ("best_effort_total_us", "best_effort_load")
FORMS = {
    "acp.fig4": Form((("Credit 200", 0.4), ("Credit 200", 0.6), ("Credit 200", 0.8),
                      ("No control", 0.4), ("No control", 0.8)), BEST_EFFORT),
    "acp.fig7": Form(tuple((name, load) for name in ("Global", "Separate", "Quad")
                           for load in (0.6, 0.8)), BEST_EFFORT),
    "mw.fig5": Form(tuple((name, load) for name in ("FGVC", "FIFO") for load in (0.6, 0.8)),
                  ("interval_ms", "sd_ms", "best_effort_total_us"), seconds=2.0, frames=True),
    "mw.t5": Form((("20:80", 0.6), ("20:80", 0.8)), BEST_EFFORT),
    "x.fairness": Form(tuple((name, 0.6) for name in
                             ("No control", "Credit 200", "Self-Tuned", "ALO")), BEST_EFFORT),
}  # fmt: skip


def small(tables: Tables, frames: bool) -> dict[str, dict[str, Any]]:
    """The point on four nodes and slow links."""
    found = {name: dict(table) for name, table in tables.items()}
    network = found["network"]
    topology = str(network.get("topology", "single"))
    network |= {"link_mbps": LINK_MBPS, "flit_bits": FLIT_BITS, "nodes": NODES}
    network["topology"] = "mesh:2x2" if topology.startswith("mesh") else "single"
    network["packet_size"] = found["workload"]["message_flits"] = 40
    if not frames:
        found["workload"]["streams"] = "none"
        share = found["workload"].pop("real_time_share", 0.0)
        found["workload"]["load"] *= 1 - share
    found["controls"]["admission"] = found["controls"]["power_control"] = False
    return found


def cycles_of(seconds: float) -> int:
    return round(seconds * LINK_MBPS * 1e6 / FLIT_BITS)


def virtual(tables: dict[str, dict[str, Any]], seconds: float, seed: int) -> dict[str, float]:
    run: dict[str, Any] = {"hca": True, "batch_cycles": cycles_of(seconds) // BATCHES}
    if tables["workload"].get("streams") == "none":
        run["lanes"] = [0x8000, 0, 0x0F]
    point = complete(tables | {"run": run}, seed, BATCHES)
    return measures(run_text(to_toml(point)))


def live(tables: dict[str, dict[str, Any]], seconds: float, seed: int) -> dict[str, float]:
    cluster_tables = {
        **{name: table for name, table in tables.items() if name not in ("workload", "run")},
        # An hcad that gets no processor is late by so much of emulated time at most: with 4 ms, the
        # default, a busy host added a third to a latency of 0.1 ms.
        "clock": {"mode": "elastic", "follow_ms": 1},
    }
    workload = Workload.of(tables["workload"])
    with Cluster(cluster_tables) as cluster:
        (cluster.run / "plans").mkdir(exist_ok=True)
        what = workload.live(cluster.nodes, programs.link_of(cluster), seed, seconds)
        played = programs.play(cluster, what, seconds, seed, "live")
        if played.failed:
            role, code = played.failed
            raise FlitnetError(f"{role}: {programs.why(cluster, role, code)}")
    found: dict[str, float] = {}
    for one in played.loads:
        if one.lost or one.duplicated:
            raise FlitnetError(f"lab live: {one.kind}: {one.lost} packets lost")
        if one.kind == "best-effort":
            flits = one.received * workload.message_flits
            found["best_effort_total_us"] = one.latency_us_mean
            found["best_effort_load"] = flits / cycles_of(seconds) / NODES
    return found | frames_of(played.streams)


def frames_of(streams: Sequence[StreamReport]) -> dict[str, float]:
    """Over all intervals of all streams, as the laboratory measures them."""
    if not streams:
        return {}
    counts = [max(0, one.frames_delivered - 1) for one in streams]
    total = max(1, sum(counts))
    mean = math.fsum(n * s.interval_ms_mean for n, s in zip(counts, streams)) / total
    square = math.fsum(
        n * (s.interval_ms_sd**2 + (s.interval_ms_mean - mean) ** 2)
        for n, s in zip(counts, streams)
    )
    frames = sum(one.frames_delivered for one in streams)
    late = sum(one.frames_late for one in streams)
    return {
        "interval_ms": mean,
        "sd_ms": math.sqrt(square / total),
        "dmp": late / frames if frames else math.nan,
    }


@dataclass(frozen=True)
class Pair:
    """One measure of one place both ways."""

    series: str
    x: float
    measure: str
    virtual: Estimate
    live: Estimate

    @property
    def difference(self) -> float:
        return abs(self.live.mean - self.virtual.mean) / max(abs(self.virtual.mean), 1e-12)

    def text(self) -> str:
        word = "agrees" if self.difference <= PART else "differs"
        return (
            f"{self.series} at {self.x:g}: {self.measure} live {self.live.mean:.4g}, "
            f"virtual {self.virtual.mean:.4g}: {word} ({self.difference:.1%})"
        )


def chosen(experiment: Experiment) -> Iterator[Point]:
    form = FORMS.get(experiment.id)
    if form is None:
        raise UsageError(f"{experiment.id} has no live form: one of {', '.join(FORMS)}")
    for point in experiment.points:
        if (point.series, point.x) in form.points:
            yield point


def compare(experiment: Experiment, seeds: Sequence[int]) -> Iterator[Pair]:
    form = FORMS.get(experiment.id)
    for point in chosen(experiment):
        assert form is not None
        tables = small(point.config, form.frames)
        both = [
            [way(tables, form.seconds, seed) for seed in seeds] for way in (virtual, live)
        ]  # fmt: skip
        for measure in form.measures:
            found = [estimate([one[measure] for one in some]) for some in both]
            yield Pair(point.series, point.x, measure, found[0], found[1])


def write(path: Path, pairs: Sequence[Pair]) -> None:
    rows = [
        {"series": p.series, "x": p.x, "measure": p.measure,
         **{way: value.to_dict() for way, value in (("virtual", p.virtual), ("live", p.live))}}
        for p in pairs
    ]  # fmt: skip
    path.write_text(json.dumps(rows, indent=1))


def read(path: Path) -> list[Pair]:
    def value(row: dict[str, Any]) -> Estimate:
        mean, half = row["mean"], row["half"]
        return Estimate(
            math.nan if mean is None else mean, math.inf if half is None else half, row["count"]
        )

    try:
        return [
            Pair(row["series"], row["x"], row["measure"], value(row["virtual"]), value(row["live"]))
            for row in json.loads(path.read_text())
        ]
    except (OSError, ValueError, TypeError, LookupError):
        raise FlitnetError(f"{path}: damaged; flitnet lab live makes it anew") from None


def curves(experiment: Experiment, pairs: Sequence[Pair]) -> tuple[Experiment, dict]:
    """Both ways as one experiment that can be drawn."""
    table = {}
    points = []
    for pair in pairs:
        for way, value in (("live", pair.live), ("virtual", pair.virtual)):
            name = f"{pair.series}, {way}"
            table[name, pair.x, pair.measure] = value
            points.append(Point(name, pair.x, {}))
    shown = Experiment(
        id=f"{experiment.id}.live", title=experiment.title, paper=experiment.paper,
        points=tuple(points), x_label=experiment.x_label,
        plots=tuple(Plot(m, m) for m in dict.fromkeys(p.measure for p in pairs)),
    )  # fmt: skip
    return shown, table
