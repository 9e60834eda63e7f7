"""Builds with meson and ninja: a configured directory, the targets asked for, visible progress.

The tools are called by their Debian paths: another Python's meson may come first on the PATH.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.flitnet import paths
from tools.flitnet.errors import FlitnetError, UsageError

MESON = "/usr/bin/meson"
NINJA = "/usr/bin/ninja"
ERROR_LINES_MAX = 40
# What a live cluster and its programs need; `test` and `bench` build everything.
RUNTIME = (
    "fabricd", "hcad", "flitnetd", "flitnet-exporter", "flitnet-capture", "flitnet-replay",
    "flitnet-load", "flitnet-trace",
    "libflitnet_verbs.so", "libflitnet_files.so", "libibverbs.so.1",
)  # fmt: skip


def environment() -> dict[str, str]:
    """The caller's, with Debian's programs first: meson's generators call python3 by name."""
    env = dict(os.environ)
    env["PATH"] = "/usr/bin:" + env.get("PATH", "/usr/bin:/bin")
    return env


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Nobody else changes `directory`, which is made, until the end; says for whom it waits. Two
    commands at once in a fresh clone would otherwise break each other's build."""
    directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(
                f"flitnet: another command works in {_shown(directory)}; waiting for it",
                file=sys.stderr, flush=True,
            )  # fmt: skip
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def configure(directory: Path, options: Sequence[str] = ()) -> None:
    """meson setup, once per directory; ninja itself reconfigures when a meson.build changes."""
    with alone(directory):
        if not (directory / "build.ninja").exists():
            _setup(directory, options)


def _setup(directory: Path, options: Sequence[str]) -> None:
    # Line tables are what reports and profiles need; all that -g says would cost a fifth more time.
    options = ["-Dwerror=true", "-Dcpp_args=-g1", *options]
    argv = [MESON, "setup", str(directory), str(paths.ROOT), *options]
    if (directory / "meson-private" / "coredata.dat").exists():
        argv.append("--wipe")  # an interrupted setup
    print(f"flitnet: configuring {_shown(directory)}", file=sys.stderr, flush=True)
    done = subprocess.run(argv, capture_output=True, text=True, env=environment())
    if done.returncode != 0:
        print(done.stdout[-4000:], file=sys.stderr)
        raise FlitnetError(f"meson could not configure {_shown(directory)} (see above)")


def build(directory: Path, targets: Sequence[str] = (), *, nice: bool = False) -> None:
    """Runs ninja; prints its own line on a terminal and a line every tenth of the way elsewhere.

    `nice`: only with what others leave of the machine, and as if not on a terminal.
    """
    with alone(directory):
        _ninja(directory, targets, nice)


def _ninja(directory: Path, targets: Sequence[str], nice: bool) -> None:
    argv = [*(["nice", "-n", "19"] if nice else []), NINJA, "-C", str(directory), *targets]
    env = environment() | {"NINJA_STATUS": "[%f/%t] "}
    if sys.stderr.isatty() and not nice:
        pending = subprocess.run([*argv, "-n"], capture_output=True, text=True, env=env)
        if "no work to do" in pending.stdout:
            return
        code = subprocess.run(argv, stdout=sys.stderr.fileno(), env=env).returncode
        if code != 0:
            raise FlitnetError(f"the build in {_shown(directory)} failed (see above)")
        return
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    ) as ninja:
        assert ninja.stdout is not None
        _show_tenths(ninja.stdout, _shown(directory))
    if ninja.returncode != 0:
        raise FlitnetError(f"the build in {_shown(directory)} failed (see above)")


def _show_tenths(lines: object, where: str) -> None:
    tenth = 0
    failed: list[str] = []
    for line in lines:  # type: ignore[attr-defined]
        if failed or line.startswith("FAILED:") or "error:" in line:
            failed.append(line.rstrip())
        step = re.match(r"\[(\d+)/(\d+)\]", line)
        if step and int(step[2]) > 2 and int(step[1]) * 10 // int(step[2]) > tenth:
            tenth = int(step[1]) * 10 // int(step[2])
            print(f"flitnet: building {where}: {step[1]} of {step[2]}", file=sys.stderr, flush=True)
    for line in failed[:ERROR_LINES_MAX]:
        print(line, file=sys.stderr)


def ready(names: Sequence[str] = RUNTIME) -> None:
    """Makes the named programs up to date.

    Only for commands that start something: a running cluster must not have its programs replaced
    under it, so those that talk to one never build.
    """
    directory = paths.build_dir()
    if "FLITNET_BUILD" in os.environ:
        for path in (paths.PROGRAMS[name] for name in names):
            if not (directory / path).exists():
                raise UsageError(
                    f"FLITNET_BUILD={os.environ['FLITNET_BUILD']} has no {path}: "
                    "build it there, or unset FLITNET_BUILD"
                )
        return
    configure(directory)
    build(directory, [paths.PROGRAMS[name] for name in names])


def _shown(directory: Path) -> str:
    inside = directory.is_relative_to(paths.ROOT)
    return str(directory.relative_to(paths.ROOT) if inside else directory)
