"""The same unmodified programs where the port's link layer is Ethernet: RoCE v2."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.apps.test_rdma_cm import address, assert_good, assert_multicasts, run_pair
from tests.apps.test_stacks import between
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
    ["ib_send_bw", "-c", "UD"], ["ib_send_bw", "-c", "UD", "-g", "-x", "0"],
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
    assert_multicasts(roce, 10, 100)


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


@pytest.mark.parametrize("transport", ["rc_v", "ud_v"])
@pytest.mark.parametrize("test", ["tag_bw", "ucp_get"])
def test_ucx(roce: Cluster, transport: str, test: str) -> None:
    """By datagrams UCX takes no packet whose completion does not tell where its address stands."""
    port = next(PORTS)
    ucx = ["ucx_perftest", "-p", str(port)]
    client = [*ucx, "n1", "-t", test, "-s", "10000", "-n", "200", "-w", "10"]
    assert "Final:" in between(roce, ucx, client, port, UCX_TLS=transport)


@pytest.mark.parametrize("server, client", [
    ("fi_pingpong -p verbs -e msg -I 100 -S 30000 -B {port}",
     "fi_pingpong -p verbs -e msg -I 100 -S 30000 -P {port} n1"),
    ("qperf -lp {port}", "qperf -lp {port} -cm 1 -t 1 n1 ver_rc_fetch_add"),
], ids=["libfabric", "qperf"])  # fmt: skip
def test_what_stands_between(roce: Cluster, server: str, client: str) -> None:
    port = next(PORTS)
    between(roce, server.format(port=port).split(), client.format(port=port).split(), port)


@pytest.mark.parametrize("index", [0, 1], ids=["grh", "ipv4"])
def test_an_answer_goes_by_the_service_level_of_its_datagram(roce: Cluster, index: int) -> None:
    """Though `sl` tells the header by which it came, as HCAs do."""
    done = roce.exec("n0,n1", ["/usr/bin/python3", "-c", ANSWER, str(index)])
    header = (9, 10)[index]
    assert done.stdout == f"asked by 3: {header}\nanswered by 3: {header}\n", done.stderr


ANSWER = """
import sys
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR
import pyverbs.enums as e

index, ends = int(sys.argv[1]), []
for name in ("flitnet0", "flitnet1"):
    ctx = Context(name=name)
    pd = PD(ctx)
    cq = CQ(ctx, 8)
    mr = MR(pd, 128, e.IBV_ACCESS_LOCAL_WRITE)
    init = QPInitAttr(qp_type=e.IBV_QPT_UD, scq=cq, rcq=cq, cap=QPCap())
    attr = QPAttr(port_num=1)
    attr.qkey = 7
    ends.append((ctx, pd, cq, mr, QP(pd, init, attr)))

def send(come, to, ah):
    to[4].post_recv(RecvWR(num_sge=1, sg=[SGE(to[3].buf, 100, to[3].lkey)]))
    wr = SendWR(num_sge=1, sg=[SGE(come[3].buf + 100, 28, come[3].lkey)])
    wr.set_wr_ud(ah, to[4].qp_num, 7)
    come[4].post_send(wr)
    for cq in (come[2], to[2]):
        wcs = []
        while not wcs:
            _, wcs = cq.poll()
        assert wcs[0].status == e.IBV_WC_SUCCESS
    return wcs[0]

asking, answering = ends
route = GlobalRoute(dgid=answering[0].query_gid(1, index), sgid_index=index)
wc = send(asking, answering, AH(asking[1], attr=AHAttr(gr=route, is_global=1, port_num=1, sl=3)))
print(f"asked by {wc.vendor_err}: {wc.sl}")
back = AH(answering[1], wc=wc, port_num=1, grh=answering[3].buf)
wc = send(answering, asking, back)
print(f"answered by {wc.vendor_err}: {wc.sl}")
"""
