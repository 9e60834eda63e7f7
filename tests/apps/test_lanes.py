"""Programs of one node on service levels of different lanes share its link as the VL arbitration
tables say: in flits that the switch counted while both ran, so that no clock decides."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.apps.test_verbs import PORTS, start_server
from tools.flitnet import pages
from tools.flitnet.cluster import Cluster

LANES: dict[str, Any] = {
    "network": {"nodes": 2, "link_mbps": 200, "packet_size": 256},
    "hca": {"mtu": 4096},
    "controls": {"congestion": "none", "power_control": False},
}
SL2VL = [0, 4, 1, *[0] * 12, 15]
# More messages than all slots of a node hold packets: an endless supply.
ARGV = ["ib_write_bw", "-d", "flitnet0", "-F", "-s", "65536", "-q", "4", "-t", "64", "-D", "100"]
WARM_FLITS = 2_500_000  # more than 4096 packets: the slots have been emptied once
COUNTED_FLITS = 2_000_000


def lane_flits(cluster: Cluster) -> tuple[float, float]:
    seen = pages.read(cluster.run)
    name = "flitnet_switch_transmitted_flits_total"
    return seen.total(name, vl="0"), seen.total(name, vl="1")


@pytest.mark.parametrize(("tables", "share"), [
    ({"qos_vlarb_low": "0:1,1:3"}, 0.75),
    ({"qos_vlarb_low": "0:64", "qos_vlarb_high": "1:64"}, 1.0),
], ids=["weights", "priority"])  # fmt: skip
def test_lanes_share_the_link_as_the_tables_say(
    make_cluster: Callable[..., Cluster], tables: dict[str, str], share: float
) -> None:
    qos = {"scheduler": "two_level", "qos_sl2vl": SL2VL, **tables}
    cluster = make_cluster({**LANES, "qos": qos})
    running: list[subprocess.Popen[str]] = []

    def until(reached: Callable[[tuple[float, float]], bool]) -> tuple[float, float]:
        for _ in range(2000):
            assert all(one.poll() is None for one in running)
            if reached(found := lane_flits(cluster)):
                return found
            time.sleep(0.05)
        pytest.fail(f"the link is slow: {found}")

    try:
        for lane, level in enumerate(("0", "2")):
            port = next(PORTS)
            running.append(start_server(cluster, [*ARGV, "-S", level], port))
            client = [*ARGV, "-S", level, "-p", str(port), "127.0.0.1"]
            running.append(cluster.popen("n1", client))
            begun = until(lambda flits, lane=lane: flits[lane] > 0)
        before = until(lambda flits: sum(flits) >= sum(begun) + WARM_FLITS)
        after = until(lambda flits: sum(flits) >= sum(before) + COUNTED_FLITS)
        waits = pages.read(cluster.run).total("flitnet_lane_waits_total", node="n1")
    finally:
        for one in running:
            one.kill()
            one.communicate()
    counted = [late - early for early, late in zip(before, after, strict=True)]
    assert counted[1] / sum(counted) == pytest.approx(share, abs=0.03)
    assert waits > 0
