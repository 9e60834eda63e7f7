"""Congestion control for virtual cut-through networks (VCT).

What the paper leaves open, for all of its experiments alike:
- Its k-ary n-cube of 512 nodes is the 8-ary 3-cube. Its routing is not named. What it says of the
  network past saturation, packets that block faster than deadlocks can be resolved, and what it
  refers to for that are networks that recover from deadlocks: so `recovery`, minimal adaptive, one
  token in the network (Disha). Three lanes, two of them adaptive. After how many cycles a head asks
  for the token is ours: 32. A lane's buffer holds four messages.
- Avoidance (`adaptive`: of three lanes one adaptive, two escapes around the datelines) was run
  first and loses far less. At a steady 0.8 it delivers of uniform traffic 0.61 for 4000 cycles and
  0.48 in the next 2000, of shuffle 0.29, 0.25, 0.22, of bit reversal 0.36, 0.36, 0.35; in pulses of
  bit reversal 0.357 without control and 0.358 with approach 1.
- Recovery, one seed, every 2000 cycles. Uniform without control at a steady 0.4: 0.39, 0.40; at
  0.6: 0.56, 0.60; at 0.8: 0.63, 0.23, 0.001, 0.002, and there 0.62, 0.64 with approach 1 and 0.55,
  0.56 with 2. Bit reversal at 0.4: 0.33, 0.35; at 0.6: 0.35, 0.10; at 0.8: 0.22, 0.005. In pulses
  of uniform traffic 0.43 in each of eight, with approach 1 or without. In pulses of bit reversal
  0.25, 0.08, 0.05, 0.035, 0.004 and then 0.002 without control; 0.33, 0.18 and then 0.10 with
  approach 1; 0.34, 0.29, 0.29, 0.28, 0.27, 0.26, 0.25, 0.24 with approach 2.
- A message of 64 bytes is 16 flits of 32 bits (as MW's at that time), its header among them. Of 4
  flits of 128 bits the least delay, 32 cycles, would bring a source down to a tenth of its link,
  far below the 0.42 that the torus carries when it is congested; of 16 to a third. With avoidance,
  at a steady 0.8, uniform, 16 flits deliver 0.61 and then 0.48 without control, 0.58 with approach
  1, 0.56 with 2; four flits 0.50 and then 0.42 without, 0.45 falling to 0.36 with approach 1. Both
  were run before 16 was taken, so that it is control's better case.
- The pulses: 1000 cycles at 0.8, 1000 at 0.05, beginning with the higher. 0.425 is their mean: what
  is delivered stays below it as far as the network cannot drain a pulse before the next one.
- Figures 2 to 8 show load or latency against time; here both are means over whole periods.
- Sources learn of notices at once, as the paper has it; "by messages" is its future work.
- Latency is the network's: what a message waits at a source that holds it back is in total.
"""

from __future__ import annotations

from typing import Any

from tools.flitnet.lab.claims import Alike, Below, Collapses
from tools.flitnet.lab.experiment import Experiment, Length, Plot, Point, Tables, quick_length

OPEN = " ".join(line.strip("- ") for line in (__doc__ or "").split(":\n", 1)[1].split("\n"))
HIGH, LOW, PULSE_CYCLES = 0.8, 0.05, 1000
PATTERNS = {1: "uniform", 2: "bit_reversal", 3: "shuffle"}
ALL_PATTERNS = tuple(PATTERNS)
COMMON: dict[str, Any] = {"quick": quick_length(2), "full": Length(8, 32), "open": OPEN}
LOAD = Plot("best_effort_load", "delivered load, flits a cycle and node")
LATENCY = Plot("best_effort_network_us", "latency in the network, µs", log=True)
TOTAL = Plot("best_effort_total_us", "latency with the wait at the source, µs", log=True)
NONE = {"congestion": "none"}


def torus(load: float, pattern: str, controls: dict[str, Any], **workload: Any) -> Tables:
    return {
        "network": {"topology": "torus:8x8x8", "router": "vct", "routing": "recovery",
                    "num_vcs": 7, "link_mbps": 400, "flit_bits": 32, "vc_buf_size": 64,
                    "packet_size": 64,
                    "control_packet_size": 1, "alloc_iters": 4},
        "qos": {"scheduler": "rr"},
        "controls": {"admission": False, "power_control": False} | controls,
        "workload": {"streams": "none", "load": load, "message_flits": 16,
                     "pattern": pattern} | workload,
        # Control has as many lanes: notices cross the same ring.
        "run": {"hca": True, "lanes": [0x8018, 0, 0x7], "batch_cycles": 2 * PULSE_CYCLES},
    }  # fmt: skip


def pulses(kinds: dict[str, dict[str, Any]], quick: tuple[str, ...]) -> tuple[Point, ...]:
    """Every kind of control under the three distributions."""
    return tuple(
        Point(name, number, torus(HIGH, pattern, controls, pulse_load=LOW,
                                  pulse_cycles=PULSE_CYCLES), quick=name in quick and number == 2)
        for name, controls in kinds.items()
        for number, pattern in PATTERNS.items()
    )  # fmt: skip


def first(**changed: int) -> dict[str, Any]:
    """Approach 1 as the paper chose it but for what is changed."""
    return {"congestion": "vct1", "vct_threshold": 2, "vct_period": 16, "vct_history": 4,
            "vct_timeout": 64, "vct_step": 32} | changed  # fmt: skip


def second(messages: int = 1) -> dict[str, Any]:
    return {"congestion": "vct2", "vct_threshold": 2, "vct_history": 4, "vct_step": 32,
            "vct_messages": messages}  # fmt: skip


DEADLOCKS = (
    "in pulses of uniform traffic nothing is lost without control (0.43 in each of eight). Under "
    "bit reversal deadlocks take over (0.25, 0.08, in the eighth pulse 0.002)"
)


def figure(number: int, title: str, paper: str, kinds: dict[str, dict[str, Any]],
           quick: tuple[str, ...], plots: tuple[Plot, ...], claims: tuple,
           reason: str = "") -> Experiment:
    return Experiment(
        id=f"vct.fig{number}", title=title, paper=paper, plots=plots, claims=claims,
        reason=DEADLOCKS + reason,
        x_label="distribution (1 uniform, 2 bit reversal, 3 perfect shuffle)",
        points=pulses({"no control": NONE} | kinds, ("no control", *quick)), **COMMON,
    )  # fmt: skip


STEADY_LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
FIG1 = Experiment(
    id="vct.fig1", title="Congestion without control, 512 nodes",
    paper="Without control, delivered load falls dramatically past saturation (torus).",
    points=tuple(
        Point(pattern, load, torus(load, pattern, NONE),
              quick=pattern == "uniform" and load in (0.4, 0.8))
        for pattern in PATTERNS.values()
        for load in STEADY_LOADS
    ),
    plots=(LOAD, LATENCY),
    claims=tuple(Collapses("best_effort_load", STEADY_LOADS, name, 1.25)
                 for name in PATTERNS.values()),
    reason="the fall takes some thousand cycles: at a steady 0.8 uniform traffic delivers 0.63, "
    "0.23 and 0.001 in 2000 each, in the first 4000 more than all of load 0.4",
    **(COMMON | {"quick": quick_length(4)}),
)  # fmt: skip
PERIODS = {f"every {n}": first(vct_period=n) for n in (128, 64, 32, 16, 8)}
FIG2 = figure(
    2, "How often routers look, approach 1",
    "Checked every 128, 64, 32, 16 or 8 routings; 16 is chosen. With control the delivered load "
    "holds for all three distributions.",
    PERIODS, ("every 16",), (LOAD, LATENCY),
    (Below("best_effort_load", ALL_PATTERNS, "no control", "every 16"),),
)  # fmt: skip
HISTORIES = {f"{n} headers": first(vct_history=n) for n in (0, 2, 4, 8, 16)}
FIG3 = figure(
    3, "Size of the history, approach 1",
    "The size of the history does not seem to be very important.",
    HISTORIES, ("0 headers", "4 headers"), (LOAD, LATENCY),
    tuple(Alike("best_effort_load", ALL_PATTERNS, "4 headers", name, 0.05)
          for name in HISTORIES if name != "4 headers"),
    ", and how far differs from seed to seed by more than from 0 to 4 headers: the two differ by "
    "6 % where 5 were allowed, within the intervals of either",
)  # fmt: skip
TIMEOUTS = {f"{n} cycles": first(vct_timeout=n) for n in (8, 16, 32, 64, 128)}
FIG4 = figure(
    4, "Timeout of the source and load, approach 1",
    "Timeouts of 8 to 128 cycles; 64 is chosen. With control the delivered load holds.",
    TIMEOUTS, ("64 cycles",), (LOAD,),
    (Below("best_effort_load", ALL_PATTERNS, "no control", "64 cycles"),),
)  # fmt: skip
FIG5 = figure(
    5, "Timeout of the source and latency, approach 1",
    "With a low timeout latency behaves as without control under bit reversal and shuffle; "
    "uniform traffic has almost always good behaviour.",
    TIMEOUTS, ("8 cycles", "64 cycles"), (LATENCY, TOTAL),
    (
        Alike("best_effort_network_us", (2, 3), "8 cycles", "no control", 0.2),
        Below("best_effort_network_us", (1,), "8 cycles", "no control"),
        Below("best_effort_network_us", ALL_PATTERNS, "64 cycles", "no control"),
    ),
)  # fmt: skip
STEPS = {"every message": second(), **{f"every {n} messages": second(n) for n in (2, 4, 8)}}
FIG6 = figure(
    6, "How often a source changes its delay, and load, approach 2",
    "Load is best when the delay changes at every message.",
    STEPS, ("every message", "every 8 messages"), (LOAD,),
    (
        Below("best_effort_load", ALL_PATTERNS, "no control", "every message"),
        Below("best_effort_load", ALL_PATTERNS, "every 8 messages", "every message"),
    ),
    "; a delay that changes at every message grows sooner in a pulse and so holds more back: "
    "messages take 47.9 µs with the wait at the source, of every eighth 44.1",
)  # fmt: skip
FIG7 = figure(
    7, "How often a source changes its delay, and latency, approach 2",
    "Latency is best when the delay changes at every message.",
    STEPS, ("every message", "every 8 messages"), (LATENCY, TOTAL),
    (
        Below("best_effort_network_us", ALL_PATTERNS, "every message", "no control"),
        Below("best_effort_network_us", ALL_PATTERNS, "every message", "every 8 messages"),
    ),
    "; what is let into the network passes it in 13.5 and 13.8 µs, in the paper's order but "
    "within the intervals of either",
)  # fmt: skip
APPROACHES = {
    "approach 1": first(), "approach 2": second(),
    "approach 1 by messages": first() | {"notice": "message"},
    "approach 2 by messages": second() | {"notice": "message"},
}  # fmt: skip
FIG8 = figure(
    8, "The two approaches",
    "Approach 1 performs better; both hold under uniform, bit-reversal and shuffle distributions.",
    APPROACHES, ("approach 1", "approach 2"), (LOAD, LATENCY, TOTAL),
    (
        Below("best_effort_load", ALL_PATTERNS, "approach 2", "approach 1"),
        Below("best_effort_load", ALL_PATTERNS, "no control", "approach 2"),
    ),
    "; control slows that down, approach 2 more (0.34, 0.29, 0.24) than approach 1 (0.33, 0.18, "
    "0.10), which looks at every 16 routings: where messages stand in a deadlock nothing is routed",
)  # fmt: skip

EXPERIMENTS = (FIG1, FIG2, FIG3, FIG4, FIG5, FIG6, FIG7, FIG8)
