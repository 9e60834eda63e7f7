"""A workload file on a live cluster: what the laboratory simulates, by processes on every node."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tools.flitnet import paths, programs
from tools.flitnet.cluster import Cluster

WORKLOAD = """
[workload]
load = 0.2
streams = "on_off"
on_ms = 2
off_ms = 2
phases = [0.2, 0.8]
arrivals = "self_similar"
pattern = "hot_spot"
hot_share = 0.3
"""


def test_phases_bursts_and_a_hot_spot(cluster2: Cluster, tmp_path: Path) -> None:
    """The mix is turned round in the middle, so that both kinds send alike over the whole run.

    What is drawn is judged by tests/lab/test_workload.py and the generators' own tests. Here it is
    that programs play it to its end. A host without time for them sends later, so less, and loses
    datagrams for which nobody has posted a receive: amounts have no lower bound, and what is lost
    is told.
    """
    file = tmp_path / "mix.toml"
    file.write_text(WORKLOAD)
    argv = [str(paths.ROOT / "flitnet"), "load", "--workload", str(file), "--seconds", "2"]
    env = cluster2.env("n0") | {"LD_PRELOAD": ""}
    done = subprocess.run([*argv, "--json"], env=env, capture_output=True, text=True, timeout=90)
    assert done.returncode in (0, 1) and done.stdout, done.stderr
    played = json.loads(done.stdout)
    loads = {one["kind"]: one for one in played["loads"]}
    assert not played["streams"]
    assert set(loads) == {"best-effort", "on-off"}
    for one in loads.values():
        # 0.1 of two links of 400 Mb/s for 2 s, in packets of 640 bytes; bursts are chance.
        assert 0 < one["sent"] / (0.1 * 2 * 400e6 * 2 / 8 / 640) < 3, loads
        assert one["received"] + one["lost"] == one["sent"], loads
        assert one["received"] > 0 and one["duplicated"] == one["bytes_corrupt"] == 0, loads
    assert (done.returncode == 1) == any(one["lost"] for one in loads.values()), done.stderr


def test_small_packets_at_half_the_rate(cluster2: Cluster, tmp_path: Path) -> None:
    """312500 packets a second from each node: three times what the queue of a kind holds in a tick.

    All that is drawn is sent, and what does not arrive is told. How long packets wait is up to the
    host too: what keeps it short is judged by the unit tests of Nap.
    """
    file = tmp_path / "mix.toml"
    file.write_text('[workload]\nload = 0.5\nstreams = "none"\nmessage_flits = 5\n')
    done = load(cluster2.run, file, "--seconds", "1", "--json")
    assert done.returncode in (0, 1) and done.stdout, done.stderr
    (one,) = json.loads(done.stdout)["loads"]
    drawn = 2 * 0.5 * 400e6 / 8 / 80
    assert 0.9 * drawn < one["sent"] < 1.1 * drawn, one
    assert one["received"] + one["lost"] == one["sent"], one
    assert one["duplicated"] == one["bytes_corrupt"] == 0, one
    assert (done.returncode == 1) == bool(one["lost"]), done.stderr


def test_a_rate_is_the_nodes_whatever_sends_it(make_cluster) -> None:
    """On-off: of its connections together. What is drawn is chance, and a busy host sends less."""
    cluster = make_cluster({"network": {"nodes": 8}})
    argv = [str(paths.ROOT / "flitnet"), "load", "on-off", "--rate", "4M", "--seconds", "2"]
    done = subprocess.run(
        [*argv, "--json"], env=cluster.env("n0") | {"LD_PRELOAD": ""}, capture_output=True,
        text=True, timeout=90,
    )  # fmt: skip
    assert done.stdout, done.stderr
    (one,) = json.loads(done.stdout)
    rate = one["sent"] * 640 * 8 / 2 / 8
    assert 0 < rate < 1.5 * 4e6, one


def test_streams_with_deadlines_beside_control(cluster2: Cluster, tmp_path: Path) -> None:
    """Frames by replayers, the rest by generators; every byte is compared."""
    file = tmp_path / "mix.toml"
    file.write_text(
        """
        [workload]
        load = 0.2
        streams = "vbr"
        stream_kbps = 8000
        real_time_share = 0.4
        control_per_frame = 10
        """
    )
    done = load(cluster2.run, file, "--seconds", "1", "--json")
    assert done.returncode == 0, done.stderr
    played = json.loads(done.stdout)
    assert {one["kind"] for one in played["loads"]} == {"best-effort", "control"}
    # 0.08 of 400 Mb/s are four streams of each node.
    assert sorted(one["from"] for one in played["streams"]) == ["n0"] * 4 + ["n1"] * 4
    for one in played["streams"]:
        assert one["admitted"] and one["frames_delivered"] == one["frames_sent"] == 30
        assert one["bytes_corrupt"] == 0
    told = load(cluster2.run, file, "--seconds", "1")
    assert told.returncode == 0 and "8 of 8 admitted" in told.stdout, told.stdout + told.stderr


def test_fractions_of_a_rate_and_a_frame_time(cluster2: Cluster, tmp_path: Path) -> None:
    """As docs/workloads.md has them for both ways: a rate that is not whole, frames of 33.3 ms."""
    file = tmp_path / "mix.toml"
    file.write_text(
        """
        [workload]
        load = 0.1
        real_time_share = 1
        stream_kbps = 8000.5
        frame_ms = 33.3
        """
    )
    done = load(cluster2.run, file, "--seconds", "1", "--json")
    assert done.returncode == 0, done.stderr
    streams = json.loads(done.stdout)["streams"]
    assert len(streams) == 10 and {one["frames_delivered"] for one in streams} == {30}
    for one in streams:
        assert abs(one["interval_ms_mean"] - 33.3) < 0.02, one


def load(run: object, file: Path, *more: str) -> subprocess.CompletedProcess[str]:
    argv = [str(paths.ROOT / "flitnet"), "--run", str(run), "load", "--workload", str(file), *more]
    return subprocess.run(argv, capture_output=True, text=True, timeout=90)


def test_what_is_no_workload_is_one_line(cluster2: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "mix.toml"
    for content, says in (
        (b'[workload]\nload = "much"\n', "mix.toml: workload.load = 'much': a number from 0 to 2"),
        (b"[workload]\nphases = 3\n", "mix.toml: workload.phases = 3: a list"),
        (b"\xff\xfe[", "not a text file"),
        (b"a = " + b"[" * 5000, "nested too deeply"),
    ):
        file.write_bytes(content)
        done = load(cluster2.run, file)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert says in done.stderr
    for path, says in ((tmp_path, "Is a directory"), (tmp_path / "none", "No such file")):
        done = load(cluster2.run, path)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert f"{path}: {says}" in done.stderr


def test_a_workload_without_a_cluster_says_how_to_start_one(tmp_path: Path) -> None:
    file = tmp_path / "mix.toml"
    file.write_text(WORKLOAD)
    done = load(tmp_path / "run", file)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.endswith(f"start one with: flitnet --run {tmp_path / 'run'} up\n")


def test_a_cluster_file_need_not_name_the_rate(make_cluster, tmp_path: Path) -> None:
    file = tmp_path / "mix.toml"
    file.write_text('[workload]\nload = 0.1\nstreams = "none"\n')
    cluster = make_cluster({"qos": {"scheduler": "rr"}, "node": [{"name": "a"}, {"name": "b"}]})
    done = load(cluster.run, file, "--seconds", "0.2")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("network", "hca", "flits"),
    [
        ({}, {}, "40 10 16"),
        ({}, {"mtu": 256}, "18 10 16"),  # a packet with a datagram of 256 bytes has 290
        ({"flit_bits": 32, "packet_size": 64}, {}, "64 10 4"),
        ({"flit_bits": 512, "packet_size": 2}, {}, "2 10 64"),
        ({"flit_bits": 512, "packet_size": 68}, {"mtu": 4096}, "64 10 64"),
        ({"router": "vct", "vc_buf_size": 40}, {}, "34 10 16"),  # no buffer holds 1024 bytes
    ],
)
def test_packets_are_the_clusters(
    make_cluster, network: dict[str, Any], hca: dict[str, Any], flits: str
) -> None:
    # With a small MTU every packet was refused at its sender, and counted as lost.
    cluster = make_cluster({"network": {"topology": "single:2"} | network, "hca": hca})
    assert " ".join(programs.packet_options(cluster)[1::2]) == flits
    for kind in ("best-effort", "control"):
        argv = [str(paths.ROOT / "flitnet"), "--run", str(cluster.run), "load", kind, "--json"]
        done = subprocess.run(
            [*argv, "--rate", "20M", "--seconds", "0.2"], capture_output=True, text=True, timeout=90
        )
        assert done.returncode == 0, done.stderr
        (one,) = json.loads(done.stdout)
        assert one["received"] == one["sent"] > 0


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({"hca": {"mtu": 256}}, "5 to 18 (network.flit_bits = 128, datagrams of 256 bytes by "),
        ({"network": {"flit_bits": 512}}, "2 to 32 (network.flit_bits = 512, datagrams of 2048 "),
    ],
)
def test_messages_beyond_the_mtu_are_the_files_fault(
    make_cluster, tmp_path: Path, tables: dict[str, Any], says: str
) -> None:
    """By the default of message_flits, 40; a node that is dead is not the one to ask."""
    file = tmp_path / "mix.toml"
    file.write_text('[workload]\nload = 0.1\nstreams = "none"\n')
    network = {"topology": "single:2"} | tables.get("network", {})
    cluster = make_cluster(tables | {"network": network})
    cluster.kill("hcad:n0")
    done = load(cluster.run, file, "--seconds", "0.2")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert f"workload.message_flits = 40, live {says}" in done.stderr


@pytest.mark.parametrize(("kind", "option"), [("best-effort", "packet"), ("control", "control")])
def test_packets_that_the_port_does_not_take_are_bad_usage(
    cluster2: Cluster, tmp_path: Path, kind: str, option: str
) -> None:
    """By hand: `flitnet load` knows the port and says so itself."""
    argv = [str(paths.program("flitnet-load")), f"{kind}=1M", "--node", "n0", "--to", "n1"]
    argv += ["--rendezvous", str(tmp_path), f"--{option}-flits", "200"]
    done = subprocess.run(argv, env=cluster2.env("n0"), capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (2, (
        f"flitnet-load: {kind}: packets with 3164 bytes of payload, the port takes 2048: give "
        f"fewer --{option}-flits, or the cluster a larger hca.mtu\n"
    ))  # fmt: skip
