"""Where something listens, as the command line says it."""

from __future__ import annotations

import ipaddress
import re

from tools.flitnet.errors import UsageError

PORT_MAX = 65535


def parse(option: str, listen: str) -> tuple[str, int]:
    """HOST:PORT, the host an IP address or localhost."""
    host, colon, port = listen.rpartition(":")
    host = host.strip("[]")
    try:
        if host != "localhost":
            ipaddress.ip_address(host)
        if not colon or not re.fullmatch("[0-9]{1,5}", port) or int(port) > PORT_MAX:
            raise ValueError
    except ValueError:
        raise UsageError(f"{option} {listen}: must be an address and a port, 127.0.0.1:9713")
    return host, int(port)


def parse_ipv4(option: str, listen: str) -> str:
    """As parse(), for a program of ours that takes IPv4:port; a port that users can be told."""
    host, port = parse(option, listen)
    if ":" in host or port == 0:
        raise UsageError(f"{option} {listen}: must be an IPv4 address and a port, 127.0.0.1:9713")
    return f"{'127.0.0.1' if host == 'localhost' else host}:{port}"
