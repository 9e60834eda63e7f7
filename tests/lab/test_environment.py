"""Where the laboratory's Python and its results are: in the build directory, not in the tree."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.flitnet import paths
from tools.flitnet.lab import commands, environment


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source tree in which nobody has built."""
    monkeypatch.delenv("FLITNET_BUILD", raising=False)
    monkeypatch.delenv("FLITNET_LAB", raising=False)
    monkeypatch.setattr(paths, "ROOT", tmp_path / "tree")
    return tmp_path / "tree"


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The interpreters that this process would have become."""
    became: list[str] = []
    monkeypatch.setattr(environment.os, "execv", lambda path, _: became.append(path))
    monkeypatch.setattr(environment, "_install", lambda folder: pytest.fail(f"installs {folder}"))
    return became


def has_python(build: Path, requirements: str | None = None) -> Path:
    """As if it had been installed there, by what was required then."""
    folder = build / "python"
    folder.mkdir(parents=True)
    (folder / "requirements.txt").write_text(requirements or environment.REQUIREMENTS.read_text())
    return folder


def test_they_are_in_the_trees_own_build_directory(tree: Path, entered: list[str]) -> None:
    assert commands.store_dir() == tree / "build" / "lab"
    folder = has_python(tree / "build")
    environment.enter()
    assert entered == [str(folder / "bin" / "python3")]


def test_they_are_in_the_build_directory_that_one_keeps(
    tree: Path, entered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLITNET_BUILD", str(tmp_path / "b"))
    assert commands.store_dir() == tmp_path / "b" / "lab"
    folder = has_python(tmp_path / "b")
    environment.enter()
    assert entered == [str(folder / "bin" / "python3")]
    assert not tree.exists(), "nothing is written there"
    monkeypatch.setenv("FLITNET_LAB", str(tmp_path / "results"))
    assert commands.store_dir() == tmp_path / "results"


def test_several_build_directories_share_a_python(
    tree: Path, entered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = has_python(tree / "build")
    monkeypatch.setenv("FLITNET_BUILD", str(tmp_path / "b"))
    environment.enter()
    assert entered == [str(folder / "bin" / "python3")]
    assert not (tmp_path / "b").exists()


def test_one_of_other_packages_is_not_shared(
    tree: Path, entered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_python(tree / "build", "numpy==1.0\n")
    folder = has_python(tmp_path / "b")
    monkeypatch.setenv("FLITNET_BUILD", str(tmp_path / "b"))
    environment.enter()
    assert entered == [str(folder / "bin" / "python3")]


def test_who_is_inside_stays(
    tree: Path, entered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by another name of the directory."""
    folder = has_python(tmp_path / "real")
    (tmp_path / "b").symlink_to(tmp_path / "real")
    monkeypatch.setenv("FLITNET_BUILD", str(tmp_path / "b"))
    for prefix in (folder, tmp_path / "b" / "python"):
        monkeypatch.setattr(sys, "prefix", str(prefix))
        environment.enter()
    assert entered == []
