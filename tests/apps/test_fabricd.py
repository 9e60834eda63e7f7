"""A real fabricd: start, stop, kill, restart, and nodes that come, go and die.

The nodes are played by tests/bench/fabricd/peer.cc, which has no HCA and checks every byte.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.fabric_run import DEADLINE_S, Run, peer_program, result
from tools.flitnet import paths

NODES = 4
CLUSTER = f"[network]\nnodes = {NODES}\nlink_mbps = 100\n"


@pytest.fixture
def run() -> Iterator[Run]:
    value = Run()
    yield value
    value.close()


def end(process: subprocess.Popen[str], sig: int = signal.SIGTERM) -> tuple[int, str]:
    process.send_signal(sig)
    _, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, err


def traces_of_dpdk() -> set[str]:
    places = [Path("/dev/shm"), Path("/var/run/dpdk"), Path("/tmp/dpdk")]
    found = {str(p) for place in places if place.exists() for p in place.rglob("*")}
    return {path for path in found if "flitnet" in path}  # others may use DPDK meanwhile


def abstract_sockets() -> set[str]:
    lines = Path("/proc/net/unix").read_text().splitlines()
    return {line.split()[-1] for line in lines if line.split()[-1].startswith("@")}


def test_stops_cleanly_and_leaves_no_socket_page_or_lock(run: Run) -> None:
    before = traces_of_dpdk()
    fabric = run.fabricd(CLUSTER)
    assert end(fabric) == (0, "")
    left = {str(p.relative_to(run.dir)) for p in run.dir.rglob("*") if not p.is_dir()}
    # Time goes on from the clock page; the log and the configuration are for people.
    assert left <= {
        "clock.page", "fabric.state", "cluster.toml", "test.toml", "log/fabricd.log",
        "log/fabricd-dpdk.log",
    }  # fmt: skip
    assert not [p for p in run.dir.iterdir() if p.name.startswith("eal")]
    assert traces_of_dpdk() <= before
    assert not {name for name in abstract_sockets() if "flitnet" in name or "dpdk" in name}


def test_stop_can_be_asked_for(run: Run) -> None:
    fabric = run.fabricd(CLUSTER)
    assert run.ask(cmd="stop") == {"ok": True}
    fabric.communicate(timeout=DEADLINE_S)
    assert fabric.returncode == 0


def test_a_second_fabricd_is_told_who_holds_the_directory(run: Run) -> None:
    first = run.fabricd(CLUSTER)
    second = run.start(paths.program("fabricd"), "--run", run.dir)
    _, err = second.communicate(timeout=DEADLINE_S)
    assert second.returncode == 1
    assert str(first.pid) in err and err.count("\n") == 1
    assert run.status()["pid"] == first.pid


def test_packets_arrive_once_in_order_and_unchanged(run: Run) -> None:
    run.fabricd(CLUSTER)
    left = run.peer("n0,n1", "--seconds", "2", "--load", "0.3", "--seed", "1")
    right = run.peer("n2,n3", "--seconds", "2", "--load", "0.3", "--seed", "2")
    totals = [result(left), result(right)]
    for total in totals:
        assert (total["corrupt"], total["lost"], total["disordered"]) == (0, 0, 0)
        assert total["early"] == 0  # nothing left before its launch time
        assert total["received"] > 1000
        assert total["latency_cycles"] >= 45  # 40 flits through one router
    status = run.status()
    assert status["in_flight"] == 0
    assert sum(node["violations"] for node in status["nodes"]) == 0


def test_a_killed_node_is_released_and_rejoins_and_the_others_go_on(run: Run) -> None:
    run.fabricd(CLUSTER)
    others = run.peer("n0,n1", "--seconds", "4", "--load", "0.2")
    victim = run.peer("n2", "--seconds", "30", "--load", "0.2", "--reserve", "40")
    run.until(lambda: run.attached() == {"n0", "n1", "n2"} and run.booked_bps() > 0, victim)
    before_ns = run.status()["clock"]["emulated_ns"]
    end(victim, signal.SIGKILL)
    run.until(lambda: run.booked_bps() == 0)
    released_ns = run.status()["clock"]["emulated_ns"]
    assert released_ns - before_ns < 1_000_000_000
    assert run.attached() == {"n0", "n1"}
    again = run.peer("n2", "--seconds", "1", "--load", "0.2", "--reserve", "40", "--seed", "9")
    assert result(again)["acks"] == 1
    total = result(others)
    assert (total["corrupt"], total["disordered"]) == (0, 0)
    assert total["sessions"] == 2  # never detached


def test_after_kill_and_restart_nodes_rejoin_and_time_goes_on(run: Run) -> None:
    fabric = run.fabricd(CLUSTER)
    peer = run.peer("n0,n1,n2,n3", "--seconds", "4", "--load", "0.2", "--rejoin")
    run.until(lambda: len(run.attached()) == NODES, peer)
    time.sleep(0.3)
    before_ns = run.status()["clock"]["emulated_ns"]
    end(fabric, signal.SIGKILL)
    run.fabricd(CLUSTER)
    run.until(lambda: len(run.attached()) == NODES, peer)
    assert run.status()["clock"]["emulated_ns"] >= before_ns
    total = result(peer)
    assert total["sessions"] == 2 * NODES
    assert (total["corrupt"], total["disordered"]) == (0, 0)


def test_bookings_beyond_the_link_are_refused_by_name_of_the_router(run: Run) -> None:
    # All four reserve 45 of 100 Mb/s towards their neighbour: fine. One that asks for 95: not.
    run.fabricd(CLUSTER)
    total = result(run.peer("n0,n1,n2,n3", "--seconds", "0.5", "--load", "0", "--reserve", "45"))
    assert (total["acks"], total["nacks"]) == (NODES, 0)
    run.until(lambda: run.booked_bps() == 0)  # they have gone, nothing stays booked
    total = result(run.peer("n0", "--seconds", "0.5", "--load", "0", "--reserve", "95"))
    assert (total["acks"], total["nacks"], total["nack_router"]) == (0, 1, 0)
    assert run.ask(cmd="set", admission="false") == {"ok": True}
    total = result(run.peer("n0", "--seconds", "0.5", "--load", "0", "--reserve", "95"))
    assert (total["acks"], total["nacks"]) == (1, 0)


def test_an_idle_fabric_costs_little(run: Run) -> None:
    fabric = run.fabricd(CLUSTER)

    def cpu_s() -> float:
        fields = Path(f"/proc/{fabric.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    idle = run.start(peer_program(), "--run", run.dir, "--nodes", "n0", "--load", "0",
                     "--seconds", "2")  # fmt: skip
    run.until(lambda: run.attached() == {"n0"}, idle)
    before = cpu_s()
    time.sleep(1.5)
    assert cpu_s() - before < 0.3


def test_wrong_requests_get_an_answer(run: Run) -> None:
    run.fabricd(CLUSTER)
    for request in ({}, {"cmd": "fly"}, {"cmd": "set"}, {"cmd": "set", "admission": 7},
                    {"cmd": {"nested": 1}}):  # fmt: skip
        reply = run.ask(**request)
        assert reply["ok"] is False and reply["error"], request
    assert run.status()["ok"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[network]\nlink_mbps = 0\n", "link_mbps"),
        ("[network]\nnodes = 65\n", "nodes"),
        ("[clock]\nmode = \"fast\"\n", "mode"),
        ("[nowhere]\nx = 1\n", "nowhere"),
        ("[network\n", "test.toml"),
        ("\0\1\2", "test.toml"),
    ],
)
def test_a_wrong_configuration_is_one_line(run: Run, text: str, names: str) -> None:
    path = run.dir / "test.toml"
    path.write_text(text)
    for argv in (["--check", path], ["--run", run.dir, "--config", path]):
        process = run.start(paths.program("fabricd"), *argv)
        _, err = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 2
        assert names in err and err.startswith("fabricd: ") and err.count("\n") == 1


def test_real_mode_ends_beyond_its_hard_limit(run: Run) -> None:
    fabric = run.fabricd(CLUSTER + '[clock]\nmode = "real"\nhard_limit_ms = 3000\n')
    fabric.send_signal(signal.SIGSTOP)
    time.sleep(4)
    fabric.send_signal(signal.SIGCONT)
    _, err = fabric.communicate(timeout=DEADLINE_S)
    assert fabric.returncode == 1
    assert "hard_limit_ms" in err and err.count("\n") == 1


def test_virtual_mode_runs_ahead_of_the_host(run: Run) -> None:
    run.fabricd(CLUSTER + '[clock]\nmode = "virtual"\n')
    total = result(run.peer("n0,n1,n2,n3", "--seconds", "1", "--load", "0.3"))
    assert (total["corrupt"], total["lost"], total["disordered"]) == (0, 0, 0)
    status = run.status()
    assert status["clock"]["emulated_ns"] > status["uptime_s"] * 1e9


@pytest.mark.skipif(os.geteuid() != 0, reason="root only: becomes nobody")
def test_runs_unprivileged() -> None:
    run = Run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"])
    try:
        run.dir.chmod(0o700)
        os.chown(run.dir, 65534, 65534)
        fabric = run.fabricd(CLUSTER)
        assert os.stat(f"/proc/{fabric.pid}").st_uid == 65534
        total = result(run.peer("n0,n1", "--seconds", "1", "--load", "0.2"))
        assert total["received"] > 100 and total["corrupt"] == 0
        assert end(fabric) == (0, "")
    finally:
        run.close()
