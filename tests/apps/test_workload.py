"""A workload file on a live cluster: what the laboratory simulates, by processes on every node."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tools.flitnet import paths
from tools.flitnet.cluster import Cluster

WORKLOAD = """
[workload]
load = 0.2
streams = "on_off"
on_ms = 2
off_ms = 2
phases = [0.2, 0.8]
arrivals = "self_similar"
pattern = "hot_spot"
hot_share = 0.3
"""


def test_phases_bursts_and_a_hot_spot(cluster2: Cluster, tmp_path: Path) -> None:
    """The mix is turned round in the middle, so that both kinds send alike over the whole run."""
    file = tmp_path / "mix.toml"
    file.write_text(WORKLOAD)
    argv = [str(paths.ROOT / "flitnet"), "load", "--workload", str(file), "--seconds", "2"]
    env = cluster2.env("n0") | {"LD_PRELOAD": ""}
    done = subprocess.run([*argv, "--json"], env=env, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    loads = {one["kind"]: one for one in json.loads(done.stdout)}
    assert set(loads) == {"best-effort", "on-off"}
    # 0.1 of two links of 400 Mb/s for 2 s, in packets of 640 bytes; bursts and ON times are chance.
    for one in loads.values():
        assert 0.3 < one["sent"] / (0.1 * 2 * 400e6 * 2 / 8 / 640) < 3, loads
        assert one["received"] == one["sent"]
