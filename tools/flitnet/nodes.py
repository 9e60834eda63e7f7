"""The death of a node, to see how software takes it: `flitnet node NAME kill|stop|start`.

Programs on other nodes run on. The record of processes keeps who died, as after any crash, so
`status` and `down` need to know nothing of this.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.flitnet import controls, paths, rundir, surroundings
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import FlitnetError, UsageError
from tools.flitnet.process import stop_all, uninterrupted


def refuse_dead(cluster: Cluster, nodes: Iterable[str]) -> None:
    """Before a program is to run on them."""
    dead = cluster.dead()
    for node in nodes:
        if f"hcad:{node}" in dead:
            raise FlitnetError(f"{node} is dead; start it with: {cluster.revival(node)}")


def kill(run: Path, node: str) -> None:
    """As a machine that loses power: nobody is told."""
    with _living(run, node) as cluster:
        cluster.kill(f"hcad:{node}")
    print(f"{node} was killed; start it again with: {_start(node)}")


def stop(run: Path, node: str) -> None:
    """In order, as `down` does it."""
    with _living(run, node) as cluster:
        stubborn = stop_all([cluster.process(f"hcad:{node}")])
    how = " (by SIGKILL)" if stubborn else ""
    print(f"{node} was stopped{how}; start it again with: {_start(node)}")


def start(run: Path, node: str) -> None:
    """With the cluster's file and what was `set` since; a node that does not come up is ended."""
    with _held(run, node) as cluster:
        dead = cluster.dead()
        if f"hcad:{node}" not in dead:
            raise UsageError(f"{node} runs; first: {paths.call(f'node {node} kill')} (or stop)")
        if "fabricd" in dead:
            raise FlitnetError(f"fabricd is dead; first: {paths.call('fabric start')}")
        try:
            cluster.start_node(node)
            controls.repeat(run, cluster.node_dir(node) / "hcad.ctl")
            if cluster.record().exporter:
                surroundings.wait_ports(cluster, [node])
        except BaseException:
            with uninterrupted():
                if f"hcad:{node}" not in cluster.dead():
                    cluster.kill(f"hcad:{node}")
            raise
        reason = cluster.node_status(node)["reason"]
    print(f"{node} serves again" + (f"; {reason}" if reason else ""))


def _start(node: str) -> str:
    return paths.call(f"node {node} start")


ACTIONS = {"kill": kill, "stop": stop, "start": start}


@contextlib.contextmanager
def held(run: Path) -> Iterator[Cluster]:
    """The running cluster, while no other command starts or stops anything in it."""
    Cluster.open(run)  # refuses where there is none
    with rundir.lock(run):
        yield Cluster.open(run)


@contextlib.contextmanager
def _held(run: Path, node: str) -> Iterator[Cluster]:
    with held(run) as cluster:
        cluster.node_dir(node)  # refuses who is none
        if cluster.together:
            raise UsageError(
                f'{node} shares the fabric\'s process (hca.process = "own" gives it its own): '
                f"use {paths.call('fabric kill')} (or stop, start)"
            )
        yield cluster


@contextlib.contextmanager
def _living(run: Path, node: str) -> Iterator[Cluster]:
    with _held(run, node) as cluster:
        if f"hcad:{node}" in cluster.dead():
            raise UsageError(f"{node} is dead; start it with: {_start(node)}")
        yield cluster
