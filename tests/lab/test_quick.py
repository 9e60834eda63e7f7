"""Ordinal checks of a few results, from the command line as a user gives it; what CI can afford:
of each paper that has cheap ones those that ask most of the engines, 1.4 minutes of one core."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tools.flitnet import paths

AFFORDABLE = (
    "mw.fig5", "mw.t2", "acp.fig3", "gn.slow", "gn.port", "gn.t1", "gn.ftb", "x.inference",
)  # fmt: skip


@pytest.fixture(scope="module")
def quick(simulator, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    scratch = tmp_path_factory.mktemp("lab")
    report = scratch / "verdicts.json"
    done = subprocess.run(
        [str(paths.ROOT / "flitnet"), "lab", "run", *AFFORDABLE, "--quick", "--json", str(report)],
        env=dict(os.environ) | {"FLITNET_LAB": str(scratch), "FLITNET_BUILD": str(build())},
        capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {one["id"]: one for one in json.loads(report.read_text())["results"]}


def build() -> Path:
    return paths.build_dir()


@pytest.mark.parametrize("name", AFFORDABLE)
def test_result_is_reproduced(quick: dict[str, dict], name: str) -> None:
    assert quick[name]["verdict"] == "reproduced", quick[name]["note"]


def test_the_command_line_says_what_is_wrong() -> None:
    done = subprocess.run(
        [str(paths.ROOT / "flitnet"), "lab", "run", "mw.fig99"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "mw.fig99" in done.stderr and len(done.stderr.splitlines()) == 1


def test_list_names_every_id() -> None:
    done = subprocess.run(
        [str(paths.ROOT / "flitnet"), "lab", "list"], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) >= 43
    assert not any("not built" in line for line in lines)
