"""Files that nobody vouches for, given to `flitnet replay`: one line, no crash, no hang."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "traces"
NOISE = random.Random(20261121)


def flitnet(run: Path, *argv: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "flitnet", *map(str, argv)], capture_output=True, text=True, timeout=60,
        env=dict(os.environ) | {"FLITNET_RUN": str(run)}, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cluster for all files: it must survive every one of them."""
    folder = tmp_path_factory.mktemp("h")
    (folder / "c.toml").write_text("[network]\nnodes = 3\n")
    made = folder / "r"
    done = flitnet(made, "up", folder / "c.toml")
    assert done.returncode == 0, done.stderr
    yield made
    assert flitnet(made, "status").returncode == 0, "every daemon still lives"
    flitnet(made, "down")


def sequence_header(width: int, height: int) -> bytes:
    """An MPEG-2 sequence header, its extension and an I picture's header, and no picture data."""
    size = (width << 12 | height).to_bytes(3, "big")
    return (
        b"\0\0\1\xb3" + size + b"\x15\xff\xff\xe0\x18"
        + b"\0\0\1\xb5\x14\x8a\x00\x01\x00\x00" + b"\0\0\1\x00\x00\x0f\xff\xf8"
    )  # fmt: skip


H264 = (  # sequence and picture parameters, a slice
    bytes.fromhex("00000001 6764001f acd94050 05bb0110 00000300 10000003 03c0f183 1960")
    + bytes.fromhex("00000001 68ebe3cb 22c0 000001 65888400 10")
    + bytes(range(256)) * 20
)
CITY = (TRACES / "t2_city.ts").read_bytes()
BIKES = (TRACES / "t5_bikes.mpg").read_bytes()
REFUSED = {
    "empty.mpg": b"",
    "random.mpg": NOISE.randbytes(300_000),
    "random.ts": b"".join(b"\x47" + NOISE.randbytes(187) for _ in range(800)),
    "random.trace": NOISE.randbytes(10_000),
    "h264.m2v": H264,
    "h264.ts": H264 * 10,
    "header_only.m2v": sequence_header(720, 480),
    "huge_header.m2v": sequence_header(4095, 4095) * 2000,
    "concat.m2v": b"ffconcat version 1.0\nfile /etc/passwd\n",
    "playlist.ts": b"#EXTM3U\n#EXTINF:10,\nhttp://127.0.0.1:9/x.ts\n",
    "text.trace": b"# flitnet trace 1\n0 I many\n",
    "negative.trace": b"# flitnet trace 1\n0 I -5\n",
    "huge.trace": b"# flitnet trace 1\n0 I 99999999999999999999\n",
    "png.mpg": b"\x89PNG\r\n\x1a\n" + NOISE.randbytes(2000),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_line(run: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(REFUSED[name])
    done = flitnet(run, "replay", path, "--from", "n0", "--to", "n1", "--seconds", "1")
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert done.stderr.count("\n") == 1 and name in done.stderr, done.stderr


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "device"])
def test_what_is_no_file_is_refused(run: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.mpg"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    done = flitnet(run, "replay", path, "--from", "n0", "--to", "n1", "--seconds", "1")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr


DAMAGED = {
    "cut.ts": CITY[: len(CITY) // 2],
    "cut.mpg": BIKES[: len(BIKES) // 3 + 1],
    "noisy.ts": CITY[:400_000] + NOISE.randbytes(1880) + CITY[401_880:],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_clips_end_with_a_verdict(run: Path, tmp_path: Path, name: str) -> None:
    """A damaged clip may be refused or replayed as far as it goes; what is sent arrives whole."""
    path = tmp_path / name
    path.write_bytes(DAMAGED[name])
    done = flitnet(run, "replay", path, "--from", "n0", "--to", "n1", "--seconds", "1")
    assert done.returncode in (0, 2), (done.returncode, done.stdout, done.stderr)
    assert done.returncode == 0 or done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["t2_city.ts", "t5_bikes.mpg", "t6_city.m2v", "t1_bikes.trace"])
def test_good_clips_of_every_kind_arrive(run: Path, name: str) -> None:
    done = flitnet(run, "replay", TRACES / name, "--from", "n0", "--to", "n1", "--seconds", "1")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_name_with_spaces_and_commas(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "my, own clip #1.ts"
    path.write_bytes(CITY)
    done = flitnet(run, "replay", path, "--from", "n1", "--to", "n0", "--seconds", "1")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--from", "n0", "--to", "n9"], "no node 'n9'"),
        (["--from", "n0", "--to", "n0"], "n0"),
    ],
)
def test_wrong_nodes_are_usage_errors(run: Path, argv: list[str], says: str) -> None:
    done = flitnet(run, "replay", TRACES / "t2_city.ts", *argv, "--seconds", "1")
    assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("rate", ["fast", "-3", "0", "9e99", "80X"])
def test_wrong_rates_are_usage_errors(run: Path, rate: str) -> None:
    done = flitnet(run, "load", "best-effort", f"--rate={rate}", "--seconds", "1")
    assert done.returncode == 2 and f"--rate '{rate}'" in done.stderr


def test_a_refused_clip_has_the_users_name(run: Path, tmp_path: Path) -> None:
    done = flitnet(run, "replay", tmp_path, "--from", "n0", "--to", "n1", "--seconds", "1")
    assert (done.returncode, done.stderr) == (2, f"flitnet: {tmp_path}: not a regular file\n")


def test_no_more_than_a_link_carries(run: Path) -> None:
    for kind in ("best-effort", "control", "on-off"):
        done = flitnet(run, "load", kind, "--rate", "400.1M", "--seconds", "1")
        assert done.returncode == 2 and "at most what a link carries, 400M" in done.stderr
    assert flitnet(run, "load", "best-effort", "--rate", "400M", "--seconds", "0.1").returncode == 0


@pytest.mark.parametrize("kind", ["best-effort", "control"])
def test_load_prints_what_arrived(run: Path, kind: str) -> None:
    done = flitnet(run, "load", kind, "--rate", "8M", "--seconds", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "packets" in done.stdout


def test_status_after_replays_shows_whole_streams(run: Path) -> None:
    # The second replayer of n1 took the page of the first, whose other half stayed as lost frames.
    for source, target in (("n0", "n1"), ("n2", "n1")):
        clip = TRACES / "t2_city.ts"
        done = flitnet(run, "replay", clip, "--from", source, "--to", target, "--seconds", "1")
        assert done.returncode == 0, done.stdout + done.stderr
    streams = json.loads(flitnet(run, "status", "--json").stdout)["streams"]
    assert [(s["from"], s["to"]) for s in streams] == [("n2", "n1")]
    assert streams[0]["frames_sent"] == streams[0]["frames_delivered"] > 0


def test_a_terse_trace_is_read_as_told(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "terse.txt"
    path.write_text("".join(f"{1000 + i}\n" for i in range(40)))
    argv = ("replay", path, "--from", "n0", "--to", "n1", "--seconds", "1")
    done = flitnet(run, *argv)
    assert done.returncode == 2 and "say --unit bits or --unit bytes" in done.stderr
    assert flitnet(run, *argv, "--unit", "bytes").returncode == 0
    done = flitnet(run, *argv, "--unit", "byte")
    assert done.returncode == 2 and "byte" in done.stderr and done.stderr.count("\n") == 1
