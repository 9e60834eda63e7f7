"""Folders whose names hold what a list, a plan or the loader splits at: all of it works, or one
line says what does not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tools.flitnet import paths
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import UsageError


def build_in(folder: Path) -> Path:
    """A build directory of another name: links to what is in ours."""
    ours = paths.build_dir()
    for place in paths.PROGRAMS.values():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).symlink_to(ours / place)
    return folder


def flitnet(*argv: object, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(paths.ROOT / "flitnet"), *map(str, argv)], capture_output=True, text=True, timeout=90,
        env=dict(os.environ) | env,
    )  # fmt: skip


@pytest.mark.parametrize("dropin", [False, True], ids=["preload", "dropin"])
@pytest.mark.parametrize("name", ["a b", "a:b", "a;b"])
def test_the_build_directory(
    make_cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, dropin: bool
) -> None:
    """The loader takes a blank or a colon for the end of a library's name."""
    monkeypatch.setenv("FLITNET_BUILD", str(build_in(tmp_path / name)))
    cluster = make_cluster()
    ran = cluster.exec("n0", ["ibv_devices"], dropin=dropin)
    assert ran.returncode == 0 and "flitnet0" in ran.stdout and not ran.stderr, ran
    # Another build's beside it, and a node more.
    monkeypatch.setenv("FLITNET_BUILD", str(build_in(tmp_path / "other" / name)))
    ran = cluster.exec("n0,n1", ["ibv_devices"], dropin=dropin)
    assert ran.returncode == 0 and "flitnet1" in ran.stdout and not ran.stderr, ran


def test_the_build_directory_and_the_run_directory(tmp_path: Path) -> None:
    build, run = build_in(tmp_path / "a b"), tmp_path / "c d"
    done = flitnet("--run", run, "up", FLITNET_BUILD=str(build))
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert f"run directory {run}: the build directory has a blank" in done.stderr
    assert not run.exists()
