"""MediaWorm (MW): an 8-port router, synthetic and MPEG-2 video, best effort beside it.

What the paper leaves open, for all of its experiments alike:
- Load counts what is sent without message headers (one flit each), as figure 9 implies.
- Streams are spread so that every node sends and receives as many ("implicit admission control").
- Latency of best effort is that of the network (as RN defines it), without waiting at the source.
- Jitter-free: the frame interval within 1 % of 33.3 ms and its deviation below 1 ms.
- The crossbar is matched until nothing more fits (4 rounds; 8 change nothing, 2 lose a tenth of
  best effort at 0.9).
- A frame's messages leave at the ends of equal parts of the frame time, so that frames of any size
  end one frame time apart.
- A probe of the PCS router draws its lane at the output, as the paper draws the destination VC.
- 16 lanes are split x:y, rounded; flits of 32 bit and messages of 20 flits at 400 Mb/s, 128 bit
  and 40 flits at 1.6 Gb/s.
"""

from __future__ import annotations

from typing import Any

from tools.flitnet.lab.claims import Above, Alike, AtMost, Below, Claim, Rising, Within
from tools.flitnet.lab.experiment import Experiment, Length, Plot, Point, Tables, quick_length

FRAME_MS = 1000 / 30
FRAME_CYCLES = 416_667  # of 80 ns: a batch is a frame time
JITTER_SD_MS = 1.0
INTERVAL_LOW, INTERVAL_HIGH = FRAME_MS * 0.99, FRAME_MS * 1.01
OPEN = " ".join(line.strip("- ") for line in (__doc__ or "").split(":\n")[1].split("\n"))
QUICK, FULL = quick_length(4), Length(12, 48)
SHORT = quick_length(3)  # of those that CI runs; of two frame times a stream has no interval
PRECISION = {"interval_ms": 0.05, "sd_ms": 0.02}
VIDEO_PLOTS = (
    Plot("interval_ms", "mean frame interval d, ms"),
    Plot("sd_ms", "deviation of the frame interval σd, ms"),
)
BEST_EFFORT_PLOT = Plot("best_effort_network_us", "best-effort latency, µs", log=True)


def lanes(mix: float, count: int = 16) -> list[int]:
    """Real-time lanes above, best-effort lanes below; at least one for each that sends."""
    if mix == 1:
        return [0, (1 << count) - 1, 0]
    real_time = min(max(round(mix * count), 1), count - 1)
    low = (1 << (count - real_time)) - 1
    return [0, ((1 << count) - 1) & ~low, low]


def router(
    mix: float, load: float, scheduler: str = "fgvc", vcs: int = 16, **workload: Any
) -> Tables:
    """One 8-port router at 400 Mb/s with synthetic VBR."""
    fast = workload.pop("fast", False)
    message = workload.pop("message_flits", 40 if fast else 20)
    network = {
        "link_mbps": 1600 if fast else 400, "flit_bits": 128 if fast else 32, "alloc_iters": 4,
        "vc_buf_size": min(message, 127),
    }  # fmt: skip
    return {
        "network": network | workload.pop("network", {}),
        "qos": {"scheduler": scheduler},
        "controls": {"admission": False},  # would keep streams to one of several ways
        "workload": {"load": load, "real_time_share": mix, "message_flits": message, **workload},
        "run": {"lanes": lanes(mix, vcs), "batch_cycles": FRAME_CYCLES},
    }


LOADS = (0.6, 0.7, 0.8, 0.9, 0.96)


def jitter_free(series: str, at: tuple[float, ...]) -> tuple[Within, AtMost]:
    return (
        Within("interval_ms", at, series, INTERVAL_LOW, INTERVAL_HIGH),
        AtMost("sd_ms", at, series, JITTER_SD_MS),
    )


COMMON: dict[str, Any] = {"quick": QUICK, "full": FULL, "precision": PRECISION, "open": OPEN}
VIDEO: dict[str, Any] = {"plots": VIDEO_PLOTS} | COMMON
SHORT_VIDEO = VIDEO | {"quick": SHORT}
SCHEDULERS = (("FGVC", "fgvc"), ("FIFO", "fcfs"))
MIXES = {"20:80": 0.2, "50:50": 0.5, "80:20": 0.8, "90:10": 0.9}


def fifo_against_fgvc(
    id_: str, title: str, paper: str, common: dict[str, Any], **how: Any
) -> Experiment:
    return Experiment(
        id=id_, title=title, paper=paper, **common,
        points=tuple(
            Point(name, load, router(0.8, load, scheduler, **how), quick=load in (0.8, 0.96))
            for name, scheduler in SCHEDULERS
            for load in LOADS
        ),
        claims=(
            *jitter_free("FGVC", LOADS),
            *jitter_free("FIFO", (0.6, 0.7, 0.8)),
            Below("sd_ms", (0.9, 0.96), "FGVC", "FIFO"),
            Above("interval_ms", (0.96,), "FIFO", INTERVAL_HIGH),
        ),
    )  # fmt: skip


def mixed(**how: Any) -> tuple[Point, ...]:
    return tuple(
        Point(name, load, router(mix, load, **how),
              quick=name in ("20:80", "90:10") and load in (0.6, 0.8, 0.96))
        for name, mix in MIXES.items()
        for load in LOADS
    )  # fmt: skip


def mixed_claims() -> tuple[Claim, ...]:
    low = (0.6, 0.7, 0.8)
    return (
        *(claim for name in MIXES for claim in jitter_free(name, low)),
        *(claim for name in ("20:80", "50:50") for claim in jitter_free(name, LOADS)),
        Below("sd_ms", (0.96,), "20:80", "90:10"),
    )


FIG5 = fifo_against_fgvc(
    "mw.fig5", "FIFO against Fine-Grained VirtualClock, 80:20",
    "FIFO jitters beyond 0.8 load; FGVC is jitter-free to 0.96.", SHORT_VIDEO,
)  # fmt: skip
FIG6 = Experiment(
    id="mw.fig6", title="CBR against VBR, all real time", **VIDEO,
    paper="CBR is slightly better than VBR, otherwise alike.",
    points=tuple(
        Point(name, load, router(1.0, load, streams=name.lower()), quick=load in (0.6, 0.9))
        for name in ("VBR", "CBR")
        for load in LOADS
    ),
    claims=(
        *jitter_free("CBR", (0.6, 0.7, 0.8)),
        *jitter_free("VBR", (0.6, 0.7, 0.8)),
        Below("sd_ms", (0.6, 0.7, 0.8, 0.9), "CBR", "VBR"),
        Alike("interval_ms", (0.6, 0.7, 0.8), "CBR", "VBR", 0.01),
        # Where VBR has jitter they are not to be alike: "the CBR traffic experiencing jitter-free
        # performance for a slightly higher load".
        Below("interval_ms", (0.9,), "CBR", "VBR", full=True),
        Alike("interval_ms", (0.9,), "CBR", "VBR", 0.05, full=True),
    ),
)  # fmt: skip
FIG7 = Experiment(
    id="mw.fig7", title="Mixed traffic: frame intervals", points=mixed(), **SHORT_VIDEO,
    paper="No jitter to 0.80 whatever the mix; beyond, only where real time dominates.",
    claims=mixed_claims(),
)  # fmt: skip
T5_ROWS = {
    "20:80": (6.3, 9.0, 16.2, 36.9, 43.6), "50:50": (7.7, 11.4, 25.5, 56.1, 64.6),
    "80:20": (10.3, 15.8, 39.7, 106.9), "90:10": (11.9, 19.3, 106.2),
}  # fmt: skip
T5 = Experiment(
    id="mw.t5", title="Mixed traffic: latency of best effort", points=mixed(),
    **COMMON | {"quick": SHORT},
    paper="Best-effort latency grows with load and with the share of real time; beyond 0.9 at "
    "80:20 and 0.8 at 90:10 it is saturated.",
    plots=(BEST_EFFORT_PLOT, Plot("best_effort_accepted", "best effort: delivered / offered")),
    numbers={
        (name, load, "best_effort_network_us"): value
        for name, row in T5_ROWS.items()
        for load, value in zip(LOADS, row)
    },
    ratio_most=2.0,
    claims=(
        *(Rising("best_effort_network_us", LOADS[: len(row)], name)
          for name, row in T5_ROWS.items()),
        *(Below("best_effort_network_us", (0.6, 0.7, 0.8), a, b)
          for a, b in (("20:80", "50:50"), ("50:50", "80:20"), ("80:20", "90:10"))),
        # What the paper calls saturated delivers less than is offered, and takes longer than the
        # longest that it prints. Where it prints a latency it does not say that all is delivered:
        # its own flattens from 0.9 to 0.96 (36.9 and 43.6 µs at 20:80), as where sources wait.
        *(claim for name, at in (("80:20", (0.96,)), ("90:10", (0.9, 0.96)))
          for claim in (Within("best_effort_accepted", at, name, 0, 0.97),
                        Above("best_effort_network_us", at, name, 106.9))),
    ),
)  # fmt: skip
SIZES = (2, 5, 10, 20, 40, 80)
FIG9 = Experiment(
    id="mw.fig9", title="Message size, all real time", x_label="flits a message", **VIDEO,
    paper="Message size has little effect unless very small (header overhead).",
    points=tuple(
        Point(f"load {load:g}", size, router(1.0, load, message_flits=size),
              quick=size in (2, 20, 80) and load == 0.8)
        for load in (0.64, 0.8)
        for size in SIZES
    ),
    claims=(
        *jitter_free("load 0.64", (20, 40, 80)),
        *jitter_free("load 0.8", (20, 40, 80)),
        Rising("sd_ms", (20, 2), "load 0.8"),
        Rising("interval_ms", (20, 2), "load 0.8"),
    ),
)  # fmt: skip
FIG11 = fifo_against_fgvc(
    "mw.fig11", "FIFO against FGVC, MPEG-2, 80:20",
    "As with synthetic VBR: FIFO jitters beyond 0.8, FGVC is jitter-free to 0.96.", VIDEO,
    fast=True, streams="mpeg2",
)  # fmt: skip
FIG12 = Experiment(
    id="mw.fig12", title="Mixed traffic, MPEG-2", points=mixed(fast=True, streams="mpeg2"),
    paper="As with synthetic VBR: no jitter to 0.80 whatever the mix.", claims=mixed_claims(),
    **VIDEO,
)  # fmt: skip

FAT_MESH = {"topology": "fat_mesh:2x2", "nodes_per_router": 4, "routing": "dor_by_load"}
FAT_LOADS = (0.7, 0.8, 0.9)
FIG13 = Experiment(
    id="mw.fig13", title="A 2×2 fat mesh of 8-port routers, two links between neighbours",
    paper="Good to 0.9 with 40 and 60 % real time, degrades at 0.9 with 80 %; below one switch.",
    plots=(*VIDEO_PLOTS, BEST_EFFORT_PLOT), **COMMON,
    reason="at 0.9 with 80 % the mesh is at its limit, and whether frames jitter depends on where "
    "a seed's streams lead: of twenty runs of 48 frame times ten deviate by 0.5 to 1.3 ms, ten by "
    "0.02 to 0.15, where one switch has 0.02",
    points=(
        *(Point(name, load, router(mix, load, network=FAT_MESH), quick=load == 0.9)
          for name, mix in (("40:60", 0.4), ("60:40", 0.6), ("80:20", 0.8))
          for load in FAT_LOADS),
        *(Point("one switch 80:20", load, router(0.8, load), quick=load == 0.9)
          for load in FAT_LOADS),
    ),
    claims=(
        *jitter_free("40:60", FAT_LOADS),
        *jitter_free("60:40", FAT_LOADS),
        # "Only at a load of 0.9 with 80 % does performance degrade": by how much is not said.
        Below("sd_ms", (0.9,), "60:40", "80:20", factor=2),
        Below("sd_ms", (0.9,), "one switch 80:20", "80:20"),
        Rising("best_effort_network_us", FAT_LOADS, "60:40"),
        Below("best_effort_network_us", (0.7, 0.8), "40:60", "80:20"),
    ),
)  # fmt: skip


FIG8_KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "16": (16, {}), "8": (8, {}), "4": (4, {}), "4 full": (4, {"crossbar": "full"}),
}  # fmt: skip
FIG8_LOADS = (0.6, 0.7, 0.8, 0.9)
FIG8 = Experiment(
    id="mw.fig8", title="Lanes and crossbar, all real time", **VIDEO,
    paper="16 lanes are better than 8, 8 than 4 (multiplexed); 4 with a full crossbar beat 8 "
    "multiplexed and come near 16.",
    points=tuple(
        Point(name, load, router(1.0, load, vcs=vcs, network=network), quick=load in (0.8, 0.9))
        for name, (vcs, network) in FIG8_KINDS.items()
        for load in FIG8_LOADS
    ),
    # "16 VC gives jitter-free performance up to a higher load": the deviation says how much as long
    # as streams get their rate, the interval where they do not; there the deviation is no measure
    # (4 lanes at 0.9: every frame late alike).
    claims=(
        *jitter_free("16", (0.6, 0.7, 0.8)),
        *jitter_free("4 full", (0.6, 0.7, 0.8)),
        *jitter_free("8", (0.6, 0.7)),
        Below("sd_ms", (0.8,), "16", "8"),
        Below("sd_ms", (0.8,), "4 full", "8"),
        Above("interval_ms", (0.8, 0.9), "4", INTERVAL_HIGH),
        Below("interval_ms", (0.8, 0.9), "8", "4"),
        Below("interval_ms", (0.9,), "16", "8"),
        Below("interval_ms", (0.9,), "4 full", "8"),
        Alike("interval_ms", (0.9,), "4 full", "16", 0.05),
    ),
)  # fmt: skip
T2_ROWS = {"FGVC": ((33.12, 0.63), (32.74, 1.25), (32.28, 1.38)),
           "FGFQ": ((33.14, 0.58), (32.74, 1.22), (32.33, 1.31))}  # fmt: skip
T2_LOADS = (0.6, 0.7, 0.8)


def clock_against_queueing(id_: str) -> Experiment:
    """MW table II is RN table 1."""
    return Experiment(
        id=id_, title="VirtualClock against Fair Queueing, 80:20, MPEG-2", **SHORT_VIDEO,
        paper="Frame interval and deviation are alike at 60, 70 and 80 % load.",
        points=tuple(
            Point(name, load, router(0.8, load, name.lower(), fast=True, streams="mpeg2"),
                  quick=load == 0.8)
            for name in T2_ROWS
            for load in T2_LOADS
        ),
        numbers={
            (name, load, measure): value
            for name, row in T2_ROWS.items()
            for load, pair in zip(T2_LOADS, row)
            for measure, value in zip(("interval_ms", "sd_ms"), pair)
        },
        claims=(
            Alike("interval_ms", T2_LOADS, "FGVC", "FGFQ", 0.01),
            # A hundredth of a millisecond: quick runs do not tell so little apart.
            Alike("sd_ms", T2_LOADS, "FGVC", "FGFQ", 0.10, 0.01, full=True),
        ),
    )  # fmt: skip


# Circuits: 100 Mb/s and 24 lanes of the PCS router, 4 Mb/s a stream. Destinations are drawn and
# nobody balances them; the wormhole router has its 16 lanes and takes every stream.
def connected(name: str, load: float) -> Tables:
    circuits = {"router": "pcs", "circuits": 24} if name == "PCS" else {}
    workload = {"circuit_attempts": 4000, "header_flits": 0} if name == "PCS" else {}
    return router(
        1.0, load, placement="uniform", **workload,
        network={"link_mbps": 100, **circuits},
    ) | {"run": {"lanes": lanes(1.0), "batch_cycles": FRAME_CYCLES // 4}}  # fmt: skip


PCS_ROWS = {
    0.91: (718, 187, 531), 0.87: (540, 175, 365), 0.8: (476, 160, 316), 0.74: (372, 148, 224),
    0.67: (332, 134, 198), 0.64: (224, 107, 117), 0.42: (172, 83, 89), 0.37: (166, 73, 93),
}  # fmt: skip
PCS_LOADS = tuple(sorted(PCS_ROWS))
PCS_POINTS = {
    name: tuple(Point(name, load, connected(name, load), quick=load in (0.64, 0.87))
                for load in PCS_LOADS)
    for name in ("MediaWorm", "PCS")
}  # fmt: skip
FIG10 = Experiment(
    id="mw.fig10", title="MediaWorm against pipelined circuit switching, 100 Mb/s",
    paper="MediaWorm is jitter-free to 0.7, PCS to more than 0.8.",
    points=(*PCS_POINTS["MediaWorm"], *PCS_POINTS["PCS"]), seeds=10,
    claims=(
        *jitter_free("MediaWorm", (0.37, 0.42, 0.64)),
        *jitter_free("PCS", (0.37, 0.42, 0.64, 0.67, 0.74)),
        Within("interval_ms", (0.8,), "PCS", INTERVAL_LOW, INTERVAL_HIGH),
        Above("sd_ms", (0.87,), "MediaWorm", JITTER_SD_MS),
        Below("sd_ms", (0.87,), "PCS", "MediaWorm"),
    ), **SHORT_VIDEO,
)  # fmt: skip
T6 = Experiment(
    id="mw.t6", title="Connections of pipelined circuit switching", points=PCS_POINTS["PCS"],
    paper="Connections attempted, established and dropped until a load is there: most are dropped "
    "at high load.",
    plots=(Plot("asked", "attempts"), Plot("granted", "established"), Plot("dropped", "dropped")),
    numbers={
        ("PCS", load, measure): value
        for load, row in PCS_ROWS.items()
        for measure, value in zip(("asked", "granted"), row)
    },
    ratio_most=2.0, seeds=10,
    claims=(
        Rising("asked", PCS_LOADS[2:], "PCS"),
        Rising("dropped", PCS_LOADS[2:], "PCS"),
        # More than every second one.
        *(Above("dropped", (load,), "PCS", PCS_ROWS[load][1]) for load in (0.87, 0.91)),
    ),
    # Connections are set up before the first frame: more seeds tell more of them, longer runs not.
    **COMMON | {"precision": {"dropped": 1.0}, "quick": SHORT, "full": Length(12, 12, 40)},
)  # fmt: skip


EXPERIMENTS = (
    clock_against_queueing("mw.t2"), FIG5, FIG6, FIG7, T5, FIG8, FIG9,
    FIG10, T6,
    FIG11, FIG12, FIG13,
)  # fmt: skip
