"""A point of the user's own: a file with a network, a workload and a run, simulated by seeds.

The file has the tables of a cluster file and beside them [workload] (docs/workloads.md) and [run];
tools/sim/point.cc checks every key. In: the file. Out: an experiment of one place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.flitnet import build
from tools.flitnet.config import parse_toml, read_text, with_files
from tools.flitnet.errors import UsageError
from tools.flitnet.lab.experiment import Experiment, Length, Point
from tools.flitnet.lab.simulator import complete, to_toml
from tools.flitnet.lab.statistics import Estimate
from tools.flitnet.toml_text import retold

WHERE = "flitnet-point: standard input"  # how the simulator calls the file


def read(file: Path) -> dict[str, Any]:
    text = read_text(file)
    if "file:" in text:
        build.ready(("fabricd",))  # which counts the nodes of a topology
    tables = parse_toml(with_files(text, file), file.name)
    for name, value in tables.items():
        for table in value if name == "node" and isinstance(value, list) else [value]:
            _check(file, name, table)
    for key, option in (("seed", "--seeds"), ("batches", "--batches")):
        if key in tables.get("run", {}):
            raise UsageError(f"{file.name}: run.{key}: say it by {option}")
    return tables


def _check(file: Path, name: str, table: Any) -> None:
    if not isinstance(table, dict):
        raise UsageError(f"{file.name}: {name}: stands outside of a table, as [network]")
    for key, value in table.items():
        if not _plain(value):
            raise UsageError(f"{file.name}: {name}.{key}: a number, a text or a list of such")


def _plain(value: Any) -> bool:
    """What one line of TOML can hold for the simulator; inf and nan are none."""
    if isinstance(value, list):
        return all(_plain(one) and not isinstance(one, list) for one in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, (bool, int, str))


def experiment(file: Path, seeds: int, batches: int) -> Experiment:
    return Experiment(
        id=file.stem, title=str(file), paper="", points=(Point(file.stem, 0.0, read(file)),),
        full=Length(batches, batches, seeds), seeds=seeds,
    )  # fmt: skip


def of_file(message: str, file: Path, one: Experiment, batches: int) -> str:
    """What the simulator says of the text that it gets, which is not the user's."""
    written = to_toml(complete(one.points[0].config, 1, batches))
    return retold(message, WHERE, written, read_text(file)).replace(WHERE, file.name)


def shown(table: dict[tuple[str, float, str], Estimate]) -> Sequence[tuple[str, Estimate]]:
    """What was measured, without what never came (nan) or is nothing."""
    hidden = ("warm_up_batches", "steady", "stuck")
    return [
        (measure, value) for (_, _, measure), value in table.items()
        if measure not in hidden and not math.isnan(value.mean) and (value.mean or value.half)
    ]  # fmt: skip
