"""Claims hold when intervals say so, never where there is nothing; the catalogue is whole."""

from __future__ import annotations

import html
import json
import re

import pytest

from tools.flitnet import paths
from tools.flitnet.errors import UsageError
from tools.flitnet.lab.catalog import ALL, choose
from tools.flitnet.lab.claims import Above, Alike, AtMost, Below, Collapses, Proportional, Rising
from tools.flitnet.lab.claims import Slope, Within
from tools.flitnet.lab.experiment import SEEDS, Experiment, Point, judge, ratios, unsettled
from tools.flitnet.lab.report import WORDS
from tools.flitnet.lab.statistics import Estimate, estimate
from tools.flitnet.lab.store import estimates, read_parquet

TABLE = {
    ("a", 0.5, "us"): Estimate(1.0, 0.1, 5),
    ("b", 0.5, "us"): Estimate(2.0, 0.1, 5),
    ("a", 0.9, "us"): Estimate(3.0, 0.1, 5),
    ("b", 0.9, "us"): Estimate(3.1, 0.1, 5),
    ("c", 0.7, "us"): Estimate(0.05, 0.1, 5),
}


@pytest.mark.parametrize(
    ("claim", "holds"),
    [
        (Below("us", (0.5,), "a", "b"), True),
        (Below("us", (0.5,), "b", "a"), False),
        (Below("us", (0.5, 0.9), "a", "b"), False),  # at 0.9 the intervals overlap
        (Below("us", (0.5,), "a", "b", factor=1.5), True),
        (Below("us", (0.5,), "a", "b", factor=2.5), False),
        (Below("us", (0.7,), "a", "b"), False),  # no results
        (Below("us", (0.9,), "a", "b", factor=0.9), True),
        (Below("us", (0.9,), "a", "b", factor=0.99), False),  # 3.0 of b at least, 3.1 of a at most
        (Below("us", (0.7,), "b", "a", factor=0.1), False),  # no results
        (Within("us", (0.5,), "a", 0.9, 1.1), True),
        (Within("us", (0.5,), "a", 0.95, 1.1), False),
        (AtMost("us", (0.5,), "a", 1.1), True),
        (AtMost("us", (0.5,), "a", 1.05), False),
        (AtMost("us", (0.7,), "a", 9), False),  # no results
        (AtMost("us", (0.7,), "c", 1), True),  # 0.05 ± 0.1 of something that is never negative
        (Above("us", (0.9,), "a", 2.8), True),
        (Above("us", (0.9,), "a", 2.95), False),
        (Alike("us", (0.9,), "a", "b", 0.08), True),  # 3.0 and 3.1, each ±0.1: 0.241 at most
        (Alike("us", (0.9,), "a", "b", 0.07), False),  # of 3.1 0.217
        (Alike("us", (0.9,), "a", "b", 0.0, absolute=0.25), True),
        (Alike("us", (0.9,), "a", "b", 0.0, absolute=0.23), False),
        (Alike("us", (0.5,), "a", "b", 0.05), False),
        (Alike("us", (0.7,), "a", "b", 0.5), False),
        (Rising("us", (0.5, 0.9), "a"), True),
        (Rising("us", (0.9, 0.5), "a"), False),
        (Collapses("us", (0.9, 0.5), "a", 2.5), True),
        (Collapses("us", (0.9, 0.5), "a", 2.9), False),  # the intervals overlap
        (Collapses("us", (0.5, 0.9), "a", 1.0), False),
        (Collapses("us", (0.9, 0.7, 0.5), "a", 2.0), False),  # no results at 0.7
        # 2.0±0.2 and 3.33±0.11 a unit: 3.44 is 1.92 times 1.8.
        (Proportional("us", (0.5, 0.9), "a", 0.95), True),
        (Proportional("us", (0.5, 0.9), "a", 0.9), False),
        (Proportional("us", (0.5, 0.7), "a", 0.5), False),
        (Slope("us", (0.5, 0.9), "a", 4.6, 5.4), True),  # (2±0.141) / 0.4
        (Slope("us", (0.5, 0.9), "a", 4.7, 100), False),
        (Slope("us", (0.5, 0.9), "a", 0, 5.3), False),
        (Slope("us", (0.5, 0.7), "a", 0, 100), False),
    ],
)
def test_claim(claim, holds: bool) -> None:
    check = claim.check(TABLE)
    assert check.holds is holds, check.text
    assert check.text


def experiment(**fields) -> Experiment:
    points = tuple(Point(s, x, {}) for s in "ab" for x in (0.5, 0.9))
    return Experiment(id="t", title="t", paper="p", points=points, **fields)


def test_verdicts() -> None:
    good, bad = Below("us", (0.5,), "a", "b"), Below("us", (0.5,), "b", "a")
    assert judge(experiment(claims=(good,)), TABLE).word == "reproduced"
    assert judge(experiment(claims=(good, bad)), TABLE).word == "differs"
    assert judge(experiment(claims=(good,)), {}).word == "not run"
    assert judge(experiment(missing="a router"), TABLE).word == "not built"
    # Nothing claimed is nothing shown.
    assert judge(experiment(), TABLE).word == "differs"
    few = {key: Estimate(e.mean, e.half, 4) for key, e in TABLE.items()}
    assert judge(experiment(claims=(good,)), few).word == "differs"


def test_quick_runs_are_not_asked_for_what_takes_long() -> None:
    good, bad = Below("us", (0.5,), "a", "b"), Below("us", (0.5,), "b", "a", full=True)
    one = experiment(claims=(good, bad))
    assert judge(one, TABLE).word == "differs"
    quick = judge(one, TABLE, quick=True)
    assert quick.word == "reproduced" and quick.left == (bad.sentence(),)
    # What is left out shows nothing.
    assert judge(experiment(claims=(bad,)), TABLE, quick=True).word == "differs"


def test_quick_runs_are_asked_for_what_they_ran() -> None:
    points = (Point("a", 0.5, {}), Point("b", 0.5, {}), Point("b", 0.7, {}, quick=False))
    both = (Below("us", (0.5,), "a", "b"), Above("us", (0.5, 0.7), "b", 1.5),
            Rising("us", (0.5, 0.7), "b"))  # fmt: skip
    one = Experiment(id="t", title="t", paper="p", points=points, claims=both)
    verdict = judge(one, TABLE, quick=True)
    assert verdict.word == "reproduced"
    assert len(verdict.checks) == 2, "one place is no rise"
    assert judge(one, TABLE).word == "differs", "a full run has all places"
    # A place that was to run and did not is no excuse.
    there = (*points[:2], Point("b", 0.7, {}))
    here = Experiment(**{**vars(one), "points": there})
    assert judge(here, TABLE, quick=True).word == "differs"


def test_numbers_are_compared_point_by_point() -> None:
    one = experiment(numbers={("a", 0.5, "us"): 2.0, ("b", 0.5, "us"): 2.0}, ratio_most=1.5)
    assert ratios(one, TABLE) == {("a", 0.5, "us"): 0.5, ("b", 0.5, "us"): 1.0}
    verdict = judge(one, TABLE)
    assert verdict.word == "differs"
    assert "a at 0.5: 0.50×" in verdict.note


def test_a_number_without_a_result_is_not_within() -> None:
    """What was to run and has no value fails; what --quick leaves out is not asked for."""
    numbers = {("b", 0.5, "us"): 2.0, ("b", 0.7, "us"): 2.0, ("b", 0.5, "lost"): 1.0}
    points = (Point("b", 0.5, {}), Point("b", 0.7, {}, quick=False))
    one = Experiment(id="t", title="t", paper="p", points=points, ratio_most=1.5, numbers=numbers)
    verdict = judge(one, TABLE)
    assert verdict.word == "differs" and "1 of 2 numbers within 1.5×" in verdict.note
    assert "b at 0.5: no value" in verdict.note
    here = Experiment(**{**vars(one), "points": (points[0], Point("b", 0.7, {}))})
    assert "1 of 3 numbers" in judge(here, TABLE).note


def test_a_zero_of_the_paper_is_compared() -> None:
    table = {("a", 0.5, "dmp"): estimate([0.0] * 5), ("b", 0.5, "dmp"): estimate([0.1] * 5)}
    one = experiment(numbers={("a", 0.5, "dmp"): 0.0}, ratio_most=1.5)
    assert judge(one, table).word == "reproduced"
    one = experiment(numbers={("b", 0.5, "dmp"): 0.0}, ratio_most=1.5)
    assert "b at 0.5: inf×" in judge(one, table).note


def test_a_network_that_stood_still_reproduces_nothing() -> None:
    one = experiment(claims=(Below("us", (0.5,), "a", "b"),))
    assert judge(one, TABLE | {("a", 0.5, "stuck"): estimate([0.0] * 5)}).word == "reproduced"
    verdict = judge(one, TABLE | {("a", 0.5, "stuck"): estimate([0.0] * 4 + [1.0])})
    assert verdict.word == "differs"
    assert "stood still at the end of a run: a at 0.5" in verdict.note


def test_a_place_that_is_not_steady_is_named() -> None:
    table = {
        (series, x, "steady"): estimate(steady)
        for series, x, steady in (
            ("a", 0.25, [0.0] * 5), ("a", 0.5, [1.0, 0.0, 0.0, 0.0, 1.0]), ("b", 0.5, [1.0] * 5),
            ("pulses", 0.5, [0.0] * 5), ("phase", 0.5, [0.0] * 5),
            ("shares", 0.5, [0.0] * 5), ("failure", 0.5, [0.0] * 5),
        )
    }  # fmt: skip
    points = (
        Point("pulses", 0.5, {"workload": {"pulse_cycles": 500}}),
        Point("shares", 0.5, {"workload": {"phases": [0.2, 0.8]}}),
        Point("failure", 0.5, {"run": {"failures": ["0:4 0.1 0.5"]}}),
        Point("phase", 0.5, {"workload": {"phases": [0.2, 0.8]}}, part=(1, 2)),
    )
    pulsed = Experiment(id="t", title="t", paper="p", points=points)
    assert unsettled(pulsed, table) == "a at 0.25, 0.5"
    assert unsettled(experiment(), table | {("b", 0.5, "steady"): estimate([0.0] * 5)}) == (
        "a at 0.25, 0.5; b at 0.5; failure at 0.5; phase at 0.5; pulses at 0.5; shares at 0.5"
    )


def test_the_report_of_record_says_what_is_not_steady() -> None:
    pytest.importorskip("pyarrow")
    results = paths.ROOT / "docs/results"
    sections = (results / "README.md").read_text().split("\n## ")[1:]
    said = {part.split("\n", 1)[0]: part for part in sections}
    pages = (results / "index.html").read_text().split("<h2 id='")[1:]
    shown = {part.split("'", 1)[0]: html.unescape(part) for part in pages}
    for one in ALL.values():
        data = results / "data" / f"{one.id}.parquet"
        places = unsettled(one, estimates(read_parquet(data))) if data.exists() else ""
        for text in (said[one.id], shown[one.id]) if places else ():
            assert f"Not steady yet at the end of most runs: {places}." in text, one.id


IDS = """
acp.t2 acp.fig4 acp.t3 acp.fig5 acp.fig6 acp.t4 acp.fig3 acp.fig7 acp.fig8 acp.fig9 acp.fig10
rn.t1 rn.fig4 rn.fig5 rn.fig6 rn.fig7 rn.fig8 rn.fig9
mw.t2 mw.fig5 mw.fig6 mw.fig7 mw.t5 mw.fig8 mw.fig9 mw.fig10 mw.t6 mw.fig11 mw.fig12 mw.fig13
vct.fig1 vct.fig2 vct.fig3 vct.fig4 vct.fig5 vct.fig6 vct.fig7 vct.fig8
gn.base gn.slow gn.port gn.t1 gn.ftb
""".split()


def test_every_result_of_the_papers_is_there() -> None:
    assert set(ALL) >= set(IDS)


def test_the_report_of_record_has_every_result() -> None:
    summary = json.loads((paths.ROOT / "docs/results/summary.json").read_text())["results"]
    assert set(IDS) <= {one["id"] for one in summary} <= set(ALL)
    for one in summary:
        assert set(one) == {"id", "verdict", "paper", "ours", "note"}
        assert one["verdict"] in WORDS
        # Nothing is reproduced or differs without figures; nothing differs without saying how.
        assert one["ours"] or one["verdict"] in ("not run", "not built"), one["id"]
        assert one["note"] or one["verdict"] in ("reproduced", "not run"), one["id"]


@pytest.mark.parametrize("one", ALL.values(), ids=lambda one: one.id)
def test_experiments_are_complete(one: Experiment) -> None:
    assert one.paper and one.title
    if one.missing:
        assert not one.points and not one.claims
        return
    assert one.points and one.plots and (one.claims or one.ratio_most)
    assert len({(p.series, p.x) for p in one.points}) == len(one.points)
    places = {(p.series, p.x) for p in one.points}
    for p in one.points:
        if p.part is None:
            continue
        # A run in phases: all of them are places, each as long as the others.
        assert p.part[1] == len(p.config["workload"]["phases"])
        others = {q.part for q in one.points if q.config == p.config}
        assert others == {(n, p.part[1]) for n in range(p.part[1])}
        assert all(length.batches % p.part[1] == 0 for length in (one.quick, one.full))
    for claim in one.claims:
        assert claim.series_names()
        for name in claim.series_names():
            for x in claim.at:
                assert (name, x) in places, f"{claim} asks for {name} at {x}"
    quick = {(p.series, p.x) for p in one.chosen(True)}
    assert quick, "something has to be left of --quick"


def test_five_seeds_are_the_least() -> None:
    assert len(SEEDS) >= 5


def test_choose() -> None:
    assert [e.id for e in choose(["mw.fig5"])] == ["mw.fig5"]
    assert len(choose(["all"])) == len(ALL)
    assert all(e.id.startswith("mw.") for e in choose(["mw"]))
    with pytest.raises(UsageError):
        choose(["mw.fig99"])


def test_pinned_packages() -> None:
    text = (paths.ROOT / "tools/flitnet/lab/requirements.txt").read_text()
    for line in text.splitlines():
        assert line.startswith("#") or re.fullmatch(r"[\w.-]+==[\w.]+", line), line
