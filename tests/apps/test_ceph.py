"""Ceph with its RDMA messenger, unmodified from Debian's packages: a monitor, an OSD in memory and
a client, each on its own node; by its own exchange of QP numbers over TCP and by rdma_cm."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.test_stacks import ask_until, packets
from tests.apps.test_verbs import PORTS
from tools.flitnet.cluster import Cluster

OBJECT_BYTES = 3 << 20
BY_CM = "ms_async_rdma_cm = true\nms_async_rdma_type = iwarp\n"  # the two go together

# Its own default is 32768 receive buffers of 128 KiB for every program.
CONFIG = """[global]
fsid = {fsid}
mon_host = [v2:127.1.0.1:{port}]
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_bind_msgr1 = false
ms_type = async+rdma
ms_async_rdma_device_name = flitnet0
ms_async_rdma_receive_buffers = 512
ms_async_rdma_receive_queue_len = 128
ms_async_rdma_send_buffers = 256
osd_pool_default_size = 1
mon_allow_pool_size_one = true
mon_data_avail_crit = 1
osd_objectstore = memstore
mon_data = {at}/mon
osd_data = {at}/osd
log_file = {at}/$name.log
run_dir = {at}
admin_socket =
crash_dir = {at}
"""


@pytest.fixture(scope="module")
def cluster3() -> Iterator[Cluster]:
    with Cluster({"network": {"nodes": 3}, "controls": {"power_control": False}}) as cluster:
        yield cluster


@pytest.mark.parametrize("more", ["", BY_CM], ids=["exchange", "rdma_cm"])
def test_an_object_comes_back(cluster3: Cluster, tmp_path: Path, more: str) -> None:
    for program in ("ceph-mon", "ceph-osd", "ceph", "rados"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    fsid, osd, address = str(uuid.uuid4()), str(uuid.uuid4()), f"[v2:127.1.0.1:{next(PORTS)}]"
    text = CONFIG.format(fsid=fsid, port=address[:-1].rsplit(":", 1)[1], at=tmp_path)
    (tmp_path / "conf").write_text(text + more)
    (tmp_path / "osd").mkdir()
    sent, got = tmp_path / "sent", tmp_path / "got"
    sent.write_bytes(bytes(i * i % 251 for i in range(OBJECT_BYTES)))
    conf = ["-c", str(tmp_path / "conf")]

    def run(node: str, *argv: str) -> None:
        done = cluster3.exec(node, [argv[0], *conf, *argv[1:]], timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

    monmap = str(tmp_path / "monmap")
    run("n0", "monmaptool", "--create", "--addv", "a", address, "--fsid", fsid, monmap)
    run("n0", "ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
    run("n1", "ceph-osd", "--mkfs", "-i", "0", "--no-mon-config", "--osd-uuid", osd)
    daemons = [cluster3.popen("n0", ["ceph-mon", *conf, "-i", "a", "-f"])]
    client = ["ceph", *conf, "--connect-timeout", "20"]
    try:
        ask_until(lambda: cluster3.exec("n2", [*client, "osd", "new", osd]), daemons[0])
        where = ["--public-addr", "127.1.0.2", "--cluster-addr", "127.1.0.2"]
        daemons.append(cluster3.popen("n1", ["ceph-osd", *conf, "-i", "0", "-f", *where]))
        ask_until(
            lambda: cluster3.exec("n2", [*client, "osd", "stat"]),
            daemons[1],
            lambda done: "1 up" in done.stdout,
        )
        run("n2", "ceph", "osd", "pool", "create", "p", "1", "1")
        before = packets(cluster3)
        run("n2", "rados", "-p", "p", "put", "object", str(sent))
        run("n2", "rados", "-p", "p", "get", "object", str(got))
    finally:
        for daemon in daemons:
            daemon.kill()
            daemon.communicate()
    assert got.read_bytes() == sent.read_bytes()
    assert packets(cluster3) > before + 2 * OBJECT_BYTES // 4096, "it went another way"
