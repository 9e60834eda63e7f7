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
from tools.flitnet.report import StreamReport


@pytest.mark.parametrize("name", FORMS)
def test_forms_are_points_of_their_experiments(name: str) -> None:
    points = list(live.chosen(ALL[name]))
    assert {(p.series, p.x) for p in points} == set(FORMS[name].points)
    for point in points:
        tables = live.small(point.config, FORMS[name].frames)
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


def needs(*programs: str) -> None:
    for program in programs:
        if not (paths.build_dir() / paths.PROGRAMS[program]).exists():
            pytest.skip(f"{program} is not built")


def test_a_cluster_of_processes_agrees(monkeypatch: pytest.MonkeyPatch, simulator) -> None:
    needs("fabricd", "hcad", "flitnet-load")
    form = Form((("Credit 200", 0.4),), live.BEST_EFFORT, seconds=0.2)
    monkeypatch.setitem(FORMS, "acp.fig4", form)
    latency, load = live.compare(ALL["acp.fig4"], [1])
    # Two runs of the same law, not of the same arrivals: 12 000 packets.
    assert load.difference < 0.05, load.text()
    assert latency.difference < 0.25, latency.text()


def test_streams_of_frames_agree(monkeypatch: pytest.MonkeyPatch, simulator) -> None:
    """With best effort beside them; what the deviation is, is a matter of few streams here."""
    needs("fabricd", "hcad", "flitnet-load", "flitnet-replay")
    form = Form((("FGVC", 0.6),), ("interval_ms", "best_effort_load"), seconds=0.5, frames=True)
    monkeypatch.setitem(FORMS, "mw.fig5", form)
    interval, load = live.compare(ALL["mw.fig5"], [1])
    assert interval.difference < 0.01, interval.text()
    # Of 6000 packets by chance, and without the first ones in virtual time.
    assert load.difference < 0.12, load.text()


def test_deviation_is_that_of_all_intervals() -> None:
    """Of streams with intervals of 1 and 3, and of 2, 2, 2: 2 on average, and 0.4 of square."""
    streams = [
        StreamReport("a", "n0", "n1", frames_delivered=3, frames_late=1, interval_ms_mean=2.0,
                     interval_ms_sd=1.0),
        StreamReport("b", "n1", "n0", frames_delivered=4, interval_ms_mean=2.0),
    ]  # fmt: skip
    found = live.frames_of(streams)
    assert found["interval_ms"] == 2.0 and found["dmp"] == pytest.approx(1 / 7)
    assert found["sd_ms"] == pytest.approx(math.sqrt(0.4))
    assert live.frames_of([]) == {}


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_live_run_leaves_nothing(simulator, number: int) -> None:
    """Nobody but the run knows where its cluster is."""
    # A path that leaves room for the names of sockets.
    with tempfile.TemporaryDirectory(prefix="lab-live-") as folder:
        done = interrupted("hcad", number, "lab", "live", "mw.t5", "--seeds", "1", TMPDIR=folder)
        assert done.returncode == 130, done.stderr
        assert processes_below(Path(folder)) == []
        assert list(Path(folder).iterdir()) == []
