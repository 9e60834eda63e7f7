"""`flitnet exporter start`: the exporter of a running cluster anew, after its death.

Until then what it wrote of ports and counters stands as it was, and nobody answers Prometheus.
"""

from __future__ import annotations

import time
from pathlib import Path

from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import FlitnetError, UsageError
from tools.flitnet.nodes import held
from tools.flitnet.process import listens, uninterrupted

ROLE = "exporter"
START_S = 20.0


def start(run: Path) -> None:
    """Where the one before it listened; returns when all files are written anew. One that does not
    come so far is ended."""
    with held(run) as cluster:
        listen = cluster.record().exporter
        if listen is None:
            raise UsageError("this cluster was started without an exporter")
        if ROLE not in cluster.dead():
            raise UsageError("the exporter runs")
        try:
            before = _written(run)
            cluster.start_exporter(listen)
            _wait(cluster, before, listen)
        except BaseException:
            with uninterrupted():
                if ROLE not in cluster.dead():
                    cluster.kill(ROLE)
            raise
    print("the exporter serves again" + (f" on {listen}" if listen != "off" else ""))


def _written(run: Path) -> dict[Path, int]:
    """When the state of each port was: of files that are renamed into their place."""
    files = run.glob("sys/class/infiniband/*/ports/1/state")
    return {file: file.stat().st_mtime_ns for file in files}


def _wait(cluster: Cluster, before: dict[Path, int], listen: str) -> None:
    """`before`: when the files of ports were. A host without nodes has none: there it is enough
    that it listens."""
    late = time.monotonic() + START_S
    while time.monotonic() < late:
        if not cluster.alive(ROLE):
            raise FlitnetError(f"the exporter stopped at its start; {cluster.last_line(ROLE)}")
        now = _written(cluster.run)
        if not cluster.here and (listen == "off" or listens(int(listen.rpartition(":")[2]))):
            return
        if now and all(at != before.get(file) for file, at in now.items()):
            return
        time.sleep(0.02)
    raise FlitnetError(f"the exporter wrote nothing in {START_S:g} s; {cluster.last_line(ROLE)}")


ACTIONS = {"start": start}
