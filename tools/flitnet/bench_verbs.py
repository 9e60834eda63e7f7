"""`flitnet bench verbs`: programs over hcads and fabricd beside what the machine does without them.

One run: the software alone (a fabric that passes packets through), `ucx_perftest` over posix shared
memory and TCP loopback, and then the demo's network, whose rate must be honoured.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tools.flitnet import paths
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import FlitnetError
from tools.flitnet.process import free_port

PASS_THROUGH = {"network": {"nodes": 2, "pass_through": True}, "hca": {"mtu": 4096}}
# Small messages meet the cap of the fabric's power before any limit of the programs. An HCA's 200
# best-effort credits are 2.5 ms of the link: emulated time that runs further ahead of a starved
# hcad than that would find the link idle.
NETWORK = {
    "network": {"nodes": 2}, "controls": {"power_control": False}, "clock": {"follow_ms": 1},
}  # fmt: skip
LINK_MBPS, PACKET_BYTES, PAYLOAD_BYTES = 400, 640, 612  # of NETWORK's full packets
BLOCK_BYTES = 65536
# One lane leaves the link a cycle between a tail and the next head (fabric/router/README.md): a
# block is 41 flits (RETH), 106 times 40 and 5, and 108 such cycles.
ONE_LANE_SHARE = BLOCK_BYTES / PAYLOAD_BYTES * 40 / (41 + 106 * 40 + 5 + 108)
IDLE_SECONDS = 3.0

# What is asked of each figure: the limit, and whether more is better.
ASKED = {
    "latency_over_relayed": (3.0, False),
    "write_latency_over_relayed": (3.0, False),
    "slept_latency_us": (40.0, False),
    "list_messages_per_second": (500e3, True),
    "block_rate_of_ucx_shared_memory": (0.40, True),
    "idle_percent_of_a_core": (2.0, False),
    "network_of_payload_share": (0.99, True),  # by two connections; one leaves a cycle a packet
}


def run(quick: bool) -> dict[str, Any]:
    """The figures of one run; what could not be measured is a reason instead."""
    figures: dict[str, Any] = {"cores": len(os.sched_getaffinity(0))}
    with Cluster(PASS_THROUGH) as cluster:
        figures["processes"] = 2 + len(set(cluster.record().processes.values()))  # and programs
        figures |= programs(cluster, quick)
        figures["idle_percent_of_a_core"] = _idle(cluster)
    figures["ucx_shared_memory"] = ucx("posix,self", quick)
    figures["ucx_tcp"] = ucx("tcp,self", quick)
    with Cluster(NETWORK) as cluster:
        figures["network"] = programs(cluster, True)
    share = LINK_MBPS * 1e6 * PAYLOAD_BYTES / PACKET_BYTES
    network = figures["network"]
    network["of_payload_share"] = network["two_lanes_bits_per_emulated_second"] / share
    network["one_lane_of_payload_share"] = network["block_bits_per_emulated_second"] / share
    relayed = figures["relayed_median_ns"]
    figures["latency_over_relayed"] = figures["latency_median_ns"] / relayed
    figures["write_latency_over_relayed"] = figures["write_latency_median_ns"] / relayed
    if "block_bytes_per_second" in figures["ucx_shared_memory"]:
        # UCX's transports allocate what they share; like is compared with like.
        theirs = figures["ucx_shared_memory"]["block_bytes_per_second"]
        figures["block_rate_of_ucx_shared_memory"] = (
            figures["shared_block_bytes_per_second"] / theirs
        )
        figures["plain_block_rate_of_ucx_shared_memory"] = (
            figures["block_bytes_per_second"] / theirs
        )
    figures["asked"] = asked(figures)
    return figures


def asked(figures: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each limit beside what was measured; what could not be measured is missing."""
    measured = dict(figures)
    measured["slept_latency_us"] = figures["slept_latency_median_ns"] / 1e3
    measured["idle_percent_of_a_core"] = sum(figures["idle_percent_of_a_core"].values())
    measured["network_of_payload_share"] = figures["network"]["of_payload_share"]
    table = {}
    for name, (limit, more) in ASKED.items():
        if name not in measured:
            continue
        value = measured[name]
        met = value >= limit if more else value <= limit
        table[name] = {"asked": limit, "more_is_better": more, "measured": value, "met": met}
    return table


def programs(cluster: Cluster, quick: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="flitnet-bench-") as folder:
        report = Path(folder) / "figures.json"
        argv = [str(paths.program("verbs_bench")), "--json", str(report)]
        argv += ["--quick"] if quick else []
        sys.stdout.flush()
        done = subprocess.run(argv, env=cluster.env("n0"), stdout=sys.stderr)
        if done.returncode != 0 or not report.exists():
            raise FlitnetError(f"verbs_bench wrote no figures (exit code {done.returncode})")
        return json.loads(report.read_text())


def _idle(cluster: Cluster) -> dict[str, float]:
    """Of each daemon and of a program that has a device open and waits for events."""
    watcher = cluster.popen("n0", ["ibv_asyncwatch", "-d", "flitnet0"])
    try:
        time.sleep(1.0)
        # Nodes may share the fabric's process, which comes first.
        pids: dict[str, int] = {}
        for role, known in cluster.record().processes.items():
            if known.pid not in pids.values():
                pids[role] = known.pid
        pids["program"] = watcher.pid
        before = {role: _cpu_ns(pid) for role, pid in pids.items()}
        begin = time.monotonic_ns()
        time.sleep(IDLE_SECONDS)
        passed = time.monotonic_ns() - begin
        return {role: 100 * (_cpu_ns(pid) - before[role]) / passed for role, pid in pids.items()}
    finally:
        watcher.kill()
        watcher.wait()


def _cpu_ns(pid: int) -> int:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def ucx(transports: str, quick: bool) -> dict[str, Any]:
    if shutil.which("ucx_perftest") is None:
        return {"skipped": "ucx_perftest is not installed (Debian package ucx-utils)"}
    lots = 5_000 if quick else 20_000
    try:
        rate = _ucx_final(transports, ["-t", "ucp_put_bw", "-s", str(BLOCK_BYTES), "-n", str(lots)])
        latency = _ucx_final(transports, ["-t", "tag_lat", "-s", "64", "-n", str(lots)])
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return {"skipped": f"ucx_perftest: {error}"}
    return {
        "block_bytes_per_second": rate[4] * 1024 * 1024,
        "latency_median_ns": latency[1] * 1e3,
        "latency_mean_ns": latency[3] * 1e3,
    }


def _ucx_final(transports: str, argv: list[str]) -> list[float]:
    """The columns of its last line: iterations, median, average and overall latency, MB/s ..."""
    env = dict(os.environ) | {"UCX_TLS": transports, "UCX_NET_DEVICES": "lo"}
    program = ["ucx_perftest", "-p", str(free_port())]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([*program, *argv], env=env, **quiet)
    try:
        for _ in range(50):
            client = subprocess.run(
                [*program, "127.0.0.1", *argv], env=env, capture_output=True, text=True, timeout=120
            )
            if "Final:" in client.stdout:
                break
            time.sleep(0.1)
        line = next(line for line in client.stdout.splitlines() if line.startswith("Final:"))
        return [float(word) for word in line.removeprefix("Final:").split()]
    except StopIteration:
        raise ValueError((client.stderr or client.stdout).strip()[-200:]) from None
    finally:
        server.kill()
        server.wait()


def text(figures: dict[str, Any]) -> str:
    """What the single runs did not print themselves."""
    lines = []
    for name in ("ucx_shared_memory", "ucx_tcp"):
        ucx = figures[name]
        if "skipped" in ucx:
            lines.append(f"{name}: skipped: {ucx['skipped']}")
        else:
            lines.append(
                f"{name}: {ucx['block_bytes_per_second'] / 1e6:.1f} MB/s of {BLOCK_BYTES} bytes, "
                f"64 bytes in {ucx['latency_median_ns'] / 1e3:.2f} us"
            )
    idle = ", ".join(f"{k} {v:.2f} %" for k, v in figures["idle_percent_of_a_core"].items())
    lines.append(f"idle, of a core: {idle}")
    lines.append(
        f"asleep: {figures['slept_latency_median_ns'] / 1e3:.1f} us; four wake-ups of bare "
        f"processes in a row take {figures['wakeups_median_ns'] / 1e3:.1f} us here"
    )
    lines.append(
        f"awake: {figures['latency_median_ns'] / 1e3:.2f} us; a word through five bare "
        f"processes takes {figures['chain_median_ns'] / 1e3:.2f} us here, "
        f"{figures['chain_median_ns'] / figures['relayed_median_ns']:.1f} times what it takes "
        "through three"
    )
    if "block_bytes_per_second" in figures["ucx_shared_memory"]:
        copied = figures["memcpy_bytes_per_second"]
        ucx_rate = figures["ucx_shared_memory"]["block_bytes_per_second"]
        lines.append(
            f"blocks: {figures['shared_block_bytes_per_second'] / 1e6:.0f} MB/s, copied once "
            f"where nodes are one process; memcpy of large blocks copies {copied / 1e6:.0f} MB/s "
            f"here, {copied / ucx_rate:.2f} of what UCX reaches in its caches"
        )
    network = figures["network"]
    lines.append(
        f"at {LINK_MBPS} Mb/s: {network['of_payload_share']:.2%} of the payload's share of the "
        f"link; by one connection {network['one_lane_of_payload_share']:.2%}, "
        f"of {ONE_LANE_SHARE:.2%} that one lane carries"
    )
    where = f"{figures['processes']} processes on {figures['cores']} cores"
    lines.append(f"asked and measured, {where}:")
    for name, row in figures["asked"].items():
        sign = ">=" if row["more_is_better"] else "<="
        verdict = "met" if row["met"] else "NOT MET"
        lines.append(f"  {name:34} {sign} {row['asked']:<9g} {row['measured']:11.4g}   {verdict}")
    return "\n".join(lines)
