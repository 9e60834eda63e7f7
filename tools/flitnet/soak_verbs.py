"""`flitnet soak verbs|hostile|kill`: programs that call anything, break everything, die anywhere.

Each runs a cluster of its own for as long as asked and ends with an error at the first thing that
must not be: a call that the model forbids, a neighbour's byte changed, an hcad that is another one
or holds what nobody owns.
"""

from __future__ import annotations

import random
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.flitnet import build, ctl, paths
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import FlitnetError
from tools.flitnet.process import free_port
from tools.flitnet.progress import Tell, silent

TABLES: dict[str, Any] = {
    "network": {"nodes": 2, "pass_through": True}, "hca": {"process": "own"},
}  # fmt: skip
TARGETS = ("verbs_soak", "scribbler")
PROGRAMS_PER_NODE = 2
# What hcad keeps for the next program: growth that stops. Rings of one program are far more.
MEMORY_SLACK_KB = 4096
# A kernel may give an hcad no core for many seconds where another session keeps all of them busy
# with programs that wake each other (seen with Linux 6.18 and autogroups: 12 s).
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Footprint:
    """What an hcad holds: objects and programs by its count, descriptors and memory by /proc."""

    objects: dict[str, int]
    clients: int
    descriptors: int
    memory_kb: int
    mappings: int


def footprint(cluster: Cluster, node: str) -> Footprint:
    proc = Path(f"/proc/{cluster.process(f'hcad:{node}').pid}")
    # The question is counted, too: it stays until all is, or a busy hcad, slow to hang up, would
    # seem to hold a descriptor more at one look than at another.
    socket = cluster.node_dir(node) / "hcad.ctl"
    with ctl.asking(socket, {"cmd": "status"}, PATIENCE_S) as status:
        descriptors = len(list((proc / "fd").iterdir()))
        rss = next(line for line in (proc / "status").read_text().splitlines() if "VmRSS" in line)
        mappings = len((proc / "maps").read_text().splitlines())
    return Footprint(
        objects=status["objects"], clients=status["clients"],
        descriptors=descriptors, memory_kb=int(rss.split()[1]), mappings=mappings,
    )  # fmt: skip


def ready() -> None:
    build.ready((*build.RUNTIME, *TARGETS))


def _ended(process: subprocess.Popen[str], timeout_s: float) -> str:
    try:
        said, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise FlitnetError(f"{process.args!r} does not end") from None
    return said


def _same_hcads(cluster: Cluster, pids: dict[str, int]) -> None:
    for node, pid in pids.items():
        alive = cluster.alive(f"hcad:{node}")
        if not alive or cluster.node_status(node, PATIENCE_S)["pid"] != pid:
            raise FlitnetError(f"hcad of {node} did not live through it")


def _pids(cluster: Cluster) -> dict[str, int]:
    return {node: cluster.process(f"hcad:{node}").pid for node in cluster.nodes}


def verbs(seconds: float, seed: int, tell: Tell = silent) -> str:
    """Random call sequences of several programs against the model of the object rules."""
    ready()
    calls = completions = 0
    end = time.monotonic() + seconds
    with Cluster(TABLES) as cluster:
        pids = _pids(cluster)
        while (left := end - time.monotonic()) > 0:
            tell(round(seconds - left), round(seconds))
            lasts = max(0.5, min(20.0, left))
            argv = [str(paths.program("verbs_soak")), "", f"{lasts:.1f}"]
            running = []
            for node in cluster.nodes:
                for _ in range(PROGRAMS_PER_NODE):
                    running.append(cluster.popen(node, [argv[0], str(seed), argv[2]]))
                    seed += 1
            for process in running:
                said = _ended(process, lasts + 120)
                if process.returncode != 0:
                    raise FlitnetError(said.strip() or f"exit code {process.returncode}")
                words = said.split()
                calls += int(words[words.index("calls,") - 1])
                completions += int(words[words.index("completions") - 1])
            _same_hcads(cluster, pids)
        _nothing_left(cluster)
    return f"{calls} calls as the model has them, {completions} completions, last seed {seed - 1}"


def _nothing_left(cluster: Cluster) -> None:
    for node in cluster.nodes:
        now = _settled(cluster, node)
        if now.clients != 0 or any(now.objects.values()):
            raise FlitnetError(f"hcad of {node} holds what nobody owns: {now}")


def _settled(cluster: Cluster, node: str, descriptors: int = 0) -> Footprint:
    """After the last program hcad may need a moment to see that it has gone. Returns what it holds
    when there is no program and no more than so many descriptors, or the least that was seen in a
    while."""
    looks = []
    for _ in range(200 if descriptors else 20):
        looks.append(footprint(cluster, node))
        if looks[-1].clients == 0 and looks[-1].descriptors <= descriptors:
            break
        time.sleep(0.02)
    return min(looks, key=lambda look: (look.clients, look.descriptors))


def _checked_pair(cluster: Cluster) -> None:
    """Neighbours exchange data and check each byte, one of them on the hostile program's node."""
    argv = ["ibv_rc_pingpong", "-c", "-n", "200", "-s", "4096", "-p", str(free_port())]
    server = cluster.popen("n0", argv)
    for _ in range(100):
        client = cluster.exec("n1", [*argv, "127.0.0.1"], timeout=120)
        if "Couldn't connect" not in client.stderr:
            break
        time.sleep(0.05)
    said = _ended(server, 120)
    if client.returncode != 0 or server.returncode != 0:
        raise FlitnetError(f"neighbours: {client.stdout}{client.stderr}{said}")


def hostile(seconds: float, seed: int, tell: Tell = silent) -> str:
    """Programs write over every byte of their rings while neighbours exchange checked data."""
    ready()
    rounds = pairs = 0
    end = time.monotonic() + seconds
    with Cluster(TABLES) as cluster:
        pids = _pids(cluster)
        _checked_pair(cluster)
        before = footprint(cluster, "n0")
        while (left := end - time.monotonic()) > 0:
            tell(round(seconds - left), round(seconds))
            argv = [str(paths.program("scribbler")), "", "8"]
            running = [cluster.popen("n0", [argv[0], str(seed + i), argv[2]]) for i in range(2)]
            seed += 2
            while any(process.poll() is None for process in running):
                _checked_pair(cluster)
                pairs += 1
            rounds += len(running)
            for process in running:
                _ended(process, 60)
            _same_hcads(cluster, pids)
        _nothing_left(cluster)
        after = _settled(cluster, "n0", before.descriptors)
    _compare(before, after)
    return (
        f"{rounds} hostile programs of 8 rounds, {pairs} checked exchanges beside them, none "
        f"disturbed; hcad before {before.memory_kb} kB, after {after.memory_kb} kB"
    )


def _compare(before: Footprint, after: Footprint) -> None:
    if after.descriptors > before.descriptors or after.mappings > before.mappings + 4:
        raise FlitnetError(f"hcad leaks: {before}, then {after}")
    if after.memory_kb > before.memory_kb + MEMORY_SLACK_KB:
        raise FlitnetError(f"hcad's memory grows: {before}, then {after}")


def kill(count: int, seed: int, tell: Tell = silent) -> str:
    """Programs are killed at random points of random calls; then hcad's belongings are counted."""
    ready()
    chooser = random.Random(seed)
    program = str(paths.program("verbs_soak"))
    with Cluster(TABLES) as cluster:
        pids = _pids(cluster)
        env = {node: cluster.env(node) for node in cluster.nodes}
        warm = min(20, count)
        before = None
        for done in range(count):
            if done == warm:
                before = _settled(cluster, "n0")
            # argv 1 is the seed; the first milliseconds are the program's own start.
            victim = subprocess.Popen(
                [program, str(seed * 1_000_003 + done), "30"], env=env[f"n{done % 2}"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            time.sleep(chooser.uniform(0.002, 0.040))
            victim.kill()
            victim.wait()
            tell(done + 1, count)
            if done % 500 == 499:
                _same_hcads(cluster, pids)
        _same_hcads(cluster, pids)
        _nothing_left(cluster)
        after = _settled(cluster, "n0", before.descriptors if before else 0)
        _checked_pair(cluster)
    if before is not None:
        _compare(before, after)
    return (
        f"{count} programs killed; hcad of n0 then holds no object, {after.descriptors} "
        f"descriptors, {after.mappings} mappings, {after.memory_kb} kB"
        + (f" (after {warm}: {before.descriptors}, {before.mappings}, {before.memory_kb} kB)"
           if before else "")
    )  # fmt: skip

