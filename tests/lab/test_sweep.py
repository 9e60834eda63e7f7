"""Sweeps: nothing is computed twice, a killed one goes on, equal seeds give equal bytes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lab.test_statistics import output
from tools.flitnet import paths
from tools.flitnet.errors import FlitnetError, UsageError
from tools.flitnet.lab import driver
from tools.flitnet.lab import simulator as simulator_module
from tools.flitnet.lab import sweep as sweep_module
from tools.flitnet.lab.claims import Below
from tools.flitnet.lab.experiment import SEEDS, Experiment, Length, Plot, Point
from tools.flitnet.lab.report import write
from tools.flitnet.lab.simulator import complete, to_toml
from tools.flitnet.lab.store import Run, Store, measured, read_parquet, rows, write_parquet
from tools.flitnet.lab.sweep import Outputs, cluster, longer_by, sweep
from tools.flitnet.process import ProcessId

pytest.importorskip("distributed")
pytest.importorskip("pyarrow")


def small(load: float, batches_cycles: int = 2000) -> dict:
    return {
        "network": {"nodes": 4},
        "workload": {"streams": "none", "load": load, "message_flits": 20},
        "run": {"batch_cycles": batches_cycles},
    }


def experiment(most: int = 4, seeds_most: int = len(SEEDS), **fields) -> Experiment:
    return Experiment(
        id="t.one", title="a test", paper="Latency grows with load.",
        points=(Point("low", 0.2, small(0.2)), Point("high", 0.2, small(0.6))),
        plots=(Plot("best_effort_network_us", "us"),),
        claims=(Below("best_effort_network_us", (0.2,), "low", "high"),),
        quick=Length(4, most, seeds_most), full=Length(4, most, seeds_most), **fields,
    )  # fmt: skip


class Counting:
    """A client that writes down every point it is given to simulate."""

    def __init__(self, client, calls: list[str]) -> None:
        self.client, self.calls = client, calls

    def submit(self, function, toml: str, **options):
        self.calls.append(toml)
        return self.client.submit(function, toml, **options)


def outputs_of(experiments: list[Experiment], store: Store, client) -> dict[str, Outputs]:
    found = {}
    sweep(experiments, True, store, client, finished=lambda one, out: found.update({one.id: out}))
    return found


def swept(one: Experiment, directory: Path, calls: list[str] | None = None) -> bytes:
    store = Store(directory)
    with cluster(2, None) as client:
        outputs = outputs_of([one], store, Counting(client, [] if calls is None else calls))
    path = store.parquet(one.id, True)
    write_parquet(path, rows(one, outputs[one.id]))
    return path.read_bytes()


def test_nothing_is_computed_twice(simulator, tmp_path: Path) -> None:
    calls: list[str] = []
    first = swept(experiment(), tmp_path, calls)
    assert len(calls) == len(set(calls)) == 2 * len(SEEDS)
    assert swept(experiment(), tmp_path, calls) == first
    assert len(calls) == 2 * len(SEEDS)


def test_the_default_written_out_changes_nothing() -> None:
    """Load without pulses has a warm-up, whether the file leaves them out or says so."""
    growing = output(
        best_effort_messages=[10] * 4, best_effort_network_cycles=[5000, 300, 301, 300],
        best_effort_flits=[400, 100, 100, 100],
    )  # fmt: skip
    written, left_out, pulses = (
        measured(Run(Point("a", 0.2, {"workload": keys}), 1, 4), growing)
        for keys in ({"pulse_cycles": 0}, {}, {"pulse_cycles": 500})
    )
    assert str(written) == str(left_out)  # as text: nan is not itself
    assert written["warm_up_batches"] == 1 and pulses["warm_up_batches"] == 0


def test_equal_runs_of_two_experiments_are_one(simulator, tmp_path: Path) -> None:
    calls: list[str] = []
    one = experiment()
    other = Experiment(**{**vars(one), "id": "t.other"})
    with cluster(2, None) as client:
        outputs = outputs_of([one, other], Store(tmp_path), Counting(client, calls))
    assert len(calls) == 2 * len(SEEDS)
    assert [o for _, o in outputs["t.one"]] == [o for _, o in outputs["t.other"]]


def test_a_result_is_there_before_the_next_is_run(simulator, tmp_path: Path) -> None:
    """With its longer runs: a sweep that is stopped has kept all that it finished."""
    one = experiment(most=8, precision={"best_effort_network_us": 0.0}, relative=1e-6)
    first = replace(one, points=one.points[:1])
    others = tuple(Point(f"at {load}", load, small(load)) for load in (0.25, 0.3, 0.35, 0.4))
    second = replace(experiment(), points=others, id="t.other")
    store = Store(tmp_path)
    there = {}

    def finished(experiment: Experiment, outputs: Outputs) -> None:
        there[experiment.id] = len(list(store.runs.glob("*.json")))

    with cluster(1, None) as client:
        sweep([first, second], True, store, client, finished=finished)
    runs = 2 * len(SEEDS)  # of the first: short ones and longer ones
    # Some of the second's have gone on while the first's longer ones were asked for.
    assert runs <= there["t.one"] < runs + 2 * len(SEEDS)
    assert there["t.other"] == runs + 4 * len(SEEDS)


def test_same_id_and_seed_are_the_same_bytes(simulator, tmp_path: Path) -> None:
    assert swept(experiment(), tmp_path / "a") == swept(experiment(), tmp_path / "b")


def test_imprecise_points_run_longer(simulator, tmp_path: Path) -> None:
    calls: list[str] = []
    one = experiment(most=16, precision={"best_effort_network_us": 0.0}, relative=1e-6)
    swept(one, tmp_path, calls)
    lengths = {int(toml.split("batches = ")[1].split()[0]) for toml in calls}
    assert lengths == {4, 16}  # far from precise: the length between would be for nothing
    table = read_parquet(tmp_path / "t.one.quick.parquet")
    assert {row["batches"] for row in table} == {16}
    assert len(table) == 2 * len(SEEDS)


def test_what_length_does_not_make_precise_gets_more_seeds(simulator, tmp_path: Path) -> None:
    calls: list[str] = []
    one = experiment(seeds_most=9, precision={"best_effort_network_us": 0.0}, relative=1e-6)
    swept(one, tmp_path, calls)
    assert len(calls) == len(set(calls)) == 2 * 9, "the seeds that there were are not run again"
    table = read_parquet(tmp_path / "t.one.quick.parquet")
    assert sorted(row["seed"] for row in table if row["series"] == "low") == list(range(1, 10))
    precise = experiment(seeds_most=9, precision={"best_effort_network_us": 1e6})
    swept(precise, tmp_path)
    assert len(read_parquet(tmp_path / "t.one.quick.parquet")) == 2 * len(SEEDS)


def test_a_seed_without_a_value_is_not_precise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer run may have one; more seeds do not give it one. Without any there is no traffic."""
    monkeypatch.setattr(sweep_module, "measured", lambda _, output: output)
    one = experiment(most=16, seeds_most=9, precision={"dmp": 1.0})
    place = sweep_module.Place(one, one.points[0], one.quick, 4, 5)
    place.outputs = {seed: {"dmp": 0.5} for seed in SEEDS}
    assert not place.grow()
    place.outputs[3] = {"dmp": math.nan}
    assert place.grow() and (place.batches, place.seeds) == (16, 5)
    assert not place.grow() and place.seeds == 5
    place.outputs = {seed: {"dmp": math.nan} for seed in SEEDS}
    place.batches = 4
    assert not place.grow()


def test_runs_grow_by_what_their_intervals_lack() -> None:
    assert [longer_by(4, needed) for needed in (1.1, 3.9, 4, 7, 8, 1e12)] == [
        8, 8, 16, 16, 32, 4096,
    ]  # fmt: skip


def listening() -> set[str]:
    """Addresses at which this process listens, as /proc/net spells them."""
    mine = set()
    for fd in Path("/proc/self/fd").iterdir():
        try:
            mine.add(os.readlink(fd))
        except FileNotFoundError:
            continue  # the one that listed them
    rows = [line.split() for name in ("tcp", "tcp6")
            for line in Path(f"/proc/self/net/{name}").read_text().splitlines()[1:]]  # fmt: skip
    listens = "0A"
    return {row[1].split(":")[0] for row in rows
            if row[3] == listens and f"socket:[{row[9]}]" in mine}  # fmt: skip


def test_what_dask_leaves_behind_is_not_said(caplog: pytest.LogCaptureFixture) -> None:
    """On a busy machine it times out as it closes, and asks for none of what comes of that."""

    async def leave() -> None:
        asyncio.get_running_loop().create_future().set_exception(TimeoutError())
        gc.collect()

    with cluster(1, None) as client:
        client.sync(leave)
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_clusters_side_by_side_listen_on_loopback_only(recwarn) -> None:
    with cluster(1, None), cluster(1, None):
        assert listening() <= {"0100007F"}
    assert not [w for w in recwarn if "already in use" in str(w.message)]


def test_a_row_says_everything(simulator, tmp_path: Path) -> None:
    swept(experiment(), tmp_path)
    row = read_parquet(tmp_path / "t.one.quick.parquet")[0]
    assert (row["id"], row["series"], row["seed"]) == ("t.one", "high", 1)
    assert row["version"] == simulator_module.version()
    # The row's own text is the run again.
    again = simulator_module.run_text(row["point"])
    store_key = Run(experiment().points[1], 1, 4).key
    kept = Store(tmp_path).get(store_key)
    assert kept is not None and kept.pop("cpu_seconds") >= 0
    assert again == kept


def test_what_simulations_cost_is_time_of_a_core(simulator) -> None:
    """Not of the wall's clock: a suspended or shared machine makes nothing dearer."""
    toml = to_toml(complete(small(0.6), 1, 400))
    before = os.times()
    cpu_seconds = simulator_module.run_timed(toml)["cpu_seconds"]
    after = os.times()
    spent = after.children_user + after.children_system
    spent -= before.children_user + before.children_system
    assert 0 < cpu_seconds <= spent + 0.02  # os.times counts in hundredths


def test_a_simulation_without_end_is_stopped(simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator_module, "CPU_LIMIT_S", 1)
    with pytest.raises(FlitnetError, match="longer than 1 s of a core"):
        simulator_module.run_text(to_toml(complete(small(0.6, 1_000_000), 1, 1000)))


def test_a_simulation_that_fails_says_why(simulator) -> None:
    with pytest.raises(FlitnetError, match="nodes"):
        simulator_module.run_text(to_toml(complete(small(0.6) | {"network": {"nodes": -4}}, 1, 4)))


def test_report_of_a_sweep(simulator, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    swept(experiment(), tmp_path)
    missing = Experiment(id="t.two", title="later", paper="Something.", missing="a router")
    written = []
    for name in ("a", "b"):
        page = write([experiment(), missing], Store(tmp_path), True, tmp_path / name, False)
        files = [p for p in page.parent.rglob("*") if p.is_file()]
        written.append({str(p.relative_to(page.parent)): p.read_bytes() for p in files})
    assert written[0] == written[1]
    summary = json.loads(written[0]["summary.json"])["results"]
    assert [(r["id"], r["verdict"]) for r in summary] == [
        ("t.one", "reproduced"), ("t.two", "not built"),
    ]  # fmt: skip
    assert set(summary[0]) == {"id", "verdict", "paper", "ours", "note"}
    assert b"t.one.best_effort_network_us.svg" in written[0]["README.md"]
    assert b"(data/t.one.parquet)" in written[0]["README.md"]
    assert written[0]["data/t.one.parquet"] == Store(tmp_path).parquet("t.one", True).read_bytes()
    runs = 2 * len(SEEDS)
    assert f"; {runs} simulations that no result above has, 0.".encode() in written[0]["README.md"]
    assert f"All {runs} simulations took 0.".encode() in written[0]["index.html"]


def test_the_values_of_a_sweep_are_shown(
    simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"

    def shown(quick: bool, store: Path) -> str:
        driver.show([experiment()], quick, store, results)
        return capsys.readouterr().out

    with pytest.raises(FlitnetError, match="was not run here: flitnet lab run"):
        shown(True, tmp_path)
    driver.run([experiment()], True, tmp_path, 1, None)
    capsys.readouterr()
    said = shown(True, tmp_path)
    for point in experiment().points:
        assert point.series in said, said
    assert str(Store(tmp_path).parquet(experiment().id, True)) in said.replace("\n", "")
    assert "…" not in said, "a pipe has no columns to spare"

    # Elsewhere, where nothing was run, the report has it.
    pytest.importorskip("matplotlib")
    write([experiment()], Store(tmp_path), True, results, False)
    nothing = tmp_path / "nothing"
    published = shown(False, nothing)
    assert said.splitlines()[1:-1] == published.splitlines()[1:-1]
    assert "as published" in published and "data/t.one.parquet" in published.replace("\n", "")
    with pytest.raises(FlitnetError, match="was not run here"):
        shown(True, nothing)


def test_what_results_share_is_counted_once(simulator, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    one, same = experiment(), replace(experiment(), id="t.same")
    store = Store(tmp_path)
    swept(one, tmp_path)
    rows_of_one = read_parquet(store.parquet("t.one", True))
    write_parquet(store.parquet("t.same", True), [row | {"id": "t.same"} for row in rows_of_one])
    write([one, same], store, True, tmp_path / "page", False)
    text = (tmp_path / "page/README.md").read_text()
    assert text.count("simulations that no result above has") == 1
    assert f"All {2 * len(SEEDS)} simulations" in text


def test_a_report_takes_the_full_run_where_there_is_one(simulator, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    swept(experiment(), tmp_path)
    store, page = Store(tmp_path), tmp_path / "page"

    def text(quick: bool) -> str:
        write([experiment()], store, quick, page, False)
        return (page / "README.md").read_text()

    assert "1 by quick runs" in text(False) and "A quick run, simulator" in text(False)
    shutil.copy(store.parquet("t.one", True), store.parquet("t.one", False))
    assert "1 by full runs" in text(False) and "A full run, simulator" in text(False)
    assert "by full runs" not in text(True), "asked for quick runs alone"


def test_a_report_may_keep_what_was_run_elsewhere(simulator, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    swept(experiment(), tmp_path)
    two = Experiment(id="t.two", title="later", paper="Something.", points=experiment().points)
    directory = tmp_path / "page"
    names = ("README.md", "index.html", "summary.json")

    def pages(where: Path, keep: bool) -> list[str]:
        write([experiment(), two], Store(where), True, directory, keep)
        return [(directory / name).read_text() for name in names]

    first = pages(tmp_path, False)
    nothing = tmp_path / "nothing"
    assert pages(nothing, True) == first
    assert pages(nothing, True) == first
    assert "reproduced" not in pages(nothing, False)[2]


SWEEP = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.lab.test_sweep import experiment, small
from tools.flitnet.lab.experiment import Experiment, Point
from tools.flitnet.lab.store import Store
from tools.flitnet.lab.sweep import cluster, sweep
one = experiment()
points = tuple(Point(str(i), 0.2, small(0.2 + i / 100, 300_000)) for i in range(4))
one = Experiment(**{{**vars(one), "points": points}})
with cluster(1, None) as client:
    sweep([one], True, Store(Path(sys.argv[1])), client)
print("done")
"""


def test_a_killed_sweep_goes_on(simulator, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", SWEEP.format(root=str(paths.ROOT)), str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, start_new_session=True) as running:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("runs/*.json"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(running.pid, signal.SIGKILL)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.glob("runs/*.json")}
    assert 3 <= len(before) < 4 * len(SEEDS), "killed in the middle"
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.stdout == "done\n", done.stderr
    after = {p: p.stat().st_mtime_ns for p in tmp_path.glob("runs/*.json")}
    assert len(after) == 4 * len(SEEDS)
    assert before.items() <= after.items(), "what was there was left alone"
    assert not [p for p in tmp_path.glob("runs/*.part") if str(running.pid) not in p.name]


def simulations(pid: int) -> list[ProcessId]:
    """Children of the process that have become one; it has others, which soon end."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in task.read_text().split():
                if Path(f"/proc/{child}/comm").read_text() == "flitnet-point\n":
                    found.append(ProcessId.of(int(child)))
    return [child for child in found if child]


def test_a_killed_sweep_leaves_no_simulation(simulator, tmp_path: Path) -> None:
    """Only the command is killed: by its user, or because memory ran out."""
    script = SWEEP.format(root=str(paths.ROOT)).replace("300_000", "30_000_000")  # minutes each
    argv = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as running:
        try:
            deadline = time.monotonic() + 60
            while not (found := simulations(running.pid)) and time.monotonic() < deadline:
                time.sleep(0.02)
        finally:
            running.kill()
    assert found and all(child.wait(10) for child in found)


def test_a_suspended_sweep_goes_on(simulator, tmp_path: Path) -> None:
    """For longer than Dask waits for a heartbeat, here five seconds, by default five minutes: as on
    a laptop that was shut."""
    argv = [sys.executable, "-c", SWEEP.format(root=str(paths.ROOT)), str(tmp_path)]
    env = dict(os.environ) | {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "1s"}
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, env=env, start_new_session=True
    ) as running:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("runs/*.json"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(running.pid, signal.SIGSTOP)
        time.sleep(7)
        os.killpg(running.pid, signal.SIGCONT)
        try:
            assert running.communicate(timeout=60)[0] == "done\n"
        finally:
            running.kill()
    assert len(list(tmp_path.glob("runs/*.json"))) == 4 * len(SEEDS)


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", '{"frames": [1]}', "NaN", "\ufffd"])
def test_a_damaged_run_is_computed_again(simulator, tmp_path: Path, damage: str) -> None:
    calls: list[str] = []
    first = swept(experiment(), tmp_path, calls)
    key = Run(experiment().points[0], 2, 4).key
    (tmp_path / "runs" / f"{key}.json").write_text(damage)
    assert swept(experiment(), tmp_path, calls) == first
    assert len(calls) == 2 * len(SEEDS) + 1, "that run and no other"


def test_damaged_results_are_one_line(tmp_path: Path) -> None:
    for name in ("t.one.quick.parquet", "t.one.live.json"):
        store = Store(tmp_path / name)
        (tmp_path / name / name).write_text("PAR1 cut off")
        with pytest.raises(FlitnetError, match=f"{name}: damaged") as failed:
            write([experiment()], store, True, tmp_path / "report", False)
        assert "\n" not in str(failed.value)
    for name in ("summary.json", "README.md", "index.html"):
        (tmp_path / name).write_text('{"results": [{"id": "t.one", "verdict": "differs"}]}')
    with pytest.raises(FlitnetError, match="has no whole report"):
        write([experiment()], Store(tmp_path / "empty"), True, tmp_path, True)


def test_a_scheduler_elsewhere_is_used(simulator, tmp_path: Path) -> None:
    """As over several hosts: scheduler and worker are processes of their own."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0
    ) as elsewhere:
        with cluster(1, elsewhere.scheduler_address) as client:
            outputs = outputs_of([experiment()], Store(tmp_path), client)
    assert len(outputs["t.one"]) == 2 * len(SEEDS)


def test_an_address_that_is_none_is_one_line() -> None:
    with pytest.raises(UsageError, match="--scheduler nonsense: "):
        with cluster(1, "nonsense"):
            pass


def test_a_bad_point_says_why(simulator) -> None:
    with pytest.raises(Exception, match="workload.load: must be a number from 0 to 2"):
        simulator_module.run_text("[workload]\nload = 7\n")
