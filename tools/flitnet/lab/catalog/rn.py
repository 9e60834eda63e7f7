"""Router and NIC design (RN)."""

from __future__ import annotations

from tools.flitnet.lab.catalog.mw import clock_against_queueing
from tools.flitnet.lab.experiment import Experiment

EXPERIMENTS = (
    clock_against_queueing("rn.t1"),
    Experiment(
        id="rn.fig4",
        title="Traditional, non-preemptive and preemptive router, changing mix",
        paper=(
            "Dynamic mix 20:80→30:70→50:50→70:30→80:20: P has almost constant DMP 0.02–0.03, NP "
            "grows with the RT share, TR saturates; DMT least with P."
        ),
        missing="the preemptive router",
    ),
    Experiment(
        id="rn.fig5",
        title="Latency of control and best effort in three routers",
        paper=(
            "Control latency: P < NP ≪ TR, P queueing ≈ 0. Best effort: TR best."
        ),
        missing="the preemptive router",
    ),
    Experiment(
        id="rn.fig6",
        title="Block multiplexing",
        paper=(
            "Block size 1 < 5 < 10 in DMP and latency: flit-level best."
        ),
        missing="block multiplexing in the engine",
    ),
    Experiment(
        id="rn.fig7",
        title="Preemption with and without acceleration",
        paper=(
            "Preemption with acceleration beats preemption alone for RT and BE."
        ),
        missing="the preemptive router",
    ),
    Experiment(
        id="rn.fig8",
        title="Preemption on a 2×2 mesh",
        paper=(
            "2×2 mesh: P better than NP; DMP rises with RT load."
        ),
        missing="the preemptive router",
    ),
    Experiment(
        id="rn.fig9",
        title="Router and NIC together",
        paper=(
            "Router (TR, NP, P) × NIC (traditional, QoS): every router with the QoS NIC beats "
            "every one with the traditional NIC; P + QoS best; message-level multiplexing "
            "cannot carry 0.6 load."
        ),
        missing="the preemptive router, models of the VIA NIC",
    ),
)
