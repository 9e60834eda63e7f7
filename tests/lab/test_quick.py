"""Ordinal checks of the results by their quick runs, from the command line as a user gives it: what
the report of record calls reproduced is reproduced by the code as it is."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tools.flitnet import paths
from tools.flitnet.lab.catalog import ALL

# Most of what all of them take; `./flitnet lab report --quick` runs them, too. Of each paper enough
# are left to see when the code no longer does what it did.
LEFT_OUT = (
    "rn.fig6", "mw.fig6", "mw.fig8", "mw.fig9", "mw.fig11", "mw.fig12", "mw.fig13",
    *(f"vct.fig{i}" for i in range(1, 9)), "x.failures", "x.fairness", "x.torus",
)  # fmt: skip
RECORD = {
    one["id"]: one["verdict"]
    for one in json.loads((paths.ROOT / "docs/results/summary.json").read_text())["results"]
}
# Nothing could be asked of what the record says differs: whatever these runs gave would be right.
CHECKED = [name for name in ALL if RECORD[name] == "reproduced" and name not in LEFT_OUT]


@pytest.fixture(scope="module")
def quick(simulator, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    scratch = tmp_path_factory.mktemp("lab")
    report = scratch / "verdicts.json"
    done = subprocess.run(
        [str(paths.ROOT / "flitnet"), "lab", "run", *CHECKED, "--quick", "--json", str(report)],
        env=dict(os.environ) | {"FLITNET_LAB": str(scratch), "FLITNET_BUILD": str(build())},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {one["id"]: one for one in json.loads(report.read_text())["results"]}


def build() -> Path:
    return paths.build_dir()


@pytest.mark.timeout(1200)  # the first waits for all of them: two minutes on two cores
@pytest.mark.parametrize("name", CHECKED)
def test_what_was_reproduced_is(quick: dict[str, dict], name: str) -> None:
    one = quick[name]
    assert one["verdict"] == "reproduced", one["note"]


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
