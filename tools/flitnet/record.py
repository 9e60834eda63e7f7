"""processes.json of a run directory: whom we started there, and who answers for them.

Whatever is stopped is stopped by this record, so a process is in it before anything else happens.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tools.flitnet import paths
from tools.flitnet.errors import FlitnetError
from tools.flitnet.process import ProcessId, spawn

# What we and the daemons put into a run directory: `down` removes these and nothing else.
ENTRIES = (
    "cluster.toml", "cluster.toml.new", "fabricd.pid", "fabric.sock", "fabricd.ctl",
    "clock.page", "fabric.state", "nodes", "metrics", "sys", "log", "plans", "fabric.udp", "state",
    "capture.ring", "cluster.key", "part.json", "controls.json", "controls.json.new",
)  # fmt: skip
SCRATCH = "eal.*"  # of a fabricd that died while it started
NAME = "processes.json"
ENDING = "ending"  # there while somebody takes it down
# Removed in this order: until the record has gone, it is seen that the cluster ends.
FILES = ("processes.lock", "processes.json.new", NAME, ENDING)


@dataclass
class Record:
    """Processes by role; the owner is a demo or None (`up`); where the exporter listens."""

    owner: ProcessId | None = None
    processes: dict[str, ProcessId] = field(default_factory=dict)
    exporter: str | None = None

    def to_json(self) -> str:
        def pair(p: ProcessId | None) -> list[int] | None:
            return None if p is None else [p.pid, p.start_ticks]

        processes = {role: pair(p) for role, p in self.processes.items()}
        return json.dumps(
            {"owner": pair(self.owner), "processes": processes, "exporter": self.exporter}
        )

    @staticmethod
    def from_json(text: str) -> Record:
        def process(pair: list[int]) -> ProcessId:
            pid, start_ticks = pair
            return ProcessId(int(pid), int(start_ticks))

        value = json.loads(text)
        owner = process(value["owner"]) if value["owner"] else None
        processes = {role: process(p) for role, p in value["processes"].items()}
        return Record(owner, processes, value.get("exporter"))


def read(run: Path) -> Record:
    try:
        return Record.from_json((run / NAME).read_text())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Record()


def ends(run: Path) -> bool:
    """Somebody takes the cluster down, or has."""
    return (run / ENDING).exists() or not (run / NAME).exists()


def write(run: Path, record: Record) -> None:
    fresh = run / f"{NAME}.new"
    try:
        fresh.write_text(record.to_json())
        fresh.rename(run / NAME)
    except OSError as error:  # a disk that is full does not say of which file
        raise OSError(error.errno, error.strerror, str(fresh)) from None


@contextmanager
def changed(run: Path) -> Iterator[Record]:
    """The record, written back at the end: one command at a time, none forgets another's."""
    fd = os.open(run / "processes.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        record = read(run)
        yield record
        write(run, record)
    finally:
        os.close(fd)


def start(
    run: Path, roles: list[str], argv: list[str], log: Path, env: dict[str, str] | None
) -> tuple[ProcessId, subprocess.Popen]:
    """Starts a program under roles that nobody has; what cannot be recorded does not stay."""
    popen = None
    try:
        with changed(run) as record:
            for role in roles:
                old = record.processes.get(role)
                if old and old.alive():
                    raise FlitnetError(f"{role} runs already (pid {old.pid})")
            popen = spawn(argv, log, env)
            process = ProcessId.of(popen.pid) or ProcessId(popen.pid, 0)
            record.processes |= dict.fromkeys(roles, process)
        return process, popen
    except BaseException:
        if popen:
            popen.kill()
            popen.wait()
        raise


def stop_rank(role: str) -> tuple[str, ...]:
    """Of a daemon its kind, which is stopped after others; of a program nothing."""
    kind = role.partition(":")[0]
    return (kind,) if kind in ("exporter", "hcad", "fabricd") else ()


def advice(daemons: list[str], alive: list[str]) -> str:
    """What to do about a cluster that runs, or a part of it."""
    dead = [role for role in daemons if role not in alive]
    down = paths.call("down")
    if not dead or "fabricd" in dead:
        start = f"start it with: {paths.call('fabric start')}, or stop all with"
        return (f"fabricd is dead; {start}" if dead else "stop it with") + f": {down}"
    node = dead[0].removeprefix("hcad:")
    return f"{node} is dead; use: {paths.call(f'node {node} start')}, or: {down}"
