"""`flitnet bench scale`: what verbs calls cost beside one object of a kind and beside thousands.

One program with a device on each of two nodes, on a fabric that passes packets through.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path
from typing import Any

from tools.flitnet import paths
from tools.flitnet.bench_verbs import PASS_THROUGH
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import FlitnetError


def run(quick: bool, prints: bool) -> list[dict[str, Any]]:
    """Medians: call, kind of objects, their count, ns. `prints`: progress goes to stdout."""
    with Cluster(PASS_THROUGH) as cluster, tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "figures.json"
        argv = [str(paths.program("scale_bench")), "--json", str(report)]
        argv += ["--quick"] if quick else []
        sys.stdout.flush()
        out = sys.stdout if prints else sys.stderr
        done = subprocess.run(argv, env=cluster.env("n0,n1"), stdout=out)
        if done.returncode != 0 or not report.exists():
            raise FlitnetError(f"scale_bench wrote no figures (exit code {done.returncode})")
        return json.loads(report.read_text())["results"]


def curves(results: list[dict[str, Any]], objects: str) -> dict[str, list[tuple[int, float]]]:
    """Of each call the points (count, us) beside so many of these objects."""
    chosen = sorted((r for r in results if r["objects"] == objects), key=lambda r: r["call"])
    return {
        call: sorted((r["count"], r["median_ns"] / 1e3) for r in group)
        for call, group in groupby(chosen, key=lambda r: r["call"])
    }


def draw(results: list[dict[str, Any]], target: Path) -> None:
    """Two panels: against the number of QPs and of MRs, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4.5), sharey=True)
    for axes, objects in zip(panels, ("QPs", "MRs"), strict=True):
        for call, points in curves(results, objects).items():
            axes.loglog(*zip(*points, strict=True), "o-", label=call, markersize=3)
        axes.set_xlabel(f"{objects} that exist")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7, ncols=2)
    panels[0].set_ylabel("median, us")
    figure.tight_layout()
    figure.savefig(target)
    pyplot.close(figure)
