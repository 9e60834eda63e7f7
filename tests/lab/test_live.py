"""An experiment's small form on a live cluster agrees with virtual time, or it is said."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pytest

from tests.apps.interrupts import SIGNALS, interrupted, processes_below
from tools.flitnet import paths
from tools.flitnet.lab import live
from tools.flitnet.lab.catalog import ALL
from tools.flitnet.lab.figures import draw
from tools.flitnet.lab.live import FORMS, Form, Pair
from tools.flitnet.lab.statistics import Estimate


@pytest.mark.parametrize("name", FORMS)
def test_forms_are_points_of_their_experiments(name: str) -> None:
    points = list(live.chosen(ALL[name]))
    assert {(p.series, p.x) for p in points} == set(FORMS[name].points)
    for point in points:
        tables = live.small(point.config)
        assert tables["network"]["nodes"] == live.NODES
        # What is compared is left as it was.
        for key in ("congestion", "completion_queues"):
            assert tables["controls"].get(key) == point.config["controls"].get(key)


def test_pairs_are_kept_and_drawn(tmp_path: Path) -> None:
    pairs = [
        Pair("a", 0.4, "best_effort_load", Estimate(0.40, 0.01, 3), Estimate(0.41, 0.01, 3)),
        Pair("a", 0.8, "best_effort_load", Estimate(0.8, 0.1, 1), Estimate(0.7, math.inf, 1)),
    ]
    assert "agrees (2.5%)" in pairs[0].text() and "differs (12.5%)" in pairs[1].text()
    live.write(tmp_path / "pairs.json", pairs)
    assert live.read(tmp_path / "pairs.json") == pairs
    pytest.importorskip("matplotlib")
    names = draw(*live.curves(ALL["acp.fig4"], pairs), tmp_path)
    assert names == ["acp.fig4.live.best_effort_load.svg"]
    assert "a, live" in (tmp_path / names[0]).read_text()


def test_a_cluster_of_processes_agrees(monkeypatch: pytest.MonkeyPatch, simulator) -> None:
    for program in ("fabricd", "hcad", "flitnet-load"):
        if not (paths.build_dir() / paths.PROGRAMS[program]).exists():
            pytest.skip(f"{program} is not built")
    form = Form((("Credit 200", 0.4),), live.BEST_EFFORT, seconds=0.2)
    monkeypatch.setitem(FORMS, "acp.fig4", form)
    latency, load = live.compare(ALL["acp.fig4"], [1])
    # Two runs of the same law, not of the same arrivals: 12 000 packets.
    assert load.difference < 0.05, load.text()
    assert latency.difference < 0.25, latency.text()


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_live_run_leaves_nothing(simulator, number: int) -> None:
    """Nobody but the run knows where its cluster is."""
    # A path that leaves room for the names of sockets.
    with tempfile.TemporaryDirectory(prefix="lab-live-") as folder:
        done = interrupted("hcad", number, "lab", "live", "mw.t5", "--seeds", "1", TMPDIR=folder)
        assert done.returncode == 130, done.stderr
        assert processes_below(Path(folder)) == []
        assert list(Path(folder).iterdir()) == []
