"""`flitnet soak`: random tests for as long as asked; a failing seed is printed."""

from __future__ import annotations

import os
import subprocess
import time

from tools.flitnet import build, paths, soak_live, soak_verbs
from tools.flitnet.errors import EXIT_ERROR, EXIT_OK, UsageError

SOAKS = ("model", "live", "verbs", "hostile", "kill")
# One process tells nothing for so long; then comes the next, behind its seeds.
SLICE_SECONDS = 60
SEEDS_PER_SLICE = 1_000_000


def run(what: str, minutes: float, seed: int, count: int) -> int:
    if what not in SOAKS:
        raise UsageError(f"soak {what!r}: one of {', '.join(SOAKS)}")
    if what != "model":
        said = {
            "live": lambda: soak_live.live(minutes * 60, seed, prints=True),
            "verbs": lambda: soak_verbs.verbs(minutes * 60, seed),
            "hostile": lambda: soak_verbs.hostile(minutes * 60, seed),
            "kill": lambda: soak_verbs.kill(count, seed),
        }[what]()
        print(said)
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
