"""A limit of open files that is too low for a cluster: it is named, and what to do."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.flitnet import limits, paths
from tools.flitnet.cluster import Cluster

HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def flitnet(soft: int, hard: int, *argv: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(paths.ROOT / "flitnet"), *map(str, argv)], capture_output=True, text=True, timeout=90,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
    )  # fmt: skip


@pytest.mark.parametrize("files", [20, 64])
def test_too_few(tmp_path: Path, files: int) -> None:
    """Nodes attached in turns for 20 seconds, and nobody said why."""
    run = tmp_path / "r"
    done = flitnet(files, files, "--run", run, "up")
    assert (done.returncode, done.stderr) == (1, (
        f"flitnet: at most {files} open files, and a daemon of this cluster needs 97; raise the "
        "limit: ulimit -n 1024\n"
    ))  # fmt: skip
    assert not run.exists()


def test_daemons_raise_their_own(tmp_path: Path) -> None:
    run = tmp_path / "r"
    try:
        done = flitnet(20, HARD, "--run", run, "up")
        assert done.returncode == 0, done.stderr
        ran = flitnet(20, HARD, "--run", run, "exec", "n0", "--", "ibv_devices")
        assert ran.returncode == 0 and "flitnet0" in ran.stdout, ran
    finally:
        assert flitnet(20, HARD, "--run", run, "down").returncode == 0
    assert not run.exists()


def test_whoever_ends_it_with_too_few_is_told_so(tmp_path: Path) -> None:
    """Of the command line itself: the way into it is bash, which says so in its own words."""
    run = tmp_path / "r"
    program = ("/usr/bin/python3", "-I", str(paths.ROOT / "tools/flitnet/__main__.py"))
    assert flitnet(HARD, HARD, "--run", run, "up").returncode == 0
    failed = 0
    for files in range(5, 32):
        done = subprocess.run(
            [*program, "--run", str(run), "down"], capture_output=True, text=True, timeout=90,
            preexec_fn=lambda files=files: resource.setrlimit(
                resource.RLIMIT_NOFILE, (files, files)
            ),
        )  # fmt: skip
        if done.returncode == 0:
            break
        failed += 1
        assert f"(at most {files}; more by: ulimit -n 1024)" in done.stderr, done.stderr
    assert failed and not run.exists()


@pytest.mark.parametrize("process", ["own", "fabric"])
@pytest.mark.parametrize("nodes", [2, 5])
def test_it_is_not_asked_for_more_than_is_open(
    make_cluster: Callable[..., Cluster], process: str, nodes: int
) -> None:
    cluster = make_cluster({"network": {"nodes": nodes}, "hca": {"process": process}})
    daemons = set(cluster.record().processes.values())
    most = max(len(os.listdir(f"/proc/{daemon.pid}/fd")) for daemon in daemons)
    need = limits.files_of(nodes, nodes, True, process == "fabric")
    assert need / 3 < most < need
