"""Whatever ends a command, no process is left that its record does not know."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.apps.interrupts import SIGNALS, interrupted, processes_below
from tools.flitnet import operate, paths, programs, record
from tools.flitnet.cluster import Cluster


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("role", ["fabricd", "--node n1"])
def test_an_interrupted_up_leaves_nothing(tmp_path: Path, role: str, number: int) -> None:
    run = tmp_path / "r"
    done = interrupted(role, number, "--run", str(run), "up", "--topology", "single:2")
    assert (done.returncode, done.stderr.strip()) == (130, "flitnet: interrupted"), done.stdout
    assert processes_below(tmp_path) == []
    assert not run.exists()


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, number: int) -> None:
    run = tmp_path / "r"
    argv = ("demo", "--nodes", "2", "--seconds", "60", "--load", "0.2")
    done = interrupted("flitnet-replay", number, "--run", str(run), *argv)
    assert done.returncode == 130, done.stderr
    assert processes_below(tmp_path) == []
    assert not run.exists()


# Commands that start programs on nodes and wait for them.
WITH_PROGRAMS = pytest.mark.parametrize(
    "argv",
    [("load", "control", "--rate", "1M"),
     ("replay", str(paths.ROOT / "traces/t2_city.ts"), "--from", "n0", "--to", "n1")],
    ids=["load", "replay"],
)  # fmt: skip


@WITH_PROGRAMS
def test_interrupted_programs_are_stopped(cluster2: Cluster, argv: tuple[str, ...]) -> None:
    before = cluster2.record().processes
    role, run = f"flitnet-{argv[0]}", str(cluster2.run)
    done = interrupted(role, signal.SIGTERM, *argv, "--seconds", "60", FLITNET_RUN=run)
    assert done.returncode == 130, done.stderr
    assert cluster2.record().processes == before
    assert not [p for p in processes_below(cluster2.run) if role in p]
    assert not list((cluster2.run / "plans").iterdir()), "nor do their plans stay"
    assert operate.status(cluster2.run, as_json=True) == 0, "the cluster is as it was"


def test_down_is_no_good_end_of_what_runs(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    argv = [paths.ROOT / "flitnet", "load", "control", "--rate", "1M", "--seconds", "600"]
    env = dict(os.environ) | {"FLITNET_RUN": str(cluster.run)}
    with subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True) as running:
        while len(list((cluster.run / "metrics").glob("load-*.page"))) < len(cluster.nodes):
            assert running.poll() is None
            time.sleep(0.02)
        cluster.down()
        _, said = running.communicate(timeout=60)
    assert (running.returncode, said) == (1, "flitnet: the cluster was taken down before the end\n")


@pytest.mark.parametrize("awaited", ["flitnet-replay", "flitnet-load"])
def test_an_interrupted_workload_stops_both_kinds_of_programs(
    cluster2: Cluster, tmp_path: Path, awaited: str
) -> None:
    """Also while they wait for the common beginning."""
    file = tmp_path / "mix.toml"
    file.write_text("[workload]\nload = 0.1\n")
    before = cluster2.record().processes
    argv = ("load", "--workload", str(file), "--seconds", "60")
    done = interrupted(awaited, signal.SIGTERM, *argv, FLITNET_RUN=str(cluster2.run))
    assert done.returncode == 130, done.stderr
    assert cluster2.record().processes == before
    left = processes_below(cluster2.run)
    assert not [p for p in left if "flitnet-replay" in p or "flitnet-load" in p]
    assert not list((cluster2.run / "plans").iterdir())


def test_what_cannot_be_recorded_does_not_stay(
    cluster2: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = cluster2.record().processes
    program = cluster2.run / "plans" / "sleeper"
    program.symlink_to("/bin/sleep")
    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr(record, "write", full)
        cluster2.start("l1:n0", [str(program), "60"])
    assert cluster2.record().processes == before
    assert not [p for p in processes_below(cluster2.run) if "sleeper" in p]
    program.unlink()


def test_a_command_ends_and_leaves_the_files_of_another(cluster2: Cluster) -> None:
    """Names of plans begin with a process number, which may begin with another's."""
    other = cluster2.run / "plans" / "l123-n0.json"
    other.write_text("{}")
    (cluster2.run / "plans" / "l12-n0.json").write_text("{}")
    programs.end(cluster2, "l12")
    assert [path.name for path in (cluster2.run / "plans").iterdir()] == ["l123-n0.json"]
    other.unlink()


@pytest.mark.parametrize("again", [False, True], ids=["gone", "another's"])
def test_daemons_without_a_run_directory_end(make_cluster, tmp_path: Path, again: bool) -> None:
    """As after a SIGKILL between a daemon's start and its entry in the record."""
    cluster = make_cluster(run=tmp_path / "r")
    lost = list(cluster.record().processes.values())
    cluster.run.rename(tmp_path / "moved")
    if again:
        Cluster({"network": {"nodes": 2}}, run=cluster.run).up()
    assert all(process.wait(10) for process in lost)
    assert not again or operate.status(cluster.run, as_json=True) == 0, "theirs are another's"


# The second signal comes where the first has led: into the first steps of the cleaning up.
TWICE = """
import os, signal, sys, time
sys.path.insert(0, {root!r})
from tools.flitnet import cli, programs

def step(frame, event, arg):
    if frame.f_code.co_name in ("end", "uninterrupted"):
        sys.settrace(None)
        os.kill(os.getpid(), signal.SIGINT)

def wait(*_):
    sys.settrace(step)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)

programs.wait = wait
sys.exit(cli.run(sys.argv[1:]))
"""


@WITH_PROGRAMS
def test_a_second_signal_does_not_end_the_cleaning_up(
    cluster2: Cluster, argv: tuple[str, ...]
) -> None:
    before = cluster2.record().processes
    done = subprocess.run(
        [sys.executable, "-c", TWICE.format(root=str(paths.ROOT)), *argv, "--seconds", "60"],
        capture_output=True, text=True, timeout=90, stdin=subprocess.DEVNULL,
        env=dict(os.environ) | {"FLITNET_RUN": str(cluster2.run)},
    )  # fmt: skip
    left = [p for p in processes_below(cluster2.run) if f"flitnet-{argv[0]}" in p]
    assert (done.returncode, done.stderr.strip()) == (130, "flitnet: interrupted")
    assert left == [] and cluster2.record().processes == before
    assert not list((cluster2.run / "plans").iterdir())
