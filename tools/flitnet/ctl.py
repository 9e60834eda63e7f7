"""One question to a daemon's control socket: a JSON line in, a JSON line out (unix SEQPACKET)."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.flitnet.errors import FlitnetError

MESSAGE_BYTES_MAX = 1 << 16
# A daemon answers within a millisecond of its core. Who asks may ask again; who changes something
# wants to know whether it was done, however many others use the cores.
ANSWER_S = 2.0
CHANGE_S = 20.0


def ask(path: Path, request: dict[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
    """Sends one request and returns the reply; FlitnetError when the daemon does not answer."""
    with asking(path, request, timeout_s) as reply:
        return reply


@contextlib.contextmanager
def asking(
    path: Path, request: dict[str, Any], timeout_s: float | None = None
) -> Iterator[dict[str, Any]]:
    """As `ask`, and the connection stays until the block ends. While it does the daemon holds this
    one and none of those that ended before: it hears of them first."""
    if timeout_s is None:
        timeout_s = CHANGE_S if request.get("cmd") == "set" else ANSWER_S
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        reply = _exchange(sock, path, json.dumps(request).encode() + b"\n", timeout_s)
        try:
            said = json.loads(reply)
        except ValueError:
            raise FlitnetError(
                f"{path} answered something that is not JSON: {reply[:60]!r}"
            ) from None
        yield said


def _exchange(sock: socket.socket, path: Path, line: bytes, timeout_s: float) -> bytes:
    try:
        sock.settimeout(timeout_s)
        sock.connect(str(path))
        sock.send(line)
        reply = b""
        while not reply.endswith(b"\n"):  # a long line comes in several messages
            if not (piece := sock.recv(MESSAGE_BYTES_MAX)):
                break
            reply += piece
    except OSError as error:
        raise FlitnetError(f"{path} does not answer: {error.strerror or error}") from None
    return reply
