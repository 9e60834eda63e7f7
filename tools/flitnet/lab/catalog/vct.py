"""Congestion control for virtual cut-through networks (VCT).

What the paper leaves open, for all of its experiments alike:
- Its k-ary n-cube of 512 nodes is the 8-ary 3-cube. Its routing is not named. What it says of the
  network past saturation, packets that block faster than deadlocks can be resolved, and what it
  refers to for that are networks that recover from deadlocks: so `recovery`, minimal adaptive, one
  token in the network (Disha). After how many cycles a head asks for the token is ours: 32.
  Avoidance (`adaptive`) loses far less without control: of 16 flits a message 0.357
  in pulses of bit reversal, 0.358 with approach 1.
- A message of 64 bytes is 4 flits of 128 bits, its header among them. The paper's ranges decide:
  it looks every 8 to 128 routings and forgets after 8 to 128 cycles, so these have to be of one
  size. At a third of its links a router routes 16 messages of 4 flits in about 35 cycles, of 16
  flits (of 32 bits) in 145: then the source has forgotten twice before the router looks again.
- A lane's buffer holds 4 messages (256 bytes), a link has four lanes, three of them adaptive.
  Congestion is more than two messages in a lane: what is beyond is the time that control has. One
  seed, mean of eight pulses without control, with approach 1, with approach 2:
    uniform      0.43 0.42 0.24
    bit reversal 0.14 0.29 0.18
    shuffle      0.03 0.29 0.20
  The paper speaks of "large buffers". Of 16 messages (1 KiB) pulses of 1000 cycles are taken in and
  drained without control, 0.40 under bit reversal and 0.36 under shuffle; of 4000 cycles they are
  not, 0.12 under bit reversal.
- The pulses: 1000 cycles at 0.8, 1000 at 0.05, beginning with the higher. 0.425 is their mean: what
  is delivered stays below it as far as the network cannot drain a pulse before the next one.
- Curves that the paper calls alike (figures 3 and 5) differ by a fifth at most. Eight pulses on an
  empty network are no steady state: all of them count, none is a warm-up, and what five seeds do
  not tell, more seeds do, not longer runs. Figures 3 and 5 have ten, and as many more, up to 40, as
  make the load precise to a twentieth or 0.01.
- "Holds" is said of these eight pulses: how long control keeps deadlocks rarer than one token
  resolves them is another question.
- Figures 2 to 8 show load or latency against time; here both are means over whole periods. That the
  load "holds" is read as: it is at least 1.25 times what is delivered without control where that
  collapses, and at least 0.9 of it under uniform traffic, where it does not.
- Sources learn of notices at once, as the paper has it; "by messages" is its future work.
- Latency is the network's: what a message waits at a source that holds it back is in total.
"""

from __future__ import annotations

from typing import Any

from tools.flitnet.lab.claims import Alike, Below, Claim, Collapses
from tools.flitnet.lab.experiment import Experiment, Length, Plot, Point, Tables, quick_length

OPEN = " ".join(line.strip("- ") for line in (__doc__ or "").split(":\n", 1)[1].split("\n"))
HIGH, LOW, PULSE_CYCLES = 0.8, 0.05, 1000
PATTERNS = {1: "uniform", 2: "bit_reversal", 3: "shuffle"}
ALL_PATTERNS = tuple(PATTERNS)
COMMON: dict[str, Any] = {"quick": quick_length(4), "full": Length(8, 32), "open": OPEN}
# Where likeness is claimed, which takes more to show than a difference.
ALIKE: dict[str, Any] = {"full": Length(8, 8, 40), "seeds": 10,
                         "precision": {"best_effort_load": 0.01}}  # fmt: skip
LOAD = Plot("best_effort_load", "delivered load, flits a cycle and node")
LATENCY = Plot("best_effort_network_us", "latency in the network, µs", log=True)
TOTAL = Plot("best_effort_total_us", "latency with the wait at the source, µs", log=True)
NONE = {"congestion": "none"}


def torus(load: float, pattern: str, controls: dict[str, Any], **workload: Any) -> Tables:
    return {
        "network": {"topology": "torus:8x8x8", "router": "vct", "routing": "recovery",
                    "num_vcs": 8, "link_mbps": 400, "flit_bits": 128, "vc_buf_size": 16,
                    "packet_size": 4, "control_packet_size": 1, "alloc_iters": 4},
        "qos": {"scheduler": "rr"},
        "controls": {"admission": False, "power_control": False} | controls,
        "workload": {"streams": "none", "load": load, "message_flits": 4,
                     "pattern": pattern} | workload,
        # Control has as many lanes: notices cross the same ring.
        "run": {"hca": True, "lanes": [0x8070, 0, 0xF], "batch_cycles": 2 * PULSE_CYCLES},
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
            "vct_messages": messages, "vct_counts": "injected"}  # fmt: skip


# By what factor load without control falls below what it delivers elsewhere to be a collapse.
COLLAPSE = 1.25
# "Does not seem to be very important", "in the same way": read off curves over time by eye.
BY_EYE = 0.2


def holds(name: str) -> tuple[Claim, ...]:
    """The load holds under this control, for all three distributions."""
    return (
        Below("best_effort_load", (2, 3), "no control", name, COLLAPSE),
        Below("best_effort_load", (1,), "no control", name, 0.9),
    )


def figure(number: int, title: str, paper: str, kinds: dict[str, dict[str, Any]],
           quick: tuple[str, ...], plots: tuple[Plot, ...], claims: tuple,
           reason: str = "", **more: Any) -> Experiment:
    return Experiment(
        id=f"vct.fig{number}", title=title, paper=paper, plots=plots, claims=claims,
        reason=reason,
        x_label="distribution (1 uniform, 2 bit reversal, 3 perfect shuffle)",
        points=pulses({"no control": NONE} | kinds, ("no control", *quick)), **COMMON | more,
    )  # fmt: skip


STEADY_LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
FIG1 = Experiment(
    id="vct.fig1", title="Congestion without control, 512 nodes",
    paper="Without control, delivered load falls dramatically past saturation (torus).",
    points=tuple(
        Point(pattern, load, torus(load, pattern, NONE),
              quick=pattern == "uniform" and load in (0.4, 1.0))
        for pattern in PATTERNS.values()
        for load in STEADY_LOADS
    ),
    plots=(LOAD, LATENCY),
    claims=tuple(Collapses("best_effort_load", STEADY_LOADS, name, COLLAPSE)
                 for name in PATTERNS.values()),
    reason="the fall takes some thousand cycles: at a steady 1.0 uniform traffic delivers 0.50 and "
    "0.001 in 2000 each",
    **COMMON,
)  # fmt: skip
PERIODS = {f"every {n}": first(vct_period=n) for n in (128, 64, 32, 16, 8)}
FIG2 = figure(
    2, "How often routers look, approach 1",
    "Checked every 128, 64, 32, 16 or 8 routings; 16 is chosen. With control the delivered load "
    "holds for all three distributions.",
    PERIODS, ("every 16",), (LOAD, LATENCY),
    holds("every 16"),
)  # fmt: skip
HISTORIES = {f"{n} headers": first(vct_history=n) for n in (0, 2, 4, 8, 16)}
FIG3 = figure(
    3, "Size of the history, approach 1",
    "The size of the history does not seem to be very important.",
    HISTORIES, ("0 headers", "4 headers"), (LOAD, LATENCY),
    tuple(Alike("best_effort_load", ALL_PATTERNS, "4 headers", name, BY_EYE)
          for name in HISTORIES if name != "4 headers"), **ALIKE,
)  # fmt: skip
TIMEOUTS = {f"{n} cycles": first(vct_timeout=n) for n in (8, 16, 32, 64, 128)}
FIG4 = figure(
    4, "Timeout of the source and load, approach 1",
    "Timeouts of 8 to 128 cycles; 64 is chosen. With control the delivered load holds.",
    TIMEOUTS, ("64 cycles",), (LOAD,),
    holds("64 cycles"),
)  # fmt: skip
FIG5 = figure(
    5, "Timeout of the source and latency, approach 1",
    "With a low timeout latency behaves as without control under bit reversal and shuffle; "
    "uniform traffic has almost always good behaviour.",
    TIMEOUTS, ("8 cycles", "64 cycles"), (LATENCY, TOTAL),
    (
        Alike("best_effort_network_us", (2, 3), "8 cycles", "no control", BY_EYE, full=True),
        Below("best_effort_network_us", (1,), "8 cycles", "no control"),
        Below("best_effort_network_us", ALL_PATTERNS, "64 cycles", "no control"),
    ),
    "under shuffle the latency with 8 cycles is 0.19±0.07 above that without control, and up to a "
    "fifth is called alike: it may be so or not",
    **ALIKE,
)  # fmt: skip
STEPS = {"every message": second(), **{f"every {n} messages": second(n) for n in (2, 4, 8)}}
FIG6 = figure(
    6, "How often a source changes its delay, and load, approach 2",
    "Load is best when the delay changes at every message.",
    STEPS, ("every message", "every 8 messages"), (LOAD,),
    (
        *holds("every message"),
        Below("best_effort_load", ALL_PATTERNS, "every 8 messages", "every message"),
    ),
    "a delay that changes at every message grows sooner and so holds more back: under uniform "
    "traffic, which needs no control in pulses, 0.24 of 0.43 is left",
)  # fmt: skip
FIG7 = figure(
    7, "How often a source changes its delay, and latency, approach 2",
    "Latency is best when the delay changes at every message.",
    STEPS, ("every message", "every 8 messages"), (LATENCY, TOTAL),
    (
        Below("best_effort_network_us", ALL_PATTERNS, "every message", "no control"),
        Below("best_effort_network_us", ALL_PATTERNS, "every message", "every 8 messages"),
    ),
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
        *holds("approach 1"),
        *holds("approach 2"),
    ),
    "under uniform traffic, which needs no control in pulses, approach 2 holds back too much: a "
    "delay of some hundred cycles grows within ten messages of a pulse, and the next pulse comes "
    "before as many have taken it back. Under the others it delivers 1.3 and 6 times what no "
    "control does, and less than approach 1 (0.18 of 0.29, and 0.20 of 0.29)",
)  # fmt: skip

EXPERIMENTS = (FIG1, FIG2, FIG3, FIG4, FIG5, FIG6, FIG7, FIG8)
