"""Which part of a cluster this host runs, where several hosts share one: attach.kind udp, ethdev.

In: what `up --here` and `join` were told. Out: a file of the run directory, read by every command.
"""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tools.flitnet import config
from tools.flitnet.config import ClusterFile
from tools.flitnet.errors import UsageError

NAME = "part.json"
KEY = "cluster.key"
KEY_DIGITS = 64
NOBODY = "none"  # --here of a host without nodes


@dataclass(frozen=True)
class Part:
    """The fabric or not; and nodes, None: all."""

    fabric: bool = True
    nodes: tuple[str, ...] | None = None
    key: Path | None = None  # of the cluster, as it came from the host of the fabric

    def of(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return nodes if self.nodes is None else self.nodes

    def roles(self, nodes: tuple[str, ...]) -> list[str]:
        """The daemons that this host runs."""
        return [*(["fabricd"] if self.fabric else []), *(f"hcad:{node}" for node in self.of(nodes))]

    def prepare(self, run: Path) -> None:
        """Into a run directory that is being made."""
        if self != Part():
            (run / NAME).write_text(json.dumps({"fabric": self.fabric, "nodes": self.nodes}))
        if self.key:
            (run / KEY).touch(mode=0o600)
            (run / KEY).write_bytes(self.key.read_bytes())

    @staticmethod
    def read(run: Path) -> Part:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            value = json.loads((run / NAME).read_text())
            return Part(bool(value["fabric"]), tuple(map(str, value["nodes"])))
        return Part()


def span(nodes: tuple[str, ...]) -> str:
    """Nodes by their first and last."""
    return " … ".join(dict.fromkeys((nodes[0], nodes[-1]))) if nodes else NOBODY


def number(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def chosen(file: ClusterFile, here: str, fabric: bool, key: Path | None = None) -> Part:
    """`here`: names of nodes, with commas between; or, of a host that runs only the fabric, that
    there are none."""
    config.check(file)  # so that what is read of it here is of its type
    nodes = tuple(here.split(","))
    if here == NOBODY and here not in file.node_names:
        if not fabric:
            raise UsageError(f"join --here {here}: name the nodes of this host")
        nodes = ()
    for node in nodes:
        if node not in file.node_names or nodes.count(node) > 1:
            raise UsageError(f"--here {here}: {node!r} is no node of {file.name}, or named twice")
    attach = tomllib.loads(file.text).get("attach", {})
    if attach.get("kind", "shm") == "shm":
        raise UsageError(f'{file.name}: several hosts need attach.kind = "udp" (or "ethdev")')
    if not attach.get("fabric") or attach["fabric"].startswith("0.0.0.0"):
        raise UsageError(f"{file.name}: attach.fabric must say where the other hosts find fabricd")
    if not fabric and not attach.get("key_file"):
        if key is None:
            raise UsageError("join: --key FILE, a copy of the fabric's cluster.key")
        _check_key(key)
    return Part(fabric, nodes, key)


def _check_key(key: Path) -> None:
    """As the daemons will read it: what is wrong is said of the user's file, not of our copy."""
    try:
        with key.open("rb") as file:
            found = file.read(KEY_DIGITS)
    except OSError as error:
        why = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise UsageError(f"--key {key}: {why}") from None
    if not re.fullmatch(rb"[0-9a-fA-F]{%d}" % KEY_DIGITS, found):
        raise UsageError(
            f"--key {key}: not {KEY_DIGITS} hexadecimal digits, as the fabric's {KEY} has them"
        )
