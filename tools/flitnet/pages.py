"""Reads the counter pages of a run directory (layout: emu/metrics/layout.h, histogram.h).

In: <run>/metrics/*.page, files that other processes write while we read. Out: a Snapshot. Nothing
in a page is believed: what does not fit its file is skipped. A page whose writer was killed says
what was so when it died; it counts no more, unlike the last words of one that ended well.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import math
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tools.flitnet.process import ProcessId

MAGIC = 0x3145474150544C46
VERSION = 1
FILE_BYTES_MAX = 1 << 30
VALUE_MAX = 1e280  # nothing counts so far; sums and other units of such values are numbers, too
HEADER = struct.Struct("<QIIIIIIQ56sI28x")
SERIES = struct.Struct("<80s216sdIIHB5x")
COUNTER, GAUGE, HISTOGRAM = 0, 1, 2
SUB = 16
BUCKETS = SUB + (44 - 4) * SUB
LABELS_KEPT = 1 << 15
HISTOGRAM_WORDS = 2 + BUCKETS
assert HEADER.size == 128 and SERIES.size == 320


@dataclass
class Distribution:
    """A histogram in exported units."""

    count: int = 0
    total: float = 0.0
    scale: float = 1.0
    buckets: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    def merge(self, words: tuple[int, ...], scale: float) -> None:
        self.scale = scale
        self.total += words[1] * scale
        for i, n in enumerate(words[2:]):
            if n:
                self.buckets[i] += n
                self.count += n

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def quantile(self, q: float) -> float:
        return quantile(((*_edges(i), n) for i, n in enumerate(self.buckets)), q) * self.scale


def quantile(buckets: Iterable[tuple[int, int, int]], q: float) -> float:
    """Of buckets in rising order, [low, high) and the count: linear inside the bucket in which it
    lies, as emu/metrics/histogram.cc has it (right to about 3 %)."""
    full = [one for one in buckets if one[2]]
    rank = max(1, math.ceil(q * sum(count for _, _, count in full)))
    before = 0
    for low, high, count in full:
        if before + count >= rank:
            width = high - low
            return low + (width * (rank - before - 0.5) / count if width > 1 else 0)
        before += count
    return 0.0


def _edges(bucket: int) -> tuple[int, int]:
    if bucket < SUB:
        return bucket, bucket + 1
    octave, sub = divmod(bucket - SUB, SUB)
    return (SUB + sub) << octave, (SUB + sub + 1) << octave


Labels = tuple[tuple[str, str], ...]


@dataclass
class Snapshot:
    """Every series of every page; series that two processes share are added or, gauges, kept."""

    values: dict[str, dict[Labels, float]] = field(default_factory=dict)
    histograms: dict[str, dict[Labels, Distribution]] = field(default_factory=dict)

    def series(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        for labels, value in self.values.get(name, {}).items():
            yield dict(labels), value

    def total(self, name: str, **wanted: str) -> float:
        """Sum over the series whose labels have these values."""
        return sum(v for labels, v in self.series(name) if _matches(labels, wanted))

    def one(self, name: str, default: float = 0.0) -> float:
        return next((value for _, value in self.series(name)), default)

    def distribution(self, name: str, **wanted: str) -> Distribution:
        """All histograms of a name whose labels have these values, as one."""
        merged = Distribution()
        for labels, one in self.histograms.get(name, {}).items():
            if _matches(dict(labels), wanted):
                merged.scale = one.scale
                merged.count += one.count
                merged.total += one.total
                for i, n in enumerate(one.buckets):
                    merged.buckets[i] += n
        return merged


def _matches(labels: dict[str, str], wanted: dict[str, str]) -> bool:
    # "class" is a keyword of Python: the parameter is called class_.
    return all(labels.get(key.rstrip("_")) == value for key, value in wanted.items())


def drop_ended(run: Path, role: str) -> None:
    """Removes the pages that processes of a role left behind for whoever looked after their end."""
    for path in (run / "metrics").glob(f"{role}-*.page"):
        with contextlib.suppress(OSError, struct.error):
            with _open(path) as file:
                pid = HEADER.unpack(file.read(HEADER.size))[2]
            if ProcessId.of(pid) is None:
                path.unlink()


def read(run: Path) -> Snapshot:
    """Every readable page of a run directory whose writer lives, or ended well and left it."""
    snapshot = Snapshot()
    for path in sorted((run / "metrics").glob("*.page")):
        try:
            _read_page(path, snapshot)
        except (OSError, struct.error):
            continue  # a process that ends takes its page away
    return snapshot


def _open(path: Path) -> BinaryIO:
    """A regular file that a page may be: at anything else one could wait for ever."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and found.st_size <= FILE_BYTES_MAX:
        return os.fdopen(fd, "rb")
    os.close(fd)
    raise OSError(f"{path} is no page")


def _written(file: BinaryIO) -> bool:
    """Its writer, who holds a lock on it, lives."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _read_page(path: Path, snapshot: Snapshot) -> None:
    with _open(path) as file:
        living = _written(file)  # before it is read: whose end comes between has said all
        header = HEADER.unpack(file.read(HEADER.size))
        magic, version, _, series_max, words_max, count, size, _, _, finished = header
        if magic != MAGIC or version != VERSION or size != SERIES.size:
            return
        if not living and finished != 1:
            return
        entries = file.read(min(count, series_max) * SERIES.size)
        # Words are handed out in order, so those in use end where the last series ends.
        used = max((e + w for e, w in _extents(entries)), default=0)
        file.seek(HEADER.size + series_max * SERIES.size)
        data = file.read(min(used, words_max) * 8)
    for name, labels, scale, offset, words, _, kind in SERIES.iter_unpack(entries):
        if (offset + words) * 8 > len(data) or words == 0:
            continue
        _add(snapshot, _text(name), _labels(labels), kind, scale, data, offset, words)


def _extents(entries: bytes) -> Iterator[tuple[int, int]]:
    for entry in SERIES.iter_unpack(entries):
        yield entry[3], entry[4]


def _add(
    snapshot: Snapshot, name: str, labels: Labels, kind: int, scale: float, data: bytes,
    offset: int, words: int,
) -> None:  # fmt: skip
    if kind == HISTOGRAM:
        if words == HISTOGRAM_WORDS:
            values = struct.unpack_from(f"<{words}Q", data, offset * 8)
            if not _is_value(scale) or not _is_value(values[1] * scale):
                return
            into = snapshot.histograms.setdefault(name, {}).setdefault(labels, Distribution())
            into.merge(values, scale)
        return
    if kind not in (COUNTER, GAUGE):
        return
    value = struct.unpack_from("<Q" if kind == COUNTER else "<d", data, offset * 8)[0] * scale
    if not _is_value(value):
        return
    into_values = snapshot.values.setdefault(name, {})
    if kind == COUNTER:
        into_values[labels] = into_values.get(labels, 0.0) + value
    else:
        # Of a series that a sender and a receiver share, one never sets it.
        into_values[labels] = into_values.get(labels) or value


def _is_value(value: float) -> bool:
    return abs(value) <= VALUE_MAX  # of nan nothing is true


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")


@functools.lru_cache(maxsize=LABELS_KEPT)
def _labels(raw: bytes) -> Labels:
    """The same at each look of who looks often."""
    pairs = (pair.partition("=") for pair in _text(raw).split(",") if pair)
    return tuple((key, value) for key, _, value in pairs)
