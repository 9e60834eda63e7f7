"""Our curves beside BookSim2's (docs/booksim.md): the pipeline's formula where nobody waits, and
the bands in which the named differences of the models leave the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.flitnet import booksim, booksim_cost, paths
from tools.flitnet.errors import FlitnetError, UsageError

NETWORKS = ("fattree64", "fly8", "mesh4x4", "mesh5x5", "torus8x8x8")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not (paths.build_dir() / paths.PROGRAMS["engine_curve"]).exists():
        pytest.skip("engine_curve is not built")
    file = tmp_path_factory.mktemp("booksim") / "curves.json"
    done = subprocess.run(
        [str(paths.ROOT / "flitnet"), "bench", "booksim", "--quick", "--json", str(file)],
        env=dict(os.environ) | {"FLITNET_BUILD": str(paths.build_dir())},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("accepted at most") == len(NETWORKS)
    return {one["network"]: one for one in json.loads(file.read_text())["results"]}


@pytest.mark.parametrize("network", NETWORKS)
def test_latency_without_load_is_the_pipelines(results: dict[str, Any], network: str) -> None:
    one = results[network]
    # Now and then two of the few packets do meet.
    assert one["zero_load"] == pytest.approx(one["zero_load_formula"], rel=0.004)


@pytest.mark.parametrize("network", NETWORKS)
def test_light_load_costs_what_it_costs_booksim(results: dict[str, Any], network: str) -> None:
    """A cycle less for links at the edge; in the tree fewer waits, for its way up is chosen."""
    one = results[network]
    theirs = {point["offered"]: point for point in one["one_queue"]}
    light = [point for point in one["ours"] if point["offered"] <= 0.2]
    assert light
    for ours in light:
        low, high = (0.82, 1.0) if network == "fattree64" else (0.95, 1.08)
        ratio = ours["packet_latency"] / theirs[ours["offered"]]["packet_latency"]
        assert low <= ratio <= high, (ours, theirs[ours["offered"]])


@pytest.mark.parametrize("network", NETWORKS)
def test_below_saturation_all_is_accepted(results: dict[str, Any], network: str) -> None:
    for point in results[network]["ours"]:
        assert point["steady"] or point["offered"] > 0.5, point


@pytest.mark.parametrize("network", ("fly8", "mesh4x4", "mesh5x5"))
def test_saturation_is_that_of_sixteen_queues(results: dict[str, Any], network: str) -> None:
    """A lane for good instead of any that is free costs a tenth at most; one queue costs more."""
    most = results[network]["saturation"]
    assert 0.90 * most["sixteen_queues"] <= most["ours"] <= 1.02 * most["sixteen_queues"]
    assert most["ours"] > 1.1 * most["one_queue"]


def test_the_tree_beats_sources_of_one_queue(results: dict[str, Any]) -> None:
    most = results["fattree64"]["saturation"]
    assert most["ours"] > 1.2 * most["one_queue"]


def test_a_configuration_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    words = booksim.read_words(booksim.REFERENCE / "configs" / "fly8.cfg")
    assert booksim.translate("fly8", words)[:4] == ["--topology", "single", "--nodes", "8"]
    with pytest.raises(booksim.UsageError, match="num_vcs = 4: only 16"):
        booksim.translate("fly8", {**words, "num_vcs": "4"})
    with pytest.raises(booksim.UsageError, match="topology dragonfly"):
        booksim.translate("fly8", {**words, "topology": "dragonfly"})
    with pytest.raises(booksim.UsageError, match="k = None: a number"):
        booksim.translate("fly8", {name: word for name, word in words.items() if name != "k"})
    with pytest.raises(booksim.UsageError, match="no curves.csv"):
        booksim.read_reference(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "fly8.cfg").write_text("k = 8;\n")
    (tmp_path / "curves.csv").write_text("head\nfly8,b\n")
    with pytest.raises(booksim.UsageError, match="fly8,b: a name and nine numbers"):
        booksim.read_reference(tmp_path)


def test_the_other_simulators_cost_is_what_longer_runs_take_more(tmp_path: Path) -> None:
    """A program in its place, which takes 10 us of processor a cycle and 50 ms to start."""
    program = tmp_path / "booksim"
    program.write_text(
        f"#!{sys.executable}\n"
        "import sys, time\n"
        "words = dict(word.split('=') for word in sys.argv[2:])\n"
        "cycles = int(words['sample_period']) * int(words['max_samples'])\n"
        "while time.process_time() < 0.05 + cycles * 10e-6: pass\n"
        "print('Total run time')\n"
        "sys.exit(255)\n"
    )
    program.chmod(0o755)
    work = booksim_cost.Work("fly8", 0.8, 3_000, 30_000)
    assert booksim_cost.cost_us(program, work, seed=1) == pytest.approx(10, rel=0.3)


def test_a_program_that_is_another_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a program"):
        booksim_cost.check(tmp_path / "none")
    with pytest.raises(FlitnetError, match="fly8.cfg as BookSim2 does: it prints nothing"):
        booksim_cost.cost_us(Path("/bin/true"), booksim_cost.WORKS[0], seed=1)
