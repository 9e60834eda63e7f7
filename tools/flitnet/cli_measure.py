"""The commands that measure the project itself: bench, conformance, soak; cli.py has the others."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import typer

from tools.flitnet import options, paths


def bench(
    what: str = typer.Argument(..., metavar="engine|verbs|scale|attach|booksim"),
    json_file: str = options.json_file(
        "Write JSON to FILE; without FILE print it.", "", "[FILE]"
    ),
    quick: bool = typer.Option(False, "--quick", help="Fewer repetitions."),
    sweep: bool = typer.Option(
        False, "--sweep", help="engine: one router at many loads, and more and more routers."
    ),
    threads: bool = typer.Option(
        False, "--threads", help="engine: the same work on one engine thread and on several."
    ),
    plot: Optional[Path] = typer.Option(
        None, "--plot",
        help="engine: draw the sweep into this file (svg, png); scale: the costs; booksim: into a "
        "directory.",
    ),
    reference: Optional[Path] = typer.Option(
        None, "--reference",
        help="engine: another simulator's cost, CSV; adds a column of ratios. "
        "booksim: a directory of its configurations and curves.",
    ),
    booksim: Optional[Path] = typer.Option(
        None, "--booksim", metavar="PROGRAM",
        help="engine: BookSim2's program, whose cost is measured first; adds a column of ratios.",
    ),
) -> None:
    """Measure: flit engine, application to application, calls beside many objects, ways to attach,
    curves by BookSim2's."""
    from tools.flitnet import bench as bench_module

    chosen = bench_module.Options(
        json_file, quick, sweep or (what == "engine" and plot is not None), threads, plot,
        reference, booksim,
    )  # fmt: skip
    raise typer.Exit(bench_module.run(what, chosen))


def conformance(
    rdma_core: Path = typer.Option(..., "--rdma-core", metavar="DIR", help="Checkout of v44.0."),
    modules: list[str] = typer.Argument(None, help="Modules such as test_qp; default: all."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Run rdma-core's own pyverbs tests on a cluster of two nodes."""
    from tools.flitnet import conformance as conformance_module

    raise typer.Exit(conformance_module.run(rdma_core.resolve(), modules or [], as_json))


def soak(
    what: str = typer.Argument(..., metavar="model|live|verbs|hostile|kill"),
    minutes: float = options.number(10.0, 0.01, 100_000, "For so long."),
    seed: int = options.seed(1, "First seed; a failing one is printed."),
    count: int = typer.Option(1000, min=1, help="kill: so many programs."),
) -> None:
    """Random tests for hours if asked: `model` the engine against the plain model; `live`
    unmodified programs on clusters of random designs; `verbs` call sequences against the object
    rules; `hostile` programs that write over their rings; `kill` programs that die anywhere."""
    from tools.flitnet import soak as soak_module

    raise typer.Exit(soak_module.run(what, minutes, seed, count))


COMMANDS = (bench, conformance, soak)


def with_json(argv: list[str]) -> list[str]:
    """`bench`: --json without a file prints; Typer has no options whose value may be left out."""
    at = paths.command_at(argv)
    if argv[at : at + 1] != ["bench"]:
        return argv
    bare = [word == "--json" and (not after or after.startswith("--"))
            for word, after in zip(argv, [*argv[1:], ""])]  # fmt: skip
    return [part for word, alone in zip(argv, bare) for part in ([word, "-"] if alone else [word])]
