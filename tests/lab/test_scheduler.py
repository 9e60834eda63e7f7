"""A sweep over several hosts: a scheduler, and workers in network namespaces of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.test_sweep import experiment, outputs_of
from tools.flitnet import paths
from tools.flitnet.lab.experiment import SEEDS
from tools.flitnet.lab.store import Store
from tools.flitnet.lab.sweep import cluster

pytest.importorskip("distributed")
IP = "/usr/sbin/ip"
HOSTS = (0, 1)


def ip(*words: str) -> None:
    subprocess.run([IP, *words], check=True, capture_output=True, timeout=20)


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Two namespaces, each on a link of its own to us; we are .1, they are .2."""
    if os.geteuid() != 0 or not Path(IP).exists():
        pytest.skip("network namespaces need root and iproute2")
    names = [f"flitlab{os.getpid()}-{i}" for i in HOSTS]
    made = []
    try:
        for i, name in enumerate(names):
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
            made.append(name)
            ours, theirs = f"fl{os.getpid()}o{i}"[:15], "eth0"
            ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
            ip("addr", "add", f"10.97.{i}.1/24", "dev", ours)
            ip("link", "set", ours, "up")
            ip("-n", name, "addr", "add", f"10.97.{i}.2/24", "dev", theirs)
            ip("-n", name, "link", "set", theirs, "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "route", "add", "default", "via", f"10.97.{i}.1")
        yield names
    finally:
        for name in made:
            subprocess.run([IP, "netns", "del", name], capture_output=True, timeout=20)


def test_workers_on_other_hosts_compute_a_sweep(
    simulator, hosts: list[str], tmp_path: Path
) -> None:
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=0, host="10.97.0.1", dashboard_address=None) as scheduler:
        address = scheduler.scheduler_address
        workers = [
            subprocess.Popen(
                [IP, "netns", "exec", name, sys.executable, "-m", "distributed.cli.dask_worker",
                 address, "--nthreads", "1", "--no-dashboard", "--memory-limit", "0",
                 "--local-directory", str(tmp_path / name)],
                env=dict(os.environ) | {"PYTHONPATH": str(paths.ROOT)}, cwd=paths.ROOT,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for name in hosts
        ]  # fmt: skip
        try:
            with Client(address) as client:
                client.wait_for_workers(len(HOSTS), timeout=60)
                found = client.scheduler_info()["workers"]
                assert {worker.split("/")[2].split(":")[0] for worker in found} == {
                    "10.97.0.2", "10.97.1.2",
                }  # fmt: skip
            with cluster(1, address) as client:
                outputs = outputs_of([experiment()], Store(tmp_path / "lab"), client)
        finally:
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.wait(timeout=20)
    assert len(outputs["t.one"]) == 2 * len(SEEDS)
    assert len(list((tmp_path / "lab" / "runs").glob("*.json"))) == 2 * len(SEEDS)
