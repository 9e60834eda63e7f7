"""The directory of a cluster while commands meet in it, and when it cannot be removed. A record of
nobody is enough for that: no daemon lives here."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from tools.flitnet import operate, paths, record, rundir
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import FlitnetError, UsageError


@pytest.fixture
def run(tmp_path: Path) -> Path:
    made = tmp_path / "r"
    leave_crashed(made)
    return made


def leave_crashed(run: Path) -> None:
    """What is there of a cluster whose processes all died."""
    for name in ("log", "metrics", "sys", "eal.4711"):
        (run / name / "deeper").mkdir(parents=True)
        (run / name / "deeper" / "file").touch()
    for name in ("cluster.toml", "cluster.toml.new"):  # fabricd dies before it has renamed it
        (run / name).write_text("[network]\nnodes = 2\n")
    record.write(run, record.Record())


def in_own_mounts(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """$0: the command; $1: the folder."""
    own = ["unshare", "--map-root-user", "--mount", "bash", "-c"]
    if subprocess.run([*own, "true"], capture_output=True).returncode:
        pytest.skip("no namespace to mount in")
    argv = [*own, script, str(paths.ROOT / "flitnet"), str(folder)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


def enter(run: Path, said: list[str]) -> None:
    """What `exec` does before it becomes the program."""
    try:
        Cluster.open(run).env("n0")
        said.append("entered")
    except FlitnetError as error:
        said.append(str(error))


def test_down_leaves_nothing_and_may_be_repeated(run: Path) -> None:
    assert Cluster(run=run, owned=False).down() == []
    assert not run.exists()
    assert Cluster(run=run, owned=False).down() == []


def test_a_program_beside_down_makes_nothing(run: Path) -> None:
    """It would stay: then the directory would be somebody else's for `up`, and none for `down`."""
    cluster, said = Cluster.open(run), list[str]()
    beside = threading.Thread(target=enter, args=(run, said))
    with rundir.lock(run):
        (run / record.ENDING).touch()
        beside.start()
        beside.join(0.2)
        assert not (run / "sys" / "nodes").exists()
        cluster._clear()
    beside.join()
    assert said[0].startswith(f"no cluster in {run}; start one with: ")
    assert not run.exists()


def test_a_second_down_stops_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It waited for the first: what ran when it came is not what it stopped."""
    second = threading.Thread(target=operate.down, args=(run,))
    with rundir.lock(run):
        second.start()
        second.join(0.2)
        Cluster(run=run, owned=False)._clear()
    second.join()
    assert capsys.readouterr().out == f"no cluster in {run}\n"


def test_programs_in_a_loop_beside_down(run: Path, tmp_path: Path) -> None:
    over, said, now = threading.Event(), list[str](), [run]

    def loop() -> None:
        while not over.is_set():
            enter(now[-1], said)

    beside = threading.Thread(target=loop)
    beside.start()
    try:
        for i in range(30):
            Cluster(run=now[-1], owned=False).down()
            assert not now[-1].exists()
            leave_crashed(tmp_path / f"r{i}")
            now.append(tmp_path / f"r{i}")
    finally:
        over.set()
        beside.join()
    assert {one.partition(" in ")[0] for one in said} <= {"entered", "no cluster"}


def test_what_has_all_it_needs_waits_for_nobody(run: Path) -> None:
    said: list[str] = []
    enter(run, said)
    with rundir.lock(run):
        enter(run, said)
    assert said == ["entered", "entered"]
    assert (run / "sys/nodes/n0/class/infiniband/flitnet0").is_symlink()


def test_what_cannot_be_removed_is_named_and_stays_ours(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = shutil.rmtree

    def but_for_sys(path: Path) -> None:
        if path.name == "sys":
            raise OSError(16, "Device or resource busy")
        real(path)

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", but_for_sys)
        with pytest.raises(FlitnetError) as failed:
            operate.down(run)
        assert str(failed.value) == (
            f"run directory {run}: sys cannot be removed: Device or resource busy; "
            "again: flitnet down"
        )
    rundir.refuse_strangers(run)
    operate.down(run)
    assert capsys.readouterr().out == "stopped 0 processes\n"
    assert not run.exists()


def test_what_comes_meanwhile_is_removed_too(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, late = shutil.rmtree, ["late"]

    def busy(path: Path) -> None:
        if path.name == "sys" and late:
            (path / late.pop()).touch()
            raise OSError(39, "Directory not empty")
        real(path)

    monkeypatch.setattr(shutil, "rmtree", busy)
    operate.down(run)
    assert not run.exists()


def test_what_is_no_directory_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file: not a directory"):
        Cluster(run=tmp_path / "file", owned=False).up()


@pytest.mark.parametrize(
    "options, reason", [("ro", "Read-only file system"), ("size=16k", "No space left on device")]
)
def test_a_disk_that_takes_nothing_is_named(tmp_path: Path, options: str, reason: str) -> None:
    """Of the first file that is to be written: not of old ones, which nobody could remove there."""
    script = f'mount -t tmpfs -o {options} none "$1" && cd "$1" && "$0" --run . up; echo $? *'
    done = in_own_mounts(script, tmp_path)
    assert done.stderr == f"flitnet: {tmp_path}/processes.json.new: {reason}\n"
    assert done.stdout == "1 *\n"  # nothing is there


def test_down_on_a_disk_without_room_makes_room(tmp_path: Path) -> None:
    """Not even for the mark that the cluster ends, of which commands that wait for it hear."""
    script = """
        mount -t tmpfs -o nr_inodes=20 none "$1" && cd "$1" && mkdir r
        echo '{"owner": null, "processes": {}}' > r/processes.json
        while : > $((n = n + 1)); do :; done 2>/dev/null
        "$0" --run r down; echo $?; ls -d r
    """
    done = in_own_mounts(script, tmp_path)
    assert done.stdout == "stopped 0 processes\n0\n", done
