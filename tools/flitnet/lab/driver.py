"""A sweep from the command line: progress while it runs, Parquet and verdicts at the end."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from tools.flitnet.errors import FlitnetError, UsageError
from tools.flitnet.lab import point
from tools.flitnet.lab.experiment import Experiment, unsettled
from tools.flitnet.lab.report import data_name, entry, ours, published, value_rows
from tools.flitnet.lab.statistics import Estimate
from tools.flitnet.lab.store import Store, estimates, rows, write_parquet
from tools.flitnet.lab.sweep import Outputs, cluster, sweep
from tools.flitnet.progress import progress

PIPE_WIDTH = 300


def run(
    chosen: Sequence[Experiment], quick: bool, directory: Path, workers: int, scheduler: str | None
) -> list[dict]:
    store = Store(directory)
    built = [experiment for experiment in chosen if not experiment.missing]

    def finished(experiment: Experiment, outputs: Outputs) -> None:
        write_parquet(store.parquet(experiment.id, quick), rows(experiment, outputs))

    with cluster(workers, scheduler) as client, progress("runs") as tell:
        sweep(built, quick, store, client, tell, finished)
    verdicts = []
    for experiment in chosen:
        one = entry(experiment, store, quick)
        print(f"{experiment.id:10} {one.verdict.word:11} {experiment.paper}")
        for check in one.verdict.checks:
            print(f"           {'+' if check.holds else '-'} {check.text}")
        if places := unsettled(experiment, one.table):
            print(f"             not steady: {places}")
        for sentence in one.verdict.left:
            print(f"             left to full runs: {sentence}")
        verdicts.append(
            {"id": experiment.id, "verdict": one.verdict.word, "paper": experiment.paper,
             "ours": ours(one), "note": one.verdict.note}
        )  # fmt: skip
    return verdicts


def run_point(
    file: Path, seeds: int, batches: int, directory: Path, workers: int, scheduler: str | None
) -> dict[str, dict]:
    """Of a file of the user's own: what was measured, by name."""
    one = point.experiment(file, seeds, batches)
    outputs: Outputs = []
    try:
        with cluster(workers, scheduler) as client, progress("runs") as tell:
            sweep([one], False, Store(directory), client, tell, lambda _, all: outputs.extend(all))
    except UsageError as error:
        raise UsageError(point.of_file(str(error), file, one, batches)) from None
    found = estimates(rows(one, outputs), of_some=True)
    Console().print(_measured(point.shown(found), seeds))
    means = {measure: value for (_, _, measure), value in found.items()}
    if means["stuck"].mean:
        seed, said = next((run.seed, one["stuck"]) for run, one in outputs if one["stuck"])
        print(f"{file.name}: the network stood still with seed {seed}: {said}", file=sys.stderr)
    elif unsettled(one, found):
        print(f"{file.name}: not steady yet; a longer run: --batches", file=sys.stderr)
    return {name: value.to_dict() for name, value in means.items()}


def _measured(values: Sequence[tuple[str, Estimate]], seeds: int) -> Table:
    """The last column, if there is one: of how many seeds a mean is, where not all had a value."""
    table = Table("measure", "mean", "half of the 95 % interval", box=box.SIMPLE_HEAD)
    if any(value.count < seeds for _, value in values):
        table.add_column("seeds")
    for measure, value in values:
        half = "" if math.isinf(value.half) else f"{value.half:.2g}"
        row = [measure, f"{value.mean:.4g}", half]
        table.add_row(*row, *([f"{value.count} of {seeds}"] if value.count < seeds else []))
    return table


def show(chosen: Sequence[Experiment], quick: bool, directory: Path, results: Path) -> None:
    """The values of results, a point a line, for who has a point of their own among them. What was
    not run here is shown as the report in `results` has it."""
    store = Store(directory)
    for experiment in chosen:
        one = entry(experiment, store, quick)
        kind, runs = "quick" if one.quick else "full", store.parquet(experiment.id, one.quick)
        if not one.table and not quick:
            one = published(experiment, store, results)
            kind, runs = "as published", results / data_name(experiment)
        if not one.table:
            again = f"flitnet lab run {experiment.id}{' --quick' if quick else ''}"
            raise FlitnetError(f"{experiment.id} was not run here: {again}")
        print(f"{experiment.id}  {experiment.title} ({kind})")
        measures = [plot.measure for plot in experiment.plots]
        table = Table("series", "at", *measures, box=box.SIMPLE_HEAD)
        for row in value_rows(one):
            table.add_row(*row)
        # Whoever pipes it into a file or `less` wants every digit; no terminal cuts it there.
        Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)
        print(f"every run: {runs}")
