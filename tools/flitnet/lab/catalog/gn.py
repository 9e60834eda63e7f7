"""Tree saturation control in the GigaNet interconnect (GN).

What the paper leaves open, for all of its experiments alike:
- A flit is an ATM cell: 52 of its 53 bytes at 981 Mb/s take as long as it does at 1 Gb/s. 48 of
  them are payload: 113.2 MB/s on a link, where the paper measured 114.
- A connection's queue beyond 8 cells stops its source, at half of that it may go on; a switch
  takes 64 cells of a link at a time. Messages are 43 cells (2048 bytes).
- Of a host only its rate is printed, 266 000 messages a second, which its PCI bus limits: a message
  takes 3.76 µs of it at either end. That is in gn.base; elsewhere senders are as fast as links.
- As often the card of a slow host takes the end of a message. A background stream sends 112 of the
  116 MB/s that the paper's links carry into its node 18: as large a part of ours, and of that 110
  parts in 112 have to arrive.
- Our fat tree has other numbers than the paper's; nodes stand where the paper's stood: node 18's
  neighbours send from its own pod, the six that cross it from two other pods, and node 10 is one
  whose messages take the same top switch.
"""

from __future__ import annotations

import random
from typing import Any

from tools.flitnet.lab.claims import Above, Alike, Below, Slope, Within
from tools.flitnet.lab.experiment import Experiment, Length, Plot, Point, Tables, quick_length

OPEN = " ".join(line.strip("- ") for line in (__doc__ or "").split(":\n", 1)[1].split("\n"))
COMMON: dict[str, Any] = {"quick": quick_length(6), "full": Length(12, 24), "open": OPEN}
CONTROLS = ("per stream", "link only")
MESSAGES_PER_S = 266_000  # of a host
HOST_US = 1e6 / MESSAGES_PER_S
PCI_MB_S = 528  # 64 bits at 66 MHz
CELL_BYTES = 52
MESSAGE_MB_S = MESSAGES_PER_S * 48e-6  # of single cells, as payload is counted here
SEVEN = range(1, 8)


def cells(flows: list[str], control: str = "per stream", **network: Any) -> Tables:
    return {
        "network": {
            "router": "cell", "flow_control": "link" if control == "link only" else "stream",
            "link_mbps": 981, "flit_bits": 416, "vc_buf_size": 64,
        } | network,
        "controls": {"admission": False},
        "workload": {"message_flits": 43, "flit_payload_bytes": 48, "flows": flows},
        "run": {"batch_cycles": 4000},
    }  # fmt: skip


def tree(flows: list[str], control: str = "per stream", **workload: Any) -> Tables:
    tables = cells(flows, control, topology="fat_tree")
    return tables | {"workload": tables["workload"] | workload}


def hosted(flows: list[str], **workload: Any) -> Tables:
    """With the hosts' buses: 3.76 µs a message of one cell, the rest as fast as PCI is."""
    tables = tree(flows, **workload)
    bus = {"nic": "iba", "dma_mbps": PCI_MB_S * 8, "receive_us": HOST_US,
           "dma_setup_us": HOST_US - CELL_BYTES / PCI_MB_S}  # fmt: skip
    return tables | {"run": tables["run"] | bus}


# Nodes 0 to 3 share a switch, 0 to 15 a pod: 1, 3 and 5 switches on the way.
HOPS = {1: 1, 3: 5, 5: 20}
BASE = Experiment(
    id="gn.base", title="Base latency and rate", x_label="switches on the way",
    paper="10 µs base latency, +1 µs a hop, ~114 MB/s, 266 000 4-byte messages/s.",
    points=(
        *(Point("one cell", hops, hosted([f"probe 0>{dest} 0.001"], message_flits=1,
                                         header_flits=0)) for hops, dest in HOPS.items()),
        *(Point("cells", hops, hosted([f"probe 0>{dest}"], message_flits=1, header_flits=0))
          for hops, dest in HOPS.items()),
        *(Point("stream", hops, hosted([f"probe 0>{dest}"])) for hops, dest in HOPS.items()),
    ),
    plots=(Plot("best_effort_total_us", "latency from host to host, µs"),
           Plot("best_effort_network_us", "latency of the switches, µs"),
           Plot("probe_mb_s", "MB/s")),
    numbers={("one cell", 1, "best_effort_total_us"): 10.0, ("stream", 1, "probe_mb_s"): 114.0},
    claims=(
        Slope("best_effort_total_us", tuple(HOPS), "one cell", 0.67, 1.5),
        Within("probe_mb_s", tuple(HOPS), "stream", 108, 120),
        Slope("probe_mb_s", tuple(HOPS), "stream", -0.5, 0.5),
        # Hosts are most of this.
        Within("best_effort_total_us", (1,), "one cell", 6.7, 15),
        Within("probe_mb_s", tuple(HOPS), "cells", MESSAGE_MB_S * 0.95, MESSAGE_MB_S * 1.05),
    ),
    **COMMON | {"quick": quick_length(6), "full": Length(6, 6)},
)  # fmt: skip

PORT_RATES = (0.05, 0.1, 0.15, 0.2, 0.5, 1.0)


def port(rate: float, control: str) -> Tables:
    """Seven streams through ports 2 to 8, seven more from there into port 1."""
    background = [f"background {n}>{n % 7 + 1}" for n in SEVEN]
    return cells(background + [f"congesting {n}>0 {rate:g}" for n in SEVEN], control)


PORT = Experiment(
    id="gn.port", title="Contention for a port of one switch",
    x_label="rate of congesting streams",
    paper="7 background + 7 congesting streams: background 98, congesting 15 MB/s each from 20 % "
    "on, 780 MB/s in all. Link-level only: background falls to 15 %.",
    points=tuple(
        Point(control, rate, port(rate, control), quick=rate in (0.05, 0.2, 1.0))
        for control in CONTROLS
        for rate in PORT_RATES
    ),
    plots=(Plot("background_mean_mb_s", "a background stream, MB/s"),
           Plot("congesting_mean_mb_s", "a congesting stream, MB/s"),
           Plot("all_mb_s", "all, MB/s")),
    numbers={
        **{("per stream", rate, measure): value
           for rate in (0.2, 0.5, 1.0)
           for measure, value in (("background_mean_mb_s", 98), ("congesting_mean_mb_s", 15),
                                  ("all_mb_s", 780))},
        ("link only", 1.0, "background_mean_mb_s"): 15,
    },
    ratio_most=1.15,
    claims=(
        *(Within("background_mean_mb_s", (0.2, 0.5, 1.0), "per stream", low, 120) for low in (90,)),
        Below("background_mean_mb_s", (0.2, 0.5, 1.0), "link only", "per stream", factor=4),
        Alike("congesting_least_mb_s", (0.2, 1.0), "per stream", "link only", 0.1),
    ),
    **COMMON,
)  # fmt: skip

# The first set sends to node 18 from within its pod, the second from two other pods, node 10's
# streams from the same nodes as the second.
TARGET, OTHER = 18, 2
NEAR = (16, 17, 19, 20, 21, 24, 28)
FAR = (32, 36, 40, 44, 48, 52)


def stages(far: float, other: float, control: str) -> Tables:
    flows = [f"I {n}>{TARGET}" for n in NEAR]
    flows += [f"II {n}>{TARGET} {far:g}" for n in FAR] if far else []
    flows += [f"node10 {n}>{OTHER} {other:g}" for n in FAR] if other else []
    return tree(flows, control)


# Test of table 1 -> rates of the second set and of node 10's; I, II and node 10 as measured.
TESTS = {
    1: (0, 0, (115, None, None)), 2: (0, 1, (115, None, 114)),
    3.05: (0.05, 0, (52, 31, None)), 3.2: (0.2, 0, (49, 42, None)), 3.9: (1, 0, (61, 53, None)),
    4.05: (1, 0.05, (61, 53, 30)), 4.2: (1, 0.2, (62, 54, 64)), 4.9: (1, 1, (60, 54, 114)),
}  # fmt: skip
QUICK_TESTS = (2, 3.05, 3.9, 4.9)
T1 = Experiment(
    id="gn.t1", title="Congestion of several stages", x_label="test (3.05: test 3 at 5 %)",
    paper="Node 18 gets 84 to 116 MB/s in every test, shared equally by its 13 streams; node 10 "
    "keeps 114 MB/s although its streams share links with congested ones.",
    points=tuple(
        Point(control, test, stages(*rates[:2], control), quick=test in QUICK_TESTS)
        for control in CONTROLS
        for test, rates in TESTS.items()
        if control == "per stream" or test in (2, 4.9)
    ),
    plots=(Plot("I_mb_s", "node 18, first set, MB/s"), Plot("II_mb_s", "second set"),
           Plot("node10_mb_s", "node 10")),
    numbers={
        ("per stream", test, measure): value
        for test, (_, _, row) in TESTS.items()
        for measure, value in zip(("I_mb_s", "II_mb_s", "node10_mb_s"), row)
        if value is not None
    },
    ratio_most=2.0,
    claims=(
        Within("node10_mb_s", (2, 4.9), "per stream", 105, 120),
        Within("I_mb_s", (1, 2), "per stream", 105, 120),
        # An equal share each: 7 and 6 streams.
        Within("I_mean_mb_s", (3.9, 4.9), "per stream", 113.2 / 13 * 0.9, 113.2 / 13 * 1.1),
        Within("II_mean_mb_s", (3.9, 4.9), "per stream", 113.2 / 13 * 0.9, 113.2 / 13 * 1.1),
        Below("node10_mb_s", (4.9,), "link only", "per stream", factor=1.5),
    ),
    **COMMON,
)  # fmt: skip

LAYOUTS = (1, 2, 3, 4)


def front_to_back(layout: int) -> list[str]:
    """32 connections, each from a drawn node of the front to a drawn one of the back."""
    draw = random.Random(layout)
    return [f"stream {draw.randrange(32)}>{32 + draw.randrange(32)}" for _ in range(32)]


FTB = Experiment(
    id="gn.ftb", title="Front to back: 32 streams through the whole tree", x_label="layout",
    paper="Link-level only loses 27 % on average against per-stream flow control; a stream that "
    "shares no link keeps 112 MB/s.",
    points=tuple(
        Point(control, layout, tree(front_to_back(layout), control), quick=layout in (1, 2))
        for control in CONTROLS
        for layout in LAYOUTS
    ),
    plots=(Plot("all_mb_s", "all streams, MB/s"), Plot("stream_most_mb_s", "fastest stream, MB/s")),
    claims=(
        Below("all_mb_s", LAYOUTS, "link only", "per stream"),
        # In the first two layouts some stream shares no link.
        Above("stream_most_mb_s", LAYOUTS[:2], "link only", 105),
        Above("stream_most_mb_s", LAYOUTS[:2], "per stream", 105),
    ),
    **COMMON,
)  # fmt: skip

# A slow host: its card congests its own switch and those above. It sends no more than it takes.
CELL_S = 416 / 981e6
HOST_PART = 112 / 116  # of a link
ALONE_MB_S = HOST_PART * 48e-6 / CELL_S
# Two sources in each of three other pods, and one beside the slow node. Three background streams
# share with the first three the port by which they come to the top switch; the fourth, beside the
# slow node, shares with none. In the paper's tree six sources come by six such ports, here, where
# the destination decides which way goes up, by three: so the last three have to join the first.
INTO_SLOW = (20, 36, 52, 4, 24, 40, 56)
BESIDE = ((28, 32), (44, 48), (60, 16))


def slow(streams: int, control: str) -> Tables:
    flows = [f"background {n}>{to} {HOST_PART:.4f}" for n, to in BESIDE]
    rate = MESSAGES_PER_S * CELL_S
    flows += [f"congesting {n}>0 {rate:.4f} 1" for n in INTO_SLOW[:streams]]
    tables = tree(flows, control)
    return tables | {"run": tables["run"] | {"receive_us": HOST_US}}


SLOW = Experiment(
    id="gn.slow", title="Streams into one slow node", x_label="streams of single cells",
    paper="Up to 7 streams into one node: fair shares; background streams ≥ 110 of 112 MB/s.",
    points=tuple(
        Point(control, streams, slow(streams, control),
              quick=control == "per stream" and streams in (1, 3, 7))
        for control in CONTROLS
        for streams in (0, *SEVEN)
        if control == "per stream" or streams in (3, 7)
    ),
    plots=(Plot("background_least_mb_s", "slowest background stream, MB/s"),
           Plot("background_most_mb_s", "fastest background stream, MB/s"),
           Plot("congesting_mb_s", "into the slow node, MB/s"),
           Plot("congesting_least_mb_s", "its slowest stream, MB/s"),
           Plot("congesting_most_mb_s", "its fastest stream, MB/s")),
    numbers={("per stream", 1, "background_least_mb_s"): 107.0,
             **{("per stream", n, "background_least_mb_s"): 110.0 for n in range(3, 8)}},
    claims=(
        # The others do not meet the first stream.
        Above("background_most_mb_s", (1,), "per stream", ALONE_MB_S * 0.99),
        Above("background_least_mb_s", tuple(range(3, 8)), "per stream", ALONE_MB_S * 110 / 112),
        Within("congesting_mb_s", tuple(SEVEN), "per stream", MESSAGE_MB_S * 0.95,
               MESSAGE_MB_S * 1.05),
        # An equal share for everybody, the one beside the slow node among them.
        *(Within(f"congesting_{which}_mb_s", (n,), "per stream", MESSAGE_MB_S / n * 0.9,
                 MESSAGE_MB_S / n * 1.1) for n in (3, 7) for which in ("least", "most")),
    ),
    **COMMON,
)  # fmt: skip

EXPERIMENTS = (BASE, SLOW, PORT, T1, FTB)
