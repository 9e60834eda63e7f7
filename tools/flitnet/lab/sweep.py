"""Runs everything that experiments need: on a Dask cluster, nothing twice, longer where imprecise.

The driver asks for five seeds of each point at the first length. When all are there and the
confidence interval is wider than the experiment wants, it asks for twice the length or more, by how
much wider it is, up to the largest; and then, in the same way, for more seeds. Whether a claim
holds is never looked at. Simulations are processes of their own, so the local cluster
needs threads only.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tools.flitnet.errors import UsageError
from tools.flitnet.lab.experiment import Experiment, Length, Point
from tools.flitnet.lab.simulator import run_timed
from tools.flitnet.lab.statistics import estimate
from tools.flitnet.lab.store import Run, Store, measured

Outputs = list[tuple[Run, dict[str, Any]]]


@contextmanager
def cluster(workers: int, scheduler: str | None) -> Iterator[Any]:
    """A Dask client: of an existing scheduler, or of a cluster in this process."""
    import dask
    from distributed import Client, LocalCluster

    # Closing times out on a busy machine, and nobody asks for what comes of that: asyncio would say
    # so behind what there is to say.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    if scheduler:
        try:
            elsewhere = Client(scheduler, timeout="10s")
        except (ValueError, OSError) as error:
            raise UsageError(f"--scheduler {scheduler}: {error}") from None
        with elsewhere as client:
            yield client
        return
    # A worker in this process is not lost when the machine was suspended for long.
    with dask.config.set(
        {"distributed.admin.log-length": 0, "distributed.scheduler.worker-ttl": None}
    ):
        with LocalCluster(
            n_workers=1, threads_per_worker=workers, processes=False, memory_limit=0,
            # Dask would listen on every interface, two of its clusters at the same port.
            dashboard_address="127.0.0.1:0", worker_dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as local, Client(local) as client:  # fmt: skip
            yield client


def longer_by(batches: int, needed: float) -> int:
    """The largest doubling of `batches` up to `needed` times it, at least one."""
    times = 2
    while 2 * times <= needed and times < 1024:
        times *= 2
    return batches * times


@dataclass
class Place:
    """One point of one experiment on its way to enough precision."""

    experiment: Experiment
    point: Point
    length: Length
    batches: int
    seeds: int
    outputs: dict[int, dict[str, Any]] = field(default_factory=dict)

    def runs(self) -> list[Run]:
        return [Run(self.point, 1 + n, self.batches) for n in range(self.seeds)]

    def grow(self) -> bool:
        """Asks for more where it is not precise; no: it is, or as large as it may be."""
        excess = self.excess()
        if excess <= 1:
            return False
        # Intervals shrink as the root of the length; what is run again is not run at every doubling
        # below the length that is needed.
        if self.batches < self.length.most:
            self.batches = min(longer_by(self.batches, excess**2), self.length.most)
            return True
        # More seeds give no value to one that has none.
        if self.seeds < self.length.seeds_most and not math.isinf(excess):
            needed = math.ceil(min(self.seeds * excess**2, self.length.seeds_most))
            self.seeds = max(needed, self.seeds + 1)
            return True
        return False

    def excess(self) -> float:
        """The widest interval over the width that it may have."""
        runs = {run.seed: run for run in self.runs()}
        found = [measured(runs[seed], out) for seed, out in self.outputs.items()]
        widest = 0.0
        for name, absolute in self.experiment.precision.items():
            values = [one[name] for one in found]
            # What never came (a class without traffic) asks for nothing; what came to some seeds
            # only is not precise: a longer run may have it at all of them.
            if all(math.isnan(value) for value in values):
                continue
            widest = max(widest, estimate(values).excess(self.experiment.relative, absolute))
        return widest


def sweep(
    experiments: Sequence[Experiment],
    quick: bool,
    store: Store,
    client: Any,
    tell: Callable[[int, int], None] = lambda done, total: None,
    finished: Callable[[Experiment, Outputs], None] = lambda experiment, outputs: None,
) -> None:
    """Calls `tell(done, total)` after every run, and `finished` of each experiment as soon as all
    its runs are there: a sweep that is stopped has kept what it finished."""
    _Sweep(store, client, tell, finished).go(experiments, quick)


class _Sweep:
    def __init__(
        self,
        store: Store,
        client: Any,
        tell: Callable[[int, int], None],
        finished: Callable[[Experiment, Outputs], None],
    ) -> None:
        from distributed import as_completed

        self.store, self.client, self.tell, self.finished = store, client, tell, finished
        self.waiting: dict[str, list[tuple[Place, Run]]] = {}  # by key of the run
        self.futures = as_completed()
        self.done = self.total = 0
        self.places: dict[str, list[Place]] = {}  # by id
        self.open: dict[str, int] = {}  # how many of them still want runs
        self.turn: dict[str, int] = {}  # the order of ids, in which they are run

    def go(self, experiments: Sequence[Experiment], quick: bool) -> None:
        for turn, experiment in enumerate(experiments):
            length = experiment.quick if quick else experiment.full
            places = [
                Place(experiment, point, length, length.batches, experiment.seeds)
                for point in experiment.chosen(quick)
            ]
            self.places[experiment.id] = places
            self.open[experiment.id] = len(places)
            self.turn[experiment.id] = turn
        for places in list(self.places.values()):
            for place in places:
                self.ask(place)
        for future in self.futures:
            self.arrived(future.key, future.result())

    def precise(self, place: Place) -> None:
        id_ = place.experiment.id
        self.open[id_] -= 1
        if self.open[id_] == 0:
            places = self.places.pop(id_)
            self.finished(
                place.experiment,
                [(run, one.outputs[run.seed]) for one in places for run in one.runs()],
            )

    def ask(self, place: Place) -> None:
        while True:
            place.outputs = {}
            missing = []
            for run in place.runs():
                output = self.store.get(run.key)
                if output is None:
                    missing.append(run)
                else:
                    place.outputs[run.seed] = output
            for run in missing:
                self.submit(place, run)
            if missing:
                return
            if not place.grow():
                self.precise(place)
                return

    def submit(self, place: Place, run: Run) -> None:
        """Equal runs of several experiments are one."""
        key = run.key
        others = self.waiting.setdefault(key, [])
        others.append((place, run))
        if len(others) == 1:
            self.total += 1
            # An id's longer runs come before the next id's first ones.
            first = -self.turn[place.experiment.id]
            self.futures.add(self.client.submit(run_timed, run.toml, key=key, priority=first))

    def arrived(self, key: str, output: dict[str, Any]) -> None:
        self.store.put(key, output)
        self.done += 1
        self.tell(self.done, self.total)
        for place, run in self.waiting.pop(key):
            place.outputs[run.seed] = output
            if len(place.outputs) < place.seeds:
                continue
            if place.grow():
                self.ask(place)
            else:
                self.precise(place)
