"""What `flitnet soak live` runs: pairs of programs of ibverbs-utils, perftest and rdmacm-utils, and
of UCX, libfabric, qperf and TCP above verbs, and one of ours, with random options, none of which a
cluster of any design may fail."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.flitnet import paths
from tools.flitnet.cluster import Cluster
from tools.flitnet.process import free_port

# Packets of a message may overtake each other: UC, which sends nothing again, loses such messages.
OVERTAKING = ("up_by_load", "adaptive", "recovery")  # routings, and router pcs


@dataclass
class Pair:
    """A program that waits on one node and the one on another that goes to it."""

    server: list[str]
    client: list[str]
    nodes: tuple[str, str]
    port: int | None  # of TCP or UDP, where the server listens; None: it listens by rdma_cm
    ready: str | None = None  # or what the server says when it is
    beside: str | None = None  # the client is at this node too, with a device of its own
    env: dict[str, str] = field(default_factory=dict)
    serves_on: bool = False  # the server ends with nobody
    survives_losses: bool = True  # what a dying fabric takes with it is sent again
    copied: tuple[Path, Path] | None = None  # files that are equal behind them
    victim: bool = False  # it will be killed, and may fail as it likes
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def uc(self) -> bool:
        return self.server[0] == "ibv_uc_pingpong" or "UC" in self.server


def draw(rng: random.Random, cluster: Cluster, tables: dict[str, Any]) -> Pair:
    to, come = rng.sample(cluster.nodes, 2)
    roce = tables["hca"].get("link_layer") == "roce_v2"
    kind: Callable[..., Pair] = rng.choice(
        (_pingpong, _pingpong, _perftest, _perftest, _by_cm, _by_cm, _multicast, _above)
    )
    pair = kind(rng, cluster, (to, come), "1" if roce else "0")
    network = tables["network"]
    overtakes = network.get("routing") in OVERTAKING or network["router"] == "pcs"
    if overtakes and pair.uc:
        return draw(rng, cluster, tables)
    others = [node for node in cluster.nodes if node not in pair.nodes]
    if kind in (_pingpong, _perftest) and others and rng.random() < 0.1:
        pair.beside = rng.choice(others)
        pair.client += ["-d", "flitnet1"]  # the second node that it is at
    return pair


def _pingpong(rng: random.Random, _: Cluster, nodes: tuple[str, str], gid: str) -> Pair:
    name = rng.choice(("rc", "uc", "ud", "srq", "xsrq"))
    size = rng.choice((1, 64, 200)) if name == "ud" else rng.choice((1, 64, 4096, 40_000))
    port = free_port()
    argv = [f"ibv_{name}_pingpong", "-g", gid, "-p", str(port), "-s", str(size),
            "-n", str(rng.choice((10, 100)))]  # fmt: skip
    argv += [] if name == "xsrq" else ["-c"]
    argv += [] if name == "ud" else ["-m", "256"]  # no port of any draw has less
    # With both, it takes an event whose completion it has polled before for a failure.
    options = ([], ["-e"], ["-t"], ["-N"]) if name == "rc" else ([], ["-e"])
    argv += rng.choice(options)
    reliable = name not in ("uc", "ud")
    return Pair(argv, [*argv, "127.0.0.1"], nodes, port, survives_losses=reliable)


def _perftest(rng: random.Random, cluster: Cluster, nodes: tuple[str, str], gid: str) -> Pair:
    verb = rng.choice(("send", "write", "read", "atomic"))
    bandwidth = rng.random() < 0.5
    port = free_port()
    argv = [f"ib_{verb}_{'bw' if bandwidth else 'lat'}", "-F", "-x", gid, "-p", str(port),
            "-n", str(rng.choice((20, 200)))]  # fmt: skip
    service = rng.choice(_SERVICES[verb])
    argv += ["-c", service] if service != "RC" else []
    if verb != "atomic":
        small = service == "UD"  # no message is longer than a packet of the smallest MTU
        argv += ["-s", str(rng.choice((2, 64, 200) if small else (2, 64, 3000, 65_536)))]
    often = [["--use_old_post_send"], ["-S", str(rng.randrange(4))]]
    if service == "RC":
        often += [["--mr_per_qp"]]
        often += [["-z"]] if rng.random() < 0.3 else []
    if service in ("RC", "UD") and verb != "atomic":
        often += [["-R"]] if rng.random() < 0.3 else []
    if bandwidth:
        # Completions are told by the depth, 100 at most. Of a number that is no multiple of that it
        # counts more than there are, and with -b and -q ends before it has posted its last sends.
        often += [["-q", str(rng.choice((2, 5)))], ["-t", str(rng.choice((1, 20, 300)))], ["-N"]]
        often += [["-b"]] if service != "UD" else []
    if bandwidth and verb in ("send", "write") and service == "RC":
        often += [["-l", "4", "-t", "40"], ["-I", "60"]]
    if verb == "send":
        often += [["-e"]]
        often += [["--use-srq"]] if service == "RC" else []
    for words in often:
        if rng.random() < 0.25 and words[0] not in argv and not {"-t"} & set(words) & set(argv):
            argv += words
    by_cm = bool({"-z", "-R"} & set(argv))
    come_to = str(cluster.node_status(nodes[0])["address"]) if by_cm else "127.0.0.1"
    reliable = service in ("RC", "XRC")
    server_port = None if by_cm else port
    return Pair(argv, [*argv, come_to], nodes, server_port, survives_losses=reliable)


_SERVICES = {
    "send": ("RC", "RC", "UC", "UD", "XRC"),
    "write": ("RC", "RC", "UC", "XRC"),
    "read": ("RC",),
    "atomic": ("RC",),
}


def _by_cm(rng: random.Random, cluster: Cluster, nodes: tuple[str, str], _: str) -> Pair:
    address = str(cluster.node_status(nodes[0])["address"])
    port = str(free_port())
    count = str(rng.choice((1, 10)))
    name = rng.choice(("rping", "ucmatose", "udaddy", "rdma", "rdma_x", "rstream", "riostream",
                       "rcopy", "shared_blocks"))  # fmt: skip
    if name == "rcopy":
        return _rcopy(rng, cluster, nodes, address, port)
    if name == "shared_blocks":
        program, counts = str(paths.program(name)), [count, str(rng.randrange(4))]
        server, client = ["server", port, *counts], ["client", address, port, *counts]
        return Pair([program, *server], [program, *client], nodes, None)
    stream = ["-b", address, "-p", port, "-C", "50", "-S", "2000", "-T", "v"]
    ping = ["-a", address, "-p", port, "-C", count, "-S", rng.choice(("64", "5000")), "-V"]
    server, client = {
        "rping": (["rping", "-s", *ping], ["rping", "-c", *ping]),
        "ucmatose": (["ucmatose", "-b", address, "-p", port, "-c", count],
                     ["ucmatose", "-s", address, "-p", port, "-c", count]),
        "udaddy": (["udaddy", "-b", address], ["udaddy", "-s", address]),  # of one port alone
        "rdma": (["rdma_server", "-p", port], ["rdma_client", "-s", address, "-p", port]),
        "rdma_x": (["rdma_xserver", "-p", port, "-c", "x"],
                   ["rdma_xclient", "-s", address, "-p", port, "-c", "x"]),
        "rstream": (["rstream", *stream], ["rstream", "-s", address, *stream[2:]]),
        "riostream": (["riostream", *stream], ["riostream", "-s", address, *stream[2:]]),
    }[name]  # fmt: skip
    return Pair(server, client, nodes, None, survives_losses=name != "udaddy")


def _rcopy(
    rng: random.Random, cluster: Cluster, nodes: tuple[str, str], address: str, port: str
) -> Pair:
    source, target = (cluster.run / "plans" / f"rcopy-{port}-{end}" for end in ("from", "to"))
    source.write_bytes(rng.randbytes(rng.choice((1, 5_001, 200_003))))
    client = ["rcopy", str(source), f"{address}:{target}", "-p", port]
    return Pair(["rcopy", "-p", port], client, nodes, None, serves_on=True, copied=(source, target))


def _multicast(rng: random.Random, _: Cluster, nodes: tuple[str, str], __: str) -> Pair:
    group = f"239.1.{rng.randrange(256)}.{rng.randrange(256)}"
    size = str(rng.choice((1, 100, 200)))  # no message is longer than a packet of the smallest MTU
    argv = ["mckey", "-m", group, "-C", str(rng.choice((1, 10))), "-S", size]
    receiver = ["stdbuf", "-oL", *argv]
    return Pair(receiver, [*argv, "-s"], nodes, None, ready="receiving", survives_losses=False)


def _above(rng: random.Random, cluster: Cluster, nodes: tuple[str, str], gid: str) -> Pair:
    """By what stands between programs and verbs."""
    # Datagrams of rsockets go by address handles without a GRH, which RoCE refuses.
    kind = rng.choice((_ucx, _ucx, _libfabric, _qperf, _tcp, _udp if gid == "0" else _tcp))
    return kind(rng, cluster, nodes, gid)


def _ucx(rng: random.Random, _: Cluster, nodes: tuple[str, str], __: str) -> Pair:
    port = free_port()
    argv = ["ucx_perftest", "-p", str(port)]
    test = rng.choice(("tag_lat", "tag_bw", "ucp_put_lat", "ucp_put_bw", "ucp_get", "stream_bw",
                       "stream_lat", "ucp_am_lat", "ucp_fadd", "ucp_cswap"))  # fmt: skip
    atomic = test in ("ucp_fadd", "ucp_cswap")
    size = "8" if atomic else str(rng.choice((8, 3000, 100_000)))
    client = [*argv, "127.0.0.1", "-t", test, "-s", size, "-n", rng.choice(("20", "200"))]
    env = {"UCX_TLS": rng.choice(("rc_v", "ud_v"))}
    # It looks for an active port when it begins, as libfabric does: without a fabric there is none.
    return Pair(argv, [*client, "-w", "10"], nodes, port, env=env, survives_losses=False)


def _libfabric(rng: random.Random, _: Cluster, nodes: tuple[str, str], __: str) -> Pair:
    provider, kind = rng.choice((("verbs", "msg"), ("verbs;ofi_rxm", "rdm")))
    port = free_port()
    size = str(rng.choice((64, 1024, 30_000)))
    argv = ["fi_pingpong", "-p", provider, "-e", kind, "-I", "50", "-S", size, "-c"]
    server, client = [*argv, "-B", str(port)], [*argv, "-P", str(port), nodes[0]]
    return Pair(server, client, nodes, port, survives_losses=False)


def _qperf(rng: random.Random, _: Cluster, nodes: tuple[str, str], gid: str) -> Pair:
    test = rng.choice(("rc_lat", "rc_bw", "rc_bi_bw", "rc_rdma_read_lat", "rc_rdma_read_bw",
                       "rc_rdma_write_lat", "rc_rdma_write_bw", "ver_rc_compare_swap",
                       "ver_rc_fetch_add"))  # fmt: skip
    port = free_port()
    argv = ["qperf", "-lp", str(port)]
    # It knows a peer by its LID, or by rdma_cm.
    by_cm = ["-cm", "1"] if gid != "0" else []
    client = [*argv, *by_cm, "-mt", "256", "-t", "1", nodes[0], test]
    return Pair(argv, client, nodes, port, serves_on=True)


def _udp(rng: random.Random, cluster: Cluster, nodes: tuple[str, str], _: str) -> Pair:
    """Datagrams over rsockets."""
    to, port = str(cluster.node_status(nodes[0])["address"]), free_port()
    size = str(rng.choice((16, 64, 150)))  # with its header in a packet of the smallest MTU
    argv = ["udpong", "-p", str(port), "-C", "50", "-S", size, "-T", "e"]
    server, client = [*argv, "-b", to], [*argv, "-s", to]
    return Pair(server, client, nodes, port, serves_on=True, survives_losses=False)


def _tcp(rng: random.Random, cluster: Cluster, nodes: tuple[str, str], _: str) -> Pair:
    """A program of TCP over rsockets."""
    (library,) = Path("/usr/lib").glob("*/rsocket/librspreload.so")
    port = str(free_port())
    address = str(cluster.node_status(nodes[0])["address"])
    client = ["iperf", "-c", address, "-p", port, "-n", rng.choice(("10K", "200K"))]
    env = {"LD_PRELOAD": f"{cluster.env(nodes[0])['LD_PRELOAD']}:{library}"}
    return Pair(["iperf", "-s", "-p", port], client, nodes, None, env=env, serves_on=True)
