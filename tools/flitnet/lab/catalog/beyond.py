"""Beyond the papers (x): their controls together on larger networks, shares, tails, two classes.

What is chosen here, for all of its experiments alike:
- Links of 1.6 Gb/s, messages of 40 flits, buffers of 10 flits, the crossbar matched in four rounds.
- Tails and shares are those of the second half of a run; latency counts from creation.
- What is claimed is what the controls promise, not what somebody measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tools.flitnet.lab.catalog import failures, vct
from tools.flitnet.lab.catalog.acp import BEST_EFFORT_LANES, SCHEMES, on_off
from tools.flitnet.lab.claims import Alike, Below, Rising, Within
from tools.flitnet.lab.experiment import Experiment, Length, Plot, Point, Tables, quick_length

OPEN = " ".join(line.strip("- ") for line in (__doc__ or "").split(":\n", 1)[1].split("\n"))
COMMON: dict[str, Any] = {"quick": quick_length(8), "full": Length(16, 64), "open": OPEN}
TAILS = (Plot("best_effort_p50_us", "median latency, µs", log=True),
         Plot("best_effort_p99_us", "p99, µs", log=True),
         Plot("best_effort_p999_us", "p99.9, µs", log=True))  # fmt: skip


# CI runs these: half the length of the others shows what is claimed of them.
SHORT = quick_length(4)
MARKED: dict[str, dict[str, Any]] = {
    "FECN and BECN": {"congestion": "ibcc", "notice": "message"},
    "DCQCN": {"congestion": "dcqcn", "notice": "message"},
}
# Cut-through routers hold whole messages, here two in a lane: the second tells of congestion.
CUT_THROUGH = {
    "VCT 1": vct.first(vct_threshold=1), "VCT 2": vct.second() | {"vct_threshold": 1},
}  # fmt: skip


def scheme(name: str, load: float, pattern: str) -> Tables:
    network = {"topology": "mesh:4x4", "link_mbps": 1600, "vc_buf_size": 10, "alloc_iters": 4}
    if name in CUT_THROUGH:
        network |= {"router": "vct", "vc_buf_size": 80}
    if name in MARKED:
        network["control_packet_size"] = 1
    return {
        "network": network,
        "qos": {"scheduler": "rr"},
        "controls": {"admission": False, "power_control": False}
        | (SCHEMES | MARKED | CUT_THROUGH)[name],
        "workload": {"streams": "none", "load": load, "message_flits": 40, "pattern": pattern},
        "run": {"hca": True, "lanes": BEST_EFFORT_LANES, "batch_cycles": 20_000},
    }  # fmt: skip


OF_THE_PAPERS = ("No control", "Credit 200", "Self-Tuned", "ALO", *CUT_THROUGH)
FAIR_LOADS = (0.3, 0.6, 0.9)
FAIRNESS = Experiment(
    id="x.fairness", title="Shares and tails of every congestion control, 4×4 mesh, bit reversal",
    paper="Beyond the papers: below saturation every scheme of the papers serves all senders "
    "alike, and tails grow with the load. Of those that mark packets nobody promises shares.",
    points=tuple(
        Point(name, load, scheme(name, load, "bit_reversal"), quick=load != 0.6)
        for name in (*OF_THE_PAPERS, *MARKED)
        for load in FAIR_LOADS
    ),
    plots=(Plot("jain", "Jain's index"), *TAILS),
    claims=(
        # Four of sixteen nodes are their own mirror image: silent, and none of those that share.
        *(Within("jain", (0.3,), name, 0.98, 1.0001) for name in OF_THE_PAPERS),
        *(Rising("best_effort_p99_us", FAIR_LOADS, name) for name in ("No control", "Credit 200")),
    ),
    **COMMON,
)  # fmt: skip

COMBINED: dict[str, dict[str, Any]] = {
    "none": {"admission": False, "congestion": "none", "power_control": False},
    "A": {"admission": True, "congestion": "none", "power_control": False},
    "C": {"admission": False, "congestion": "credit", "power_control": False},
    "A,C,P": {"admission": True, "congestion": "credit", "power_control": True},
}  # fmt: skip


def tree(name: str, load: float) -> Tables:
    tables = {section: dict(table) for section, table in on_off(load, {}).items()}
    tables["network"]["topology"] = "fat_tree"
    tables["workload"]["stream_kbps"] = 16_000
    tables["controls"] |= COMBINED[name] | {"power_cap_load": 0.6, "power_rt_share": 0.8}
    tables["run"]["batch_cycles"] = 6_000
    return tables


def combined(
    id: str, title: str, tables: Callable[[str, float], Tables], **lengths: Length
) -> Experiment:
    """All controls, one and none of them, on a large network."""
    return Experiment(
        id=id, title=f"Admission, congestion and power control together, {title}",
        paper="Beyond the papers: with all three controls the tail of real time is shorter than "
        "with none at high load, and some connections are refused.",
        points=tuple(
            Point(name, load, tables(name, load), quick=load == 0.8 and name in ("none", "A,C,P"))
            for name in COMBINED
            for load in (0.4, 0.6, 0.8)
        ),
        plots=(Plot("real_time_p99_us", "real time, p99, µs", log=True), *TAILS,
               Plot("power_w", "power, W"), Plot("rejected", "refused connections")),
        claims=(
            Below("real_time_p99_us", (0.8,), "A,C,P", "none"),
            Within("rejected", (0.8,), "A,C,P", 0.01, 0.9),
        ),
        **COMMON | lengths,
    )  # fmt: skip


TREE = combined("x.fat_tree", "fat tree of 64 hosts", tree, quick=SHORT)


def inference(name: str, load: float) -> Tables:
    """Large writes are bursts of packets; beside them 80-byte messages that cannot wait."""
    split = name == "own service level"
    return {
        "network": {"nodes": 8, "link_mbps": 1600, "vc_buf_size": 10, "alloc_iters": 4,
                    "router": "np" if split else "tr"},
        "qos": {"scheduler": "rr" if split else "fcfs"},
        "controls": {"admission": False, "power_control": False},
        "workload": {"streams": "none", "load": load, "message_flits": 40, "arrivals": "on_off",
                     "control_per_frame": 1000, "control_flits": 5},
        # Lanes of the small messages: of their own, or among the others'.
        "run": {"lanes": [0x8000, 0, 0x7FFF] if split else [0x7FFF, 0, 0x7FFF],
                "batch_cycles": 40_000},
    }  # fmt: skip


INFERENCE = Experiment(
    id="x.inference", title="Key-value transfer of language models: bursts beside small messages",
    paper="Beyond the papers: on a service level of their own, small messages keep their latency "
    "beside bursts of large ones; on a shared one their p99 grows with the load.",
    points=tuple(
        Point(name, load, inference(name, load), quick=load != 0.5)
        for name in ("own service level", "shared")
        for load in (0.3, 0.5, 0.7)
    ),
    plots=(Plot("control_p50_us", "small messages, median, µs", log=True),
           Plot("control_p99_us", "p99, µs", log=True),
           Plot("best_effort_p99_us", "large messages, p99, µs", log=True)),
    claims=(
        Below("control_p99_us", (0.3, 0.5, 0.7), "own service level", "shared", factor=3),
        Rising("control_p99_us", (0.3, 0.7), "shared"),
        Within("control_p99_us", (0.3, 0.5, 0.7), "own service level", 0, 5),
    ),
    **COMMON,
)  # fmt: skip


def torus(name: str, load: float) -> Tables:
    tables = {section: dict(table) for section, table in tree(name, load).items()}
    tables["network"]["topology"] = "torus:8x8x8"
    # Fewer and larger connections: 512 nodes have 6000 of them at 0.6 load.
    tables["workload"]["stream_kbps"] = 64_000
    tables["controls"]["power_booking"] = "links"
    tables["run"]["batch_cycles"] = 2_000
    return tables


TORUS = combined(
    # 64 batches are ten times the ON and OFF of a connection.
    "x.torus", "torus of 512 nodes", torus, quick=quick_length(3), full=Length(64, 64)
)

# One node in sixteen wants a fifth of everything: 1.3 times its link at 0.4.
HOT_LOADS = (0.2, 0.4, 0.6)


def hot_spot(name: str, load: float) -> Tables:
    tables = scheme(name, load, "hot_spot")
    tables["network"]["control_packet_size"] = 1
    tables["workload"]["hot_share"] = 0.2
    return tables


def against_credit(id_: str, name: str) -> Experiment:
    """Sources that are told of marks, beside credits, which know no destinations."""
    return Experiment(
        id=id_, title=f"{name} against credit, 4×4 mesh with a hot spot",
        paper="Beyond the papers: once the hot node's link is full, sources that are told by marks "
        "deliver more than with credits, and packets spend less time in the network; below that "
        "marks cost nothing.",
        points=tuple(
            Point(series, load, hot_spot(series, load), quick=load != 0.6)
            for series in ("No control", "Credit 200", name)
            for load in HOT_LOADS
        ),
        plots=(Plot("best_effort_load", "throughput, flits a cycle and node"),
               Plot("best_effort_network_us", "latency in the network, µs", log=True),
               Plot("jain", "Jain's index of senders"), *TAILS),
        claims=(
            Alike("best_effort_load", (0.2,), name, "No control", 0.05),
            Below("best_effort_load", (0.4, 0.6), "Credit 200", name),
            Below("best_effort_network_us", (0.4, 0.6), name, "Credit 200"),
            Below("best_effort_network_us", (0.4, 0.6), name, "No control"),
        ),
        **COMMON | {"quick": SHORT},
    )  # fmt: skip


EXPERIMENTS = (
    FAIRNESS, TREE, INFERENCE, TORUS,
    failures.EXPERIMENT,
    against_credit("x.fecn", "FECN and BECN"), against_credit("x.dcqcn", "DCQCN"),
)  # fmt: skip
