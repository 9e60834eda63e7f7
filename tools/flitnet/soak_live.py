"""`flitnet soak live`: unmodified verbs programs on clusters of random designs, controls and sizes.

Each round draws a cluster from its seed, starts it, and lets random programs of ibverbs-utils,
perftest and rdmacm-utils run between random nodes, several at once, while controls change and links
go and come back. A fabric loses nothing, so every program has to succeed. The first that does not
ends the soak with the cluster file, what it said and the seed.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tools.flitnet import build, config, controls, ctl, operate
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import FlitnetError, UsageError
from tools.flitnet.process import free_port, listens

TIMEOUT_S = 180.0  # of a program: machines are shared, and a design may be slow
LISTEN_S = 60.0
AT_ONCE = (1, 4)  # pairs of programs
SCHEMES = ("credit", "alo", "self_tuned", "none", "vct1", "vct2", "ibcc", "dcqcn")
# Packets of a message may overtake each other: UC, which sends nothing again, loses such messages.
OVERTAKING = ("up_by_load", "adaptive", "recovery")
SCHEDULERS = ("vclk", "fgvc", "fcfs", "rr", "wrr", "two_level", "vclk_hol", "fq", "fgfq")


@dataclass
class Pair:
    """A program that waits on one node and the one on another that goes to it."""

    server: list[str]
    client: list[str]
    nodes: tuple[str, str]
    port: int | None  # of TCP, where the server listens; None: it listens by rdma_cm
    running: list[subprocess.Popen[str]] = field(default_factory=list)


def live(seconds: float, seed: int, prints: bool = False) -> str:
    """Rounds until the time is over, one at least; what was done, or FlitnetError."""
    build.ready()
    end = time.monotonic() + seconds
    rounds = programs = 0
    while rounds == 0 or time.monotonic() < end:
        programs += play(seed, prints)
        rounds, seed = rounds + 1, seed + 1
    return f"{rounds} clusters, {programs} pairs of programs: all succeeded"


def play(seed: int, prints: bool) -> int:
    """One cluster; returns how many pairs ran."""
    rng = random.Random(seed)
    tables = draw(rng)
    if prints:
        print(f"seed {seed}: {_short(tables)}", flush=True)
    cluster = Cluster(tables)
    try:
        with cluster:
            pairs = [_pair(rng, cluster, tables) for _ in range(rng.randint(*AT_ONCE))]
            _run(rng, cluster, pairs)
            _rests(cluster)
    except (FlitnetError, subprocess.SubprocessError) as failure:
        again = f"./flitnet soak live --minutes 0.01 --seed {seed}"
        raise FlitnetError(f"{failure}\n{cluster.file.text}\nagain: {again}") from None
    return len(pairs)


def draw(rng: random.Random) -> dict[str, Any]:
    """Tables of a cluster file that can be built; what cannot is drawn anew."""
    while True:
        tables = _draw(rng)
        try:
            config.check(config.parse(config.to_toml(tables)))
            return tables
        except UsageError:
            continue


def _draw(rng: random.Random) -> dict[str, Any]:
    def maybe(table: dict[str, Any], key: str, values: tuple[Any, ...], share: float) -> None:
        if rng.random() < share:
            table[key] = rng.choice(values)

    network: dict[str, Any] = {
        "topology": rng.choice(
            ("single:2", "single:4", "single:6", "mesh:2x2", "mesh:3x2", "torus:3x2", "torus:4",
             "fat_mesh:2x2", "tree:2x2", "tree:3x2")),
        "router": rng.choice(("np", "np", "tr", "p", "pcs", "vct", "cell")),
    }  # fmt: skip
    maybe(network, "routing", ("dor", "up_down", "up_by_load", "adaptive", "recovery"), 0.4)
    maybe(network, "crossbar", ("full",), 0.25)
    maybe(network, "engine", ("general",), 0.2)
    maybe(network, "flow_control", ("link",), 0.1)
    maybe(network, "link_mbps", (100, 1600, 10_000), 0.4)
    maybe(network, "flit_bits", (32, 64, 256), 0.2)
    maybe(network, "vc_buf_size", (4, 20, 40, 100, 127), 0.5)
    maybe(network, "num_vcs", (4, 8), 0.2)
    maybe(network, "alloc_iters", (1, 4), 0.2)
    maybe(network, "packet_size", (20, 64, 128), 0.3)
    maybe(network, "link_delay", (2, 8), 0.2)
    maybe(network, "threads", (2,), 0.1)
    maybe(network, "pass_through", (True,), 0.1)
    if network["router"] == "vct":
        network["vc_buf_size"] = max(network.get("vc_buf_size", 0), network.get("packet_size", 40))
    qos: dict[str, Any] = {"scheduler": rng.choice(SCHEDULERS)}
    maybe(qos, "hca_scheduler", SCHEDULERS, 0.2)
    maybe(qos, "block_flits", (5, 10), 0.2)
    maybe(qos, "strict_classes", (True,), 0.1)
    maybe(qos, "counters", ("wide", "overflow"), 0.2)
    chosen: dict[str, Any] = {"congestion": rng.choice(SCHEMES)}
    maybe(chosen, "power_control", (False,), 0.4)
    maybe(chosen, "peak_power", ("powerherd", "none"), 0.2)
    maybe(chosen, "completion_queues", ("separate", "quad"), 0.3)
    maybe(chosen, "best_effort_credits", (3, 20), 0.3)
    maybe(chosen, "notice", ("message",), 0.2)
    maybe(chosen, "admission", (False,), 0.2)
    hca: dict[str, Any] = {"process": rng.choice(("own", "own", "fabric"))}
    maybe(hca, "mtu", (256, 1024, 4096), 0.4)
    maybe(hca, "link_layer", ("roce_v2",), 0.25)
    return {"network": network, "qos": qos, "controls": chosen, "hca": hca}


def _short(tables: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for table in tables.values() for key, value in table.items())


# Programs.


def _pair(rng: random.Random, cluster: Cluster, tables: dict[str, Any]) -> Pair:
    to, come = rng.sample(cluster.nodes, 2)
    roce = tables["hca"].get("link_layer") == "roce_v2"
    kind: Callable[..., Pair] = rng.choice((_pingpong, _pingpong, _perftest, _perftest, _by_cm))
    pair = kind(rng, cluster, (to, come), "1" if roce else "0")
    overtakes = tables["network"].get("routing") in OVERTAKING
    return _pair(rng, cluster, tables) if overtakes and _is_uc(pair) else pair


def _is_uc(pair: Pair) -> bool:
    return pair.server[0] == "ibv_uc_pingpong" or "UC" in pair.server


def _pingpong(rng: random.Random, _: Cluster, nodes: tuple[str, str], gid: str) -> Pair:
    name = rng.choice(("rc", "uc", "ud", "srq", "xsrq"))
    size = rng.choice((1, 64, 200)) if name == "ud" else rng.choice((1, 64, 4096, 40_000))
    port = free_port()
    argv = [f"ibv_{name}_pingpong", "-g", gid, "-p", str(port), "-s", str(size),
            "-n", str(rng.choice((10, 100)))]  # fmt: skip
    argv += [] if name == "xsrq" else ["-c"]
    argv += [] if name == "ud" else ["-m", "256"]  # no port of any draw has less
    argv += rng.choice(([], ["-e"]))
    return Pair(argv, [*argv, "127.0.0.1"], nodes, port)


def _perftest(rng: random.Random, _: Cluster, nodes: tuple[str, str], gid: str) -> Pair:
    verb = rng.choice(("send", "write", "read", "atomic"))
    how = rng.choice(("lat", "bw"))
    port = free_port()
    argv = [f"ib_{verb}_{how}", "-F", "-x", gid, "-p", str(port), "-n", str(rng.choice((20, 200)))]
    if verb != "atomic":
        argv += ["-s", str(rng.choice((2, 64, 3000, 65_536)))]
    if how == "bw" and rng.random() < 0.4:
        argv += ["-q", str(rng.choice((2, 5)))]
    if verb == "write" and rng.random() < 0.3:
        argv += ["-c", "UC"]
    if how == "lat" and verb == "send" and rng.random() < 0.3:
        argv += ["-e"]
    return Pair(argv, [*argv, "127.0.0.1"], nodes, port)


def _by_cm(rng: random.Random, cluster: Cluster, nodes: tuple[str, str], _: str) -> Pair:
    address = str(cluster.node_status(nodes[0])["address"])
    port = str(free_port())
    count = str(rng.choice((1, 10)))
    name = rng.choice(("rping", "ucmatose", "udaddy", "rdma", "rstream"))
    server, client = {
        "rping": (["rping", "-s", "-a", address, "-p", port, "-C", count],
                  ["rping", "-c", "-a", address, "-p", port, "-C", count]),
        "ucmatose": (["ucmatose", "-b", address, "-p", port, "-c", count],
                     ["ucmatose", "-s", address, "-p", port, "-c", count]),
        "udaddy": (["udaddy", "-b", address], ["udaddy", "-s", address]),  # of one port alone
        "rdma": (["rdma_server", "-p", port], ["rdma_client", "-s", address, "-p", port]),
        "rstream": (["rstream", "-b", address, "-p", port, "-C", "50", "-S", "2000"],
                    ["rstream", "-s", address, "-p", port, "-C", "50", "-S", "2000"]),
    }[name]  # fmt: skip
    return Pair(server, client, nodes, None)


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
                pair.running.append(cluster.popen(pair.nodes[1], pair.client))
        for _ in range(rng.randint(0, 3)):
            meanwhile.append(_disturb(rng, cluster))
        for pair in pairs:
            if pair.running:
                _succeeded(pair)
    except FlitnetError as failure:
        raise FlitnetError(f"{failure}\nmeanwhile: {', then '.join(meanwhile)}") from None
    finally:
        for pair in pairs:
            for program in pair.running:
                program.kill()
                program.wait()
                program.stdout.close()


def _listen(cluster: Cluster, pair: Pair) -> None:
    to = pair.nodes[0]
    before = int(cluster.node_status(to)["cm_listeners"])
    server = cluster.popen(to, pair.server)
    pair.running.append(server)
    deadline = time.monotonic() + LISTEN_S
    while not (
        int(cluster.node_status(to)["cm_listeners"]) > before
        if pair.port is None
        else listens(pair.port)
    ):
        if server.poll() is not None or time.monotonic() > deadline:
            server.kill()
            said = server.communicate()[0]
            raise FlitnetError(f"{' '.join(pair.server)} does not listen: {said}")
        time.sleep(0.01)


def _disturb(rng: random.Random, cluster: Cluster) -> str:
    """A control is set, or a link between routers goes and comes back. What this cluster refuses is
    no fault. Returns what was done."""
    time.sleep(rng.random() * 0.2)
    if rng.random() < 0.5:
        key = rng.choice(sorted(controls.OF_THE_FABRIC))
        word = rng.choice(SCHEMES if key == "congestion" else ("true", "false"))
        try:
            operate.set_control(cluster.run, key, word)
        except UsageError:
            return f"set {key} {word} was refused"
        return f"set {key} {word}"
    links = ctl.ask(cluster.run / "fabricd.ctl", {"cmd": "links"})["links"]
    between = [link["link"] for link in links if ":" in link["link"]]
    if not between:
        return "nothing"
    link = rng.choice(between)
    try:
        operate.set_link(cluster.run, link, "down")
    except UsageError:
        return f"link {link} down was refused"
    time.sleep(rng.random() * 0.2)
    operate.set_link(cluster.run, link, "up")
    return f"link {link} down and up"


def _succeeded(pair: Pair) -> None:
    story = []
    failed = False
    for node, program in zip(pair.nodes, pair.running, strict=True):
        try:
            said, _ = program.communicate(timeout=TIMEOUT_S)
            ended = f"exit code {program.returncode}"
        except subprocess.TimeoutExpired:
            program.kill()
            said, _ = program.communicate()
            ended = f"still running after {TIMEOUT_S:g} s"
        failed |= ended != "exit code 0" or "flitnet:" in said
        story.append(f"{node}: {' '.join(program.args)}: {ended}; it said:\n{said}")
    if failed:
        raise FlitnetError("a pair of programs failed\n" + "".join(story))


def _rests(cluster: Cluster) -> None:
    """Nothing is under way behind the last program, and no daemon complained of another."""
    if dead := cluster.dead():
        raise FlitnetError(f"{', '.join(dead)} died; {cluster.last_words()}")
    deadline = time.monotonic() + 30.0
    while (status := cluster.status())["in_flight"] and time.monotonic() < deadline:
        time.sleep(0.02)
    if status["in_flight"]:
        raise FlitnetError(f"{status['in_flight']} packets stay in the fabric")
    for node in status["nodes"]:
        if node["violations"]:
            raise FlitnetError(f"{node['name']}: {node['violations']} violations of the attachment")
    for role in cluster.record().processes:
        for line in cluster.lines(role):
            if " error: " in line:
                raise FlitnetError(f"{role} said: {line}")
