"""Nodes of other hosts: UDP on loopback, and network namespaces where fabricd has a kernel socket
or drives one end of a veth pair itself by DPDK. Traffic is that of fabric_peer, which checks every
byte and the order, and of unmodified verbs programs.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.apps.fabric_run import DEADLINE_S, Run, result
from tools.flitnet import paths
from tools.flitnet.cluster import Cluster

FABRIC_IP, NODE_IP, PREFIX = "10.88.0.1", "10.88.0.2", "/24"


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def config(kind: str, listen: str, ethdev: str = "", nodes: int = 4) -> str:
    lines = [f"[network]\nnodes = {nodes}\nlink_mbps = 100"]
    lines.append(f'[attach]\nkind = "{kind}"\nlisten = "{listen}"')
    if ethdev:
        lines.append(f'ethdev = "{ethdev}"')
    return "\n".join(lines) + "\n"


@pytest.fixture
def run() -> Iterator[Run]:
    value = Run()
    yield value
    value.close()


def whole(total: dict[str, Any], at_least: int) -> None:
    assert (total["corrupt"], total["lost"], total["disordered"]) == (0, 0, 0), total
    assert total["received"] >= at_least, total


class BadPath:
    """A UDP proxy that loses, repeats, holds back, corrupts and replays, from a seed."""

    def __init__(self, fabric: tuple[str, int], seed: int, trouble: float = 0.02) -> None:
        self.fabric, self.trouble, self.random = fabric, trouble, random.Random(seed)
        self.front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.front.bind(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.front.getsockname()[1]
        self.backs: dict[tuple[str, int], socket.socket] = {}  # one for each node
        self.past: list[tuple[bytes, socket.socket, tuple[str, int]]] = []
        self.stopping = False
        self.one_way = False  # what the fabric sends is lost
        self.thread = threading.Thread(target=self.loop)
        self.thread.start()

    def loop(self) -> None:
        while not self.stopping:
            sockets = [self.front, *self.backs.values()]
            for ready in select.select(sockets, [], [], 0.05)[0]:
                data, source = ready.recvfrom(65536)
                if ready is self.front:
                    if source not in self.backs:
                        self.backs[source] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                    self.toss(data, self.backs[source], self.fabric)
                elif not self.one_way:
                    node = next(n for n, s in self.backs.items() if s is ready)
                    self.toss(data, self.front, node)

    def toss(self, data: bytes, by: socket.socket, to: tuple[str, int]) -> None:
        draw = self.random.random
        if draw() < self.trouble:
            return
        if len(self.past) < 500:
            self.past.append((data, by, to))
        by.sendto(data, to)
        if draw() < self.trouble:
            by.sendto(data, to)
        if draw() < self.trouble:  # of any node, in either direction
            old, old_by, old_to = self.random.choice(self.past)
            old_by.sendto(old, old_to)
        if draw() < self.trouble:
            bad = bytearray(data)
            bad[self.random.randrange(len(bad))] ^= 1 << self.random.randrange(8)
            by.sendto(bytes(bad[: self.random.randrange(1, len(bad) + 1)]), to)

    def close(self) -> None:
        self.stopping = True
        self.thread.join()
        for s in [self.front, *self.backs.values()]:
            s.close()


def test_packets_between_udp_nodes_and_nodes_of_this_host(run: Run) -> None:
    port = free_port()
    run.fabricd(config("udp", f"127.0.0.1:{port}"))
    far = run.peer("n0,n1", "--seconds", "2", "--load", "0.3", "--udp", f"127.0.0.1:{port}")
    near = run.peer("n2,n3", "--seconds", "2", "--load", "0.3", "--seed", "2")
    whole(result(far), 1000)
    whole(result(near), 1000)
    assert sum(node["violations"] for node in run.status()["nodes"]) == 0
    assert (run.dir / "cluster.key").stat().st_mode & 0o777 == 0o600


def test_a_bad_path_loses_repeats_and_changes_nothing(run: Run) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    port = free_port()
    run.fabricd(config("udp", f"127.0.0.1:{port}"))
    path = BadPath(("127.0.0.1", port), seed)
    try:
        far = run.peer("n0,n1", "--seconds", "3", "--load", "0.1", "--udp", path.address)
        near = run.peer("n2", "--seconds", "3", "--load", "0.1", "--seed", "2")
        whole(result(far), 200)
        whole(result(near), 200)
    finally:
        path.close()


def test_strangers_disturb_nobody(run: Run) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    port = free_port()
    fabric = run.fabricd(config("udp", f"127.0.0.1:{port}"))
    far = run.peer("n0,n1", "--seconds", "3", "--load", "0.2", "--udp", f"127.0.0.1:{port}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        while far.poll() is None:
            data = bytearray(rng.randbytes(rng.choice([0, 1, 63, 64, 80, 208, 1472, 9000])))
            if len(data) > 8 and rng.random() < 0.7:
                data[:8] = b"FLIT\x01" + bytes([rng.randrange(7), 0, 0])
            stranger.sendto(bytes(data), ("127.0.0.1", port))
            time.sleep(0.0002)
    total = result(far)
    whole(total, 1000)
    assert total["sessions"] == 2, "nobody was detached"
    assert fabric.poll() is None
    assert not run.attached()  # they said goodbye


def test_a_killed_udp_node_is_released_within_a_second(run: Run) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    run.fabricd(config("udp", address))
    others = run.peer("n0,n1", "--seconds", "5", "--load", "0.2", "--udp", address)
    victim = run.peer(
        "n2", "--seconds", "30", "--load", "0.1", "--reserve", "40", "--udp", address
    )
    run.until(lambda: run.attached() == {"n0", "n1", "n2"} and run.booked_bps() > 0, victim)
    victim.send_signal(signal.SIGKILL)
    victim.communicate(timeout=DEADLINE_S)
    before_ns = run.status()["clock"]["emulated_ns"]
    run.until(lambda: run.booked_bps() == 0, others)
    assert run.status()["clock"]["emulated_ns"] - before_ns < 1_000_000_000
    again = run.peer(
        "n2", "--seconds", "1", "--load", "0.1", "--reserve", "40", "--seed", "9", "--udp", address
    )
    assert result(again)["acks"] == 1
    total = result(others)
    assert (total["corrupt"], total["disordered"], total["sessions"]) == (0, 0, 2)


def test_a_node_that_hears_nothing_is_released_and_comes_back(run: Run) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    run.fabricd(config("udp", address))
    path = BadPath(("127.0.0.1", port), seed=1, trouble=0)
    try:
        others = run.peer("n0,n1", "--seconds", "5", "--load", "0.2", "--udp", address)
        deaf = run.peer("n2", "--seconds", "30", "--load", "0.1", "--reserve", "40", "--rejoin",
                        "--udp", path.address)  # fmt: skip
        run.until(lambda: run.attached() == {"n0", "n1", "n2"} and run.booked_bps() > 0, deaf)
        path.one_way = True
        run.until(lambda: run.booked_bps() == 0 and "n2" not in run.attached(), deaf)
        path.one_way = False
        run.until(lambda: "n2" in run.attached(), deaf)
        total = result(others)
        assert (total["corrupt"], total["disordered"], total["sessions"]) == (0, 0, 2)
    finally:
        path.close()


def test_udp_nodes_join_a_restarted_fabric(run: Run) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    fabric = run.fabricd(config("udp", address))
    peer = run.peer("n0,n1", "--seconds", "5", "--load", "0.1", "--rejoin", "--udp", address)
    run.until(lambda: len(run.attached()) == 2, peer)
    time.sleep(0.3)
    before_ns = run.status()["clock"]["emulated_ns"]
    fabric.send_signal(signal.SIGKILL)
    fabric.communicate(timeout=DEADLINE_S)
    run.fabricd(config("udp", address))
    run.until(lambda: len(run.attached()) == 2, peer)
    assert run.status()["clock"]["emulated_ns"] >= before_ns
    total = result(peer)
    assert total["sessions"] == 4
    assert (total["corrupt"], total["disordered"]) == (0, 0)


def test_wrong_key_and_wrong_name_are_told(run: Run) -> None:
    port = free_port()
    run.fabricd(config("udp", f"127.0.0.1:{port}"))
    options = ["--attach-seconds", "1", "--udp", f"127.0.0.1:{port}"]
    unknown = run.peer("n9", *options)
    assert "no node of this name" in unknown.communicate(timeout=DEADLINE_S)[1]
    key = run.dir / "cluster.key"
    key.write_text("0" * 64 + "\n")
    stranger = run.peer("n0", *options)
    assert "same key" in stranger.communicate(timeout=DEADLINE_S)[1]
    assert stranger.returncode == 1


# Two hosts: network namespaces joined by a veth pair.


class Hosts:
    def __init__(self) -> None:
        tag = f"{os.getpid() % 100000}"
        self.fabric, self.node = f"flitf{tag}", f"flitn{tag}"
        self.fabric_if, self.node_if = f"vf{tag}", f"vn{tag}"

    def up(self) -> None:
        def do(*argv: str) -> None:
            subprocess.run(argv, check=True, capture_output=True, timeout=DEADLINE_S)

        for space in (self.fabric, self.node):
            do("ip", "netns", "add", space)
            do("ip", "-n", space, "link", "set", "lo", "up")
        do("ip", "-n", self.fabric, "link", "add", self.fabric_if, "type", "veth",
           "peer", "name", self.node_if, "netns", self.node)  # fmt: skip
        do("ip", "-n", self.node, "addr", "add", NODE_IP + PREFIX, "dev", self.node_if)
        # Who reads raw frames needs finished checksums and trains cut into datagrams.
        do("ip", "netns", "exec", self.node, "ethtool", "-K", self.node_if, "tx", "off")
        do("ip", "-n", self.fabric, "link", "set", self.fabric_if, "up")
        do("ip", "-n", self.node, "link", "set", self.node_if, "up")

    def kernel_address(self) -> None:
        subprocess.run(
            ["ip", "-n", self.fabric, "addr", "add", FABRIC_IP + PREFIX, "dev", self.fabric_if],
            check=True, timeout=DEADLINE_S,
        )  # fmt: skip

    def spoil(self) -> bool:
        """1 % loss each way, by the kernel; False where it cannot."""
        for space, interface in ((self.fabric, self.fabric_if), (self.node, self.node_if)):
            done = subprocess.run(
                ["tc", "-n", space, "qdisc", "add", "dev", interface, "root", "netem", "loss",
                 "1%", "delay", "200us"],
                capture_output=True, timeout=DEADLINE_S,
            )  # fmt: skip
            if done.returncode != 0:
                return False
        return True

    def set_card(self, state: str) -> None:
        """The fabric's end of the pair."""
        subprocess.run(
            ["ip", "-n", self.fabric, "link", "set", self.fabric_if, state],
            check=True, timeout=DEADLINE_S,
        )  # fmt: skip

    def down(self) -> None:
        for space in (self.fabric, self.node):
            subprocess.run(["ip", "netns", "del", space], capture_output=True, timeout=DEADLINE_S)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    for tool in ("ip", "ethtool"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} here")
    value = Hosts()
    try:
        value.up()
    except subprocess.CalledProcessError as failure:
        value.down()
        pytest.skip(f"no network namespaces here: {failure.stderr.decode().strip()}")
    yield value
    value.down()


def start_fabric(run: Run, hosts: Hosts, way: str) -> None:
    listen = f"{FABRIC_IP}:4791"
    if way == "socket":
        hosts.kernel_address()
        run.fabricd(config("udp", listen), space=hosts.fabric)
        return
    device = f"net_{way}0,iface={hosts.fabric_if}"
    try:
        run.fabricd(config("ethdev", listen, device), space=hosts.fabric)
    except AssertionError as failure:
        if way == "af_xdp":
            pytest.skip(f"no AF_XDP here: {failure}")
        raise


WAYS = ["socket", "af_packet", "af_xdp"]


@pytest.mark.parametrize("way", WAYS)
def test_two_hosts(run: Run, hosts: Hosts, way: str) -> None:
    start_fabric(run, hosts, way)
    far = run.peer(
        "n0,n1", "--seconds", "2", "--load", "0.3", "--udp", f"{FABRIC_IP}:4791", space=hosts.node
    )
    near = run.peer("n2,n3", "--seconds", "2", "--load", "0.3", "--seed", "2", space=hosts.fabric)
    whole(result(far), 1000)
    whole(result(near), 1000)


@pytest.mark.parametrize("way", WAYS)
def test_two_hosts_and_a_wire_that_loses(run: Run, hosts: Hosts, way: str) -> None:
    start_fabric(run, hosts, way)
    if not hosts.spoil():
        pytest.skip("no netem here; the session's model test loses packets everywhere")
    far = run.peer(
        "n0,n1", "--seconds", "3", "--load", "0.1", "--udp", f"{FABRIC_IP}:4791", space=hosts.node
    )
    near = run.peer("n2", "--seconds", "3", "--load", "0.1", "--seed", "2", space=hosts.fabric)
    whole(result(far), 200)
    whole(result(near), 200)


@pytest.mark.parametrize("way", ["af_packet", "af_xdp"])
def test_a_card_that_goes_down_and_up(run: Run, hosts: Hosts, way: str) -> None:
    start_fabric(run, hosts, way)
    address = f"{FABRIC_IP}:4791"
    far = run.peer(
        "n0", "--seconds", "60", "--load", "0.1", "--rejoin", "--udp", address, space=hosts.node
    )
    for _ in range(2):
        run.until(lambda: run.attached() == {"n0"}, far)
        hosts.set_card("down")
        run.until(lambda: not run.attached(), far)
        hosts.set_card("up")
    run.until(lambda: run.attached() == {"n0"}, far)

    def times(says: str) -> int:
        return (run.dir / "log" / "fabricd.log").read_text().count(says)

    assert (times("its link is down"), times("its link is up again")) == (2, 2)
    hosts.set_card("down")  # for a moment, which no look at its state would see
    hosts.set_card("up")
    run.until(lambda: times("its link is up again") == 3, far)
    later_ns = run.status()["clock"]["emulated_ns"] + 1_500_000_000  # a silence would be over
    run.until(lambda: run.status()["clock"]["emulated_ns"] > later_ns, far)
    run.until(lambda: run.attached() == {"n0"}, far)


def pingpong(start: Any, server: str, client: str, host: str) -> None:
    """Unmodified ibv_rc_pingpong -c (checks the bytes) between two nodes."""
    command = ["ibv_rc_pingpong", "-p", "18611", "-n", "200", "-s", "8192", "-c"]
    waiting = start(server, command)
    asking = None
    try:
        for _ in range(40):  # until the server listens
            asking = start(client, [*command, host])
            out, _err = asking.communicate(timeout=60)
            if asking.returncode == 0:
                break
            time.sleep(0.25)
        assert asking is not None and asking.returncode == 0, out
        assert waiting.wait(timeout=60) == 0
        assert "bytes in" in out
    finally:
        for process in (waiting, asking):
            if process is not None and process.poll() is None:
                process.kill()
                process.communicate(timeout=DEADLINE_S)


def verbs_ready() -> None:
    if shutil.which("ibv_rc_pingpong") is None:
        pytest.skip("no ibv_rc_pingpong here")


def test_verbs_program_between_udp_nodes() -> None:
    verbs_ready()
    attach = {"kind": "udp", "listen": f"127.0.0.1:{free_port()}"}
    with Cluster({"network": {"nodes": 2}, "attach": attach}) as cluster:
        pingpong(lambda node, argv: cluster.popen(node, argv), "n0", "n1", "127.0.0.1")
        end = time.monotonic() + DEADLINE_S  # pages are written ten times a second
        while set(frames_received(cluster).values()) != {True} and time.monotonic() < end:
            time.sleep(0.1)
        counted = frames_received(cluster)
        assert counted == {(n, side): True for n in ("n0", "n1") for side in ("hca", "fabric")}


def frames_received(cluster: Cluster) -> dict[tuple[str, str], bool]:
    """Whether each end of each attachment counted the frames of what was just sent."""
    done = subprocess.run(
        [paths.program("flitnet-exporter"), "--run", cluster.run, "--json"],
        capture_output=True, check=True, timeout=DEADLINE_S,
    )  # fmt: skip
    series = [one for page in json.loads(done.stdout)["pages"] for one in page["series"]]
    return {
        (one["labels"]["node"], one["labels"]["side"]): one["value"] > 100
        for one in series
        if one["name"] == "flitnet_attach_received_frames_total"
    }


@pytest.mark.parametrize("way", ["socket", "af_packet"])
def test_verbs_program_between_two_hosts(run: Run, hosts: Hosts, way: str) -> None:
    verbs_ready()
    start_fabric(run, hosts, way)
    # The node's host knows the cluster by a copy of the configuration and the key.
    far = Run()
    try:
        for name in ("cluster.toml", "cluster.key"):
            shutil.copy(run.dir / name, far.dir / name)
        nodes = {}
        for name in ("n0", "n1"):
            hcad = far.start(
                paths.program("hcad"), "--run", far.dir, "--node", name, space=hosts.node
            )
            nodes[name] = hcad
        run.until(lambda: run.attached() >= {"n0", "n1"}, nodes["n1"])

        def start(node: str, argv: list[str]) -> subprocess.Popen[str]:
            env = dict(os.environ)
            env["FLITNET_RUN"] = str(far.dir)
            env["FLITNET_NODE"] = node
            env["FLITNET_NODE_SOCKET"] = str(far.dir / "nodes" / node / "hcad.sock")
            env["LD_PRELOAD"] = str(paths.program("libflitnet_verbs.so"))
            inside = ["ip", "netns", "exec", hosts.node, *argv]
            return subprocess.Popen(
                inside, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )

        pingpong(start, "n0", "n1", "127.0.0.1")
    finally:
        far.close()
