"""`flitnet bench engine --booksim PROGRAM`: what BookSim2 costs here and now, beside ours.

In: BookSim2's program, built by whoever measures (docs/booksim.md), and the configurations of
docs/booksim/reference. Out: lines "topology,offered load,microseconds of processor a cycle", the
kind of file that `--reference` takes.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.flitnet import booksim
from tools.flitnet.errors import FlitnetError, UsageError

HEADER = "topology,offered_flits_per_node_cycle,us_per_cycle"
PERIODS = 3  # of a run: BookSim2 wants that many before it ends
TIMEOUT_S = 600


@dataclass(frozen=True)
class Work:
    """A case that engine_bench has, too. Two runs, of which the difference counts: neither the
    start nor queues that fill."""

    network: str
    load: float
    short_cycles: int
    long_cycles: int


WORKS = (
    Work("fly8", 0.8, 15_000, 75_000),
    Work("mesh4x4", 0.1, 15_000, 75_000),
    Work("mesh4x4", 0.4, 6_000, 30_000),
    Work("mesh4x4", 0.8, 6_000, 30_000),
    Work("fattree64", 0.4, 1_500, 6_000),
    Work("torus8x8x8", 0.4, 300, 900),
)


def measure(program: Path, quick: bool, say: Callable[[str], None]) -> str:
    """CSV with HEADER; the median of several runs each."""
    check(program)
    lines = [HEADER]
    for work in WORKS:
        costs = [cost_us(program, work, seed) for seed in range(1, 2 if quick else 4)]
        say(f"BookSim2 {work.network}/{work.load:g}: {statistics.median(costs):.4g} us per cycle")
        lines.append(f"{work.network},{work.load:g},{statistics.median(costs):.6g}")
    return "\n".join(lines) + "\n"


def check(program: Path) -> None:
    if not program.is_file() or not os.access(program, os.X_OK):
        raise UsageError(f"--booksim {program}: not a program; docs/booksim.md says how to make it")


def cost_us(program: Path, work: Work, seed: int) -> float:
    short = processor_seconds(program, work, work.short_cycles, seed)
    long = processor_seconds(program, work, work.long_cycles, seed)
    return (long - short) / (work.long_cycles - work.short_cycles) * 1e6


def processor_seconds(program: Path, work: Work, cycles: int, seed: int) -> float:
    config = booksim.REFERENCE / "configs" / f"{work.network}.cfg"
    argv = [str(program.absolute()), str(config), f"injection_rate={work.load}", f"seed={seed}",
            f"sample_period={cycles // PERIODS}", f"max_samples={PERIODS}",
            "warmup_periods=0"]  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise FlitnetError(f"{program}: {config.name} is not done in {TIMEOUT_S} s") from None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # It ends with an error when what is offered is not all accepted, which is none here.
    if "Total run time" not in done.stdout:
        said = (done.stdout + done.stderr).strip().rpartition("\n")[2] or "it prints nothing"
        raise FlitnetError(f"{program}: does not run {config.name} as BookSim2 does: {said}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
