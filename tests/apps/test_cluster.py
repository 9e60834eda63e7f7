"""A cluster's life through the command line: up, exec, shell, status, deaths, down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.apps.interrupts import processes_that_name
from tools.flitnet import rundir
from tools.flitnet.cluster import Cluster, attached_nodes

ROOT = Path(__file__).resolve().parents[2]
Flitnet = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "r"


@pytest.fixture
def flitnet(run: Path) -> Iterator[Flitnet]:
    """Runs commands on one run directory, and takes the cluster down at the end."""

    def command(*argv: object, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ROOT / "flitnet", *map(str, argv)], capture_output=True, text=True, timeout=90,
            env=dict(os.environ) | {"FLITNET_RUN": str(run)} | env, input=stdin,
        )  # fmt: skip

    yield command
    command("down")


def two_nodes(folder: Path, more: str = "") -> Path:
    path = folder / "cluster.toml"
    path.write_text("[network]\nnodes = 2\n" + more)
    return path


def test_up_exec_status_down(flitnet: Flitnet, run: Path, tmp_path: Path) -> None:
    shm_before = set(os.listdir("/dev/shm"))
    done = flitnet("up", two_nodes(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "2 nodes (n0 … n1) attached" in done.stdout

    done = flitnet("exec", "n1", "--", "ibv_devices")
    assert done.returncode == 0 and "flitnet0" in done.stdout, done.stderr
    assert flitnet("exec", "n0", "--", "sh", "-c", "exit 37").returncode == 37
    done = flitnet("exec", "n7", "--", "true")
    assert done.returncode == 2 and "no node 'n7'; this cluster has 2" in done.stderr
    done = flitnet("exec", "n0", "--", "")
    assert done.returncode == 2 and done.stderr == "flitnet: exec: no program after '--'\n"
    done = flitnet("exec", "n0", "--", "no-such-program")
    assert done.returncode == 127, "as shells and env say it"
    assert done.stderr == "flitnet: no-such-program: No such file or directory\n"
    assert flitnet("exec", "n0", "--", "/etc").returncode == 126

    done = flitnet("shell", "n0", stdin="ibv_devices; exit 5\n", SHELL="/bin/sh")
    assert done.returncode == 5 and "flitnet0" in done.stdout

    done = flitnet("exec", "n1", "--", "cat", "/sys/class/infiniband/flitnet0/ports/1/lid")
    assert done.stdout == "0x2\n", done.stderr

    done = flitnet("status")
    assert done.returncode == 0 and "2 nodes" in done.stdout, done.stdout
    value = json.loads(flitnet("status", "--json").stdout)
    assert value["nodes"] == 2 and value["dead"] == [] and value["clock"]["mode"] == "elastic"

    done = flitnet("up", two_nodes(tmp_path))
    assert done.returncode == 1 and "a cluster runs in" in done.stderr
    assert flitnet("exec", "n0", "--", "true").returncode == 0, "the refusal disturbed nobody"

    done = flitnet("down")
    assert done.returncode == 0 and "stopped 4 processes" in done.stdout, done.stdout
    assert "SIGKILL" not in done.stdout, "daemons end by SIGTERM"
    assert not run.exists()
    assert processes_that_name(str(run)) == []
    assert set(os.listdir("/dev/shm")) <= shm_before


@pytest.mark.parametrize(("controls", "capped"), [
    ("", True), ('peak_power = "scheme"', True), ("power_control = false", False),
    ('peak_power = "powerherd"', False), ('peak_power = "none"', False),
])  # fmt: skip
def test_up_promises_no_cap_that_is_off(
    flitnet: Flitnet, tmp_path: Path, controls: str, capped: bool
) -> None:
    """PowerHerd's routers hold all packets, not best effort alone."""
    done = flitnet("up", two_nodes(tmp_path, f"[controls]\n{controls}\n"))
    assert "programs meet this network's rates" in done.stdout, done.stderr
    assert ("and best effort its power cap" in done.stdout) == capped


def test_nobody_pushes_fabricd_off_its_core(cluster2: Cluster) -> None:
    """All emulated time waits for fabricd; hcads get what it leaves, and it waits for them."""
    assert os.sched_getscheduler(cluster2.process("fabricd").pid) == os.SCHED_OTHER
    for node in cluster2.nodes:
        assert os.sched_getscheduler(cluster2.process(f"hcad:{node}").pid) == os.SCHED_BATCH


def test_where_no_emulated_time_passes_nobody_yields() -> None:
    """Every message waits for each of its parties: whoever is woken comes first."""
    with Cluster({"network": {"nodes": 2, "pass_through": True}}) as cluster:
        for role in ("fabricd", "hcad:n0", "hcad:n1"):
            assert os.sched_getscheduler(cluster.process(role).pid) == os.SCHED_OTHER


def test_up_after_everything_was_killed(flitnet: Flitnet, run: Path, tmp_path: Path) -> None:
    assert flitnet("up", two_nodes(tmp_path)).returncode == 0
    for process in Cluster.open(run).record().processes.values():
        process.signal(signal.SIGKILL)
    done = flitnet("status")
    assert done.returncode == 1 and "fabricd is dead" in done.stdout
    done = flitnet("up", two_nodes(tmp_path))
    assert done.returncode == 0, done.stderr
    assert flitnet("exec", "n0", "--", "ibv_devices").returncode == 0


@pytest.mark.parametrize(
    ("role", "advice"),
    [("hcad:n1", "n1 is dead; use: flitnet node n1 start, or: flitnet down"),
     ("fabricd", "fabricd is dead; start it with: flitnet fabric start, or stop all with: ")],
)  # fmt: skip
def test_up_after_one_daemon_was_killed(
    flitnet: Flitnet, run: Path, tmp_path: Path, role: str, advice: str
) -> None:
    """Programs may run on what lives: it is not `up` that ends them."""
    assert flitnet("up", two_nodes(tmp_path)).returncode == 0
    first = Cluster.open(run).record().processes
    first[role].signal(signal.SIGKILL)
    assert first[role].wait(5)
    done = flitnet("up", two_nodes(tmp_path))
    assert done.returncode == 1 and advice in done.stderr, done.stderr
    assert [name for name, process in first.items() if not process.alive()] == [role]
    assert flitnet("down").returncode == 0
    assert flitnet("up", two_nodes(tmp_path)).returncode == 0
    assert not any(process.alive() for process in first.values()), "nothing old survives"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[network]\nnodes = 0\n", "nodes"),
        ("[network]\nnodes = 1000\n", "nodes"),
        ("[network]\nlink_mbps = -4\n", "link_mbps"),
        ('[network]\nlink_mbps = "fast"\n', "link_mbps"),
        ('[network]\ntopology = "hypercube"\n', "topology"),
        ("[network]\nspeed = 4\n", "speed"),
        ("[nettwork]\nnodes = 4\n", "nettwork"),
        ('[clock]\nmode = "sundial"\n', "mode"),
        ("[controls]\nadmission = 3\n", "admission"),
        ('[attach]\nkind = "pigeon"\n', "kind"),
        ("[network\n", "line 1"),
        ('[network]\nnodes = 2\n[[node]]\nname = "a/b"\n', "name"),
        ("network = 3\n", "network"),
        ("node = 3\n", "node"),
    ],
)
def test_malformed_configuration_is_one_line(
    flitnet: Flitnet, run: Path, tmp_path: Path, text: str, key: str
) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    done = flitnet("up", path)
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert done.stderr.count("\n") == 1 and key in done.stderr, done.stderr
    assert not run.exists(), "nothing was started or left"


HOSTILE = [b"", b"\xff\xfe\x00" * 40, b"[" * 5000, b"a.b" * 30000, b"a=" + b"[" * 50000]


@pytest.mark.parametrize("content", HOSTILE, ids=["empty", "binary", "open", "dotted", "deep"])
def test_hostile_configuration_ends_soon(
    flitnet: Flitnet, run: Path, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "hostile.toml"
    path.write_bytes(content)
    done = flitnet("up", path)
    if content:  # an empty file means defaults
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr[:500]
    else:
        assert done.returncode == 0, done.stderr


def test_a_run_directory_of_another_user_is_refused(flitnet: Flitnet, run: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root to give a directory away")
    run.mkdir()
    os.chown(run, 65534, 65534)
    done = flitnet("up")
    assert done.returncode == 1 and "belongs to another user" in done.stderr
    os.chown(run, 0, 0)


def test_a_run_directory_that_is_too_deep_is_refused(flitnet: Flitnet, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90)
    done = flitnet("up", FLITNET_RUN=str(deep))
    assert done.returncode == 2 and "socket paths" in done.stderr and not deep.exists()


def test_down_leaves_other_peoples_files(flitnet: Flitnet, run: Path, tmp_path: Path) -> None:
    run.mkdir()
    (run / "mine.txt").write_text("precious")
    assert flitnet("up", two_nodes(tmp_path)).returncode == 0
    assert flitnet("down").returncode == 0
    assert sorted(os.listdir(run)) == ["mine.txt"]


def pingpong(cluster: Cluster, server: str, client: str, *argv: str) -> tuple[int, str]:
    """ibv_rc_pingpong between two nodes; the client's exit code and both outputs."""
    port = str(20000 + os.getpid() % 20000)
    command = ["ibv_rc_pingpong", "-p", port, "-n", "200", *argv]
    with cluster.popen(server, command) as serving:
        try:
            text = ""
            for _ in range(50):  # the server needs a moment to listen
                time.sleep(0.1)
                done = cluster.exec(client, [*command, "localhost"], timeout=30)
                text = done.stdout + done.stderr
                if "Couldn't connect" not in text:
                    break
            out, _ = serving.communicate(timeout=30)
            return done.returncode, text + out
        finally:
            serving.kill()


def test_a_killed_node_joins_again(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster({"network": {"nodes": 3}})
    cluster.kill("hcad:n1")
    code, text = pingpong(cluster, "n0", "n2")
    assert code == 0, text
    deadline = time.monotonic() + 10
    while "n1" in attached_nodes(cluster.status()):
        assert time.monotonic() < deadline, "fabricd did not notice"
        time.sleep(0.05)
    cluster.start_node("n1")
    code, text = pingpong(cluster, "n0", "n1")
    assert code == 0, text


def test_a_killed_fabric_joins_again(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster({"network": {"nodes": 2}})
    hcads = [cluster.process(f"hcad:{node}") for node in cluster.nodes]
    cycle = cluster.status()["clock"]["cycle"]
    cluster.kill("fabricd")
    cluster.start_fabricd()
    assert all(process.alive() for process in hcads), "nobody else was restarted"
    assert cluster.status()["clock"]["cycle"] >= cycle, "emulated time never runs backwards"
    code, text = pingpong(cluster, "n0", "n1")
    assert code == 0, text


def test_a_killed_program_leaves_its_node_usable(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    server = cluster.popen("n0", ["ibv_rc_pingpong", "-p", "19877"])
    time.sleep(0.5)
    server.send_signal(signal.SIGKILL)
    server.wait(10)
    code, text = pingpong(cluster, "n0", "n1")
    assert code == 0, text


def test_up_clears_nothing_of_somebody_else(flitnet: Flitnet, run: Path, tmp_path: Path) -> None:
    (run / "log").mkdir(parents=True)
    (run / "log" / "mine.txt").write_text("kept")
    done = flitnet("up", two_nodes(tmp_path))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert (run / "log" / "mine.txt").read_text() == "kept"


def test_a_whole_cluster_stays_whatever_became_of_programs(
    flitnet: Flitnet, run: Path, tmp_path: Path
) -> None:
    assert flitnet("up", two_nodes(tmp_path)).returncode == 0
    cluster = Cluster.open(run)
    before = cluster.process("fabricd")
    cluster.start("load:n0", ["/bin/true"]).wait(5)
    assert flitnet("up", two_nodes(tmp_path)).returncode == 1
    assert before.alive()
    # Nor does an `up` that waits and is interrupted take it away.
    with rundir.lock(run):
        waiting = subprocess.Popen(
            [ROOT / "flitnet", "up", tmp_path / "cluster.toml"], stderr=subprocess.DEVNULL,
            env=dict(os.environ) | {"FLITNET_RUN": str(run)},
        )  # fmt: skip
        time.sleep(1.5)
        waiting.send_signal(signal.SIGINT)
    assert waiting.wait(20) != 0
    assert before.alive()


def test_several_nodes_by_the_command_line(flitnet: Flitnet, run: Path, tmp_path: Path) -> None:
    assert flitnet("up", two_nodes(tmp_path)).returncode == 0
    done = flitnet("exec", "n0,n1", "--", "ibv_devices")
    assert done.returncode == 0, done.stderr
    assert "flitnet1" in done.stdout


@pytest.mark.parametrize("text", [None, "garbage"])
def test_down_needs_only_the_record(
    flitnet: Flitnet, run: Path, tmp_path: Path, text: str | None
) -> None:
    assert flitnet("up", two_nodes(tmp_path)).returncode == 0
    (run / "cluster.toml").unlink()
    if text:
        (run / "cluster.toml").write_text(text)
    done = flitnet("down")
    assert done.returncode == 0, done.stderr
    assert not processes_that_name(str(run))
