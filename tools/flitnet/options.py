"""Options that several commands have, and what is asked of their values before any work begins."""

from __future__ import annotations

import enum
import math
import os
import re
from pathlib import Path
from typing import Any, Optional, Union

import typer

from tools.flitnet import paths
from tools.flitnet.errors import UsageError

SEED_MAX = 2**63 - 1


class TraceLayout(str, enum.Enum):
    """Of text traces, in the words of flitnet-replay."""

    own = "own"
    asu = "asu"
    tkn = "tkn"
    terse = "terse"


class SizeUnit(str, enum.Enum):
    bits = "bits"
    bytes = "bytes"


def number(default: float, low: float, high: float, help: str) -> Any:
    """A number of a range; Python's "nan" lies in every range, as it is not less than its ends."""
    return typer.Option(default, min=low, max=high, callback=_number, help=help)


def seed(low: int, help: str) -> Any:
    """As the programs take it, which cut larger ones off."""
    return typer.Option(1, min=low, max=SEED_MAX, help=help)


def json_file(help: str, default: Optional[str] = None, metavar: str = "FILE") -> Any:
    """--json: where the result goes."""
    return typer.Option(default, "--json", metavar=metavar, callback=_json_file,
                        show_default=False, help=help)  # fmt: skip


def version() -> Any:
    """--version: prints it, and that is all."""
    return typer.Option(False, "--version", is_eager=True, callback=_version, help="Print it.")


def _version(asked: bool) -> None:
    if asked:
        found = re.search(r"version: '([^']+)'", (paths.ROOT / "meson.build").read_text())
        print(f"flitnet {found[1] if found else 'of no version'}")
        raise typer.Exit()


def _number(value: float) -> float:
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no number to count with.")
    return value


def _json_file(value: Union[Path, str, None]) -> Union[Path, str, None]:
    """Of who takes a word, not a path, "-" means that it is printed."""
    if isinstance(value, Path) and str(value) == "-":
        raise UsageError("--json -: name a file; what is printed is for people")
    if value and str(value) != "-":
        check_writable("--json", Path(value))
    return value


def try_writing(path: Path) -> None:
    """Raises OSError where nothing can be written; what is there stays."""
    if path.exists() and not path.is_dir() and not path.is_file():
        if not os.access(path, os.W_OK):  # opened, a pipe waits for its reader, who sees its end
            raise PermissionError(0, "not writable")
    else:
        path.open("ab").close()


def check_writable(option: str, path: Path) -> None:
    """Before the run whose result it is to hold; what is there stays."""
    try:
        real = Path(os.path.realpath(path))  # of a link to nothing the file is made, not the link
        there = real.exists()
        try_writing(real)
        if not there:
            real.unlink()
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}; name a file to write") from None
