"""`flitnet lab point`: a network and a workload of the user's own."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from tools.flitnet import paths
from tools.flitnet.errors import UsageError
from tools.flitnet.lab import point
from tools.flitnet.workload import Workload

OWN = """
[network]
nodes = 4
[workload]
load = 0.4
streams = "none"
[run]
batch_cycles = 2000
"""


def run(file: Path, *more: str) -> subprocess.CompletedProcess[str]:
    argv = [str(paths.ROOT / "flitnet"), "lab", "point", str(file), *more]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120)


def test_the_users_own_line_is_named(tmp_path: Path) -> None:
    """The simulator has another text: by name of the tables, without comments and blank lines."""
    file = tmp_path / "own.toml"
    for key, says in (("link_mbps = 0  # none", "link_mbps = 0"), ('"x y" = 1', "x y: unknown")):
        file.write_text("# of ours\n" + OWN.replace("nodes = 4", f"nodes = 4\n\n{key}"))
        done = run(file)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith(f"flitnet: own.toml:6: network.{says}"), done.stderr


def chain(switches: int) -> str:
    """A topology file: switches in a row, a node at either end."""
    text = "".join(f'[[switch]]\nname = "s{n}"\nports = 4\n' for n in range(switches))
    text += f'[[node]]\nat = "s0:0"\n[[node]]\nat = "s{switches - 1}:0"\n'
    links = (f'[[link]]\nends = ["s{n}:1", "s{n + 1}:2"]\n' for n in range(switches - 1))
    return text + "".join(links)


def test_what_was_measured(simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLITNET_LAB", str(tmp_path / "lab"))
    file, report = tmp_path / "own.toml", tmp_path / "own.json"
    file.write_text(OWN)
    done = run(file, "--seeds", "3", "--json", str(report))
    assert done.returncode == 0, done.stderr
    assert re.search(r"best_effort_load +0\.[34]\d+ ", done.stdout), done.stdout
    assert "real_time" not in done.stdout, "there is none"
    found = json.loads(report.read_text())
    load = found["best_effort_load"]
    assert load["count"] == 3 and abs(load["mean"] - 0.4) < 0.02 + load["half"]
    assert found["real_time_network_us"]["mean"] is None
    # What was run is not run again.
    runs = list((tmp_path / "lab" / "runs").iterdir())
    again = run(file, "--seeds", "3")
    assert again.stdout == done.stdout and "runs" not in again.stderr
    assert list((tmp_path / "lab" / "runs").iterdir()) == runs and len(runs) == 3
    for stuck in runs:  # whichever seed it was
        output = stuck.read_text()
        stuck.write_text(json.dumps(json.loads(output) | {"stuck": "0:1 waits for 0:1"}))
        done = run(file, "--seeds", "3")
        assert re.search(r"stood still with seed [123]: 0:1 waits for 0:1", done.stderr), done
        stuck.write_text(output)


def test_another_file_of_the_topology_is_another_run(
    simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLITNET_LAB", str(tmp_path / "lab"))
    file, topology = tmp_path / "own.toml", tmp_path / "net.toml"
    file.write_text(OWN.replace("nodes = 4", f'nodes = 2\ntopology = "file:{topology}"'))
    found = []
    for switches in (2, 4):
        topology.write_text(chain(switches))
        done = run(file, "--seeds", "1")
        assert done.returncode == 0, done.stderr
        found.append(float(re.search(r"best_effort_network_us +([\d.]+)", done.stdout)[1]))
    assert found[1] > 1.02 * found[0], "of two hops and of four"


@pytest.mark.parametrize("nodes", ["", '[[node]]\nname = "a"\n[[node]]\nname = "b"\n'])
def test_what_a_cluster_file_holds(
    simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: str
) -> None:
    """A topology beside the file, which tells how many nodes it has unless the file does."""
    monkeypatch.setenv("FLITNET_LAB", str(tmp_path / "lab"))
    file = tmp_path / "own.toml"
    file.write_text(OWN.replace("nodes = 4", 'topology = "file:net.toml"') + nodes)
    (tmp_path / "net.toml").write_text(chain(3))
    done = run(file, "--seeds", "1")
    assert done.returncode == 0, done.stderr
    assert re.search(r"best_effort_load +0\.[34]\d+ ", done.stdout), done.stdout
    (tmp_path / "net.toml").unlink()
    done = run(file, "--seeds", "1")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert str(tmp_path / "net.toml") in done.stderr


def test_a_run_that_is_not_steady_says_so(
    simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLITNET_LAB", str(tmp_path / "lab"))
    file = tmp_path / "own.toml"
    file.write_text(OWN.replace("0.4", "1.0").replace("nodes = 4", 'topology = "mesh:4x4"'))
    done = run(file, "--seeds", "2", "--batches", "4")
    assert done.returncode == 0 and "not steady" in done.stderr, done.stderr


# A run of which a part is measured for each: shares in phases, links that fail, pulses of load.
PHASES = """
[network]
nodes = 4
[workload]
load = 0.8
phases = [0.2, 0.8]
frame_ms = 1.0
stream_kbps = 64_000
[run]
batch_cycles = 4000
"""
FAILURE = """
[network]
topology = "tree:4x2"
[workload]
load = 0.6
streams = "none"
[run]
batch_cycles = 2000
failures = ["0:4 0.1 0.5", "0:5 0.1 0.5"]
"""
PULSES = """
[network]
nodes = 4
[workload]
load = 0.7
streams = "none"
pulse_cycles = 16_000
pulse_load = 0.05
[run]
batch_cycles = 2000
"""


@pytest.mark.parametrize("text", [PHASES, FAILURE, PULSES], ids=["phases", "failure", "pulses"])
def test_where_a_change_is_measured_nothing_is_left_out(
    simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """MSER takes the change for warm-up: what came in one half was divided by what was offered in
    it, and the tails were of the second half beside means of all."""
    monkeypatch.setenv("FLITNET_LAB", str(tmp_path / "lab"))
    file, report = tmp_path / "own.toml", tmp_path / "own.json"
    file.write_text(text)
    done = run(file, "--seeds", "3", "--json", str(report))
    assert done.returncode == 0, done.stderr
    found = {name: value["mean"] for name, value in json.loads(report.read_text()).items()}
    assert found["warm_up_batches"] == 0
    assert found["best_effort_accepted"] == pytest.approx(1, abs=0.03)
    assert found["best_effort_p50_us"] < found["best_effort_total_us"] < found["best_effort_p99_us"]
    one = point.experiment(file, 3, 16).points[0]
    assert one.transient
    # The simulator, which keeps the tails, has the same opinion.
    (output, *_) = (json.loads(path.read_text()) for path in (tmp_path / "lab/runs").iterdir())
    assert output["tails_from_cycle"] == 0


def test_a_class_of_which_some_seeds_have_nothing(
    simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seed without a message has no latency, not one of 0; the others' mean says whose it is."""
    monkeypatch.setenv("FLITNET_LAB", str(tmp_path / "lab"))
    file, report = tmp_path / "own.toml", tmp_path / "own.json"
    file.write_text(OWN.replace("[run]", "control_per_frame = 0.8\n[run]"))
    done = run(file, "--seeds", "8", "--json", str(report))
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    least_us = 25 * 0.32  # a router and twenty flits
    for measure in ("control_network_us", "control_total_us", "control_p50_us", "control_p99_us"):
        count, mean = found[measure]["count"], found[measure]["mean"]
        assert 0 < count < 8 and mean > 0.97 * least_us, (measure, found[measure])
        assert re.search(rf"{measure} +[\d.]+ .*\b{count} of 8\b", done.stdout), done.stdout
    assert found["best_effort_p50_us"]["count"] == 8
    assert not re.search(r"best_effort_p50_us.* of 8", done.stdout), done.stdout
    assert found["control_accepted"]["count"] < 8 and found["real_time_p50_us"]["count"] == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[workload]\nload = 7\n", "own.toml: workload.load: must be a number from 0 to 2"),
        ("[workload]\nlaod = 1\n", "own.toml: workload.laod: "),
        ("[network]\nnodes = 1\n", "own.toml: "),
        ("load = 1\n", "own.toml: load: stands outside of a table"),
        ("node = [3]\n", "own.toml: node: stands outside of a table"),
        ("[[node]]\nname = {}\n", "own.toml: node.name: a number, a text or a list"),
        ("[[node]]\nnam = \"a\"\n", "node.nam: unknown key"),
        ("[run]\nseed = 3\n", "own.toml: run.seed: say it by --seeds"),
        ("[run.more]\nx = 3\n", "own.toml: run.more: a number, a text or a list"),
        ("[run]\nx = 1979-05-27\n", "own.toml: run.x: a number, a text or a list"),
        ("[run]\nx = inf\n", "own.toml: run.x: a number, a text or a list"),
        ("[run\n", "own.toml: "),
        ("[workload]\nphases = 0.5\n", "own.toml: workload.phases: must be a list of numbers"),
        ("[workload]\nflows = [\"all 0>1\"]\n", "own.toml: workload.flows: \"all 0>1\": must not"),
        ("a = " + "[" * 5000, "own.toml: "),
    ],
)
def test_what_is_no_point_is_one_line(simulator, tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(text)
    done = run(file, "--workers", "1", "--seeds", "1")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and says in done.stderr, done.stderr


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none.toml: No such file"):
        point.read(tmp_path / "none.toml")


def test_every_key_is_in_the_docs() -> None:
    text = (paths.ROOT / "docs" / "workloads.md").read_text()
    rows = {name for row in re.findall(r"^\| (`[^|]+) \|", text, re.M)
            for name in re.findall(r"`(\w+)`", row)}  # fmt: skip
    assert rows == {field.name for field in fields(Workload)} - {"other"}
