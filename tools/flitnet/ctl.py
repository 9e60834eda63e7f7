"""One question to a daemon's control socket: a JSON line in, a JSON line out (unix SEQPACKET)."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from tools.flitnet.errors import FlitnetError

MESSAGE_BYTES_MAX = 1 << 16


def ask(path: Path, request: dict[str, Any], timeout_s: float = 2.0) -> dict[str, Any]:
    """Sends one request and returns the reply; FlitnetError when the daemon does not answer."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.settimeout(timeout_s)
            sock.connect(str(path))
            sock.send(json.dumps(request).encode() + b"\n")
            reply = b""
            while not reply.endswith(b"\n"):  # a long line comes in several messages
                if not (piece := sock.recv(MESSAGE_BYTES_MAX)):
                    break
                reply += piece
    except OSError as error:
        raise FlitnetError(f"{path} does not answer: {error.strerror or error}") from None
    try:
        return json.loads(reply)
    except ValueError:
        raise FlitnetError(f"{path} answered something that is not JSON: {reply[:60]!r}") from None
