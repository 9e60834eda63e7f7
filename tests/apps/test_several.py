"""A host with several HCAs: a program that is on several nodes at once sees a device for each."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator

import pytest

from tests.apps.test_half_dead import until
from tests.apps.test_verbs import PORTS, assert_done, start_server
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import UsageError


@pytest.fixture(scope="module")
def cluster3() -> Iterator[Cluster]:
    with Cluster({"network": {"nodes": 3}}, exporter="127.0.0.1:0") as cluster:
        yield cluster


def devices(said: str) -> dict[str, str]:
    """Name and GUID of each, as ibv_devices lists them below two lines of heading."""
    return dict(line.split() for line in said.splitlines()[2:])


@pytest.mark.parametrize("dropin", [False, True], ids=["preload", "dropin"])
def test_each_node_is_a_device(cluster3: Cluster, dropin: bool) -> None:
    done = cluster3.exec("n2,n0", ["ibv_devices"], dropin=dropin)
    assert done.returncode == 0, done.stderr
    one = cluster3.exec("n2", ["ibv_devices"], dropin=dropin)
    other = cluster3.exec("n0", ["ibv_devices"], dropin=dropin)
    assert devices(done.stdout) == {
        "flitnet0": devices(one.stdout)["flitnet0"], "flitnet1": devices(other.stdout)["flitnet0"],
    }  # fmt: skip


@pytest.mark.parametrize("device", ["flitnet0", "flitnet1"])
@pytest.mark.parametrize("program", ["ibv_rc_pingpong", "ibv_ud_pingpong"])
def test_programs_choose_a_device(cluster3: Cluster, program: str, device: str) -> None:
    """The client names one of its two devices, the server is on a node of its own."""
    port = next(PORTS)
    argv = [program, "-n", "200", "-c"]
    server = start_server(cluster3, argv, port)
    try:
        client = cluster3.exec("n1,n2", [*argv, "-p", str(port), "-d", device, "127.0.0.1"])
        said, _ = server.communicate(timeout=30)
    finally:
        server.kill()
    assert_done((client, said, server.returncode))


def test_the_packets_leave_by_the_chosen_device(cluster3: Cluster) -> None:
    """perftest reads the counters of its device in /sys/class/infiniband: those of n2 here."""
    for node in ("n1", "n2"):
        device = cluster3.run / "sys/nodes" / node / "class/infiniband/flitnet0"
        until((device / "ports/1/counters").exists)
    port = next(PORTS)
    argv = ["ib_write_bw", "-F", "-D", "2", "-s", "4096"]
    server = start_server(cluster3, argv, port)
    try:
        counted = ["-d", "flitnet1", "-W", "counters/port_xmit_data"]
        client = cluster3.exec("n1,n2", [*argv, *counted, "-p", str(port), "127.0.0.1"])
        said, _ = server.communicate(timeout=30)
    finally:
        server.kill()
    assert client.returncode == 0 and server.returncode == 0, client.stdout + client.stderr + said
    words = re.search(r"port_xmit_data=(\d+)", client.stdout)
    assert words and int(words[1]) > 4096 // 4 * 100, client.stdout


def test_programs_that_read_sysfs_see_both(cluster3: Cluster) -> None:
    """One reads it by libibumad, the other is a script that goes there by cd and *."""
    for _ in range(100):
        said = cluster3.exec("n1,n2", ["ibstatus"]).stdout
        if said.count("4: ACTIVE") == 2:
            break
        time.sleep(0.1)
    assert re.findall("device '(.*)' port 1", said) == ["flitnet0", "flitnet1"]
    assert said.count("4: ACTIVE") == 2, said
    assert re.findall("base lid:.*(0x.)", said) == ["0x2", "0x3"]
    said = cluster3.exec("n1,n2", ["ibstat"]).stdout
    assert re.findall("State: (.*)", said) == ["Active", "Active"], said
    assert re.findall("Port GUID: .*(.)", said) == ["2", "3"]


@pytest.mark.skipif(shutil.which("ibaddr") is None, reason="infiniband-diags is not installed")
def test_the_subnet_is_asked_through_either(cluster3: Cluster) -> None:
    """Each answers for its own port, and what it asks comes from there."""
    for node in ("n1", "n2"):
        port = cluster3.run / "sys/nodes" / node / "class/infiniband/flitnet0/ports/1"
        until((port / "state").exists)
    for device, lid in (("flitnet0", 2), ("flitnet1", 3)):
        done = cluster3.exec("n1,n2", ["ibaddr", "-C", device])
        assert f"LID start {lid:#x} end {lid:#x}" in done.stdout, done.stdout + done.stderr
        done = cluster3.exec("n1,n2", ["ibnetdiscover", "-C", device])
        assert f"# Initiated from node 0002c9030000000{lid} " in done.stdout, done.stderr
    assert len(cluster3.exec("n1,n2", ["ibstat", "-l"]).stdout.split()) == 2


def test_a_node_serves_hundreds_of_open_devices(cluster3: Cluster) -> None:
    done = cluster3.exec("n0", ["/usr/bin/python3", "-c", MANY])
    assert (done.returncode, done.stdout) == (0, "200 open\n"), done.stdout + done.stderr


def test_a_device_is_nobodys_unless_told(
    cluster3: Cluster, make_cluster: Callable[..., Cluster]
) -> None:
    """Programs that know a vendor call its own library, which knows nothing of this device."""
    said = cluster3.exec("n0", ["ibv_devinfo"]).stdout
    assert re.findall("vendor_.*id:\\s+(\\S+)", said) == ["0xffffff", "4099"], said
    told = make_cluster({"network": {"nodes": 2}, "hca": {"vendor_id": 0x2C9, "vendor_part_id": 7}})
    said = told.exec("n0", ["ibv_devinfo"]).stdout
    assert re.findall("vendor_.*id:\\s+(\\S+)", said) == ["0x02c9", "7"], said


def test_one_program_uses_both_devices(cluster3: Cluster) -> None:
    """A message from each of its devices to the other, with addresses as the devices have them."""
    done = cluster3.exec("n0,n1", ["/usr/bin/python3", "-c", BOTH])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "flitnet0: of flitnet1\nflitnet1: of flitnet0\n"


def test_a_dead_node_is_missing_among_the_devices(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    both = devices(cluster.exec("n0,n1", ["ibv_devices"]).stdout)
    cluster.kill("hcad:n0")
    left = devices(cluster.exec("n0,n1", ["ibv_devices"]).stdout)
    assert len(both) == 2 and left == {"flitnet1": both["flitnet1"]}


def test_no_node_twice_and_none_unknown(cluster3: Cluster) -> None:
    for nodes, words in (("n0,n0", "twice"), ("n0,n9", "no node 'n9'")):
        with pytest.raises(UsageError, match=words):
            cluster3.exec(nodes, ["ibv_devices"])


BOTH = """
from pyverbs.addr import AHAttr
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR
import pyverbs.enums as e

names = sorted(d.name.decode() for d in get_device_list())
ends = []
for name in names:
    ctx = Context(name=name)
    pd = PD(ctx)
    cq = CQ(ctx, 8)
    mr = MR(pd, 64, e.IBV_ACCESS_LOCAL_WRITE)
    init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap())
    ends.append((name, ctx, pd, cq, mr, QP(pd, init)))
for mine, other in (ends, ends[::-1]):
    lid = other[1].query_port(1).lid
    attr = QPAttr(port_num=1)
    attr.dest_qp_num = other[5].qp_num
    attr.path_mtu, attr.max_rd_atomic, attr.max_dest_rd_atomic = e.IBV_MTU_1024, 1, 1
    attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
    attr.qp_access_flags = e.IBV_ACCESS_LOCAL_WRITE
    attr.ah_attr = AHAttr(port_num=1, is_global=0, dlid=lid)
    mine[5].to_rts(attr)
for name, _, _, _, mr, qp in ends:
    qp.post_recv(RecvWR(num_sge=1, sg=[SGE(mr.buf + 32, 32, mr.lkey)]))
for name, _, _, _, mr, qp in ends:
    text = f"of {name}"
    mr.write(text, len(text))
    qp.post_send(SendWR(num_sge=1, sg=[SGE(mr.buf, len(text), mr.lkey)]))
for name, _, _, cq, mr, _ in ends:
    done = 0
    while done < 2:
        n, wcs = cq.poll()
        done += n
        assert all(wc.status == e.IBV_WC_SUCCESS for wc in wcs)
    print(f"{name}: {mr.read(11, 32).decode()}")
"""

MANY = """
import ctypes as c
verbs = c.CDLL(None)
verbs.ibv_get_device_list.restype = c.POINTER(c.c_void_p)
verbs.ibv_open_device.restype = c.c_void_p
device = c.c_void_p(verbs.ibv_get_device_list(None)[0])
opened = [verbs.ibv_open_device(device) for i in range(200)]
print(sum(one is not None for one in opened), "open")
"""
