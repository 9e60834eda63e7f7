"""Integration of admission, congestion and peak power control (ACP)."""

from __future__ import annotations

from tools.flitnet.lab.experiment import Experiment

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
    Experiment(
        id="acp.fig4",
        title="Congestion controls on a 4×4 mesh, best effort",
        paper=(
            "4×4 mesh, 100 % BE: credit-based has lower latency and higher throughput than ALO "
            "and Self-Tuned at every load; 200 initial credits best; no control worst; no "
            "throughput collapse without control, because the HCA buffer throttles."
        ),
        missing="ALO and Self-Tuned in hca/host",
    ),
    Experiment(
        id="acp.t3",
        title="Packet queueing delay on a 4×4 mesh",
        paper=(
            "Packet queueing delay (µs) at 40…90 %: none 1.115 1.489 2.273 5.260 231 1050; "
            "credit 200: 1.116 1.539 2.261 5.098 207 619; 300: …206 805; 400: …204 919; 600: "
            "…204 937; Self-Tuned 452 543 629 755 844 –; ALO 251 455 1566 2422 3075 3455."
        ),
        missing="ALO and Self-Tuned in hca/host",
    ),
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
    Experiment(
        id="acp.fig3",
        title="Power against load on a 4×4 mesh",
        paper=(
            "4×4 mesh: power proportional to load; ≈ 21 W at 50 %."
        ),
        missing="energy of links in tools/sim",
    ),
    Experiment(
        id="acp.fig7",
        title="Global, separate and quad completion queues",
        paper=(
            "Separate and quad CQ cut average BE latency 2.5× against global CQ; quad slightly "
            "better than separate; power alike."
        ),
        missing="separate and quad CQs in hca/host",
    ),
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
