#!/usr/bin/python3
"""Makes the seven clips of this folder, their traces and the table in README.md.

usage: make_clips.py SOURCES FLITNET_TRACE [OUT]

SOURCES holds r2_city.ts, r4_cockatoo.ts, r5_bikes.mpg, r6_city.m2v and eq_bikes49.m2v (origin:
README.md). Rows 2, 4, 5 and 6 are whole GOPs cut from them, where they fit the table
best; rows 1, 3 and 7 are new encodings of rows 5, 4 and 6 whose rate and quantiser factors are
searched until the means fit the table.
Needs ffmpeg 5.1; the result is bit-identical from run to run.
"""
from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

GOP = 12
FORMATS = {"mpg": "vob", "ts": "mpegts", "m2v": "mpeg2video"}


@dataclass(frozen=True)
class Row:
    """One row of the MediaWorm paper's table III and where its clip comes from."""

    number: int
    kbps: float
    kbit: tuple[float, float, float]  # mean I, P, B
    name: str
    source: str
    gops: int
    encode_from: int | None = None  # encode anew from this picture on; else cut


ROWS = (
    Row(1, 7138.2, (430.2, 295.6, 194.2), "t1_bikes.mpg", "r5_bikes.mpg", 4, 100),
    Row(2, 15231.4, (839.4, 680.6, 401.0), "t2_city.ts", "r2_city.ts", 2),
    Row(3, 13526.4, (534.7, 569.4, 387.8), "t3_cockatoo.m2v", "r4_cockatoo.ts", 3, 12),
    Row(4, 8356.5, (393.3, 340.3, 241.4), "t4_cockatoo.ts", "r4_cockatoo.ts", 3),
    Row(5, 6124.2, (350.6, 242.9, 172.9), "t5_bikes.mpg", "r5_bikes.mpg", 5),
    Row(6, 18406.0, (974.7, 721.9, 529.6), "t6_city.m2v", "r6_city.m2v", 2),
    Row(7, 13497.9, (637.6, 536.0, 394.3), "t7_city.ts", "r6_city.m2v", 2, 6),
)
EQUAL = ("eq_bikes12", "eq_bikes49.m2v", 1)  # one GOP in three containers


def run(*command: str | Path) -> bytes:
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: {done.stderr.decode(errors='replace').strip()[-300:]}")
    return done.stdout


class Maker:
    def __init__(self, sources: Path, trace: Path, out: Path, work: Path) -> None:
        self.sources, self.trace, self.out, self.work = sources, trace, out, work

    def read(self, path: Path) -> dict:
        return json.loads(run(self.trace, "--json", path))

    def elementary(self, path: Path) -> bytes:
        """The elementary stream of a clip, by ffmpeg without a change."""
        return run("ffmpeg", "-nostdin", "-v", "error", "-i", path, "-map", "0:v:0", "-c", "copy",
                   "-fflags", "+bitexact", "-f", "mpeg2video", "-")

    def gop_heads(self, path: Path) -> list[int]:
        """Index of every I picture and of the end. In coded order the first GOP is two B pictures
        short, and the pictures after the last I are no whole GOP."""
        types = [frame["type"] for frame in self.read(path)["frames"]]
        return [k for k, kind in enumerate(types) if kind == "I"]

    def cut(self, path: Path, first_gop: int, gops: int) -> bytes:
        frames = self.read(path)["frames"]
        stream = self.elementary(path)
        if sum(frame["bytes"] for frame in frames) != len(stream):
            sys.exit(f"{path}: the trace does not cover the stream")
        heads = self.gop_heads(path)
        return stream[frames[heads[first_gop]]["offset"]:frames[heads[first_gop + gops]]["offset"]]

    def error(self, row: Row, stream: bytes) -> tuple[float, list[float]]:
        """The largest relative error against the table, and got/wanted of rate, I, P and B."""
        path = self.work / "try.m2v"
        path.write_bytes(stream)
        mean = self.read(path)["mean_kbit"]
        ratio = [mean["all"] * 30 / row.kbps, *(mean[t] / w for t, w in zip("IPB", row.kbit))]
        return max(abs(r - 1) for r in ratio), ratio

    def best_cut(self, row: Row) -> bytes:
        source = self.sources / row.source
        windows = range(len(self.gop_heads(source)) - row.gops)
        cuts = [self.cut(source, first, row.gops) for first in windows]
        return min(cuts, key=lambda stream: self.error(row, stream)[0])

    def encode(self, row: Row, kbps: float, i_factor: float, b_factor: float) -> bytes:
        # One picture more than the GOPs have: its I picture ends the last of them and is cut off.
        start, count = row.encode_from, row.gops * GOP + 1
        picture = (f"select=gte(n\\,{start}),settb=1/30,setpts=N,format=yuv420p")
        options = [
            "-threads", "1", "-flags", "+bitexact", "-dct", "int", "-idct", "simple",
            "-g", str(GOP), "-bf", "2", "-sc_threshold", "1000000000", "-b:v", f"{kbps:.0f}k",
            "-i_qfactor", f"{-i_factor:.3f}", "-b_qfactor", f"{-b_factor:.3f}",
            "-i_qoffset", "0", "-b_qoffset", "0", "-qmin", "1", "-qmax", "28", "-lmin", "60",
            "-qdiff", "6", "-qcomp", "0.7", "-non_linear_quant", "1",
            "-maxrate", "60M", "-bufsize", "9781248",
        ]  # fmt: skip
        common = [
            "ffmpeg", "-nostdin", "-v", "error", "-y", "-i", self.sources / row.source,
            "-map", "0:v:0", "-an", "-vf", picture, "-frames:v", str(count), "-r", "30",
            "-fps_mode", "cfr", "-c:v", "mpeg2video", *options, "-fflags", "+bitexact",
            "-passlogfile", self.work / "pass",
        ]  # fmt: skip
        run(*common, "-pass", "1", "-f", "null", "-")
        encoded = self.work / "encoded.m2v"
        encoded.write_bytes(run(*common, "-pass", "2", "-f", "mpeg2video", "-"))
        return self.cut(encoded, 0, row.gops)

    def fit(self, row: Row) -> bytes:
        """Searches rate and factors; the factors act on the quantiser: larger means less."""
        kbps, i_factor, b_factor = row.kbps, 1.2, 0.9
        best: tuple[float, bytes] | None = None
        for _ in range(14):
            stream = self.encode(row, kbps, i_factor, b_factor)
            error, (total, *ratio) = self.error(row, stream)
            if best is None or error < best[0]:
                best = (error, stream)
            kbps /= total
            i_factor *= (ratio[0] / ratio[1]) ** 0.7
            b_factor *= (ratio[2] / ratio[1]) ** 0.7
        assert best is not None
        return best[1]

    def wrap(self, stream: bytes, name: str) -> None:
        """Puts an elementary stream into the container of the name."""
        suffix = name.rsplit(".", 1)[1]
        target = self.out / name
        if suffix == "m2v":
            target.write_bytes(stream)
            return
        raw = self.work / "raw.m2v"
        raw.write_bytes(stream)
        # The times of a raw stream are made by its parser; +genpts fills what it leaves open.
        run("ffmpeg", "-nostdin", "-v", "error", "-y", "-fflags", "+genpts+bitexact", "-r", "30",
            "-f", "mpegvideo", "-i", raw, "-c", "copy", "-fflags", "+bitexact",
            "-f", FORMATS[suffix], target)

    def check(self, stream: bytes, name: str) -> dict:
        raw = self.work / "check.m2v"
        raw.write_bytes(stream)
        expected, got = self.read(raw), self.read(self.out / name)
        if expected["frames"] != got["frames"]:
            sys.exit(f"{name}: container and elementary stream give different traces")
        return got

    def line(self, row: Row, facts: dict) -> str:
        mean = facts["mean_kbit"]
        path = self.out / row.name
        got = [mean["all"] * 30, *(mean[t] for t in "IPB")]
        want = [row.kbps, *row.kbit]
        cells = [f"{g:.1f} ({g / w * 100 - 100:+.1f} %)" for g, w in zip(got, want)]
        counts = "/".join(str(sum(f["type"] == t for f in facts["frames"])) for t in "IPB")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        return (f"| {row.number} | {row.name} | {counts} | {' | '.join(cells)} "
                f"| {path.stat().st_size} | {digest} |")

    def all(self) -> None:
        lines = []
        for row in ROWS:
            stream = self.best_cut(row) if row.encode_from is None else self.fit(row)
            self.wrap(stream, row.name)
            facts = self.check(stream, row.name)
            stem = row.name.split(".")[0]
            run(self.trace, self.out / row.name, "-o", self.out / f"{stem}.trace")
            lines.append(self.line(row, facts))
        name, source, gops = EQUAL
        stream = self.cut(self.sources / source, 0, gops)
        for suffix in FORMATS:
            self.wrap(stream, f"{name}.{suffix}")
            self.check(stream, f"{name}.{suffix}")
        run(self.trace, self.out / f"{name}.m2v", "-o", self.out / f"{name}.trace")
        print("\n".join(lines))


def main() -> None:
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    out = Path(sys.argv[3]) if len(sys.argv) == 4 else Path(__file__).resolve().parent
    with tempfile.TemporaryDirectory() as work:
        Maker(Path(sys.argv[1]), Path(sys.argv[2]).resolve(), out, Path(work)).all()


if __name__ == "__main__":
    main()
