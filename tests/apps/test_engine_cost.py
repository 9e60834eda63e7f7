"""The engine executes as many instructions a cycle as when its count was last landed.

Wall time on a shared machine tells little; the count by valgrind repeats to a tenth of a percent.
It belongs to one compiler and one instruction set (valgrind offers AVX2): compared only there.
`FLITNET_UPDATE=1 python3 -m pytest tests/apps/test_engine_cost.py` writes the counts anew.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.flitnet import paths

COUNTS = paths.ROOT / "tests/bench/engine/instructions.json"
TOLERANCE = 0.03


def compiler() -> str:
    first = subprocess.run(["c++", "--version"], capture_output=True, text=True).stdout
    return first.splitlines()[0]


def measure(cases: list[str]) -> dict[str, int]:
    done = subprocess.run(
        [str(paths.program("engine_bench")), "--instructions", *cases],
        capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    return {name: int(count) for name, count in map(str.split, done.stdout.splitlines())}


def test_instructions_per_cycle_are_those_of_the_last_landed_engine() -> None:
    landed = json.loads(COUNTS.read_text())
    if shutil.which("valgrind") is None:
        pytest.skip("no valgrind")
    if " avx2 " not in Path("/proc/cpuinfo").read_text():
        pytest.skip("a processor without AVX2 runs other loops")
    if compiler() != landed["compiler"] and not os.environ.get("FLITNET_UPDATE"):
        pytest.skip(f"counted with {landed['compiler']}")
    counts = measure(list(landed["instructions_per_cycle"]))
    if os.environ.get("FLITNET_UPDATE"):
        report = {"compiler": compiler(), "instructions_per_cycle": counts}
        COUNTS.write_text(json.dumps(report, indent=2) + "\n")
        return
    more = {
        name: f"{was} to {counts[name]}"
        for name, was in landed["instructions_per_cycle"].items()
        if counts[name] > was * (1 + TOLERANCE)
    }
    assert not more, f"more instructions a cycle than landed: {more}"
