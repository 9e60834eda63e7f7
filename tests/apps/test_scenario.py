"""The demo as data, metric pages and reports: no processes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tools.flitnet import config, logs, pages, scenario, screen, traffic
from tools.flitnet.errors import UsageError
from tools.flitnet.process import ProcessId, stop_all
from tools.flitnet.report import LoadReport, StreamReport, report, total_of
from tools.flitnet.scenario import Request, plan


def test_every_node_sends_and_receives_the_asked_load() -> None:
    for request in (Request(), Request(seed=7), Request(load=0.8, nodes=5), Request(mix="50:50")):
        made = plan(request)
        sent: Counter[str] = Counter()
        received: Counter[str] = Counter()
        for stream in made.streams:
            assert stream.source != stream.target
            sent[stream.source] += stream.rate_bps
            received[stream.target] += stream.rate_bps
        want = request.load * request.shares()[0] * request.link_mbps * 1e6
        for node in made.nodes:
            assert sent[node] == pytest.approx(want, rel=0.02)
            assert received[node] == pytest.approx(want, rel=0.02)
        names = [stream.name for stream in made.streams]
        assert len(set(names)) == len(names)
        assert made.best_effort_bps == round(
            request.load * request.shares()[1] * request.link_mbps * 1e6
        )


def test_a_scenario_is_its_seed() -> None:
    assert plan(Request(seed=3)) == plan(Request(seed=3))
    assert plan(Request(seed=3)) != plan(Request(seed=4))


def test_streams_have_their_own_phases() -> None:
    made = plan(Request())
    assert len({(s.clip, s.first_frame, s.phase_us) for s in made.streams}) == len(made.streams)


def test_overload_asks_for_more_than_a_link() -> None:
    made = plan(Request(overload=True))
    per_node = sum(stream.rate_bps for stream in made.streams) / 8
    assert per_node > 1.2 * 400e6


def test_a_load_that_no_clip_fits_is_refused() -> None:
    with pytest.raises(UsageError, match="--load 0.01: no clip fits"):
        plan(Request(load=0.01, link_mbps=100))


def test_plan_text_has_a_line_per_stream() -> None:
    made = plan(Request())
    lines = made.plan_text(Path("clips")).splitlines()
    assert len(lines) == len(made.streams)
    assert lines[0].startswith("name=s000-") and ",clip=clips/t" in lines[0]


def test_flits_of_full_and_short_packets() -> None:
    header = scenario.PIECE_HEADER_BYTES
    assert scenario.flits_of(612 - header) == 40
    assert scenario.flits_of(613 - header) == 40 + 2  # 27 bytes
    assert scenario.flits_of(2 * 612 - header) == 80
    assert scenario.flits_of(32 * 612 - header) == 32 * 40
    assert scenario.flits_of(32 * 612 - header + 1) == 32 * 40 + 6  # a header and a byte


def test_toml_is_read_back() -> None:
    nodes = [{"name": "a"}, {"name": "b"}]
    tables = {"network": {"nodes": 2}, "clock": {"mode": "real"}, "node": nodes}
    made = config.parse(config.to_toml(tables))
    assert made.node_names == ("a", "b")
    with pytest.raises(UsageError, match="cluster.toml: "):
        config.parse("[network\n")
    assert len(config.parse('[network]\ntopology = "mesh"\nk = 3\n').node_names) == 9
    assert len(config.parse("").node_names) == 8
    assert config.parse("network = 3\n").node_names == ()


# Metric pages, written by hand as emu/metrics/layout.h says.


def write_page(
    path: Path, series: list[tuple[str, str, int, float, list[int]]], finished: int = 1
) -> None:
    """series: (name, labels, kind, scale, words); `finished`: the last words of who ended well."""
    entries, words = b"", []
    for name, labels, kind, scale, values in series:
        entries += pages.SERIES.pack(
            name.encode(), labels.encode(), scale, len(words), len(values), 0, kind
        )
        words += values
    header = pages.HEADER.pack(
        pages.MAGIC, pages.VERSION, 1, len(series), len(words), len(series), pages.SERIES.size,
        0, b"test", finished,
    )  # fmt: skip
    path.write_bytes(header + entries + struct.pack(f"<{len(words)}Q", *words))


def gauge(value: float) -> list[int]:
    return [struct.unpack("<Q", struct.pack("<d", value))[0]]


def histogram(values: list[int]) -> list[int]:
    words = [len(values), sum(values)] + [0] * pages.BUCKETS
    for value in values:  # as histogram_bucket does
        octave = value.bit_length() - 1
        bucket = value if value < 16 else 16 * (octave - 4) + (value >> (octave - 4))
        words[2 + bucket] += 1
    return words


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "metrics").mkdir()
    labels = "stream=s0,from=n0,to=n1"
    write_page(tmp_path / "metrics" / "sender.page", [
        ("flitnet_stream_transmitted_frames_total", labels, 0, 1.0, [600]),
        ("flitnet_stream_refused_posts_total", labels, 0, 1.0, [7]),
        ("flitnet_stream_admitted", labels, 1, 1.0, gauge(1.0)),
        ("flitnet_stream_admitted", "stream=s1,from=n0,to=n1", 1, 1.0, gauge(0.0)),
        ("flitnet_stream_rejected_by_switch", "stream=s1,from=n0,to=n1", 1, 1.0, gauge(3.0)),
    ])  # fmt: skip
    write_page(tmp_path / "metrics" / "receiver.page", [
        ("flitnet_stream_delivered_frames_total", labels, 0, 1.0, [598]),
        ("flitnet_stream_late_frames_total", labels, 0, 1.0, [2]),
        ("flitnet_stream_deadline_missing_time_seconds", labels, 1, 1.0, gauge(0.004)),
        ("flitnet_class_latency_seconds", "node=n0,device=d,class=control", 2, 1e-9,
         histogram([1000] * 99 + [64000])),
        ("flitnet_class_latency_seconds", "node=n1,device=d,class=control", 2, 1e-9,
         histogram([1000] * 100)),
        ("flitnet_class_received_packets_total", "node=n0,device=d,class=control", 0, 1.0, [230]),
        ("flitnet_clock_mode", "mode=elastic", 1, 1.0, gauge(1.0)),
        ("flitnet_attach_up", "node=n0,side=fabric,kind=shm", 1, 1.0, gauge(1.0)),
    ])  # fmt: skip
    return tmp_path


def test_report_joins_sender_and_receiver(run: Path) -> None:
    made = report(pages.read(run), {"network": {"link_mbps": 400}})
    first, second = made.streams
    assert (first.frames_sent, first.frames_delivered, first.admitted) == (600, 598, True)
    assert first.posts_refused == 7
    assert first.dmt_ms == pytest.approx(4.0)
    assert (second.admitted, second.rejected_by) == (False, "r3")
    assert made.undelivered() == 2
    control = made.classes["control"]
    assert control.packets == 230  # 30 of them its own, of no latency
    assert control.latency_count == 200
    assert control.latency_us_total == pytest.approx(199 * 1.0 + 64)
    assert control.latency_us_mean == pytest.approx((199 * 1.0 + 64) / 200)
    assert control.latency_us_p99 == pytest.approx(1.0, rel=0.05)
    assert made.clock["mode"] == "elastic" and made.nodes == 1
    total = total_of(made.streams)
    assert (total.admitted, total.refused, total.dmp) == (1, 1, pytest.approx(2 / 598))


def test_loads_of_nodes_say_how_far_they_were_behind(capsys: pytest.CaptureFixture[str]) -> None:
    """What waited in a generator is part of the latency, so that it did is said beside it."""
    kept = dict.fromkeys(("refused", "lost", "duplicated", "bytes_corrupt"), 0) | {
        "sent": 100, "received": 100, "latency_us_mean": 5.0, "latency_ns_buckets": [],
        "behind": 0, "behind_us_mean": 0.0, "behind_us_max": 0.0,
    }  # fmt: skip
    load = LoadReport("best-effort")
    load.add(kept)
    traffic.print_loads([load])
    assert "could not be kept" not in capsys.readouterr().out
    load.add(kept | {"behind": 30, "behind_us_mean": 10.0, "behind_us_max": 40.0})
    load.add(kept | {"behind": 10, "behind_us_mean": 50.0, "behind_us_max": 60.0})
    assert (load.behind, load.behind_us_mean, load.behind_us_max) == (40, 20.0, 60.0)
    assert load.to_dict()["behind"] == 40
    traffic.print_loads([load])
    assert "could not be kept: 40 packets" in capsys.readouterr().out


def test_who_was_killed_counts_no_more(run: Path) -> None:
    """Its page says for ever what was so when it died."""
    page = run / "metrics" / "hcad-n7.page"
    series = [
        ("flitnet_congestion_scheme", "node=n7,device=d,scheme=credit", 1, 1.0, gauge(1.0)),
        ("flitnet_attach_up", "node=n7,side=fabric,kind=shm", 1, 1.0, gauge(1.0)),
        ("flitnet_class_received_packets_total", "node=n7,device=d,class=control", 0, 1.0, [5]),
    ]
    write_page(page, series, finished=0)
    made = report(pages.read(run), {})
    assert (made.nodes, made.congestion, made.classes["control"].packets) == (1, [], 230)
    with page.open() as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)  # as who counts in it holds it
        made = report(pages.read(run), {})
    assert (made.nodes, made.congestion) == (2, ["credit"])
    assert made.classes["control"].packets == 235


def test_report_has_the_documented_keys(run: Path) -> None:
    value = report(pages.read(run), {}).to_dict()
    assert {"nodes", "link_mbps", "flit_bits", "seconds", "clock", "streams", "classes", "power",
            "lost", "duplicated", "pass_through"} <= set(value)  # fmt: skip
    assert {"mode", "dilation", "lag_us_p99"} <= set(value["clock"])
    assert {"name", "from", "to", "admitted", "rejected_by", "frames_sent", "posts_refused",
            "frames_delivered", "bytes_corrupt", "dmp", "dmt_ms", "interval_ms_mean",
            "interval_ms_sd"} <= set(value["streams"][0])  # fmt: skip
    assert set(value["classes"]) == {"control", "real_time", "best_effort"}
    assert set(value["classes"]["control"]) == {
        "packets", "latency_count", "latency_us_total", "latency_us_mean", "latency_us_p99",
    }  # fmt: skip
    assert set(value["power"]) == {"cap_w", "mean_w", "max_w"}


@pytest.mark.parametrize("size", [0, 64, 128, 300, 128 + 320 * 4 + 8])
def test_torn_and_foreign_pages_are_skipped(run: Path, size: int) -> None:
    page = run / "metrics" / "sender.page"
    page.write_bytes(page.read_bytes()[:size])
    (run / "metrics" / "noise.page").write_bytes(os.urandom(5000))
    made = report(pages.read(run), {})
    assert any(stream.frames_delivered == 598 for stream in made.streams)


GARBAGE = {
    "infinite scale": ("flitnet_class_received_packets_total", 0, math.inf, [5]),
    "infinite product": ("flitnet_class_received_packets_total", 0, 1e300, [1 << 63]),
    "no number": ("flitnet_power_mean_watts", 1, 1.0, gauge(math.nan)),
    "infinite gauge": ("flitnet_power_mean_watts", 1, 1.0, gauge(-math.inf)),
    "infinite histogram": ("flitnet_class_latency_seconds", 2, math.inf, histogram([1000])),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_what_is_no_number_is_not_believed(run: Path, kind: str) -> None:
    clean = report(pages.read(run), {}).to_dict()
    name, *rest = GARBAGE[kind]
    write_page(run / "metrics" / "garbage.page", [(name, "class=control", *rest)])
    assert report(pages.read(run), {}).to_dict() == clean
    json.dumps(clean, allow_nan=False)


def test_what_is_no_file_is_no_page(run: Path) -> None:
    """Who opened a FIFO without a writer would wait for ever."""
    clean = report(pages.read(run), {}).to_dict()
    os.mkfifo(run / "metrics" / "replay-1.page")
    (run / "metrics" / "replay-2.page").mkdir()
    assert report(pages.read(run), {}).to_dict() == clean
    pages.drop_ended(run, "replay")
    assert (run / "metrics" / "replay-1.page").is_fifo()


def test_quantiles_lie_inside_their_bucket() -> None:
    # As in tests/unit/emu/metrics: of 100 values in [16, 17) and 100 in [64, 68) ...
    buckets = [(16, 17, 100), (64, 68, 100)]
    assert pages.quantile(buckets, 0.5) == 16
    assert pages.quantile(buckets, 0.75) == pytest.approx(64 + 4 * 49.5 / 100)
    assert pages.quantile(buckets, 0.99) == pytest.approx(64 + 4 * 97.5 / 100)
    assert pages.quantile([], 0.99) == 0.0


def test_screen_shows_the_worst_ten_and_the_total(run: Path) -> None:
    from rich.console import Console

    made = report(pages.read(run), {})
    made.streams = [
        StreamReport(f"s{i:02d}", "n0", "n1", True, frames_delivered=10, dmp=i / 100)
        for i in range(30)
    ]
    console = Console(width=120, record=True, file=open(os.devnull, "w"))
    console.print(screen.screen(screen.View("demo", made)))
    text = console.export_text()
    assert "s29" in text and "s20" in text and "s19" not in text
    assert "30 of 30 admitted" in text and "cap" in text
    made.lanes = [9] * 16
    for height in (24, 30):  # what is below the streams is not pushed out of a terminal
        terminal = Console(width=80, height=height, record=True, file=open(os.devnull, "w"))
        terminal.print(screen.screen(screen.View("demo", made, height=height)))
        lines = terminal.export_text().splitlines()
        assert len(lines) <= height and any("lanes" in line for line in lines)
    made.streams = [replace(s, name="s100-t4_cockatoo", frames_sent=99999) for s in made.streams]
    narrow = Console(width=80, record=True, file=open(os.devnull, "w"))
    narrow.print(screen.stream_table(made.streams))
    assert "…" not in narrow.export_text()
    assert "lost" in screen.summary(made) and "\n" not in screen.progress_line(made)


def test_what_generators_lost_is_not_said_of_frames(run: Path) -> None:
    made = report(pages.read(run), {})
    made.streams = [StreamReport("s0", "n0", "n1", True, frames_sent=9, frames_delivered=9)]
    whole = "frames 9 of 9 delivered, 0 bytes corrupt, 0 lost, 0 duplicated"
    assert whole in screen.summary(made) and "generated" not in screen.summary(made)
    made.lost, made.duplicated = 1798, 3
    streams, _, loads = screen.summary(made).splitlines()[1:4]
    assert streams.endswith(whole)
    assert loads.startswith("generated traffic: 1798 messages did not arrive, 3 arrived twice")
    made.streams[0].frames_delivered, made.streams[0].lost = 7, 2
    streams, _, loads = screen.summary(made).splitlines()[1:4]
    assert streams.endswith("frames 7 of 9 delivered, 0 bytes corrupt, 2 lost, 0 duplicated")
    assert loads.startswith("generated traffic: 1796 messages did not arrive, 3 arrived twice")


# Processes by identity.


def test_a_reused_pid_is_not_signalled() -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        real = ProcessId.of(sleeper.pid)
        assert real is not None and real.alive()
        stranger = ProcessId(real.pid, real.start_ticks - 1)  # the pid's former owner
        assert not stranger.alive() and not stranger.signal(signal.SIGKILL)
        assert stop_all([stranger]) == [] and real.alive()
        assert stop_all([real]) == []
        assert sleeper.wait(5) == -signal.SIGTERM
        assert not real.alive()
    finally:
        sleeper.kill()
        sleeper.wait()


def test_logs_are_merged_whole() -> None:
    when = "2026-11-21 10:00:0"
    merged = logs.merged({
        "fabricd": ["EAL: no huge pages", f"{when}1.000000 fabricd[7] info: b", "bug: CHECK fails"],
        "n0": [f"{when}1.000000 hcad[8] info: z", f"{when}1.000000 hcad[8] info: a"],
        "n1": [f"{when}0.500000 hcad[9] info: first", "2026 words without a date"],
    })
    assert merged == [
        f"{when}0.500000 n1 info: first", f"{when}0.500000 n1 2026 words without a date",
        f"{when}1.000000 fabricd EAL: no huge pages", f"{when}1.000000 fabricd info: b",
        f"{when}1.000000 fabricd bug: CHECK fails", f"{when}1.000000 n0 info: z",
        f"{when}1.000000 n0 info: a",
    ]


def test_a_process_may_have_any_name() -> None:
    script = (
        "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'\\xff) Z (', 0, 0, 0); "
        "print(flush=True); sys.stdin.read()"
    )
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as named:
        assert named.stdout is not None and named.stdout.readline() == b"\n"
        process = ProcessId.of(named.pid)
        assert process is not None and process.alive()


def test_who_ignores_sigterm_is_killed() -> None:
    code = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    stubborn = subprocess.Popen(["sh", "-c", code], stdout=subprocess.PIPE)
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    identity = ProcessId.of(stubborn.pid)
    assert identity is not None
    begin = time.monotonic()
    assert stop_all([identity], grace_s=0.2) == [identity]
    assert stubborn.wait(5) == -signal.SIGKILL and time.monotonic() - begin < 5


@pytest.mark.parametrize("written", [True, False])
def test_who_waits_for_a_disk_is_given_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    """Instead of one, for a child that it makes: the kernel has the parent wait in the same way."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = (
        "import os, sys; opened = (os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)\n"
        "os.posix_spawn('/bin/true', ['true'], {}, file_actions=[opened])"
    )
    real, looks = ProcessId.at_disk, []

    def at_disk(process: ProcessId) -> bool:
        looks.append(real(process))
        if written:
            fifo.write_text("")  # only now the child goes on, and then its parent, which ends
            assert process.wait(10)
        return looks[-1]

    monkeypatch.setattr(ProcessId, "at_disk", at_disk)
    with subprocess.Popen([sys.executable, "-c", script, str(fifo)]) as waiting:
        process = ProcessId.of(waiting.pid)
        assert process is not None
        children = Path(f"/proc/{waiting.pid}/task/{waiting.pid}/children")
        while not (children.read_text() and real(process)):
            time.sleep(0.01)
        killed = stop_all([process], grace_s=0.1, at_disk_s=2)
        assert killed == ([] if written else [process])
        assert waiting.wait(5) == -(signal.SIGTERM if written else signal.SIGKILL)
        assert all(looks) and (len(looks) == 1 if written else len(looks) > 1)
        with contextlib.suppress(OSError):  # the child may still wait there
            os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))


def test_a_zombie_is_gone_with_the_last_of_its_threads() -> None:
    script = (
        "import ctypes, os, sys, threading\n"
        "threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0))).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as dying:
        process = ProcessId.of(dying.pid)
        assert process is not None
        while process.alive():  # its first thread runs
            time.sleep(0.01)
        assert not process.wait(0.05), "a thread of it has its files"
        assert dying.stdin is not None
        dying.stdin.close()
        assert process.wait(10)
