"""The death of the fabric, to see how software takes it: `flitnet fabric kill|stop|start`.

Where nodes share its process (hca.process), they die and come back with it.

As when a network's only switch loses power: nodes and programs live on, ports are down, and
emulated time stands still until it is back. The record keeps it, as any daemon that died.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tools.flitnet import controls, paths, surroundings
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import UsageError
from tools.flitnet.nodes import held
from tools.flitnet.process import stop_all, uninterrupted

ROLE = "fabricd"


def kill(run: Path) -> None:
    """What is under way in it is gone; RC sends it again."""
    with _living(run) as cluster:
        cluster.kill(ROLE)
        who = _who(cluster)
    print(f"{who} killed; {_back()}")


def stop(run: Path) -> None:
    """In order, as `down` does it."""
    with _living(run) as cluster:
        stubborn = stop_all([cluster.process(ROLE)])
        who = _who(cluster)
    print(f"{who} stopped{' (by SIGKILL)' if stubborn else ''}; {_back()}")


def start(run: Path) -> None:
    """With the cluster's file and what was `set` since, all links in service; returns when the
    nodes that live are attached. One that does not come up is ended."""
    with _held(run) as cluster:
        dead = cluster.dead()
        if ROLE not in dead:
            raise UsageError(f"the fabric runs; first: {paths.call('fabric kill')} (or stop)")
        nodes = list(cluster.here)
        if not cluster.together:
            nodes = [node for node in nodes if f"hcad:{node}" not in dead]
        try:
            cluster.start_fabricd(wait=False)
            cluster.wait_attached(nodes)
            controls.repeat(run, run / "fabricd.ctl", controls.OF_THE_FABRIC)
            for node in nodes if cluster.together else []:
                controls.repeat(run, cluster.node_dir(node) / "hcad.ctl")
            if cluster.record().exporter:
                surroundings.wait_ports(cluster, nodes)
        except BaseException:
            with uninterrupted():
                if ROLE not in cluster.dead():
                    cluster.kill(ROLE)
            raise
    print(f"the fabric serves {len(nodes)} of {len(cluster.here)} nodes again")


def _who(cluster: Cluster) -> str:
    return "the fabric and its nodes were" if cluster.together else "the fabric was"


def _back() -> str:
    return f"start it again with: {paths.call('fabric start')}"


ACTIONS = {"kill": kill, "stop": stop, "start": start}


@contextlib.contextmanager
def _held(run: Path) -> Iterator[Cluster]:
    with held(run) as cluster:
        if not cluster.part.fabric:
            raise UsageError("the fabric runs on another host; see docs/hosts.md")
        yield cluster


@contextlib.contextmanager
def _living(run: Path) -> Iterator[Cluster]:
    with _held(run) as cluster:
        if ROLE in cluster.dead():
            raise UsageError(f"the fabric is dead; {_back()}")
        yield cluster
