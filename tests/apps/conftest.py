"""Fixtures for tests that run real daemons: clusters in temporary run directories.

`cluster2` is one two-node cluster per module: tests that break nothing share it. Tests that kill
or configure make their own with `make_cluster`. Everything is stopped when the test ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tools.flitnet.cluster import Cluster


@pytest.fixture(scope="module")
def cluster2() -> Iterator[Cluster]:
    with Cluster({"network": {"nodes": 2}}) as cluster:
        yield cluster


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Cluster]]:
    """make_cluster(tables=None, **options) starts a cluster that the end of the test stops."""
    started: list[Cluster] = []

    def make(tables: dict[str, Any] | None = None, **options: Any) -> Cluster:
        cluster = Cluster(tables or {"network": {"nodes": 2}}, **options)
        started.append(cluster)
        cluster.up()
        return cluster

    yield make
    for cluster in started:
        cluster.down()
