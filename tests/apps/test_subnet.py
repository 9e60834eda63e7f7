"""Stock infiniband-diags on nodes: what the subnet's agents say of switches, links and counters."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.apps.test_half_dead import until
from tests.apps.test_rdma_cm import assert_multicasts
from tests.apps.test_verbs import assert_done, pingpong
from tools.flitnet import operate, pages
from tools.flitnet.cluster import Cluster

pytestmark = pytest.mark.skipif(
    shutil.which("ibnetdiscover") is None, reason="infiniband-diags is not installed"
)
NODES = 4
MESH = {"network": {"topology": "mesh:2x2"}}


def with_files(cluster: Cluster) -> Cluster:
    """Where the exporter has made what libibumad reads first; it takes active ports only."""
    for node in cluster.nodes:
        classes = cluster.run / "sys/nodes" / node / "class"
        state = classes / "infiniband/flitnet0/ports/1/state"
        for _ in range(500):
            made = (classes / "infiniband_mad/umad0/port").exists() and state.exists()
            if made and "ACTIVE" in state.read_text():
                break
            time.sleep(0.02)
    return cluster


@pytest.fixture(scope="module")
def mesh() -> Iterator[Cluster]:
    with Cluster(MESH, exporter="off") as cluster:
        yield with_files(cluster)


@pytest.fixture
def make(make_cluster: Callable[..., Cluster]) -> Callable[..., Cluster]:
    return lambda tables: with_files(make_cluster(tables, exporter="off"))


def said(cluster: Cluster, argv: list[str], node: str = "n0") -> str:
    done = cluster.exec(node, argv)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def links_of(discovered: str) -> list[str]:
    """The lines of ibnetdiscover that name a port and what is behind it."""
    return re.findall(r'^\[\d+\](?:\(\w+\))?\s+"[SH]-\w+"\[\d+\]', discovered, re.MULTILINE)


def counters(cluster: Cluster, lid: int, port: int, *options: str) -> dict[str, int]:
    text = said(cluster, ["perfquery", *options, str(lid), str(port)])
    return {name: int(value) for name, value in re.findall(r"^(\w+):\.*(\d+)$", text, re.MULTILINE)}


def test_multicast_is_counted_apart(make: Callable[..., Cluster]) -> None:
    cluster = make({"network": {"nodes": 3}})
    assert_multicasts(cluster, 10, 100)
    # n1 sends, a copy to each other node; the last may be on its way.
    until(lambda: counters(cluster, 1, 1, "-x")["PortMulticastRcvPkts"] == 10)
    sent, received = counters(cluster, 2, 1, "-x"), counters(cluster, 1, 1, "-x")
    assert sent["PortMulticastXmitPkts"] == sent["PortXmitPkts"] == 20
    assert sent["PortUnicastXmitPkts"] == received["PortUnicastRcvPkts"] == 0
    assert received["PortMulticastXmitPkts"] == sent["PortMulticastRcvPkts"] == 0


def test_discovery_finds_the_network_that_there_is(mesh: Cluster) -> None:
    text = said(mesh, ["ibnetdiscover"])
    assert len(re.findall(r"^Switch\t", text, re.MULTILINE)) == 4
    assert len(re.findall(r"^Ca\t", text, re.MULTILINE)) == NODES
    # Each link from both ends: four between switches, one to each node.
    assert len(links_of(text)) == 2 * (4 + NODES)
    for node in range(NODES):
        assert f"n{node} flitnet0" in text
    hosts = said(mesh, ["ibhosts"])
    assert [f"n{node} " in hosts for node in range(NODES)] == [True] * NODES
    assert said(mesh, ["ibswitches"]).count("Switch") == 4
    assert said(mesh, ["iblinkinfo", "-l"]).count("LinkUp") == 2 * (4 + NODES)


def test_what_was_discovered_is_a_topology(
    mesh: Cluster, make: Callable[..., Cluster], tmp_path: Path
) -> None:
    file = tmp_path / "found.topo"
    file.write_text(said(mesh, ["ibnetdiscover"]))
    copy = make({"network": {"topology": f"file:{file}", "nodes": NODES}})
    assert len(links_of(said(copy, ["ibnetdiscover"]))) == len(links_of(file.read_text()))
    assert_done(pingpong(copy, ["ibv_rc_pingpong"], 18590))


def test_a_link_that_is_down_is_not_found(make: Callable[..., Cluster]) -> None:
    cluster = make({"network": {"topology": "tree:2x2"}})
    before = links_of(said(cluster, ["ibnetdiscover"]))
    operate.set_link(cluster.run, "0:2", "down")
    assert len(links_of(said(cluster, ["ibnetdiscover"]))) == len(before) - 2
    operate.set_link(cluster.run, "0:2", "up")
    assert links_of(said(cluster, ["ibnetdiscover"])) == before
    # Port 2 is InfiniBand's port 3; switches come behind the nodes.
    assert counters(cluster, NODES + 1, 3)["LinkDownedCounter"] == 1
    assert counters(cluster, NODES + 1, 4)["LinkDownedCounter"] == 0


def test_without_a_link_a_node_finds_itself(make: Callable[..., Cluster]) -> None:
    """Its own HCA answers, and says that the port is down; there is no way to any other."""
    cluster = make(MESH)
    info = said(cluster, ["smpquery", "-D", "nodeinfo", "0"])
    port = said(cluster, ["smpquery", "-D", "portinfo", "0", "1"])
    assert port.count("LinkUp") == port.count(".Active") == 1
    operate.set_link(cluster.run, "n0", "down")
    until(lambda: "PORT_DOWN" in said(cluster, ["ibv_devinfo"]))
    text = said(cluster, ["ibnetdiscover"])
    assert re.findall(r"^(?:Ca|Switch)\t.*", text, re.MULTILINE) == [
        'Ca\t1 "H-0002c90300000001"\t\t# "n0 flitnet0"'
    ]
    assert links_of(text) == []
    assert said(cluster, ["smpquery", "-D", "nodeinfo", "0"]) == info
    down = port.replace(".Active", ".Down").replace("LinkUp", "Polling")
    assert said(cluster, ["smpquery", "-D", "portinfo", "0", "1"]) == down
    assert cluster.exec("n0", ["smpquery", "-D", "nodeinfo", "0,1"]).returncode != 0
    assert cluster.exec("n0", ["sminfo"]).returncode != 0
    operate.set_link(cluster.run, "n0", "up")
    until(lambda: "n0 " in said(cluster, ["ibhosts"], "n1"))
    assert said(cluster, ["smpquery", "-D", "portinfo", "0", "1"]) == port


def test_a_node_that_died_is_not_found(make: Callable[..., Cluster]) -> None:
    cluster = make(MESH)
    cluster.kill("hcad:n2")
    for _ in range(200):
        hosts = said(cluster, ["ibhosts"])
        if "n2 " not in hosts:
            break
        time.sleep(0.02)
    assert hosts.count("Ca") == NODES - 1 and "n2 " not in hosts


def test_counters_are_those_of_the_files(mesh: Cluster) -> None:
    assert_done(pingpong(mesh, ["ibv_rc_pingpong"], 18591))
    before = counters(mesh, 1, 1, "-x")
    assert before["PortXmitPkts"] >= 1000 and before["PortRcvPkts"] >= 1000
    # n0 hangs on the first switch: what one end sends the other receives.
    first = said(mesh, ["smpquery", "-D", "nodeinfo", "0,1"])
    port = int(re.search(r"LocalPort:\.*(\d+)", first)[1])
    switch = counters(mesh, NODES + 1, port, "-x")
    assert switch["PortRcvPkts"] == before["PortXmitPkts"]
    assert switch["PortXmitData"] == before["PortRcvData"]
    # The node's files say the same of its port; the exporter writes them once a second.
    files = mesh.run / "sys/nodes/n0/class/infiniband/flitnet0/ports/1/counters"
    names = {"PortXmitData": "port_xmit_data", "PortRcvData": "port_rcv_data",
             "PortXmitPkts": "port_xmit_packets", "PortRcvPkts": "port_rcv_packets"}  # fmt: skip
    for _ in range(500):
        in_files = {name: int((files / file).read_text()) for name, file in names.items()}
        if in_files == {name: before[name] for name in names}:
            break
        time.sleep(0.02)
    assert in_files == {name: before[name] for name in names}
    said(mesh, ["perfquery", "-R", "1", "1"])
    assert counters(mesh, 1, 1)["PortXmitPkts"] == 0
    assert counters(mesh, NODES + 1, port, "-x") == switch, "of that port only"


def test_ways_by_forwarding_tables_end_where_they_should(mesh: Cluster) -> None:
    text = said(mesh, ["ibtracert", "1", str(NODES)])
    assert re.search(r"^To ca .*lid 4-4 \"n3 flitnet0\"", text, re.MULTILINE), text
    assert text.count("switch port") >= 1
    assert "'n3 flitnet0'" in said(mesh, ["ibroute", str(NODES + 1)])


def test_the_subnet_manager_answers(mesh: Cluster) -> None:
    assert re.search(r"sm lid 1 .*state 3 SMINFO_MASTER", said(mesh, ["sminfo"], "n2"))
    assert "LinkUp" in said(mesh, ["smpquery", "portinfo", "2", "1"])
    assert "n1 flitnet0" in said(mesh, ["smpquery", "nodedesc", "2"])
    records = said(mesh, ["saquery", "-p", "--src-to-dst", "1:4"])
    assert re.search(r"dlid\.+4\b", records) and re.search(r"slid\.+1\b", records), records
    # All pairs of nodes and switches: more than one packet holds.
    paths = said(mesh, ["saquery", "-p"])
    assert paths.count("PathRecord dump") == (4 + NODES) ** 2
    names = said(mesh, ["saquery"])
    assert [names.count(f"n{node} flitnet0") for node in range(NODES)] == [1] * NODES


JOIN = r"""
import ctypes, sys
umad = ctypes.CDLL("libibumad.so.3", use_errno=True)
method, node, mgid = int(sys.argv[1], 0), int(sys.argv[2]), bytes.fromhex(sys.argv[3])
fd = umad.umad_open_port(b"flitnet0", 1)
agent = umad.umad_register(fd, 3, 2, 0, None)
buffer = ctypes.create_string_buffer(umad.umad_size() + 256)
umad.umad_set_addr(buffer, 1, 1, 0, 0x80010000)
mad = bytearray(256)
mad[0:4] = bytes([1, 3, 2, method])
mad[16:18] = (0x38).to_bytes(2, "big")
# MGID, PortGID, Q_Key, TClass, P_Key, SL, flow label, JoinState
mad[48:56] = (0x130c7).to_bytes(8, "big")
mad[56:72] = mgid
mad[72:88] = bytes.fromhex("fe80000000000000") + (0x0002c90300000001 + node).to_bytes(8, "big")
mad[88:92] = (0x1234).to_bytes(4, "big")
mad[96:98] = b"\xff\xff"
mad[104] = 1
buffer[umad.umad_size():] = bytes(mad)
assert umad.umad_send(fd, agent, buffer, 256, 1000, 3) == 0
length = ctypes.c_int(256)
assert umad.umad_recv(fd, buffer, ctypes.byref(length), 5000) == agent
answer = bytes(buffer)[umad.umad_size():]
print(answer[4:6].hex(), answer[92:94].hex())
"""
SET, DELETE = "0x02", "0x15"


def test_groups_are_joined_at_the_administration(make: Callable[..., Cluster]) -> None:
    cluster = make({"network": {"nodes": 3}})

    def asks(node: int, method: str, mgid: str) -> str:
        return said(cluster, ["python3", "-c", JOIN, method, str(node), mgid], f"n{node}").strip()

    # As rdma_cm has 239.1.1.1, which has this LID at every node.
    group = "ff124001ffff0000000000000f010101"
    lid = f"{0xC000 + 0x0F010101 % 0x3FFE:04x}"
    assert said(cluster, ["saquery", "-g"]) == ""
    for node in (0, 2):
        assert asks(node, SET, group) == f"0000 {lid}"
    assert said(cluster, ["saquery", "-m"]).count("MCMemberRecord") == 1, "who is not told"
    members = said(cluster, ["saquery", "-m", "--smkey", "1"], "n1")
    assert re.findall(r"Mlid\.+0x(\w+)", members) == [lid.upper()] * 2
    assert re.findall(r"NodeDescription\.+(\w+)", members) == ["n0", "n2"]
    assert re.search(r"MGID\.+ff12:4001:ffff::f01:101\n", said(cluster, ["saquery", "-g"]))
    assert re.search(r"Capability mask\.+0x0200\n", said(cluster, ["saquery", "-c"]))
    # The node that goes is in it no longer; the other leaves, once.
    cluster.kill("hcad:n2")
    until(lambda: "n2" not in said(cluster, ["saquery", "-m", "--smkey", "1"]))
    assert asks(0, DELETE, group) == f"0000 {lid}"
    assert asks(0, DELETE, group)[:4] == "0200"
    assert said(cluster, ["saquery", "-m"]) == ""


@pytest.mark.parametrize("what", ["link", "fabric"])
def test_who_is_in_groups_no_longer_is_told(make: Callable[..., Cluster], what: str) -> None:
    """The port was away, or its manager began anew: as on hardware its programs join once more."""
    cluster = make({"network": {"nodes": 2}})
    watch = cluster.popen("n1", ["stdbuf", "-oL", "ibv_asyncwatch"])
    assert "flitnet0" in watch.stdout.readline()
    asked = ["python3", "-c", JOIN, SET, "1", "ff124001ffff0000000000000f010101"]
    assert said(cluster, asked, "n1").startswith("0000 ")
    assert "MCMemberRecord" in said(cluster, ["saquery", "-m"])
    if what == "link":
        operate.set_link(cluster.run, "n1", "down")
        operate.set_link(cluster.run, "n1", "up")
    else:
        cluster.kill("fabricd")
        cluster.start_fabricd()
    heard = [watch.stdout.readline() for _ in range(3)]
    for event, line in zip(("PORT_ERR", "PORT_ACTIVE", "CLIENT_REREGISTER"), heard, strict=True):
        assert f"IBV_EVENT_{event}" in line, heard
    assert said(cluster, ["saquery", "-m"], "n1") == ""
    assert said(cluster, asked, "n1").startswith("0000 ")
    assert "MCMemberRecord" in said(cluster, ["saquery", "-m"], "n1")
    watch.kill()
    watch.communicate(timeout=10)


@pytest.mark.parametrize("argv", [
    ["ib_send_bw"], ["ib_send_bw", "-e"], ["ib_send_lat"],
], ids="_".join)  # fmt: skip
def test_perftest_to_a_group(mesh: Cluster, argv: list[str]) -> None:
    """It joins at the administration, sends to the LID that it is told, and leaves."""
    flags = ["-F", "-g", "-c", "UD", "-n", "100", "-s", "1024"]
    client, server_said, server_code = pingpong(mesh, [*argv, *flags], 18592)
    assert client.returncode == 0 and server_code == 0, client.stdout + client.stderr + server_said
    assert re.search(r"^ 1024 +100 ", client.stdout, re.MULTILINE), client.stdout
    assert "Multicast Test" in client.stdout and "ailed" not in client.stdout + server_said
    assert said(mesh, ["saquery", "-m"]) == "", "both have left"


def test_nodes_ping_each_other(mesh: Cluster) -> None:
    server = mesh.popen("n1", ["ibping", "-S"], stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            done = mesh.exec("n0", ["ibping", "-c", "3", "-t", "200", "2"])
            if " 0% packet loss" in done.stdout:
                break
            time.sleep(0.05)  # it has not registered yet
        assert "3 packets transmitted, 3 received" in done.stdout, done.stdout + done.stderr
    finally:
        server.kill()
        server.wait()


def test_datagrams_of_management_are_counted_as_received(make: Callable[..., Cluster]) -> None:
    """Those of QP1 and of the subnet's agents: as any packet, on the port that took them."""
    cluster = make(MESH)
    server = cluster.popen("n3", ["ibping", "-S"], stdout=subprocess.DEVNULL)

    def received(node: str) -> float:
        return pages.read(cluster.run).total("flitnet_class_received_packets_total", node=node)

    def until(node: str, packets: float) -> None:
        for _ in range(500):  # hcad publishes now and then
            if received(node) >= packets:
                return
            time.sleep(0.02)
        raise AssertionError((node, packets, received(node)))

    try:
        for _ in range(100):
            done = cluster.exec("n2", ["ibping", "-c", "20", "-f", "-t", "200", "4"])
            if " 0% packet loss" in done.stdout:
                break
            time.sleep(0.05)  # it has not registered yet
        until("n2", 20)
        until("n3", 20)
        before = received("n2")
        said(cluster, ["saquery", "-p"], "n2")
        until("n2", before + 1)
    finally:
        server.kill()
        server.wait()


def test_a_server_ends_with_its_hcad(make: Callable[..., Cluster]) -> None:
    """A stock umad_recv() takes 0 bytes for a datagram: it would ask for ever."""
    cluster = make(MESH)
    server = cluster.popen("n1", ["ibping", "-S"], stdout=subprocess.DEVNULL)
    for _ in range(100):
        done = cluster.exec("n0", ["ibping", "-c", "1", "-t", "200", "2"])
        if " 0% packet loss" in done.stdout:
            break
        time.sleep(0.05)
    cluster.kill("hcad:n1")
    server.wait(20)


def test_classes_need_no_service_level(make: Callable[..., Cluster]) -> None:
    """Whatever service levels are for, the subnet's datagrams are control."""
    cluster = make(MESH | {"qos": {"sl_class": ["best_effort"] * 16}})
    assert "SMINFO_MASTER" in said(cluster, ["sminfo"])
    assert cluster.absent() == {}


def test_small_buffers_hold_datagrams(make: Callable[..., Cluster]) -> None:
    cut_through = {"router": "vct", "packet_size": 16, "vc_buf_size": 21}
    cluster = make({"network": MESH["network"] | cut_through})
    assert "SMINFO_MASTER" in said(cluster, ["sminfo"])
    assert cluster.absent() == {}


def test_tables_of_many_records(make: Callable[..., Cluster]) -> None:
    cluster = make({"network": {"topology": "mesh:4x4"}})
    assert said(cluster, ["saquery", "-p"]).count("PathRecord dump") == 32 * 32


UMAD = r"""
import ctypes, errno, os, fcntl
umad = ctypes.CDLL("libibumad.so.3", use_errno=True)
assert umad.umad_init() == 0
fd = umad.umad_open_port(b"flitnet0", 1)
other = umad.umad_open_port(b"flitnet0", 1)
agent = umad.umad_register(fd, 3, 2, 0, None)
assert fd >= 0 and agent == 0, (fd, agent)
def write(count, agent=agent, fd=fd):
    mad = bytearray(64 + 300)
    mad[0:4] = agent.to_bytes(4, "little")
    mad[8:12] = (1000).to_bytes(4, "little")   # timeout, ms
    mad[20:24] = (1).to_bytes(4, "big")        # QP1
    mad[28:30] = (1).to_bytes(2, "big")        # LID of the subnet's manager
    mad[64:68] = bytes([1, 3, 2, 0x12])        # GetTable of the subnet's administration
    mad[72:80] = bytes(range(8))
    mad[80:82] = (0x35).to_bytes(2, "big")     # PathRecord
    try:
        return os.write(fd, mad[:count])
    except OSError as error:
        return errno.errorcode[error.errno]
print(write(0), write(64 + 20), write(64 + 300), write(64 + 256, 32), write(64 + 256, 0xffffffff))
# A read that waits looks at what comes before it takes it.
fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
assert write(64 + 256) == 64 + 256
libc = ctypes.CDLL(None, use_errno=True)
room = ctypes.create_string_buffer(1 << 16)
got = libc.read(fd, room, ctypes.c_size_t(64 + 256))
print(got, errno.errorcode.get(ctypes.get_errno()))
print(libc.read(fd, room, ctypes.c_size_t(1 << 16)) > 64 + 64 * 64)
# Agents: who sends has one, and nobody has another's.
print(write(64 + 256, 1), write(64 + 256, fd=other))
def serve(fd, method):
    mask = (ctypes.c_long * 2)(1 << method, 0)
    agent = umad.umad_register_oui(fd, 0x32, 0, bytes([0, 0x14, 5]), mask)
    return agent if agent >= 0 else (agent, errno.errorcode[ctypes.get_errno()])
print(serve(fd, 1), serve(fd, 1), serve(other, 1), serve(other, 2))
print(umad.umad_unregister(fd, 1), umad.umad_unregister(fd, 1), serve(other, 1))
# By another descriptor of the file, and by one that was another file's: it has the file's agents.
more = os.dup(fd)
assert write(64 + 256, fd=more) == 64 + 256
umad.umad_close_port(other)
assert os.dup2(fd, other) == other and serve(fd, 2) == 1
for _ in range(30):
    umad.umad_register(fd, 3, 2, 0, None)
print(umad.umad_register(fd, 3, 2, 0, None), write(64 + 256, 31, fd=other))
"""


def test_what_a_kernel_refuses_and_what_it_keeps(mesh: Cluster) -> None:
    done = mesh.exec("n0", ["/usr/bin/python3", "-c", UMAD])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == [
        "EINVAL EINVAL EINVAL EINVAL EINVAL", "-1 ENOSPC", "True", "EIO EIO",
        "1 (-1, 'EINVAL') (-1, 'EINVAL') 0", "0 -1 1", "-1 320", "",
    ]  # fmt: skip


def test_without_a_fabric_tools_end_with_an_error(make: Callable[..., Cluster]) -> None:
    cluster = make(MESH)
    cluster.kill("fabricd")
    done = cluster.exec("n0", ["sminfo"], timeout=60)
    assert done.returncode != 0


def test_a_port_is_the_same_to_verbs_files_and_agents(mesh: Cluster) -> None:
    for place, node in enumerate(mesh.nodes):
        verbs = said(mesh, ["ibv_devinfo", "-v"], node)
        files = said(mesh, ["ibstat"], node)
        info = said(mesh, ["smpquery", "nodeinfo", str(place + 1)])
        port = said(mesh, ["smpquery", "portinfo", str(place + 1), "1"])
        version = re.search(r"hw_ver:\s+(0x\w+)", verbs)[1]
        assert re.search(r"Hardware version: (\w+)", files)[1] == f"{int(version, 16):x}"
        assert int(re.search(r"Revision:\.+(0x\w+)", info)[1], 16) == int(version, 16)
        able = re.search(r"port_cap_flags:\s+(0x\w+)", verbs)[1]
        assert re.search(r"Capability mask: (0x\w+)", files)[1] == able
        assert int(re.search(r"CapMask:\.+(0x\w+)", port)[1], 16) == int(able, 16)
        named = said(mesh, ["cat", "/sys/class/infiniband/flitnet0/node_desc"], node).strip()
        assert said(mesh, ["smpquery", "nodedesc", str(place + 1)]).strip().endswith(f".{named}")


def test_states_of_ports(mesh: Cluster) -> None:
    assert "LinkUp" in said(mesh, ["ibportstate", str(NODES + 1), "1", "query"])
    # Links are taken out of service by `flitnet link`; nobody else changes the subnet.
    done = mesh.exec("n0", ["ibportstate", str(NODES + 1), "2", "disable"])
    assert done.returncode != 0


def test_roce_has_no_subnet(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster({"network": {"nodes": 2}, "hca": {"link_layer": "roce_v2"}})
    done = cluster.exec("n0", ["sminfo"])
    assert done.returncode != 0 and "terminate" not in done.stderr
