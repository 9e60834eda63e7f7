"""An experiment is data: points to simulate, what to draw, what the paper says, how to judge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.flitnet.lab.claims import NOTHING, Check, Claim, Table

Tables = Mapping[str, Any]  # sections of a point: network, qos, workload, run ...; node: a list
SEEDS = (1, 2, 3, 4, 5)
QUICK_SEEDS_MOST = 10
STEADY_LEAST = 0.5  # part of the runs of a place


@dataclass(frozen=True)
class Point:
    """One place of one curve. `config` is complete but for the seed and the length."""

    series: str
    x: float
    config: Tables
    quick: bool = True  # part of --quick
    # Of a run in phases the one that this place is: which of how many equal parts. Points with the
    # same configuration share their runs.
    part: tuple[int, int] | None = None

    @property
    def transient(self) -> bool:
        """What follows a change is measured, and no steady state: load in pulses, shares in phases
        and links that fail are followed from an empty network on, as VCT figures 2 to 8 are, and a
        phase by itself from the change that begins it. tools/sim/point.cc says the same."""
        workload, run = (self.config.get(name, {}) for name in ("workload", "run"))
        return (
            self.part is not None
            or bool(workload.get("pulse_cycles"))  # 0, the default, is none
            or len(workload.get("phases", ())) > 1
            or bool(run.get("failures"))
        )


@dataclass(frozen=True)
class Length:
    """How much is run of a point: batches at first, and at most when precision asks for more. What
    length does not make precise, because it differs from seed to seed, gets more replications."""

    batches: int
    most: int
    seeds_most: int = 20


def quick_length(batches: int, seeds_most: int = QUICK_SEEDS_MOST) -> Length:
    """Of one length: ten minutes are for all ids together."""
    return Length(batches, batches, seeds_most)


@dataclass(frozen=True)
class Plot:
    measure: str
    label: str
    log: bool = False


@dataclass(frozen=True)
class Experiment:
    id: str
    title: str
    paper: str  # what it says, in a sentence
    x_label: str = "load"
    points: tuple[Point, ...] = ()
    plots: tuple[Plot, ...] = ()
    claims: tuple[Claim, ...] = ()
    # The paper's numbers, by series, x and measure.
    numbers: Mapping[tuple[str, float, str], float] = field(default_factory=dict)
    ratio_most: float = 0.0  # numbers: largest factor between ours and the paper's; 0: not judged
    quick: Length = Length(8, 8)
    full: Length = Length(16, 64)
    # Precision at which a run is long enough: of these measures, relative and absolute half width.
    precision: Mapping[str, float] = field(default_factory=dict)
    relative: float = 0.05
    seeds: int = len(SEEDS)  # replications; more where a seed draws few things of weight
    missing: str = ""  # what has to be built first; then there are no points
    reason: str = ""  # if it differs: most likely why, as far as it was studied
    open: str = ""  # what the paper leaves open here, and what was chosen

    def chosen(self, quick: bool) -> tuple[Point, ...]:
        return tuple(p for p in self.points if p.quick or not quick)


@dataclass(frozen=True)
class Verdict:
    word: str  # reproduced, differs, not built, not run
    checks: tuple[Check, ...] = ()
    note: str = ""
    left: tuple[str, ...] = ()  # claims that only full runs are asked for


def judge(experiment: Experiment, table: Table, quick: bool = False) -> Verdict:
    """Holds every claim, point by point, against the results that there are."""
    if experiment.missing:
        return Verdict("not built", note=experiment.missing)
    if not table:
        return Verdict("not run")
    seeds = min(value.count for value in table.values())
    asked = _asked(experiment, table, quick)
    left = tuple(claim.sentence() for claim in asked if quick and claim.full)
    checks = [claim.check(table) for claim in asked if not (quick and claim.full)]
    if experiment.ratio_most:
        checks.append(ratio_check(experiment, table))
    if seeds < len(SEEDS):
        return Verdict("differs", tuple(checks), f"only {seeds} seeds: nothing is decided", left)
    checks += stuck_check(table)
    holds = bool(checks) and all(check.holds for check in checks)
    note = "" if holds else "; ".join(c.text for c in checks if not c.holds)
    if not holds and experiment.reason:
        note += f". Most likely because {experiment.reason}"
    return Verdict("reproduced" if holds else "differs", tuple(checks), note, left)


def _asked(experiment: Experiment, table: Table, quick: bool) -> list[Claim]:
    """Claims at the places that were run: what --quick leaves out is not asked of quick runs."""
    left_out = _left_out(experiment, table) if quick else set()
    asked = []
    for claim in experiment.claims:
        names = claim.series_names()
        places = tuple(x for x in claim.at if not any((name, x) in left_out for name in names))
        if len(places) >= claim.places_least:
            asked.append(type(claim)(**{**vars(claim), "at": places}))
    return asked


def _left_out(experiment: Experiment, table: Table) -> set[tuple[str, float]]:
    """Places that --quick does not run, where nothing was."""
    ran = {(series, x) for series, x, _ in table}
    return {(p.series, p.x) for p in experiment.points if not p.quick} - ran


def stuck_check(table: Table) -> list[Check]:
    """A network that stands still measures nothing but its deadlock."""
    places = sorted(
        f"{series} at {x:g}" for (series, x, measure), value in table.items()
        if measure == "stuck" and value.mean > 0
    )  # fmt: skip
    return [Check(False, f"stood still at the end of a run: {', '.join(places)}")] if places else []


def unsettled(experiment: Experiment, table: Table) -> str:
    """Where latency was still changing at the end of most runs: a queue that only grows, or runs
    that are too short. Empty if nowhere; a series and its places each."""
    transient = {(p.series, p.x) for p in experiment.points if p.transient}
    places: dict[str, list[float]] = {}
    for (series, x, measure), value in sorted(table.items()):
        if measure == "steady" and value.mean < STEADY_LEAST and (series, x) not in transient:
            places.setdefault(series, []).append(x)
    return "; ".join(f"{s} at {', '.join(f'{x:g}' for x in xs)}" for s, xs in places.items())


def ratios(experiment: Experiment, table: Table) -> dict[tuple[str, float, str], float]:
    """Ours over the paper's; nan where a run that was asked for has none. Of a 0 in the paper 0 is
    the same and all else infinitely more."""
    left_out = _left_out(experiment, table)
    found = {}
    for key, theirs in experiment.numbers.items():
        if key[:2] in left_out:
            continue
        mine = table.get(key, NOTHING).mean
        same = 1.0 if mine == 0 else math.copysign(math.inf, mine)
        found[key] = mine / theirs if theirs or math.isnan(mine) else same
    return found


def ratio_check(experiment: Experiment, table: Table) -> Check:
    found = ratios(experiment, table)
    most = experiment.ratio_most
    outside = {k: r for k, r in found.items() if not 1 / most <= r <= most}
    worst = ", ".join(
        f"{s} at {x:g}: {'no value' if math.isnan(r) else f'{r:.2f}×'}"
        for (s, x, _), r in sorted(outside.items())
    )
    text = f"{len(found) - len(outside)} of {len(found)} numbers within {most:g}×"
    return Check(bool(found) and not outside, f"{text}{'; outside: ' + worst if worst else ''}")
