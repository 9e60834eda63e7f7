"""`flitnet bench`: builds and runs a benchmark of tests/bench, which prints for itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.flitnet import bench_scale, bench_verbs, booksim, booksim_cost, build, paths
from tools.flitnet.errors import FlitnetError, UsageError
from tools.flitnet.lab import environment
from tools.flitnet.options import check_writable

PICTURES = (".svg", ".png")
BENCHMARKS = ("engine", "verbs", "scale", "attach", "booksim")


@dataclass(frozen=True)
class Options:
    json_file: str = ""  # "-": print it
    quick: bool = False
    sweep: bool = False
    threads: bool = False
    plot: Path | None = None
    reference: Path | None = None
    booksim: Path | None = None


def run(what: str, options: Options) -> int:
    """With JSON to print the figures alone are on stdout, what people read goes to stderr."""
    if what not in BENCHMARKS:
        raise UsageError(f"bench {what!r}: one of {', '.join(BENCHMARKS)}")
    if what == "booksim":
        return curves(options)
    only_engine = options.sweep or options.threads or options.reference or options.booksim
    if what != "engine" and only_engine:
        raise UsageError(
            f"bench {what}: --sweep, --threads, --reference and --booksim are for engine"
        )
    if what not in ("engine", "scale") and options.plot:
        raise UsageError(f"bench {what}: --plot is for engine, scale and booksim")
    if options.threads and options.sweep:
        raise UsageError("--threads: a run of its own, without --sweep and --plot")
    if options.reference and not options.reference.is_file():
        raise UsageError(f"--reference {options.reference}: no such file")
    if options.booksim:
        booksim_cost.check(options.booksim)
        if options.reference:
            raise UsageError("--booksim measures what --reference reads: one of them")
    if options.plot:
        _check_picture(options.plot)
        environment.enter()  # has matplotlib
    name = f"{what}_bench"
    build.ready((*build.RUNTIME, name) if what in ("verbs", "scale") else (name,))
    if what == "verbs":
        return _verbs(options)
    if what == "scale":
        return _scale(options)
    with tempfile.TemporaryDirectory(prefix="flitnet-bench-") as folder:
        report = Path(folder) / "figures.json"
        reference = _reference(options, Path(folder))
        argv = [str(paths.program(name)), "--json", str(report)]
        argv += ["--quick"] if options.quick else []
        argv += ["--sweep"] if options.sweep else []
        argv += ["--threads"] if options.threads else []
        argv += ["--reference", str(reference)] if reference else []
        code = _measure(argv, dict(os.environ), options.json_file == "-")
        if not report.exists():
            raise FlitnetError(f"{name} wrote no figures (exit code {code})")
        _hand_over(report.read_text(), options)
        if options.plot:
            draw_sweep(json.loads(report.read_text())["results"], options.plot)
    return code


def _reference(options: Options, folder: Path) -> Path | None:
    """A file of another simulator's cost: named, or measured now."""
    if options.booksim is None:
        return options.reference
    file = folder / "booksim.csv"
    print("BookSim2 first, about a minute:", file=sys.stderr, flush=True)
    file.write_text(booksim_cost.measure(
        options.booksim, options.quick, lambda line: print(line, file=sys.stderr, flush=True)
    ))
    return file


def _check_picture(path: Path) -> None:
    if path.suffix not in PICTURES:
        raise UsageError(f"--plot {path}: a name that ends in {' or '.join(PICTURES)}")
    check_writable("--plot", path)


def curves(options: Options) -> int:
    """Latency and throughput beside BookSim2's; --plot and --reference are directories."""
    if options.plot:
        try:
            options.plot.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--plot {options.plot}: {error.strerror}; name a directory") from None
        check_writable("--plot", options.plot / booksim.PICTURE)
        environment.enter()
    build.ready(("engine_curve",))
    prints = options.json_file == "-"
    text = booksim.run(
        options.reference or booksim.REFERENCE, options.quick, options.plot,
        lambda line: print(line, file=sys.stderr if prints else sys.stdout, flush=True),
    )  # fmt: skip
    _hand_over(text, options)
    return 0


def _hand_over(report: str, options: Options) -> None:
    """Figures go where --json says."""
    if options.json_file == "-":
        sys.stdout.write(report)
    elif options.json_file:
        Path(options.json_file).write_text(report)


def _verbs(options: Options) -> int:
    figures = bench_verbs.run(options.quick)
    print(bench_verbs.text(figures), file=sys.stderr)
    _hand_over(json.dumps(figures, indent=1) + "\n", options)
    return 0


def _scale(options: Options) -> int:
    results = bench_scale.run(options.quick, prints=options.json_file != "-")
    _hand_over(json.dumps({"results": results}, indent=1) + "\n", options)
    if options.plot:
        bench_scale.draw(results, options.plot)
    return 0


def draw_sweep(results: list[dict[str, Any]], target: Path) -> None:
    """Two panels: cost against load of one router, and against the number of routers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    one = [(float(r["case"].split("/")[2]), r) for r in results if r["routers"] == 1]
    many = [r for r in results if r["case"].endswith("/0.1")]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    left.plot([load for load, _ in one], [r["ns_per_flit_hop"] for _, r in one], "o-")
    left.set_xlabel("offered load of one 8-port router, VirtualClock")
    right.plot([r["routers"] for r in many], [r["ns_per_flit_hop"] for r in many], "o-")
    right.set_xscale("log", base=2)
    right.set_xlabel("routers (switch, meshes, tori), offered load 0.1")
    for axes in (left, right):
        axes.set_ylabel("ns per flit-hop")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(target)
    pyplot.close(figure)


def _measure(argv: list[str], env: dict[str, str], as_json: bool) -> int:
    sys.stdout.flush()
    out = sys.stderr if as_json else sys.stdout
    return subprocess.run(argv, env=env, stdout=out).returncode
