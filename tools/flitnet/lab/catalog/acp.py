"""Integration of admission, congestion and peak power control (ACP).

What the paper leaves open, for all of its experiments alike:
- Routing on meshes is dimension order (XY); the crossbar is matched in four rounds.
- Latency counts from the HCA's taking the message: credit holds back at the consumer, before that;
  ALO and Self-Tuned hold back inside the HCA. The wait at the consumer is total - message.
- ALO takes a lane as free when no flit of it is in the output buffer or the next input buffer.
- A credit comes back at the next multiple of 16 cycles (1.3 µs: a CQE's DMA).
- Best effort alone uses 15 lanes; VL15 is left to control.
- A cycle is a flit time: 80 ns at 1.6 Gb/s. The paper's 500 cycles of 1.88 µs are 3.76 ns each, 13
  times faster than 128 bit at 2.5 Gb/s: its watts need that clock and its unprinted HCA energy.
"""

from __future__ import annotations

from typing import Any

from tools.flitnet.lab.claims import Alike, Below, Proportional, Rising
from tools.flitnet.lab.experiment import Experiment, Length, Plot, Point, Tables

OPEN = " ".join(line.strip("- ") for line in (__doc__ or "").split(":\n", 1)[1].split("\n"))
BEST_EFFORT_LANES = [0x8000, 0, 0x7FFF]
COMMON: dict[str, Any] = {
    "quick": Length(12, 12), "full": Length(16, 128), "open": OPEN, "relative": 0.1,
    "precision": {"best_effort_message_us": 0.5},
}  # fmt: skip


def mesh(load: float, controls: dict[str, Any], link_mbps: int = 1600) -> Tables:
    """A 4×4 mesh, best effort alone."""
    return {
        "network": {"topology": "mesh:4x4", "link_mbps": link_mbps, "vc_buf_size": 10,
                    "alloc_iters": 4},
        "qos": {"scheduler": "rr"},
        "controls": {"admission": False, "power_control": False} | controls,
        "workload": {"streams": "none", "load": load, "message_flits": 40},
        "run": {"hca": True, "lanes": BEST_EFFORT_LANES, "batch_cycles": 20_000},
    }  # fmt: skip


def credit(count: int, queues: str = "global") -> dict[str, Any]:
    return {"congestion": "credit", "best_effort_credits": count, "completion_queues": queues}


SCHEMES: dict[str, dict[str, Any]] = {
    "No control": {"congestion": "none"}, "Credit 200": credit(200), "Credit 300": credit(300),
    "Credit 400": credit(400), "Credit 600": credit(600),
    "Self-Tuned": {"congestion": "self_tuned"}, "ALO": {"congestion": "alo"},
}  # fmt: skip
LOADS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def schemes(names: tuple[str, ...]) -> tuple[Point, ...]:
    quick = ("No control", "Credit 200", "Self-Tuned", "ALO")
    return tuple(
        Point(name, load, mesh(load, SCHEMES[name]), quick=name in quick and load in (0.4, 0.9))
        for name in names
        for load in LOADS
    )


FIG4_NAMES = ("No control", "Credit 200", "Credit 600", "Self-Tuned", "ALO")
FIG4 = Experiment(
    id="acp.fig4", title="Congestion controls on a 4×4 mesh, best effort",
    paper="Credit-based has lower latency and higher throughput than ALO and Self-Tuned at every "
    "load; 200 initial credits are best; no control is worst; without control throughput does "
    "not collapse, because the HCA buffer throttles.",
    points=schemes(FIG4_NAMES), **COMMON,
    plots=(Plot("best_effort_message_us", "latency, µs", log=True),
           Plot("best_effort_load", "throughput, flits a cycle and node")),
    claims=(
        Below("best_effort_message_us", LOADS, "Credit 200", "ALO"),
        Below("best_effort_message_us", LOADS, "Credit 200", "Self-Tuned"),
        Below("best_effort_message_us", (0.9,), "Credit 200", "Credit 600"),
        Below("best_effort_message_us", (0.9,), "Credit 200", "No control"),
        Below("best_effort_load", (0.9,), "ALO", "Credit 200"),
        Below("best_effort_load", (0.9,), "Self-Tuned", "Credit 200"),
        Rising("best_effort_load", (0.8, 0.9), "No control"),
    ),
)  # fmt: skip
T3_ROWS = {
    "No control": (1.115, 1.489, 2.273, 5.260, 231, 1050),
    "Credit 200": (1.116, 1.539, 2.261, 5.098, 207, 619),
    "Credit 300": (1.116, 1.539, 2.257, 5.098, 206, 805),
    "Credit 400": (1.118, 1.537, 2.257, 5.098, 204, 919),
    "Credit 600": (1.118, 1.537, 2.257, 5.098, 204, 937),
    "Self-Tuned": (452, 543, 629, 755, 844), "ALO": (251, 455, 1566, 2422, 3075, 3455),
}  # fmt: skip
T3 = Experiment(
    id="acp.t3", title="Packet queueing delay on a 4×4 mesh",
    paper="Queueing delay in the HCA: credits change nothing to 0.8 load; at 0.9 fewer credits "
    "mean less delay; ALO and Self-Tuned queue hundreds of µs at every load.",
    points=schemes(tuple(SCHEMES)), **COMMON,
    plots=(Plot("best_effort_queue_us", "queueing delay, µs", log=True),),
    numbers={
        (name, load, "best_effort_queue_us"): value
        for name, row in T3_ROWS.items()
        for load, value in zip(LOADS, row)
    },
    claims=(
        *(Alike("best_effort_queue_us", (0.4, 0.5, 0.6, 0.7), "No control", name, 0.05)
          for name in ("Credit 200", "Credit 300", "Credit 400", "Credit 600")),
        Rising("best_effort_queue_us", LOADS, "No control"),
        Rising("best_effort_queue_us", LOADS, "Credit 200"),
        Below("best_effort_queue_us", (0.9,), "Credit 200", "Credit 600"),
        Below("best_effort_queue_us", (0.9,), "Credit 200", "No control"),
        Below("best_effort_queue_us", LOADS[:-1], "Credit 200", "Self-Tuned"),
        Below("best_effort_queue_us", LOADS, "Credit 200", "ALO"),
    ),
)  # fmt: skip
FIG7_LOADS = (0.6, 0.7, 0.8, 0.9)
FIG7 = Experiment(
    id="acp.fig7", title="Global, separate and quad completion queues",
    paper="Separate and quad CQs cut average best-effort latency 2.5× against the global CQ; quad "
    "is slightly better than separate; power is alike.",
    points=tuple(
        Point(name, load, mesh(load, credit(200, name.lower())), quick=load == 0.9)
        for name in ("Global", "Separate", "Quad")
        for load in FIG7_LOADS
    ),
    plots=(Plot("best_effort_message_us", "latency, µs", log=True),
           Plot("best_effort_total_us", "latency with the wait at the consumer, µs", log=True),
           Plot("power_w", "power, W")),
    claims=(
        Below("best_effort_message_us", (0.9,), "Separate", "Global"),
        Below("best_effort_message_us", (0.9,), "Quad", "Global"),
        Below("best_effort_message_us", (0.9,), "Quad", "Separate"),
        Alike("power_w", FIG7_LOADS, "Separate", "Quad", 0.05),
    ),
    **COMMON,
)  # fmt: skip
FIG3_LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
FIG3 = Experiment(
    id="acp.fig3", title="Power against load on a 4×4 mesh",
    paper="Power is proportional to load; about 21 W at 50 %.",
    points=tuple(
        Point("4×4 mesh", load, mesh(load, {"congestion": "none"}, 2500), quick=load in (0.2, 0.5))
        for load in FIG3_LOADS
    ),
    plots=(Plot("power_w", "power of routers and their links, W"),),
    numbers={("4×4 mesh", 0.5, "power_w"): 21.0},
    claims=(
        Rising("power_w", FIG3_LOADS, "4×4 mesh"),
        Proportional("power_w", FIG3_LOADS, "4×4 mesh", 0.05),
    ),
    **COMMON | {"precision": {"power_w": 0.0}, "relative": 0.02},
)  # fmt: skip

EXPERIMENTS = (
    Experiment(
        id="acp.t2",
        title="Four WRR arbiters on a single router",
        paper=(
            "Single router, 80:20, four WRR: DMP / DMT(ms) at 60, 70, 80 % — small-fast "
            ".030/.031 .027/.038 .021/.040; small-slow .034/.034 .029/.036 .022/.089; large- "
            "fast .034/.031 .024/.037 .023/.089; large-slow .035/.035 .032/.034 .024/.104. "
            "Small frame with fast pointer is best at 80 %."
        ),
        missing="experiments of ACP on tools/sim (weights from bookings)",
    ),
    FIG4,
    T3,
    Experiment(
        id="acp.fig5",
        title="Admission and congestion control, MPEG-2 on one router",
        paper=(
            "Single router, MPEG-2: with A and C, DMP ≈ 0.002 and DMT ≈ 0.04 ms over the whole "
            "load; without, higher and unstable; BE latency orders of magnitude smaller with "
            "A,C."
        ),
        missing="whole clusters in tools/sim",
    ),
    Experiment(
        id="acp.fig6",
        title="Admission and congestion control, ON/OFF on a 5×5 mesh",
        paper=(
            "5×5 mesh, ON/OFF: A,C best; A beats C at low load, C beats A at high load; control "
            "traffic little affected by A."
        ),
        missing="whole clusters in tools/sim, ON/OFF streams",
    ),
    Experiment(
        id="acp.t4",
        title="Rejection rate on a 5×5 mesh",
        paper=(
            "5×5 mesh rejection rate at 40…70 %: 16.4 21.0 25.3 12.7 15.7 17.6 10.4 % with A; 0 "
            "without."
        ),
        missing="whole clusters in tools/sim, ON/OFF streams",
    ),
    FIG3,
    FIG7,
    Experiment(
        id="acp.fig8",
        title="Latency under a power cap",
        paper=(
            "Latency of None, CC, PC, PowerHerd under a 21 W cap: PC best for BE and RT; "
            "PowerHerd degrades severely."
        ),
        missing="PowerHerd",
    ),
    Experiment(
        id="acp.fig9",
        title="Power under a power cap",
        paper=(
            "CC alone exceeds 21 W; PC stays below; for RT, PC uses more than PowerHerd but "
            "under the cap."
        ),
        missing="PowerHerd",
    ),
    Experiment(
        id="acp.fig10",
        title="Power over windows of 500 cycles",
        paper=(
            "Mean power over every 500 cycles at 70 % mixed load stays ≤ 21 W with PC."
        ),
        missing="whole clusters in tools/sim",
    ),
)
