"""Congestion control for virtual cut-through networks (VCT)."""

from __future__ import annotations

from tools.flitnet.lab.experiment import Experiment

EXPERIMENTS = (
    Experiment(
        id="vct.fig1",
        title="Congestion in a virtual cut-through torus",
        paper=(
            "Without control, delivered load collapses past saturation (torus)."
        ),
        missing="points and claims: router vct and the schemes vct1 and vct2 exist",
    ),
    Experiment(
        id="vct.fig2",
        title="Congestion in a virtual cut-through torus",
        paper=(
            "With control it holds for uniform, bit-reversal and shuffle; history size matters "
            "little; approach 1 performs better, approach 2 is easier to tune; best when the "
            "delay changes at every message."
        ),
        missing="points and claims: router vct and the schemes vct1 and vct2 exist",
    ),
    Experiment(
        id="vct.fig3",
        title="Congestion in a virtual cut-through torus",
        paper=(
            "With control it holds for uniform, bit-reversal and shuffle; history size matters "
            "little; approach 1 performs better, approach 2 is easier to tune; best when the "
            "delay changes at every message."
        ),
        missing="points and claims: router vct and the schemes vct1 and vct2 exist",
    ),
    Experiment(
        id="vct.fig4",
        title="Congestion in a virtual cut-through torus",
        paper=(
            "With control it holds for uniform, bit-reversal and shuffle; history size matters "
            "little; approach 1 performs better, approach 2 is easier to tune; best when the "
            "delay changes at every message."
        ),
        missing="points and claims: router vct and the schemes vct1 and vct2 exist",
    ),
    Experiment(
        id="vct.fig5",
        title="Congestion in a virtual cut-through torus",
        paper=(
            "With control it holds for uniform, bit-reversal and shuffle; history size matters "
            "little; approach 1 performs better, approach 2 is easier to tune; best when the "
            "delay changes at every message."
        ),
        missing="points and claims: router vct and the schemes vct1 and vct2 exist",
    ),
    Experiment(
        id="vct.fig6",
        title="Congestion in a virtual cut-through torus",
        paper=(
            "With control it holds for uniform, bit-reversal and shuffle; history size matters "
            "little; approach 1 performs better, approach 2 is easier to tune; best when the "
            "delay changes at every message."
        ),
        missing="points and claims: router vct and the schemes vct1 and vct2 exist",
    ),
    Experiment(
        id="vct.fig7",
        title="Congestion in a virtual cut-through torus",
        paper=(
            "With control it holds for uniform, bit-reversal and shuffle; history size matters "
            "little; approach 1 performs better, approach 2 is easier to tune; best when the "
            "delay changes at every message."
        ),
        missing="points and claims: router vct and the schemes vct1 and vct2 exist",
    ),
    Experiment(
        id="vct.fig8",
        title="Congestion in a virtual cut-through torus",
        paper=(
            "With control it holds for uniform, bit-reversal and shuffle; history size matters "
            "little; approach 1 performs better, approach 2 is easier to tune; best when the "
            "delay changes at every message."
        ),
        missing="points and claims: router vct and the schemes vct1 and vct2 exist",
    ),
)
