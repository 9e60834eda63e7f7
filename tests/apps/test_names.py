"""Folders whose names hold what a list, a plan or the loader splits at: all of it works, or one
line says what does not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.flitnet import paths, programs, scenario
from tools.flitnet.cluster import Cluster
from tools.flitnet.workload import Workload


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
        errors="backslashreplace", env=dict(os.environ) | env,
    )  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Names a run directory; what is in it at the end of the test is taken down."""
    named: list[Path] = []

    def name(last: str) -> Path:
        named.append(tmp_path / last)
        return named[-1]

    yield name
    for one in named:
        flitnet("--run", one, "down")


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


def test_the_build_directory_and_the_run_directory(
    tmp_path: Path, run: Callable[[str], Path]
) -> None:
    build, there = build_in(tmp_path / "a b"), run("c d")
    done = flitnet("--run", there, "up", FLITNET_BUILD=str(build))
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert f"run directory {there}: the build directory has a blank" in done.stderr
    assert not there.exists()


@pytest.mark.parametrize("name", [b"a:b", b"a,b", b"a#b", b"a\nb", b"a\xff"])
def test_the_run_directory(run: Callable[[str], Path], name: bytes) -> None:
    """Of sockets a list is made, of its files a plan: half of it worked."""
    there = run(os.fsdecode(name))
    done = flitnet("--run", there, "up")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    says = f"run directory {str(there)!r}: must be of printable UTF-8 without : , and #"
    assert says in done.stderr
    assert not there.exists()
    for command in (["down"], ["status"], ["log"]):
        for encoding in ("utf-8", "ascii"):
            done = flitnet("--run", there, *command, PYTHONIOENCODING=encoding)
            assert "Traceback" not in done.stderr, done.stderr
            assert "no cluster in " in done.stdout + done.stderr, done


TOPOLOGY = """
[[switch]]
name = "s"
ports = 4
[[node]]
at = "s:0"
[[node]]
at = "s:1"
"""


@pytest.mark.parametrize("named", ["option", "cluster file"])
def test_the_folder_of_a_topology(
    tmp_path: Path, run: Callable[[str], Path], named: str
) -> None:
    """TOML is UTF-8, and names of folders are any bytes."""
    folder = tmp_path / os.fsdecode(b"a\xff")
    folder.mkdir()
    (folder / "c.toml").write_text('[network]\ntopology = "file:net.toml"\n')
    how = ["--topology", f"file:{folder}/net.toml"] if named == "option" else [folder / "c.toml"]
    for content, says in (
        (TOPOLOGY, "not UTF-8, as TOML is"),
        ("[[switch]]\n", ""),  # of which the reader of topologies complains
    ):
        (folder / "net.toml").write_text(content)
        done = flitnet("--run", run("r"), "up", *how)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert "net.toml" in done.stderr and says in done.stderr


def test_a_topology_beside_named_nodes(tmp_path: Path, run: Callable[[str], Path]) -> None:
    """Its file is where the command line says, also if a cluster file has names for its nodes."""
    (tmp_path / "net.toml").write_text(TOPOLOGY)
    (tmp_path / "c.toml").write_text('[[node]]\nname = "a"\n[[node]]\nname = "b"\n')
    named = f"file:{os.path.relpath(tmp_path / 'net.toml')}"
    done = flitnet("--run", run("r"), "up", tmp_path / "c.toml", "--topology", named)
    assert done.returncode == 0 and "2 nodes (a … b)" in done.stdout, done


def test_the_source_tree(
    cluster2: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan's line is split at a comma and ends at a #; clips lie in the source tree."""
    monkeypatch.setenv("FLITNET_BUILD", str(paths.build_dir()))
    tree = tmp_path / "a, b #c"
    tree.mkdir()
    (tree / "traces").symlink_to(paths.ROOT / "traces")
    monkeypatch.setattr(paths, "ROOT", tree)
    mpeg2 = Workload(streams="mpeg2", load=0.1, real_time_share=1)
    live = mpeg2.live(cluster2.nodes, programs.link_of(cluster2), 1, 1)
    played = programs.play(cluster2, live, 1, 1, "names")
    assert not played.failed and len(played.streams) == len(live.streams) > 0
    assert {one.frames_delivered for one in played.streams} == {30}
    request = scenario.Request(seconds=1, load=0.1, nodes=2, clock="virtual")
    assert sum(one.frames_delivered for one in programs.simulate(scenario.plan(request)).streams)
