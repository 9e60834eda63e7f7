"""A command that is told to end at the worst moment: right after a process was started, and again
while it cleans up. Used by tests here and in tests/lab."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tools.flitnet import paths

# Signals come between two steps of the command itself, so that no clock decides.
SCRIPT = """
import os, signal, sys
sys.path.insert(0, {root!r})
from tools.flitnet import cli, cluster, record
real_spawn, real_stop = record.spawn, cluster.stop_all

def spawn(argv, *rest):
    made = real_spawn(argv, *rest)
    if {role!r} in " ".join(argv):
        os.kill(os.getpid(), {number})
    return made

def stop_all(*rest):
    os.kill(os.getpid(), signal.SIGINT)
    return real_stop(*rest)

record.spawn, cluster.stop_all = spawn, stop_all
sys.exit(cli.run(sys.argv[1:]))
"""


def interrupted(
    role: str, number: int, *argv: str, **env: str
) -> subprocess.CompletedProcess[str]:
    """`flitnet argv`, told by a signal to end as soon as it has started a process whose command
    line has `role` in it."""
    script = SCRIPT.format(root=str(paths.ROOT), role=role, number=int(number))
    return subprocess.run(
        [sys.executable, "-c", script, *argv], capture_output=True, text=True, timeout=90,
        env=dict(os.environ) | env, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def processes_below(folder: Path) -> list[str]:
    """Processes whose command line names something in a folder."""
    return processes_that_name(f"{folder}/")


def processes_that_name(text: str) -> list[str]:
    """Processes that have it in their command line, but for the tests themselves."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if text in command and "pytest" not in command:
            found.append(f"{process.name}: {command}")
    return found


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
