"""`flitnet lab ...`: list, run, report."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import List, Optional

import typer

from tools.flitnet import build, options, paths

app = typer.Typer(
    help="Reproduces the papers: every table and figure is one named experiment.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
PROGRAM = "flitnet-point"
RESULTS = paths.ROOT / "docs" / "results"  # the report of record


def store_dir() -> Path:
    override = os.environ.get("FLITNET_LAB")
    return Path(override).resolve() if override else paths.build_dir() / "lab"


def at_a_time(workers: int) -> int:
    return workers or len(os.sched_getaffinity(0))


@app.command("list")
def list_() -> None:
    """Every result of the papers by its id, and what is missing for those that cannot run yet."""
    from tools.flitnet.lab.catalog import ALL
    from tools.flitnet.lab.live import FORMS

    for one in ALL.values():
        state = f"not built: {one.missing}" if one.missing else one.title
        print(f"{one.id:10} {state}{' (live, too)' if one.id in FORMS else ''}")


@app.command("run")
def run(
    ids: List[str] = typer.Argument(..., metavar="ID...", help="mw.fig5, a paper (mw), or all."),
    quick: bool = typer.Option(False, "--quick", help="Few points, short runs."),
    workers: int = typer.Option(0, min=0, help="Runs at a time; 0: as many as cores."),
    scheduler: Optional[str] = typer.Option(
        None, metavar="ADDRESS", help="An existing Dask scheduler, tcp://host:port."
    ),
    json_file: Optional[Path] = options.json_file("Write the verdicts here as JSON."),
) -> None:
    """Simulates what is not there yet, judges it, prints the verdicts."""
    from tools.flitnet.lab import catalog, environment

    chosen = catalog.choose(ids)
    environment.enter()
    build.ready((PROGRAM,))
    from tools.flitnet.lab import driver

    verdicts = driver.run(chosen, quick, store_dir(), at_a_time(workers), scheduler)
    if json_file:
        json_file.write_text(json.dumps({"results": verdicts}, indent=1, ensure_ascii=False))


@app.command("point")
def point(
    file: Path = typer.Argument(
        ..., help="TOML: tables of a cluster file, [workload] and [run] (docs/workloads.md)."
    ),
    seeds: int = typer.Option(5, min=1, max=1000, help="Runs, each by a seed of its own."),
    batches: int = typer.Option(16, min=4, max=10**6, help="Of run.batch_cycles, 100000."),
    workers: int = typer.Option(0, min=0, help="Runs at a time; 0: as many as cores."),
    scheduler: Optional[str] = typer.Option(
        None, metavar="ADDRESS", help="An existing Dask scheduler, tcp://host:port."
    ),
    json_file: Optional[Path] = options.json_file("Write what was measured here as JSON."),
) -> None:
    """Simulates a network and a workload of your own, and prints what was measured."""
    from tools.flitnet.lab import environment

    environment.enter()
    build.ready((PROGRAM,))
    from tools.flitnet.lab import driver

    found = driver.run_point(file, seeds, batches, store_dir(), at_a_time(workers), scheduler)
    if json_file:
        json_file.write_text(json.dumps(found, indent=1))


@app.command("show")
def show(
    ids: List[str] = typer.Argument(
        ..., metavar="ID...", help="Results that were run here, or that docs/results has."
    ),
    quick: bool = typer.Option(
        False, "--quick", help="Of quick runs here; else of the full run where there is one."
    ),
) -> None:
    """What was measured at each point: mean and half of the 95 % interval."""
    from tools.flitnet.lab import catalog, environment

    chosen = catalog.choose(ids)
    environment.enter()
    from tools.flitnet.lab import driver

    driver.show(chosen, quick, store_dir(), RESULTS)


@app.command("live")
def live(
    id_: str = typer.Argument(..., metavar="ID", help="An experiment that has a live form."),
    seeds: int = typer.Option(3, min=1, max=20, help="Runs of each point, both ways."),
) -> None:
    """The experiment's small form on a live cluster, beside the same in virtual time."""
    from tools.flitnet.lab import catalog, environment

    chosen = catalog.choose([id_])
    environment.enter()
    build.ready((*build.RUNTIME, PROGRAM))
    from tools.flitnet.lab import live as live_module

    for experiment in chosen:
        pairs = []
        for pair in live_module.compare(experiment, range(1, seeds + 1)):
            print(pair.text(), flush=True)
            pairs.append(pair)
        store_dir().mkdir(parents=True, exist_ok=True)
        live_module.write(store_dir() / f"{experiment.id}.live.json", pairs)


@app.command("report")
def report(
    quick: bool = typer.Option(
        False, "--quick", help="Of quick runs alone; else of the full run where there is one."
    ),
    keep: bool = typer.Option(
        False, "--keep", help="What is there of results that were not run here stays, as it is."
    ),
    directory: Optional[Path] = typer.Option(
        None, "--dir", metavar="DIR", help="Where it is written; default build/lab/report."
    ),
) -> None:
    """One HTML and one Markdown page of every id: paper beside ours, plots, verdict."""
    from tools.flitnet.lab import catalog, environment

    environment.enter()
    from tools.flitnet.lab import report as report_module
    from tools.flitnet.lab.store import Store

    store = Store(store_dir())
    directory = directory or store_dir() / "report"
    page = report_module.write(list(catalog.ALL.values()), store, quick, directory, keep)
    print(page, file=sys.stderr)
