"""The Python that the laboratory runs in: a venv in the build directory with pinned packages.

The command line itself needs Debian's packages only; `lab` starts itself again in here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools.flitnet import build, paths
from tools.flitnet.errors import FlitnetError

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
MAIN = paths.ROOT / "tools" / "flitnet" / "__main__.py"


def directory() -> Path:
    return paths.ROOT / "build" / "python"


def python() -> Path:
    return directory() / "bin" / "python3"


def inside() -> bool:
    return Path(sys.prefix) == directory()


def ready() -> Path:
    """Makes the venv, or brings it up to date; returns its interpreter."""
    stamp = directory() / "requirements.txt"
    wanted = REQUIREMENTS.read_text()
    if _installed(stamp, wanted):
        return python()
    with build.alone(directory()):
        if not _installed(stamp, wanted):  # by whom we waited for
            _install(stamp, wanted)
    return python()


def _installed(stamp: Path, wanted: str) -> bool:
    return stamp.exists() and stamp.read_text() == wanted


def _install(stamp: Path, wanted: str) -> None:
    print("flitnet: installing the laboratory's Python packages (once)", file=sys.stderr)
    _call(["/usr/bin/python3", "-m", "venv", "--system-site-packages", str(directory())])
    _call(
        [str(python()), "-m", "pip", "install", "--quiet", "--only-binary", ":all:",
         "--requirement", str(REQUIREMENTS)]
    )  # fmt: skip
    stamp.write_text(wanted)


def enter() -> None:
    """Goes on in the venv: this process becomes the same command in there."""
    if inside():
        return
    interpreter = str(ready())
    sys.stdout.flush()
    os.execv(interpreter, [interpreter, "-I", str(MAIN), *sys.argv[1:]])


def _call(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        tail = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise FlitnetError(f"{' '.join(argv[:4])} failed: {' '.join(tail)}")
