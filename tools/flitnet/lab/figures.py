"""Draws an experiment: one picture a plot, a line a curve, whiskers of 95 % confidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from tools.flitnet.lab.experiment import Experiment, Plot
from tools.flitnet.lab.statistics import Estimate


def draw(
    experiment: Experiment, table: Mapping[tuple[str, float, str], Estimate], directory: Path
) -> list[str]:
    """Names of the SVG files made. The same results give the same bytes."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "flitnet", "font.size": 9, "svg.fonttype": "none"})
    names = []
    for plot in experiment.plots:
        name = f"{experiment.id}.{plot.measure}.svg"
        _draw_one(experiment, plot, table, directory / name)
        names.append(name)
    return names


def _draw_one(experiment: Experiment, plot: Plot, table: Mapping, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    axes = figure.add_subplot()
    series = list(dict.fromkeys(point.series for point in experiment.points))
    for name in series:
        places = sorted(x for s, x, measure in table if s == name and measure == plot.measure)
        values = [table[name, x, plot.measure] for x in places]
        shown = [(x, v) for x, v in zip(places, values) if not math.isnan(v.mean)]
        if not shown:
            continue
        xs = [x for x, _ in shown]
        means = [v.mean for _, v in shown]
        halves = [0 if math.isinf(v.half) else v.half for _, v in shown]
        axes.errorbar(xs, means, yerr=halves, marker="o", markersize=3, capsize=2, label=name)
        theirs = [(x, n) for (s, x, m), n in experiment.numbers.items()
                  if s == name and m == plot.measure]  # fmt: skip
        if theirs:
            color = axes.lines[-1].get_color() if not axes.containers else None
            axes.plot(*zip(*sorted(theirs)), linestyle=":", marker="x", color=color,
                      label=f"{name} (paper)")  # fmt: skip
    if plot.log:
        axes.set_yscale("log")
    axes.set_xlabel(experiment.x_label)
    axes.set_ylabel(plot.label)
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize=7)
    figure.savefig(path, metadata={"Date": None})
