"""Topologies as the command line names them: how many nodes they have.

The C++ side (emu/config, fabric/topo) judges them; here is only what naming the nodes needs.
"""

from __future__ import annotations

import math
import subprocess
from pathlib import Path
from typing import Any

from tools.flitnet import paths
from tools.flitnet.errors import FlitnetError, UsageError

GRIDS = ("mesh", "torus", "fat_mesh")
FAT_TREE_NODES = 64
SIZE_MAX = 64
TIMEOUT_S = 20


def node_count(network: dict[str, Any]) -> int | None:
    """Nodes of a [network] table's topology; None where that is not said by its sizes."""
    kind, _, rest = str(network["topology"]).partition(":")
    sizes = [int(size) for size in rest.split("x")] if rest and kind != "file" else []
    if kind in GRIDS:
        routers = math.prod(sizes) if sizes else network.get("k", 4) ** 2
        return int(routers * network.get("nodes_per_router", 1))
    if kind == "fat_tree":
        return FAT_TREE_NODES
    if kind == "tree":
        arity, levels = sizes
        # fabricd refuses what is larger; the power of it would take for ever.
        return int(arity**levels) if max(sizes) <= SIZE_MAX else None
    return sizes[0] if sizes else None


def absolute(shape: str) -> str:
    """A file by its whole name: daemons run elsewhere."""
    kind, _, name = shape.partition(":")
    return f"file:{Path(name).absolute()}" if kind == "file" else shape


def ask_fabricd(option: str, path: Path) -> subprocess.CompletedProcess[str]:
    """What fabricd says of a file."""
    argv = [str(paths.program("fabricd")), option, str(path)]
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, errors="backslashreplace", timeout=TIMEOUT_S
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        took = f"fabricd {option} took more than {TIMEOUT_S} s"
        raise FlitnetError(f"{path.name}: {took}: a busy host? try again") from None


def count_in_file(path: Path) -> int:
    """Nodes of a topology file, as fabricd reads it; its one line is the error."""
    if "\0" in str(path) or (path.exists() and not path.is_file()):
        raise UsageError(f"topology file:{str(path)!r}: must be a regular file")
    done = ask_fabricd("--count-nodes", path)
    if done.returncode != 0:
        lines = (done.stderr.strip() or "not a topology").splitlines()
        raise UsageError(lines[0].removeprefix("fabricd: "))
    return int(done.stdout)
