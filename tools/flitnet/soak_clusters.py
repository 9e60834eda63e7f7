"""Clusters of `flitnet soak live`: random designs, controls, lanes, sizes and clocks."""

from __future__ import annotations

import random
from typing import Any

from tools.flitnet import config, topology
from tools.flitnet.errors import UsageError
from tools.flitnet.process import free_port

SCHEMES = ("credit", "alo", "self_tuned", "none", "vct1", "vct2", "ibcc", "dcqcn")
SCHEDULERS = ("vclk", "fgvc", "fcfs", "rr", "wrr", "two_level", "vclk_hol", "fq", "fgfq")
CLASSES = ("control", "real_time", "best_effort")

# [table][key]: values, and how often the key is there.
DRAWS: dict[str, dict[str, tuple[tuple[Any, ...], float]]] = {
    "network": {
        "topology": (("single:2", "single:4", "single:6", "mesh:2x2", "mesh:3x2", "torus:3x2",
                      "torus:4", "torus:3x3", "fat_mesh:2x2", "tree:2x2", "tree:3x2"), 1),
        "router": (("np", "np", "tr", "p", "pcs", "vct", "cell"), 1),
        "routing": (("dor", "up_down", "up_by_load", "adaptive", "recovery"), 0.4),
        "crossbar": (("full",), 0.25),
        "engine": (("general",), 0.2),
        "flow_control": (("link", "stream"), 0.2),
        "quench_flits": ((1, 100), 0.1),
        "circuits": ((2, 32), 0.1),
        "accelerate": ((False,), 0.1),
        "nodes_per_router": ((2,), 0.1),
        "links_per_neighbor": ((4,), 0.1),
        "recovery_cycles": ((1, 1000), 0.1),
        "control_packet_size": ((1, 40), 0.1),
        "link_mbps": ((100, 1600, 10_000), 0.4),
        "flit_bits": ((32, 64, 256), 0.2),
        "vc_buf_size": ((4, 20, 40, 100, 127), 0.5),
        "num_vcs": ((4, 8), 0.2),
        "alloc_iters": ((1, 4), 0.2),
        "packet_size": ((20, 64, 128), 0.3),
        "link_delay": ((2, 8), 0.2),
        "threads": ((2,), 0.1),
        "pass_through": ((True,), 0.1),
    },
    "qos": {
        "scheduler": (SCHEDULERS, 1),
        "hca_scheduler": (SCHEDULERS, 0.2),
        "block_flits": ((5, 10), 0.2),
        "block_waits": ((True,), 0.1),
        "strict_classes": ((True,), 0.1),
        "control_first": ((False,), 0.1),
        "counters": (("wide", "overflow"), 0.2),
        "frame": (("large",), 0.2),
        "pointer": (("slow",), 0.2),
        "qos_high_limit": ((0, 1, 10), 0.15),
        "qos_vlarb_high": (("0:64,1:32,15:255", "4:1", "15:8"), 0.1),
        "qos_vlarb_low": (("0:64,1:64,2:64,3:64", "0:1,5:255"), 0.1),
        "vls_control": (("14-15", "0"), 0.1),
        "vls_real_time": (("8-13", "1-3"), 0.1),
        "vls_best_effort": (("0-7", "4-15", "0"), 0.1),
    },
    "controls": {
        "congestion": (SCHEMES, 1),
        "power_control": ((False,), 0.4),
        "peak_power": (("powerherd", "none"), 0.2),
        "completion_queues": (("separate", "quad"), 0.3),
        "best_effort_credits": ((3, 20), 0.3),
        "notice": (("message",), 0.2),
        "admission": ((False,), 0.2),
        "congestion_control": ((False,), 0.1),
        "mark_from": ((1, 100), 0.1),
        "ccti_increase": ((20,), 0.1),
        "dcqcn_notice_us": ((5,), 0.1),
        "vct_threshold": ((1, 10), 0.1),
        "vct_counts": (("injected",), 0.1),
        "reservable_share": ((0.05, 1.0), 0.15),
        "hca_buffer_packets": ((16, 100), 0.15),
        "power_booking": (("links",), 0.1),
        "power_cap_load": ((0.3, 1.0), 0.1),
        "power_rt_share": ((0.1, 1.0), 0.1),
    },
    "hca": {
        "process": (("own", "own", "fabric"), 1),
        "mtu": ((256, 1024, 4096), 0.4),
        "link_layer": (("roce_v2",), 0.25),
        "crc_on_host": ((True,), 0.3),
        "vendor_part_id": ((4119,), 0.2),  # perftest posts by ibv_wr_*
        "launch_horizon_us": ((100, 1000, 100_000), 0.2),
    },
    "clock": {
        "slack_ms": ((0, 200), 0.15),
        "follow_ms": ((0, 1, 100), 0.2),
        "quantum_us": ((10, 1000), 0.2),
    },
}  # fmt: skip


def draw(rng: random.Random) -> dict[str, Any]:
    """Tables of a cluster file that can be built; what cannot is drawn anew."""
    while True:
        tables = _draw(rng)
        try:
            config.check(config.parse(config.to_toml(tables)))
            return tables
        except UsageError:
            continue


def _draw(rng: random.Random) -> dict[str, Any]:
    tables: dict[str, Any] = {
        name: {key: rng.choice(values) for key, (values, share) in keys.items()
               if rng.random() < share}
        for name, keys in DRAWS.items()
    }  # fmt: skip
    network, qos = tables["network"], tables["qos"]
    if network["router"] == "vct":
        longest = network.get("packet_size", config.PACKET_SIZE_DEFAULT)
        network["vc_buf_size"] = max(network.get("vc_buf_size", 0), longest)
    if rng.random() < 0.1:
        qos["sl_class"] = [rng.choice(CLASSES) for _ in range(16)]
    if rng.random() < 0.1:
        qos["qos_sl2vl"] = [rng.randrange(network.get("num_vcs", 16)) for _ in range(16)]
    if rng.random() < 0.15:  # as nodes of other hosts have it
        tables["attach"] = {"kind": "udp", "listen": f"127.0.0.1:{free_port()}"}
    if rng.random() < 0.15:
        count = topology.node_count(network) or config.NODES_DEFAULT
        tables["node"] = [{"name": f"h-{i}_", "ip": f"127.9.{i}.200"} for i in range(count)]
    return tables


def short(tables: dict[str, Any]) -> str:
    return " ".join(
        f"{key}={value}"
        for table in tables.values() if isinstance(table, dict)
        for key, value in table.items()
    )  # fmt: skip
