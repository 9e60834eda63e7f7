"""The directory of a running cluster: who may use it, one command at a time, and what is removed.

What is in it and who runs there is record.py's; Cluster is the one who makes and clears it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tools.flitnet import output, paths, record
from tools.flitnet.errors import FlitnetError, UsageError

SOCKET_PATH_BYTES_MAX = 107  # sockaddr_un
SOCKET_NAME_BYTES = len("/plans/r1234567-meet/replay..sock")  # the longest below a run directory
UNFIT = set(":,#")  # between sockets, DPDK's words and a plan's; where a plan's comment begins
REMOVAL_TRIES = 5


@contextlib.contextmanager
def lock(run: Path, make: bool = False) -> Iterator[bool]:
    """One command at a time starts or stops in a run directory; the directory is the lock. It is
    made if asked; else the value says whether it is still there."""
    while True:
        if make:
            _make(run)
        fd = -1
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(run, os.O_RDONLY | os.O_DIRECTORY)
        if fd < 0 and make:
            continue  # removed again: by a `down`
        if fd < 0:
            yield False
            return
        try:
            if os.fstat(fd).st_uid != os.getuid():
                raise FlitnetError(f"run directory {run} belongs to another user")
            fcntl.flock(fd, fcntl.LOCK_EX)
            # Whoever had the lock may have removed the directory that we waited for.
            there = run.exists() and os.path.samestat(os.fstat(fd), run.stat())
            if there or not make:
                yield there
                return
        finally:
            os.close(fd)


def _make(run: Path) -> None:
    try:
        run.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"run directory {run}: not a directory") from None


def no_cluster(run: Path) -> FlitnetError:
    return FlitnetError(f"no cluster in {run}; start one with: {paths.call('up')}")


def check(run: Path, nodes: tuple[str, ...]) -> None:
    """Of a cluster that is to be started: its directory may be called so. Names of files in it
    stand in lists, plans and messages, and its sockets' are short."""
    if not str(run).isprintable() or set(str(run)) & UNFIT:
        raise UsageError(
            f"run directory {str(run)!r}: must be of printable UTF-8 without : , and #"
        )
    _check_socket_paths(run, nodes)


def _check_socket_paths(run: Path, nodes: tuple[str, ...]) -> None:
    longest = max((len(os.fsencode(n)) for n in nodes), default=0)
    need = len(os.fsencode(run)) + SOCKET_NAME_BYTES + longest
    if need > SOCKET_PATH_BYTES_MAX:
        limit = SOCKET_PATH_BYTES_MAX - (need - len(os.fsencode(run)))
        raise UsageError(f"run directory {run}: longer than {limit} bytes (socket paths)")


def refuse_strangers(run: Path) -> None:
    """What we did not put there is not ours to clear: the record is there first and last."""
    if (run / record.NAME).exists():
        return
    if others := [name for name in record.ENTRIES if (run / name).exists()]:
        raise UsageError(
            f"run directory {run} holds a {others[0]} of somebody else; name a new or empty one"
        )


def clear(run: Path) -> None:
    """What else is in it stays. The record goes last, and only when nothing of ours is left: by it
    the next command knows that the rest is ours."""
    names = (*record.ENTRIES, *(path.name for path in run.glob(record.SCRATCH)), *record.FILES)
    for path in (run / name for name in names):
        if failure := _remove(path):
            raise FlitnetError(
                f"run directory {run}: {path.name} cannot be removed: {output.reason(failure)}; "
                f"again: {paths.call('down')}"
            )


def _remove(path: Path) -> OSError | None:
    """A program that runs on may put something there meanwhile: so not in one try alone."""
    if not path.exists() and not path.is_symlink():
        return None  # a read-only file system would say so of what is not there, too
    failure = None
    for _ in range(REMOVAL_TRIES):
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            return None
        except OSError as error:
            failure = error
    return failure
