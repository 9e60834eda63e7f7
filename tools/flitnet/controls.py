"""What `flitnet set` has changed in a running cluster: a node or a fabric that starts later is told
as well."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Container, Iterator
from pathlib import Path

from tools.flitnet import ctl
from tools.flitnet.errors import FlitnetError

NAME = "controls.json"
# What fabricd has to know; nodes are told everything.
OF_THE_FABRIC = ("admission", "congestion", "power_control")


def read(run: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        return {str(key): str(value) for key, value in json.loads((run / NAME).read_text()).items()}
    return {}


@contextlib.contextmanager
def remembered(run: Path, key: str, value: str) -> Iterator[None]:
    """What is done within is remembered if it is done: it is written before, because a disk may be
    full. In the order in which they were set: congestion_control is a part of congestion."""
    found = read(run)
    found.pop(key, None)
    fresh = run / f"{NAME}.new"
    try:
        try:
            fresh.write_text(json.dumps(found | {key: value}))
        except OSError as error:
            raise FlitnetError(f"{fresh}: {error.strerror}; nothing was changed") from None
        yield
        fresh.rename(run / NAME)
    finally:
        fresh.unlink(missing_ok=True)


def repeat(run: Path, socket: Path, keys: Container[str] | None = None) -> None:
    """To one daemon, by its control socket; of `keys` alone, if they are given."""
    for key, value in read(run).items():
        if keys is not None and key not in keys:
            continue
        reply = ctl.ask(socket, {"cmd": "set", key: value})
        if not reply.get("ok"):
            raise FlitnetError(f"set {key} {value}: {reply.get('error', 'no answer')}")
