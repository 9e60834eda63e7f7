"""`flitnet soak`: random tests for as long as asked; a failing seed is printed."""

from __future__ import annotations

import os
import subprocess
import time

from tools.flitnet import build, paths, soak_live, soak_verbs
from tools.flitnet.errors import EXIT_ERROR, EXIT_OK, UsageError
from tools.flitnet.progress import progress

SOAKS = ("model", "live", "verbs", "hostile", "kill")
# One process tells nothing for so long; then comes the next, behind its seeds.
SLICE_SECONDS = 60
SEEDS_PER_SLICE = 1_000_000


def _with_programs(what: str, seconds: float, seed: int, count: int) -> str:
    if what == "live":
        return soak_live.live(seconds, seed, prints=True)
    soak_verbs.ready()  # what a build says does not mix with the bar
    with progress("programs" if what == "kill" else "seconds") as tell:
        if what == "kill":
            return soak_verbs.kill(count, seed, tell)
        soak = soak_verbs.verbs if what == "verbs" else soak_verbs.hostile
        return soak(seconds, seed, tell)


def run(what: str, minutes: float, seed: int, count: int) -> int:
    if what not in SOAKS:
        raise UsageError(f"soak {what!r}: one of {', '.join(SOAKS)}")
    if what != "model":
        print(_with_programs(what, minutes * 60, seed, count))
        return EXIT_OK
    build.ready(("model_design_test",))
    os.nice(19)  # others on this machine go first; live programs above have time-outs to keep
    argv = [str(paths.program("model_design_test")), "--gtest_filter=*Soak*", "--gtest_brief=1"]
    end = time.monotonic() + minutes * 60
    while (left := end - time.monotonic()) > 0:
        seconds = max(1, round(min(SLICE_SECONDS, left)))
        env = dict(os.environ) | {
            "FLITNET_SOAK_SECONDS": str(seconds), "FLITNET_SOAK_SEED": str(seed),
        }  # fmt: skip
        if subprocess.run(argv, env=env).returncode != 0:
            return EXIT_ERROR
        seed += SEEDS_PER_SLICE
    return EXIT_OK
