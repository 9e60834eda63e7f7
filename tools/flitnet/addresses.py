"""Where something listens, as the command line says it."""

from __future__ import annotations

import ipaddress

from tools.flitnet.errors import UsageError


def parse(option: str, listen: str) -> tuple[str, int]:
    """HOST:PORT, the host an IP address or localhost."""
    host, colon, port = listen.rpartition(":")
    host = host.strip("[]")
    try:
        if host != "localhost":
            ipaddress.ip_address(host)
        if not colon or not 0 <= int(port) < 65536:
            raise ValueError
    except ValueError:
        raise UsageError(f"{option} {listen}: must be an address and a port, 127.0.0.1:9713")
    return host, int(port)
