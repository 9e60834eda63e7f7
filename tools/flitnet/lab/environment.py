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
    """In the build directory; but several of them share the Python of the tree's own, where that is
    there and as it must be."""
    own = paths.ROOT / "build" / "python"
    return own if _installed(own) else paths.build_dir() / "python"


def inside() -> bool:
    return Path(sys.prefix).resolve() == directory().resolve()


def ready() -> Path:
    """Makes the venv, or brings it up to date; returns its interpreter."""
    folder = directory()
    if not _installed(folder):
        with build.alone(folder):
            if not _installed(folder):  # by whom we waited for
                _install(folder)
    return _python(folder)


def _python(folder: Path) -> Path:
    return folder / "bin" / "python3"


def _stamp(folder: Path) -> Path:
    """What was installed."""
    return folder / "requirements.txt"


def _installed(folder: Path) -> bool:
    stamp = _stamp(folder)
    return stamp.exists() and stamp.read_text() == REQUIREMENTS.read_text()


def _install(folder: Path) -> None:
    print("flitnet: installing the laboratory's Python packages (once)", file=sys.stderr)
    wanted = REQUIREMENTS.read_text()
    _call(["/usr/bin/python3", "-m", "venv", "--system-site-packages", str(folder)])
    _call(
        [str(_python(folder)), "-m", "pip", "install", "--quiet", "--only-binary", ":all:",
         "--requirement", str(REQUIREMENTS)]
    )  # fmt: skip
    _stamp(folder).write_text(wanted)


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
