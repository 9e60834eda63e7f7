"""`flitnet soak live`: unmodified verbs programs on clusters of random designs, controls and sizes.

Each round draws a cluster from its seed, starts it, and lets random programs (soak_programs.py) run
between random nodes, several at once, while controls change, links go and come back, traffic is
offered beside them, other programs are killed, other nodes die and return, or the fabric itself
does. A fabric loses nothing, and what a dead one takes with it RC sends again, so every program has
to succeed; behind the last a node holds nothing of it. The first that does not ends the soak with
the cluster file, what it said and the seed.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import select
import signal
import subprocess
import time
from typing import Any

from tools.flitnet import build, controls, ctl, fabric, nodes, operate, paths
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import EXIT_USAGE, FlitnetError, UsageError
from tools.flitnet.process import listens
from tools.flitnet.soak_clusters import SCHEMES, short
from tools.flitnet.soak_clusters import draw as draw_cluster
from tools.flitnet.soak_programs import Pair
from tools.flitnet.soak_programs import draw as draw_pair

TIMEOUT_S = 180.0  # of a program: machines are shared, and a design may be slow
LISTEN_S = 60.0
AT_ONCE = (1, 4)  # pairs of programs


def live(seconds: float, seed: int, prints: bool = False) -> str:
    """Rounds until the time is over, one at least; what was done, or FlitnetError."""
    build.ready((*build.RUNTIME, "shared_blocks"))
    end = time.monotonic() + seconds
    rounds = programs = 0
    while rounds == 0 or time.monotonic() < end:
        programs += play(seed, prints)
        rounds, seed = rounds + 1, seed + 1
    return f"{rounds} clusters, {programs} pairs of programs: all succeeded"


def play(seed: int, prints: bool) -> int:
    """One cluster; returns how many pairs ran."""
    rng = random.Random(seed)
    tables = draw_cluster(rng)
    if prints:
        print(f"seed {seed}: {short(tables)}", flush=True)
    cluster = Cluster(tables)
    try:
        with cluster:
            pairs = [draw_pair(rng, cluster, tables) for _ in range(rng.randint(*AT_ONCE))]
            if rng.random() < 0.3:
                pairs.append(draw_pair(rng, cluster, tables))
                pairs[-1].victim = True
            _run(rng, cluster, pairs)
            _rests(cluster)
    except (FlitnetError, subprocess.SubprocessError) as failure:
        again = f"./flitnet soak live --minutes 0.01 --seed {seed}"
        raise FlitnetError(f"{failure}\n{cluster.file.text}\nagain: {again}") from None
    return sum(not pair.victim for pair in pairs)


# A round.


def _run(rng: random.Random, cluster: Cluster, pairs: list[Pair]) -> None:
    meanwhile: list[str] = []
    try:
        for pair in pairs:  # all of them first: a node counts its listeners, whose they are
            if any(pair.server == other.server for other in pairs[: pairs.index(pair)]):
                continue  # its port is taken
            _listen(cluster, pair)
        for pair in pairs:
            if pair.running:
                at = f"{pair.beside},{pair.nodes[1]}" if pair.beside else pair.nodes[1]
                pair.running.append(cluster.popen(at, pair.client, env=pair.env))
        for _ in range(rng.randint(0, 3)):
            meanwhile.append(_disturb(rng, cluster, pairs))
        for pair in pairs:
            if pair.victim:
                _kill(pair)
                meanwhile.append(f"killed {' '.join(pair.server)}")
            elif pair.running:
                _succeeded(pair, any(what.startswith("fabric ") for what in meanwhile))
    except FlitnetError as failure:
        raise FlitnetError(f"{failure}\nmeanwhile: {', then '.join(meanwhile)}") from None
    finally:
        for pair in pairs:
            _kill(pair)


def _kill(pair: Pair) -> None:
    for program in pair.running:
        program.kill()
        program.wait()
        program.stdout.close()


def _listen(cluster: Cluster, pair: Pair) -> None:
    to = pair.nodes[0]
    before = int(cluster.node_status(to)["cm_listeners"])
    server = cluster.popen(to, pair.server, env=pair.env)
    pair.running.append(server)
    said = ""

    def ready() -> bool:
        nonlocal said
        if pair.ready is not None:
            said += _heard(server)
            return pair.ready in said
        if pair.port is not None:
            return listens(pair.port) or listens(pair.port, "udp")
        return int(cluster.node_status(to)["cm_listeners"]) > before

    deadline = time.monotonic() + LISTEN_S
    while not ready():
        if server.poll() is not None or time.monotonic() > deadline:
            server.kill()
            said += server.communicate()[0]
            raise FlitnetError(f"{' '.join(pair.server)} does not listen: {said}")
        time.sleep(0.01)


def _heard(program: subprocess.Popen[str]) -> str:
    """What it has said since; the rest is for communicate()."""
    assert program.stdout is not None
    if not select.select([program.stdout], [], [], 0)[0]:
        return ""
    return os.read(program.stdout.fileno(), 4096).decode()


def _disturb(rng: random.Random, cluster: Cluster, pairs: list[Pair]) -> str:
    """Something happens beside the programs. What this cluster refuses is no fault. Returns what
    was done."""
    time.sleep(rng.random() * 0.2)
    what = rng.choice(
        (_set, _set, _pull, _pull, _offer, _replay, _replay, _capture, _kill_node, _kill_fabric)
    )
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return what(rng, cluster, pairs)
    except UsageError as refused:
        return f"refused: {refused}"


def _set(rng: random.Random, cluster: Cluster, _: list[Pair]) -> str:
    key = rng.choice(sorted(controls.OF_THE_FABRIC))
    word = rng.choice(SCHEMES if key == "congestion" else ("true", "false"))
    operate.set_control(cluster.run, key, word)
    return f"set {key} {word}"


def _pull(rng: random.Random, cluster: Cluster, _: list[Pair]) -> str:
    """A link between routers goes and comes back."""
    links = ctl.ask(cluster.run / "fabricd.ctl", {"cmd": "links"})["links"]
    between = [link["link"] for link in links if ":" in link["link"]]
    if not between:
        return "nothing"
    link = rng.choice(between)
    operate.set_link(cluster.run, link, "down")
    time.sleep(rng.random() * 0.2)
    operate.set_link(cluster.run, link, "up")
    return f"link {link} down and up"


def _offer(rng: random.Random, cluster: Cluster, _: list[Pair]) -> str:
    kind = rng.choice(("best-effort", "control", "on-off"))
    argv = ["load", kind, "--rate", rng.choice(("1M", "10M")), "--seconds", "0.2"]
    return _flitnet(cluster, argv)


def _replay(rng: random.Random, cluster: Cluster, _: list[Pair]) -> str:
    """Frames of a film arrive whole, if admission lets them in."""
    come, to = rng.sample(cluster.nodes, 2)
    clip = rng.choice(sorted((paths.ROOT / "traces").glob("*.trace")))
    argv = ["replay", str(clip), "--from", come, "--to", to, "--seconds", "0.3"]
    return _flitnet(cluster, [*argv, "--copies", rng.choice("124")], may_say=" refused by ")


def _capture(rng: random.Random, cluster: Cluster, _: list[Pair]) -> str:
    """Whoever looks on disturbs nobody."""
    count = rng.choice(("1", "1000"))
    argv = ["timeout", "-s", "INT", "1", str(paths.ROOT / "flitnet"), "--run", str(cluster.run),
            "capture", "-w", "-", "--count", count]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, timeout=TIMEOUT_S)
    if done.returncode not in (0, 124):
        raise FlitnetError(f"capture ended with {done.returncode}: {done.stderr.decode()}")
    return f"capture of {count}: {len(done.stdout)} bytes"


def _flitnet(cluster: Cluster, argv: list[str], may_say: str | None = None) -> str:
    done = subprocess.run(
        [str(paths.ROOT / "flitnet"), "--run", str(cluster.run), *argv],
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    fine = done.returncode in (0, EXIT_USAGE) or may_say is not None and may_say in done.stderr
    if not fine:
        raise FlitnetError(f"flitnet {' '.join(argv)}: {done.stdout}{done.stderr}")
    return " ".join(argv)


def _kill_node(rng: random.Random, cluster: Cluster, pairs: list[Pair]) -> str:
    """One that no program depends on dies and comes back."""
    needed = {node for pair in pairs if not pair.victim for node in (*pair.nodes, pair.beside)}
    spare = [node for node in cluster.nodes if node not in needed]
    if not spare:
        return "nothing"
    node = rng.choice(spare)
    end = rng.choice((nodes.kill, nodes.stop))
    end(cluster.run, node)
    time.sleep(rng.random() * 0.2)
    nodes.start(cluster.run, node)
    return f"node {node} {end.__name__} and start"


def _kill_fabric(rng: random.Random, cluster: Cluster, pairs: list[Pair]) -> str:
    if cluster.together or not all(pair.victim or pair.survives_losses for pair in pairs):
        return "nothing"
    end = rng.choice((fabric.kill, fabric.stop))
    end(cluster.run)
    time.sleep(rng.random() * 0.2)
    fabric.start(cluster.run)
    return f"fabric {end.__name__} and start"


def _succeeded(pair: Pair, fabric_died: bool) -> None:
    """One may fail if the fabric did: an acknowledgement dies with it, and whoever sent that has
    ended by then and sends no other."""
    story = []
    failed = 0
    may_fail = 0
    for which in (1, 0):  # the client first: some servers serve on
        program = pair.running[which]
        serves_on = pair.serves_on and which == 0
        if serves_on:
            program.terminate()
        try:
            said, _ = program.communicate(timeout=TIMEOUT_S)
            ended = f"exit code {program.returncode}"
        except subprocess.TimeoutExpired:
            program.kill()
            said, _ = program.communicate()
            ended = f"still running after {TIMEOUT_S:g} s"
        fine = (0, -signal.SIGTERM) if serves_on else (0,)
        if "flitnet:" in said or program.returncode not in fine:
            failed += 1
            may_fail += fabric_died and "transport retry counter exceeded" in said
        argv = " ".join((pair.server, pair.client)[which])
        story.append(f"{pair.nodes[which]}: {argv}: {ended}; it said:\n{said}")
    if pair.copied is not None and not failed:
        source, target = (file.read_bytes() if file.exists() else None for file in pair.copied)
        if source != target:
            failed += 1
            story.append(f"{pair.copied[1]} is not what {pair.copied[0]} is\n")
    if failed and (failed, may_fail) != (1, 1):
        raise FlitnetError("a pair of programs failed\n" + "".join(story))


def _rests(cluster: Cluster) -> None:
    """Behind the last program nothing is under way or held, and no daemon complained of another."""
    if dead := cluster.dead():
        raise FlitnetError(f"{', '.join(dead)} died; {cluster.last_words()}")
    deadline = time.monotonic() + 30.0
    while (status := cluster.status())["in_flight"] and time.monotonic() < deadline:
        time.sleep(0.02)
    if status["in_flight"]:
        raise FlitnetError(f"{status['in_flight']} packets stay in the fabric")
    for node in cluster.nodes:
        while held := _held(cluster, node):
            if time.monotonic() > deadline:
                raise FlitnetError(f"{node} holds behind its last program: {held}")
            time.sleep(0.02)
    for node in status["nodes"]:
        if node["violations"]:
            raise FlitnetError(f"{node['name']}: {node['violations']} violations of the attachment")
    for role in cluster.record().processes:
        for line in cluster.lines(role):
            if " error: " in line:
                raise FlitnetError(f"{role} said: {line}")


def _held(cluster: Cluster, node: str) -> str:
    """What a node has of programs; empty: nothing."""
    status = cluster.node_status(node)
    counts = {key: status[key] for key in ("clients", "cm_ids", "reserved_bps")} | status["objects"]
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)
