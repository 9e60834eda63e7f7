"""The standard files of a command, whatever became of them: closed, a full disk, a pipe that nobody
reads. Standard library only."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import resource
import sys
from typing import Any


def keep() -> None:
    """Of 0 to 2 what is closed is /dev/null from now on: else the next file that is opened would
    be it, and be written over. A character that stdout's encoding lacks, as of a file's name that
    is not UTF-8, is told by its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            os.set_inheritable(fd, True)
            setattr(sys, name, os.fdopen(fd, mode))
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def let_go() -> None:
    """What they did not take was told: Python would try again at its end, say it in three lines
    and exit with 120."""
    for file in (sys.stdout, sys.stderr):
        try:
            file.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, allow_nan=False))


def say(message: str, code: int) -> int:
    """Our one line on stderr; returns `code`."""
    with contextlib.suppress(OSError):
        print(f"flitnet: {message}", file=sys.stderr, flush=True)
    return code


def say_os(error: OSError, code: int) -> int:
    """Of a full disk, a path that is none."""
    if isinstance(error, BrokenPipeError):
        return code
    # Of two files, the target of a link and the link, the second is what could not be made.
    name = error.filename2 or error.filename
    where = f"{name}: " if name else ""
    return say(f"{where}{reason(error)}", code)


def reason(error: OSError) -> str:
    """In words; of a limit also its size, and how to raise it."""
    what = error.strerror or str(error)
    if error.errno == errno.EMFILE:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        what += f" (at most {limit}; more by: ulimit -n 1024)"
    return what
