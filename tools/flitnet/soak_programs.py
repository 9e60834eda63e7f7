"""What `flitnet soak live` runs: pairs of programs of ibverbs-utils, perftest and rdmacm-utils with
random options, none of which a cluster of any design may fail."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

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
    port: int | None  # of TCP, where the server listens; None: it listens by rdma_cm
    victim: bool = False  # it will be killed, and may fail as it likes
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def survives_losses(self) -> bool:
        """Whether what a dying fabric takes with it is sent again."""
        unreliable = {"ibv_uc_pingpong", "ibv_ud_pingpong", "udaddy"}
        return self.server[0] not in unreliable and not {"UC", "UD"} & set(self.server)


def draw(rng: random.Random, cluster: Cluster, tables: dict[str, Any]) -> Pair:
    to, come = rng.sample(cluster.nodes, 2)
    roce = tables["hca"].get("link_layer") == "roce_v2"
    kind: Callable[..., Pair] = rng.choice((_pingpong, _pingpong, _perftest, _perftest, _by_cm))
    pair = kind(rng, cluster, (to, come), "1" if roce else "0")
    network = tables["network"]
    overtakes = network.get("routing") in OVERTAKING or network["router"] == "pcs"
    return draw(rng, cluster, tables) if overtakes and _is_uc(pair) else pair


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
    # With both, it takes an event whose completion it has polled before for a failure.
    options = ([], ["-e"], ["-t"], ["-N"]) if name == "rc" else ([], ["-e"])
    argv += rng.choice(options)
    return Pair(argv, [*argv, "127.0.0.1"], nodes, port)


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
    come_to = "127.0.0.1"
    if "-z" in argv:
        come_to = str(cluster.node_status(nodes[0])["address"])
    return Pair(argv, [*argv, come_to], nodes, None if "-z" in argv else port)


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
    name = rng.choice(("rping", "ucmatose", "udaddy", "rdma", "rdma_x", "rstream", "riostream"))
    stream = ["-b", address, "-p", port, "-C", "50", "-S", "2000"]
    server, client = {
        "rping": (["rping", "-s", "-a", address, "-p", port, "-C", count],
                  ["rping", "-c", "-a", address, "-p", port, "-C", count]),
        "ucmatose": (["ucmatose", "-b", address, "-p", port, "-c", count],
                     ["ucmatose", "-s", address, "-p", port, "-c", count]),
        "udaddy": (["udaddy", "-b", address], ["udaddy", "-s", address]),  # of one port alone
        "rdma": (["rdma_server", "-p", port], ["rdma_client", "-s", address, "-p", port]),
        "rdma_x": (["rdma_xserver", "-p", port, "-c", "x"],
                   ["rdma_xclient", "-s", address, "-p", port, "-c", "x"]),
        "rstream": (["rstream", *stream], ["rstream", "-s", address, *stream[2:]]),
        "riostream": (["riostream", *stream], ["riostream", "-s", address, *stream[2:]]),
    }[name]  # fmt: skip
    return Pair(server, client, nodes, None)
