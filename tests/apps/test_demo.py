"""The main job, end to end, through the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.test_half_dead import until
from tools.flitnet import record
from tools.flitnet.cluster import Cluster
from tools.flitnet.demo import Run
from tools.flitnet.scenario import Request, plan

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("demo", "--nodes", "4", "--load", "0.4", "--seconds", "5")


class Demo:
    def __init__(self, folder: Path) -> None:
        self.run = folder / "r"
        self.json = folder / "out.json"
        self.env = dict(os.environ) | {"FLITNET_RUN": str(self.run)}

    def __call__(self, *argv: str, timeout: float = 150) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ROOT / "flitnet", *argv, "--json", self.json], capture_output=True, text=True,
            env=self.env, timeout=timeout, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def start(self, *argv: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [ROOT / "flitnet", *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=self.env, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def result(self) -> dict:
        return json.loads(self.json.read_text())

    def down(self) -> None:
        subprocess.run([ROOT / "flitnet", "down"], env=self.env, capture_output=True, timeout=60)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    made = Demo(tmp_path)
    yield made
    made.down()


def assert_whole(value: dict) -> None:
    """What must hold of every run: nothing of an admitted stream is lost, doubled or changed."""
    assert value["problems"] == []
    assert value["lost"] == 0 and value["duplicated"] == 0
    admitted = [stream for stream in value["streams"] if stream["admitted"]]
    assert admitted
    for stream in admitted:
        assert stream["frames_sent"] == stream["frames_delivered"] > 0, stream
        assert stream["bytes_corrupt"] == 0, stream


def test_small_demo(demo: Demo) -> None:
    done = demo(*SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    value = demo.result()
    assert_whole(value)
    assert (value["nodes"], value["link_mbps"], value["flit_bits"]) == (4, 400, 128)
    assert value["seconds"] == 5 and value["clock"]["mode"] == "elastic"
    assert all(stream["admitted"] for stream in value["streams"])
    frames = [stream["frames_sent"] for stream in value["streams"]]
    assert min(frames) >= 5 * 30 - 5
    for name in ("control", "real_time", "best_effort"):
        assert value["classes"][name]["packets"] > 100, name
        assert 0 < value["classes"][name]["latency_us_mean"] <= 1e5
    power = value["power"]
    assert 0 < power["mean_w"] <= power["max_w"] <= power["cap_w"]
    assert "admitted" in done.stdout and "DMP" in done.stdout
    assert re.search(r"^ *\d+\.\d s  ", done.stdout, re.M), "progress without a terminal"
    assert not demo.run.exists(), "nothing is left"


def test_second_demo_after_everything_was_killed(demo: Demo) -> None:
    first = demo.start(*SMALL)
    deadline = time.monotonic() + 60
    while not any(role.startswith("replay:") for role in running(demo)):
        assert time.monotonic() < deadline and first.poll() is None, first.communicate()[0]
        time.sleep(0.1)
    os.killpg(first.pid, signal.SIGKILL)  # the command line; daemons have their own sessions
    first.communicate(timeout=10)
    killed = Cluster.open(demo.run).record()
    some = [p for role, p in killed.processes.items() if role in ("fabricd", "hcad:n1")]
    for process in some:
        process.signal(signal.SIGKILL)
    done = demo(*SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_whole(demo.result())
    assert not any(process.alive() for process in killed.processes.values())


def test_a_demo_whose_fabric_dies_says_how_far_it_came(demo: Demo) -> None:
    """One line names the cause; what did not arrive follows from it and is not told apart."""
    first = demo.start(*SMALL[:-1], "60")
    assert first.stdout
    seen = ""
    while not re.search(r"^ *[1-9]\d*\.\d s  ", seen, re.M):
        line = first.stdout.readline()
        assert line, f"it ended without a word of its progress: {seen}"
        seen += line
    Cluster.open(demo.run).record().processes["fabricd"].signal(signal.SIGKILL)
    out, _ = first.communicate(timeout=60)
    assert first.returncode == 1, out
    said = [line for line in out.splitlines() if line.startswith("flitnet: ")]
    assert len([line for line in said if "fabricd died" in line]) == 1, out
    assert not any("did not arrive" in line for line in said), out
    early = re.search(r"early, (\d+\.\d) s after the start of its cluster, before 60 s of", out)
    assert early and 0 < float(early[1]) < 60, out
    assert re.search(r"^4 nodes, 400 Mb/s", out, re.M), "the last numbers that were seen"
    assert not demo.run.exists()


def test_what_a_program_ended_with_is_said_once(tmp_path: Path) -> None:
    for name in ("nodes", "log"):
        (tmp_path / name).mkdir()
    (tmp_path / "cluster.toml").touch()
    record.write(tmp_path, record.Record())
    cluster = Cluster.open(tmp_path)
    cluster.start("load:n0", ["/bin/false"])
    cluster.start("load:n1", ["/bin/sh", "-c", "echo flitnet-load: n0 is gone; exit 1"])
    cluster.start("load:n2", ["/bin/true"])
    roles = ["load:n0", "load:n1", "load:n2"]
    until(lambda: None not in [cluster.exit_code(role) for role in roles])
    ended = Run(cluster, plan(Request()))._exits(roles)
    assert ended == ["load:n0: ended with 1", "load:n1: n0 is gone"]


def running(demo: Demo) -> list[str]:
    try:
        found = Cluster.open(demo.run).record()
    except Exception:
        return []
    return [role for role, process in found.processes.items() if process.alive()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_cleans_up(demo: Demo, number: int) -> None:
    first = demo.start(*SMALL[:-1], "60")
    deadline = time.monotonic() + 60
    while not any(role.startswith("replay:") for role in running(demo)):
        assert time.monotonic() < deadline and first.poll() is None, first.communicate()[0]
        time.sleep(0.1)
    processes = Cluster.open(demo.run).record().processes
    second = demo(*SMALL)
    assert second.returncode == 1 and "a demo runs in" in second.stderr
    assert all(process.alive() for process in processes.values()), "the first is left alone"
    first.send_signal(number)
    out, _ = first.communicate(timeout=30)
    assert first.returncode == 130 and "interrupted" in out, out
    assert not any(process.alive() for process in processes.values())
    assert not demo.run.exists()


def test_overload_is_refused_by_name_of_the_router(demo: Demo) -> None:
    done = demo("demo", "--nodes", "4", "--link-mbps", "200", "--seconds", "3", "--overload")
    assert done.returncode == 0, done.stdout + done.stderr
    value = demo.result()
    assert_whole(value)
    refused = [stream for stream in value["streams"] if not stream["admitted"]]
    assert refused and all(stream["rejected_by"] for stream in refused)
    assert any("r0" == stream["rejected_by"] for stream in refused)
    assert "refused by r0" in done.stdout
    # They asked in the order of the plan: no node took another's share, and no link is filled
    # while others are empty, by which frames of admitted streams were late.
    for end in ("from", "to"):
        counts = Counter(stream[end] for stream in value["streams"] if stream["admitted"])
        assert len(counts) == 4 and max(counts.values()) - min(counts.values()) <= 3, counts


def test_best_effort_alone(demo: Demo) -> None:
    alone = ("demo", "--nodes", "2", "--seconds", "1", "--mix", "0:100")
    done = demo(*alone)
    assert done.returncode == 0, done.stdout + done.stderr
    value = demo.result()
    assert value["problems"] == [] and value["streams"] == []
    assert value["classes"]["best_effort"]["packets"] > 100
    done = demo(*alone, "--clock", "virtual")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "virtual time needs streams" in done.stderr


def test_kept_demo_answers_status_until_down(demo: Demo) -> None:
    done = demo(*SMALL[:-1], "2", "--keep")
    assert done.returncode == 0, done.stdout + done.stderr
    status = subprocess.run(
        [ROOT / "flitnet", "status", "--json"], env=demo.env, capture_output=True, text=True
    )
    assert status.returncode == 0, status.stderr
    value = json.loads(status.stdout)
    assert value["nodes"] == 4
    assert set(demo.result()) - {"problems", "seed"} <= set(value), "the same keys as the demo's"
    demo.down()
    assert not demo.run.exists()


# Virtual time: the same scenario on one thread, deterministic.

VIRTUAL = ("demo", "--clock", "virtual", "--seconds", "2")


def virtual(folder: Path, *argv: str) -> dict:
    folder.mkdir(exist_ok=True)
    demo = Demo(folder)
    done = demo(*VIRTUAL, *argv)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "flitnet: 1 of 2 emulated seconds\n" in done.stderr
    return demo.result()


@pytest.mark.parametrize("clock", ["virtual", "elastic"])
def test_a_topology_of_a_file(demo: Demo, tmp_path: Path, clock: str) -> None:
    """As its help says; named from where the command is given, with as many nodes as it has."""
    ends = "".join(f'[[node]]\nat = "s{n % 2}:{n // 2}"\n' for n in range(6))
    switches = "".join(f'[[switch]]\nname = "s{n}"\nports = 4\n' for n in range(2))
    (tmp_path / "net.toml").write_text(switches + ends + '[[link]]\nends = ["s0:3", "s1:3"]\n')
    named = os.path.relpath(tmp_path / "net.toml")
    argv = ("demo", "--clock", clock, "--seconds", "2", "--load", "0.2", "--topology")
    done = demo(*argv, f"file:{named}")
    assert done.returncode == 0, done.stdout + done.stderr
    value = demo.result()
    assert_whole(value)
    assert value["nodes"] == 6
    done = demo(*argv, f"file:{named}", "--nodes", "4")
    assert done.returncode == 2 and "that has 6 nodes" in done.stderr, done.stderr
    done = demo(*argv, "file:none.toml")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "none.toml" in done.stderr


def test_virtual_demo_is_bit_identical(tmp_path: Path) -> None:
    first = virtual(tmp_path / "a", "--seed", "5")
    second = virtual(tmp_path / "b", "--seed", "5")
    assert first == second
    assert first != virtual(tmp_path / "c", "--seed", "6")
    assert_whole(first)


def test_without_admission_deadlines_are_missed(tmp_path: Path) -> None:
    """The same overload with and without admission: refused by name, or late."""
    with_it = virtual(tmp_path / "with", "--overload")
    without = virtual(tmp_path / "without", "--overload", "--no-admission")
    assert any(not stream["admitted"] for stream in with_it["streams"])
    assert all(stream["admitted"] for stream in without["streams"])
    assert worst(with_it) <= 0.01
    assert worst(without) > 10 * max(worst(with_it), 0.005)


def worst(value: dict) -> float:
    return max(stream["dmp"] for stream in value["streams"] if stream["admitted"])


def test_power_stays_below_the_cap_only_with_control(tmp_path: Path) -> None:
    with_it = virtual(tmp_path / "with")["power"]
    without = virtual(tmp_path / "without", "--no-power-control")["power"]
    assert with_it["max_w"] <= with_it["cap_w"]
    assert without["max_w"] > with_it["cap_w"]
