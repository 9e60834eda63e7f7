"""Disks and machines over verbs, unmodified from Debian's packages: fio's rdma engine, an iSER
target with the initiator in QEMU's block layer, and a virtual machine that moves from node to node.
The last two are tried where tgt and QEMU are installed: tgt would start a server of its own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen, run

import pytest

from tests.apps.test_stacks import ask_until, packets
from tests.apps.test_verbs import PORTS
from tools.flitnet.cluster import Cluster

KIB = 1024
INITIATOR = "iqn.2026-11.org.example:n0"
TARGET = "iqn.2026-11.org.example:disk"


@pytest.fixture(scope="module")
def cluster2() -> Iterator[Cluster]:
    with Cluster({"network": {"nodes": 2}}) as cluster:
        yield cluster


@pytest.mark.parametrize("verb", ["write", "read", "send"])
def test_fio(cluster2: Cluster, verb: str) -> None:
    port, size = next(PORTS), 2048 * KIB
    common = ["fio", "--thread", "--ioengine=rdma", f"--port={port}", f"--size={size}", "--bs=64k"]
    receiver = [*common, "--name=receiver", "--rw=read", "--filename=memory", "--iodepth=16"]
    sender = [*common, "--name=sender", "--rw=write", "--hostname=n1", f"--verb={verb}",
              "--iodepth=8", "--output-format=json"]  # fmt: skip
    before = packets(cluster2)
    server = cluster2.popen("n1", receiver)
    try:
        said = ask_until(lambda: cluster2.exec("n0", sender), server)
        assert server.wait(20) == 0
    finally:
        server.kill()
        server.communicate()
    (job,) = json.loads(said[said.index("{") :])["jobs"]
    assert job["write"]["io_bytes"] == size and job["error"] == 0
    assert packets(cluster2) > before + size // 4096, "it went another way"


def test_iser(cluster2: Cluster, tmp_path: Path) -> None:
    """What is written lies in the target's file, what is read is what was written: the target
    fetches by RDMA READ and brings by RDMA WRITE."""
    if shutil.which("tgtd") is None or not list(Path("/usr/lib").glob("*/qemu/block-iscsi.so")):
        pytest.skip("tgt or qemu-block-extra is not installed")
    blocks, block = 16, 128 * KIB
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(blocks * block))
    control = {"TGT_IPC_SOCKET": str(tmp_path / "control")}
    portal = f"portal=127.0.0.1:{next(PORTS)}"  # of iSCSI by TCP, which it opens besides
    server = cluster2.popen("n1", ["tgtd", "-f", "--iscsi", portal], env=control)
    try:
        for command in (
            f"target --op new --tid 1 -T {TARGET}",
            f"logicalunit --op new --tid 1 --lun 1 -b {disk}",
            "target --op bind --tid 1 -I ALL",
            f"target --op bind --tid 1 -Q {INITIATOR}",
        ):
            argv = ["tgtadm", "--lld", "iser", "--mode", *command.split()]
            env = os.environ | control
            ask_until(lambda argv=argv: run(argv, env=env, capture_output=True, text=True), server)
        image = (
            f"driver=iscsi,transport=iser,portal=127.1.0.2:3260,target={TARGET},lun=1,"
            f"initiator-name={INITIATOR}"
        )
        commands: list[str] = []
        for kind in ("write", "read"):
            for i in range(blocks):
                commands += ["-c", f"{kind} -P {i + 1} {i * block} {block}"]
        argv = ["qemu-io", "--image-opts", image, *commands, "-c", "flush"]
        said = ask_until(lambda: cluster2.exec("n0", argv), server)
    finally:
        server.kill()
        server.communicate()
    assert said.count(f"{block}/{block} bytes") == 2 * blocks and "failed" not in said, said
    assert disk.read_bytes() == b"".join(bytes([i + 1]) * block for i in range(blocks))


def test_a_virtual_machine_moves(cluster2: Cluster, tmp_path: Path) -> None:
    qemu = shutil.which("qemu-system-x86_64")
    if qemu is None:
        pytest.skip("qemu-system-x86 is not installed")
    machine = [qemu, "-M", "pc", "-m", "32", "-accel", "tcg", "-S", "-display", "none"]
    uri = f"rdma:127.1.0.2:{next(PORTS)}"

    def start(node: str, *more: str) -> tuple[Popen[str], Callable[..., dict]]:
        at = tmp_path / f"{node}.qmp"
        argv = [*machine, "-qmp", f"unix:{at},server,nowait", *more]
        process = cluster2.popen(node, argv)
        connection = socket.socket(socket.AF_UNIX)
        for _ in range(200):
            if connection.connect_ex(str(at)) == 0 or process.poll() is not None:
                break
            time.sleep(0.05)
        replies = connection.makefile()

        def command(name: str, **arguments: object) -> dict:
            asked = json.dumps({"execute": name, "arguments": arguments})
            connection.sendall(asked.encode())
            while True:
                reply = json.loads(replies.readline())
                if "return" in reply or "error" in reply:
                    assert "return" in reply, reply
                    return reply["return"]

        command("qmp_capabilities")
        return process, command

    before = packets(cluster2)
    target, ask_target = start("n1", "-incoming", uri)
    source, ask_source = start("n0")
    try:
        ask_source("migrate", uri=uri)
        for _ in range(300):
            state = ask_source("query-migrate")
            if state.get("status") in ("completed", "failed"):
                break
            time.sleep(0.1)
        assert state["status"] == "completed", state
        assert state["ram"]["remaining"] == 0 and state["ram"]["normal"] > 0
        assert ask_target("query-migrate")["status"] == "completed"
    finally:
        for process in (source, target):
            process.kill()
            process.communicate()
    assert packets(cluster2) > before + state["ram"]["normal"]
