"""`flitnet capture`: what crossed the fabric, as tshark reads it, and that nobody is disturbed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.apps.test_verbs import assert_done, pingpong
from tools.flitnet import ctl, paths
from tools.flitnet.cluster import Cluster

RC_SEND_FIRST, RC_SEND_MIDDLE, RC_SEND_LAST, RC_SEND_ONLY, RC_ACK = 0, 1, 2, 4, 17


class Capture:
    """`flitnet capture` of a cluster; ready when fabricd has a reader."""

    def __init__(self, cluster: Cluster, *options: str) -> None:
        self.cluster = cluster
        self.process = subprocess.Popen(
            [str(paths.ROOT / "flitnet"), "capture", *options], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=dict(os.environ) | {"FLITNET_RUN": str(cluster.run)},
        )  # fmt: skip

    def ready(self, file: Path) -> Capture:
        """The file begins when the ring is open."""
        for _ in range(1000):
            if file.exists() and file.stat().st_size >= 24:
                return self
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.01)
        raise AssertionError("the capture does not begin")

    def end(self, sign: int | None = signal.SIGINT) -> str:
        if sign is not None:
            self.process.send_signal(sign)
        _, said = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, said
        return said


def dissected(file: Path) -> list[list[str]]:
    """Opcode, source and destination LID and time of each packet; none malformed."""
    if shutil.which("tshark") is None:
        pytest.skip("no tshark here")
    fields = ["infiniband.bth.opcode", "infiniband.lrh.slid", "infiniband.lrh.dlid",
              "frame.time_epoch"]  # fmt: skip
    argv = ["tshark", "-r", str(file), "-T", "fields", *(w for f in fields for w in ("-e", f))]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    wrong = subprocess.run(
        ["tshark", "-r", str(file), "-Y", "_ws.malformed"], capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    assert wrong.stdout == ""
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_tshark_reads_a_conversation(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = make_cluster({"network": {"nodes": 3}})
    file = tmp_path / "all.pcap"
    capture = Capture(cluster, "-w", str(file)).ready(file)
    assert_done(pingpong(cluster, ["ibv_rc_pingpong", "-n", "50", "-s", "256"], 19301))
    said = capture.end()
    packets = dissected(file)
    assert f"{len(packets)} packets captured, 0 left out" in said
    opcodes = Counter(int(packet[0]) for packet in packets)
    assert opcodes[RC_SEND_ONLY] == 100, opcodes
    assert opcodes[RC_ACK] > 0 and set(opcodes) == {RC_SEND_ONLY, RC_ACK}
    lids = Counter((packet[1], packet[2]) for packet in packets)
    assert set(lids) == {("1", "2"), ("2", "1")}
    times = [float(packet[3]) for packet in packets]
    assert times == sorted(times), "by emulated time of arrival"


def test_one_node_only_and_so_many(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = make_cluster({"network": {"nodes": 3, "pass_through": True}})
    other, one = tmp_path / "other.pcap", tmp_path / "one.pcap"
    capture = Capture(cluster, "-w", str(other), "--node", "n2").ready(other)
    assert_done(pingpong(cluster, ["ibv_rc_pingpong", "-n", "20"], 19302))
    assert capture.end().startswith("0 packets captured")
    capture = Capture(cluster, "-w", str(one), "--node", "n1,n2", "--count", "25").ready(one)
    assert_done(pingpong(cluster, ["ibv_rc_pingpong", "-n", "20"], 19303))
    capture.end(None)
    assert len(dissected(one)) == 25


def test_packets_that_travel_in_trains_are_packets(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """What has no network goes in trains, but that is nobody's business."""
    cluster = make_cluster({"network": {"nodes": 2, "pass_through": True}})
    file = tmp_path / "trains.pcap"
    capture = Capture(cluster, "-w", str(file)).ready(file)
    argv = ["ibv_rc_pingpong", "-n", "10", "-s", "65536", "-m", "1024", "-c"]
    assert_done(pingpong(cluster, argv, 19306))
    capture.end()
    opcodes = Counter(int(packet[0]) for packet in dissected(file))
    assert opcodes.pop(RC_ACK) > 0
    assert opcodes == {RC_SEND_FIRST: 20, RC_SEND_MIDDLE: 20 * 62, RC_SEND_LAST: 20}
    best_effort = cluster.status()["classes"]["best_effort"]
    assert best_effort["packets"] >= 20 * 64


def test_through_a_pipe_until_its_reader_goes(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = make_cluster()
    capture = Capture(cluster, "-w", "-")
    assert capture.process.stdout.buffer.read(24), "the file's head comes at once"
    capture.process.stdout.close()
    assert_done(pingpong(cluster, ["ibv_rc_pingpong", "-n", "50"], 19304))
    assert capture.process.wait(30) == 1
    assert "cannot be written" in capture.process.stderr.read()


def test_through_a_pipe_that_has_a_name(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster, pipe, file = make_cluster(), tmp_path / "pipe", tmp_path / "read"
    os.mkfifo(pipe)
    with file.open("wb") as into, subprocess.Popen(["cat", pipe], stdout=into) as reader:
        capture = Capture(cluster, "-w", str(pipe)).ready(file)
        assert_done(pingpong(cluster, ["ibv_rc_pingpong", "-n", "50"], 19307))
        capture.end()
        assert reader.wait(30) == 0
    assert len(dissected(file)) >= 100


def test_a_reader_that_sleeps_holds_nobody_up(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """More packets than the ring has room for pass while nobody reads; they are counted."""
    cluster = make_cluster({"network": {"nodes": 2, "pass_through": True}})
    file = tmp_path / "late.pcap"
    capture = Capture(cluster, "-w", str(file)).ready(file)
    capture.process.send_signal(signal.SIGSTOP)
    assert_done(pingpong(cluster, ["ibv_rc_pingpong", "-n", "2000"], 19305))
    capture.process.send_signal(signal.SIGCONT)
    said = capture.end()
    captured, left_out = (int(word) for word in said.split() if word.isdigit())
    assert captured == len(dissected(file)) == 2048, said
    assert left_out > 0


def test_one_at_a_time_and_it_ends_with_the_fabric(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = make_cluster()
    file = tmp_path / "a.pcap"
    capture = Capture(cluster, "-w", str(file)).ready(file)
    second = Capture(cluster, "-w", str(tmp_path / "b.pcap")).process
    _, said = second.communicate(timeout=30)
    assert second.returncode == 2 and "running already" in said
    capture.process.kill()
    capture.process.communicate(timeout=30)
    # A reader that died leaves its place.
    third = Capture(cluster, "-w", str(again := tmp_path / "c.pcap")).ready(again)
    cluster.kill("fabricd")
    assert "captured" in third.end(None)
    cluster.down()
    assert not cluster.run.exists(), "the ring of a fabric that was killed goes, too"


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["-w", "/nowhere/a.pcap"], 1, "/nowhere/a.pcap"),
        (["-w", "{}/a.pcap", "--node", "n9"], 2, "no node 'n9'"),
        (["-w", "{}/new.pcap", "--node", "n9"], 2, "no node 'n9'"),
        (["-w", "{}/a.pcap", "--count", "-1"], 2, "count"),
        ([], 2, "--write"),
    ],
)
def test_what_cannot_be(
    cluster2: Cluster, tmp_path: Path, options: list[str], code: int, says: str
) -> None:
    (tmp_path / "a.pcap").write_text("precious")
    process = Capture(cluster2, *(one.format(tmp_path) for one in options)).process
    _, said = process.communicate(timeout=30)
    assert (tmp_path / "a.pcap").read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["a.pcap"]
    assert process.returncode == code and says in said, said
    assert len(said.strip().splitlines()) == 1, said
    assert "links" in ctl.ask(cluster2.run / "fabricd.ctl", {"cmd": "links"})
