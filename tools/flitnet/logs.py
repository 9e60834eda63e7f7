"""What the daemons of a cluster wrote: `flitnet log`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tools.flitnet.cluster import Cluster

# As emu/base/log.cc has them: date, clock, daemon with its pid, words.
DATED = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) \S+ (.*)")


def show(run: Path, node: str | None) -> None:
    """The lines of one node's daemon; or of all daemons by time, each with who wrote it."""
    cluster = Cluster.open(run)
    if node is not None:
        cluster.node_dir(node)  # refuses who is none
        print(*cluster.lines(f"hcad:{node}"), sep="\n")
        return
    roles = cluster.part.roles(cluster.nodes)
    for line in merged({_name(role): cluster.lines(role) for role in roles}):
        print(line)


def _name(role: str) -> str:
    """A node's alone, where it is not the name of the fabric's daemon as well."""
    node = role.removeprefix("hcad:")
    return role if node == "fabricd" else node


def merged(logs: dict[str, list[str]]) -> list[str]:
    """Lines of one time stay in the order in which their daemon wrote them."""
    found = [(when, who, words) for who in logs for when, words in _timed(logs[who])]
    return [" ".join(one) for one in sorted(found, key=lambda one: one[:2])]


def _timed(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Last words and those of libraries have no date: theirs is that of the line before, or of the
    first that has one."""
    dated = [DATED.fullmatch(line) for line in lines]
    when = next((match[1] for match in dated if match), "")
    for line, match in zip(lines, dated, strict=True):
        when, words = match.groups() if match else (when, line)
        yield when, words
