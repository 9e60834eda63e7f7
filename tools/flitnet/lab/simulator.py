"""Runs one point: tables become TOML, `flitnet-point` runs it, its line of JSON comes back."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import resource
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.flitnet import paths
from tools.flitnet.errors import EXIT_USAGE, FlitnetError, UsageError
from tools.flitnet.process import dies_with_us
from tools.flitnet.toml_text import spelled

CPU_LIMIT_S = 3600  # of one simulation; a machine may be suspended for longer


FILE_BYTES_MAX = 16 << 20  # of a topology; the simulator reads no more (fabric/topo/file.h)


def to_toml(tables: Mapping[str, Any]) -> str:
    """Flat tables of scalars and lists of them, or of [[node]] a list of such; JSON's spelling of
    these is TOML's. What is in the file of a topology decides the result as they do: a comment says
    which it was."""
    lines = [_content(tables["network"].get("topology"))] if "network" in tables else []
    for section in sorted(tables):
        value = tables[section]
        several = isinstance(value, list)
        for table in value if several else [value]:
            name = spelled(section)
            lines.append(f"[[{name}]]" if several else f"[{name}]")
            lines += [f"{spelled(key)} = {json.dumps(table[key])}" for key in sorted(table)]
    return "\n".join(line for line in lines if line) + "\n"


def _content(topology: Any) -> str:
    """Empty where there is no file, and where the simulator says so."""
    kind, _, name = topology.partition(":") if isinstance(topology, str) else ("", "", "")
    if kind != "file" or not Path(name).is_file():
        return ""
    try:
        with Path(name).open("rb") as file:
            content = hashlib.sha256(file.read(FILE_BYTES_MAX + 1)).hexdigest()
    except OSError:
        return ""
    return f"# {json.dumps(name)}: SHA-256 {content}"


def run_text(toml: str) -> dict[str, Any]:
    return _run(toml)[0]


def run_timed(toml: str) -> dict[str, Any]:
    """With `cpu_seconds`, what it took of a core: kept beside the result, no part of it."""
    output, usage = _run(toml)
    return output | {"cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3)}


def _run(toml: str) -> tuple[dict[str, Any], resource.struct_rusage]:
    program = paths.program("flitnet-point")
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as said:
        given.write(toml)
        given.seek(0)
        with subprocess.Popen(
            dies_with_us([str(program)]), stdin=given, stdout=subprocess.PIPE, stderr=said,
            text=True,
        ) as process:  # fmt: skip
            try:
                resource.prlimit(process.pid, resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
                output = process.stdout.read()
                _, status, usage = os.wait4(process.pid, 0)
            except BaseException:
                process.kill()
                raise
            process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            raise FlitnetError(f"{program.name}: killed, or longer than {CPU_LIMIT_S} s of a core")
        if process.returncode != 0:
            why = said.read().strip()
            if process.returncode == EXIT_USAGE and why:
                raise UsageError(why)
            raise FlitnetError(why or f"{program.name}: exit code {process.returncode}")
    return json.loads(output), usage


# What a result depends on; a change elsewhere leaves results valid.
SOURCES = (
    "emu/base", "emu/clock/doze.h", "emu/clock/pace.h", "emu/config", "emu/energy",
    "emu/lane", "emu/metrics/histogram.cc", "emu/metrics/histogram.h", "emu/packet", "emu/wire",
    "hca/abi", "hca/daemon/options.cc", "hca/daemon/options.h", "hca/host", "hca/wire",
    "fabric/admit",
    "fabric/crew", "fabric/daemon/arbitration.cc", "fabric/daemon/arbitration.h",
    "fabric/daemon/look.h", "fabric/daemon/notices.cc", "fabric/daemon/notices.h",
    "fabric/daemon/power.cc", "fabric/daemon/power.h", "fabric/daemon/spec.cc",
    "fabric/daemon/spec.h", "fabric/link", "fabric/route", "fabric/router", "fabric/topo",
    "tools/load/gaps.h", "tools/replay/deadline.h", "tools/sim",
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


def complete(config: Mapping[str, Any], seed: int, batches: int) -> dict[str, Any]:
    run = {**config.get("run", {}), "seed": seed, "batches": batches}
    return {**config, "run": run}


def key_of(tables: Mapping[str, Any]) -> str:
    """Names a run by what it is: equal keys are equal results."""
    return key_of_text(version(), to_toml(tables))


def key_of_text(computed_by: str, toml: str) -> str:
    return hashlib.sha256(f"{computed_by}\n{toml}".encode()).hexdigest()[:32]
