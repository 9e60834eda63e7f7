"""Where results are kept: a file a run, so that nothing is computed twice; Parquet a result.

Runs are named by a hash of everything that decides them (configuration, seed, length, version).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.flitnet.errors import FlitnetError
from tools.flitnet.lab.experiment import Experiment, Point
from tools.flitnet.lab.measures import measures, part_of
from tools.flitnet.lab.simulator import complete, key_of, key_of_text, to_toml, version
from tools.flitnet.lab.statistics import Estimate, estimate


@dataclass(frozen=True)
class Run:
    point: Point
    seed: int
    batches: int

    @property
    def tables(self) -> dict[str, Any]:
        return complete(self.point.config, self.seed, self.batches)

    @property
    def toml(self) -> str:
        return to_toml(self.tables)

    @property
    def key(self) -> str:
        return key_of(self.tables)


class Store:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.runs = directory / "runs"
        self.runs.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> dict[str, Any] | None:
        """What is damaged (a full disk, an editor) is not there: it is computed again."""
        try:
            output = json.loads((self.runs / f"{key}.json").read_text())
            measures(output)
        except (OSError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError):
            return None
        return output

    def put(self, key: str, output: dict[str, Any]) -> None:
        """All or nothing: a kill leaves no half-written result."""
        path = self.runs / f"{key}.json"
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(output))
        part.replace(path)

    def cpu_seconds(self, table_rows: Sequence[dict]) -> dict[str, float]:
        """What each run took of a core, by its key, as far as this store knows."""
        found = {}
        for row in table_rows:
            key = key_of_text(row["version"], row["point"])
            seconds = (self.get(key) or {}).get("cpu_seconds")
            if seconds is not None:
                found[key] = seconds
        return found

    def parquet(self, experiment_id: str, quick: bool) -> Path:
        return self.directory / f"{experiment_id}{'.quick' if quick else ''}.parquet"


def measured(run: Run, output: dict[str, Any]) -> dict[str, float]:
    frame_ms = run.tables.get("workload", {}).get("frame_ms", 1000 / 30)
    if run.point.part is not None:
        output = part_of(output, *run.point.part)
    return measures(output, frame_ms, transient=run.point.transient)


def rows(experiment: Experiment, done: Sequence[tuple[Run, dict[str, Any]]]) -> list[dict]:
    """A row a run, ordered by curve, place and seed."""
    found = []
    for run, output in done:
        row = {
            "id": experiment.id, "series": run.point.series, "x": float(run.point.x),
            "seed": run.seed, "batches": run.batches, "version": version(), "point": run.toml,
        }  # fmt: skip
        found.append(row | measured(run, output))
    return sorted(found, key=lambda row: (row["series"], row["x"], row["seed"]))


FIXED = ("id", "series", "x", "seed", "batches", "version", "point")


def write_parquet(path: Path, table_rows: list[dict]) -> None:
    """The same rows give the same bytes."""
    import pyarrow
    import pyarrow.parquet

    # Points with other flows have other measures.
    names = [*FIXED, *sorted(set().union(*table_rows) - set(FIXED))]
    columns = {name: [row.get(name) for row in table_rows] for name in names}
    part = path.with_suffix(".part")
    pyarrow.parquet.write_table(pyarrow.table(columns), part, compression="zstd")
    part.replace(path)


def read_parquet(path: Path) -> list[dict]:
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        why = str(error).splitlines()[0]
        raise FlitnetError(f"{path}: damaged ({why}); flitnet lab run makes it anew") from None


def estimates(
    table_rows: Sequence[dict], *, of_some: bool = False
) -> dict[tuple[str, float, str], Estimate]:
    """Over the seeds of each place. Where one has no value the place has none, as claims want it,
    or, `of_some`, that of the others, and the count says how many they are."""
    values: dict[tuple[str, float, str], list[float]] = {}
    for row in table_rows:
        for name, value in row.items():
            if name not in FIXED and value is not None:
                values.setdefault((row["series"], row["x"], name), []).append(value)
    if of_some:
        values = {
            key: [value for value in found if not math.isnan(value)]
            for key, found in values.items()
        }  # fmt: skip
    return {key: estimate(found) for key, found in values.items()}
