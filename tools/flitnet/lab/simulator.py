"""Runs one point: tables become TOML, `flitnet-point` runs it, its line of JSON comes back."""

from __future__ import annotations

import functools
import hashlib
import json
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from tools.flitnet import paths
from tools.flitnet.errors import FlitnetError

TIMEOUT_S = 3600


def to_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Flat tables of scalars and lists of them; JSON's spelling of these is TOML's."""
    lines = []
    for section in sorted(tables):
        lines.append(f"[{section}]")
        for key in sorted(tables[section]):
            lines.append(f"{key} = {json.dumps(tables[section][key])}")
    return "\n".join(lines) + "\n"


def run_text(toml: str) -> dict[str, Any]:
    program = paths.program("flitnet-point")
    done = subprocess.run(
        [str(program)], input=toml, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    if done.returncode != 0:
        raise FlitnetError(done.stderr.strip() or f"{program.name}: exit code {done.returncode}")
    return json.loads(done.stdout)


def run_timed(toml: str) -> dict[str, Any]:
    """With `host_seconds`, what it took: kept beside the result, no part of it."""
    begin = time.monotonic()
    return run_text(toml) | {"host_seconds": round(time.monotonic() - begin, 3)}


# What a result depends on; a change elsewhere leaves results valid.
SOURCES = (
    "emu/base", "emu/clock/pace.h", "emu/config", "emu/energy", "emu/lane",
    "emu/metrics/histogram.h", "emu/packet", "emu/wire", "hca/abi", "hca/daemon/options.cc",
    "hca/daemon/options.h", "hca/host", "hca/wire", "fabric/admit", "fabric/crew",
    "fabric/daemon/arbitration.cc", "fabric/daemon/arbitration.h", "fabric/daemon/look.h",
    "fabric/daemon/notices.cc", "fabric/daemon/notices.h", "fabric/daemon/power.cc",
    "fabric/daemon/power.h", "fabric/daemon/spec.cc", "fabric/daemon/spec.h", "fabric/link",
    "fabric/route", "fabric/router", "fabric/topo", "tools/load/gaps.h", "tools/replay/deadline.h",
    "tools/sim",
)  # fmt: skip


@functools.cache
def version() -> str:
    """Names what computed a result: a hash of the simulator's sources."""
    digest = hashlib.sha256()
    for place in SOURCES:
        root = paths.ROOT / place
        files = [root] if root.is_file() else sorted(root.rglob("*"))
        for file in files:
            if file.suffix in (".h", ".cc", ".inc", ".json"):
                digest.update(str(file.relative_to(paths.ROOT)).encode() + b"\0")
                digest.update(file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def complete(config: Mapping[str, Mapping[str, Any]], seed: int, batches: int) -> dict[str, Any]:
    tables = {name: dict(table) for name, table in config.items()}
    tables.setdefault("run", {}).update(seed=seed, batches=batches)
    return tables


def key_of(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Names a run by what it is: equal keys are equal results."""
    return key_of_text(version(), to_toml(tables))


def key_of_text(computed_by: str, toml: str) -> str:
    return hashlib.sha256(f"{computed_by}\n{toml}".encode()).hexdigest()[:32]
