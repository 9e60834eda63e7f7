"""The same unmodified programs where the port's link layer is Ethernet: RoCE v2."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.apps.test_rdma_cm import address, assert_good, run_pair
from tests.apps.test_verbs import assert_done, pingpong
from tools.flitnet import paths
from tools.flitnet.cluster import Cluster

PORTS = iter(range(18900, 19000))


@pytest.fixture(scope="module")
def roce() -> Iterator[Cluster]:
    with Cluster({"network": {"nodes": 2}, "hca": {"link_layer": "roce_v2"}}) as cluster:
        yield cluster


def test_the_port(roce: Cluster) -> None:
    info = roce.exec("n1", ["ibv_devinfo", "-v"])
    assert info.returncode == 0, info.stderr
    for said in (
        "link_layer:\t\tEthernet", "port_lid:\t\t0", "::ffff:127.1.0.2, RoCE v2", "GID[  0]",
    ):  # fmt: skip
        assert said in info.stdout, info.stdout


@pytest.mark.parametrize("index", ["0", "1"])
@pytest.mark.parametrize("argv", [
    ["ibv_rc_pingpong", "-c"], ["ibv_uc_pingpong", "-c"], ["ibv_ud_pingpong", "-c"],
    ["ibv_srq_pingpong", "-e"], ["ibv_xsrq_pingpong"],
], ids=lambda argv: argv[0])  # fmt: skip
def test_pingpong(roce: Cluster, argv: list[str], index: str) -> None:
    assert_done(pingpong(roce, [*argv, "-n", "100", "-g", index], next(PORTS)))


def test_a_lid_names_nobody(roce: Cluster) -> None:
    """Without a GID index the pingpong gives a LID, which RoCE has not."""
    client, said, code = pingpong(roce, ["ibv_rc_pingpong", "-n", "10"], next(PORTS))
    assert client.returncode != 0 and code != 0 and "Failed to modify QP to RTR" in said


@pytest.mark.parametrize("argv", [
    ["ib_send_bw"], ["ib_send_bw", "-x", "0"], ["ib_write_lat", "-x", "1"],
    ["ib_send_lat", "-c", "UD", "-x", "1"], ["ib_read_bw", "-c", "XRC", "-x", "1"],
    ["ib_send_bw", "-c", "UD"],
], ids="_".join)  # fmt: skip
def test_perftest(roce: Cluster, argv: list[str]) -> None:
    client, said, code = pingpong(roce, [*argv, "-F", "-n", "50", "-s", "1024"], next(PORTS))
    assert client.returncode == 0 and code == 0, client.stdout + said
    assert re.search(r"^ 1024 +50 ", client.stdout, re.MULTILINE)
    assert "Link type       : Ethernet" in client.stdout


@pytest.mark.parametrize("programs", [
    ("rping -s -C 5 -V -p {port}", "rping -c -a {to} -C 5 -V -p {port}"),
    ("udaddy -c 2 -C 5", "udaddy -s {to} -c 2 -C 5"),
    ("rdma_xserver -c x -p {port}", "rdma_xclient -c x -s {to} -p {port}"),
    ("ib_send_bw -R -F -n 50 -p {port}", "ib_send_bw -R -F -n 50 -p {port} {to}"),
], ids=lambda programs: programs[0].split()[0])  # fmt: skip
def test_rdma_cm(roce: Cluster, programs: tuple[str, str]) -> None:
    words = {"port": next(PORTS), "to": address(roce, "n0")}
    server, client = (program.format(**words).split() for program in programs)
    assert_good(run_pair(roce, server, client))


def test_multicast(roce: Cluster) -> None:
    flags = ["mckey", "-m", "239.1.1.2", "-C", "10", "-S", "100"]
    receiver = roce.popen("n0", ["stdbuf", "-oL", *flags])
    while "receiving" not in (line := receiver.stdout.readline()):
        assert line, "the receiver ended"
    sender = roce.exec("n1", [*flags, "-s"], timeout=30)
    said, _ = receiver.communicate(timeout=30)
    assert sender.returncode == 0 and receiver.returncode == 0, sender.stdout + said


@pytest.mark.parametrize("argv", [
    ["replay", "traces/t7_city.trace", "--from", "n0", "--to", "n1"],
    ["load", "best-effort", "--rate", "20M"], ["load", "control", "--rate", "1M"],
], ids=lambda argv: "_".join(argv[:2]))  # fmt: skip
def test_our_own_programs(roce: Cluster, argv: list[str]) -> None:
    """They named their peers by LIDs: a stream failed, generators sent nothing and said nothing."""
    done = subprocess.run(
        [str(paths.ROOT / "flitnet"), "--run", str(roce.run), *argv, "--seconds", "0.3", "--json"],
        capture_output=True, text=True, timeout=90, cwd=paths.ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(done.stdout)
    if argv[0] == "replay":
        assert one["admitted"] and one["frames_delivered"] == one["frames_sent"] == 9
    else:
        assert one["received"] == one["sent"] > 50
