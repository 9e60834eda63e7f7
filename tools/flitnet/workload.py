"""A workload as a value: who sends what to whom, how much of a link.

The same value goes to the laboratory (as the table [workload] of a point, simulated by tools/sim)
and to a live cluster (as a generator for each node, tools/load). In: keyword arguments or TOML.
"""

from __future__ import annotations

import math
import random
import re
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from typing import Any, NoReturn

from tools.flitnet.config import parse_toml
from tools.flitnet.errors import UsageError
from tools.flitnet.scenario import CLIP_FPS, CLIPS, PlannedStream, read_clip

STREAMS = ("none", "vbr", "cbr", "mpeg2", "on_off")
ARRIVALS = ("poisson", "on_off", "self_similar")
PLACEMENTS = ("balanced", "uniform")
PATTERNS = ("uniform", "bit_reversal", "shuffle", "hot_spot", "permutation", "pairs")
FRAME_MS = 1000 / CLIP_FPS
HEADER_FLITS = 1  # of a message, beside its payload
STREAM_KBPS = 4000.0  # what is a fraction by default may be one
# Of flitnet-load: the stamp in each message (bytes), bits/s of a kind, length of a step.
STAMP_BYTES = 40
LIVE_BPS = (1, 1e12)
LIVE_STEP_MS = (0.001, 1e8)
# Of flitnet-replay: frames a second, each part of a fraction, bytes of a frame.
LIVE_FPS = (1, 1000)
FPS_PART_MAX = 65535
LIVE_FRAME_BYTES = (1, 16_000_000)
STREAMS_MAX = 1024  # of one of its plans, and ON/OFF connections of a node
NAMES = {"streams": STREAMS, "arrivals": ARRIVALS, "pattern": PATTERNS, "placement": PLACEMENTS}
# As tools/sim/point.cc has them; phases: each of them.
RANGES = {
    "load": (0, 2), "real_time_share": (0, 1), "phases": (0, 1), "stream_kbps": (1, 1e6),
    "message_flits": (1, 2048), "frame_ms": (0.01, 1000), "on_ms": (0.001, 1000),
    "off_ms": (0, 1000), "hot_share": (0, 1), "pareto_shape": (1.01, 3), "pulse_load": (0, 2),
    "pulse_cycles": (0, 1e12), "control_per_frame": (0, 1e6), "control_flits": (1, 2048),
}  # fmt: skip


@dataclass(frozen=True)
class Workload:
    """Names and defaults are those of tools/sim/point.h, where each is described."""

    load: float = 0.6
    real_time_share: float = 0.8
    streams: str = "vbr"
    arrivals: str = "poisson"
    pattern: str = "uniform"
    placement: str = "balanced"
    stream_kbps: float = STREAM_KBPS
    message_flits: int = 40
    frame_ms: float = FRAME_MS
    on_ms: float = 1.0
    off_ms: float = 1.0
    hot_share: float = 0.1
    pareto_shape: float = 1.4
    pulse_load: float = 0.0
    pulse_cycles: int = 0
    control_per_frame: float = 0.0
    control_flits: int = 20
    phases: tuple[float, ...] = ()
    flows: tuple[str, ...] = ()
    other: dict[str, Any] = field(default_factory=dict)  # that only a simulation knows

    def __post_init__(self) -> None:
        for key, known in NAMES.items():
            if (value := getattr(self, key)) not in known:
                raise UsageError(f"workload.{key} = {value!r}: one of {', '.join(known)}")
        for key, (low, high) in RANGES.items():
            value = getattr(self, key)
            several, whole = key == "phases", isinstance(getattr(Workload, key), int)
            some = value if several else (value,)
            if not isinstance(some, tuple) or not all(_fits(x, low, high, whole) for x in some):
                what = "a list of numbers" if several else "a whole number" if whole else "a number"
                raise UsageError(f"workload.{key} = {value!r}: {what} from {low:g} to {high:g}")
        if not isinstance(self.flows, tuple) or not all(isinstance(f, str) for f in self.flows):
            raise UsageError(f"workload.flows = {self.flows!r}: a list of texts")

    @staticmethod
    def of(table: dict[str, Any]) -> Workload:
        known = {f.name for f in fields(Workload)} - {"other"}
        given = {key: tuple(value) if isinstance(value, list) else value
                 for key, value in table.items() if key in known}  # fmt: skip
        return Workload(**given, other={k: v for k, v in table.items() if k not in known})

    @staticmethod
    def from_toml(text: str, where: str = "workload") -> Workload:
        """A file with a table [workload]."""
        table = parse_toml(text, where).get("workload")
        if not isinstance(table, dict):
            raise UsageError(f"{where}: no table [workload]")
        try:
            found = Workload.of(table)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
        if found.other:
            raise UsageError(f"{where}: workload.{min(found.other)}: unknown key")
        return found

    def table(self) -> dict[str, Any]:
        """[workload] of a point: what differs from the defaults."""
        plain = asdict(Workload())
        mine = asdict(self)
        mine.pop("other")
        different = {key: list(value) if isinstance(value, tuple) else value
                     for key, value in mine.items() if value != plain[key]}  # fmt: skip
        return different | self.other

    def live(self, nodes: tuple[str, ...], link: Link, seed: int, seconds: float) -> Live:
        """What has to run on a live cluster: a generator for each node that sends or receives
        messages, and the streams of frames.

        `seconds`: emulated length of the run, which phases divide.
        """
        self._check_live(link)
        count = len(nodes)
        everyone = [tuple(j for j in range(count) if j != i) for i in range(count)]
        # By kind: the word of the command line, its options, and where it goes from each node.
        kinds: list[tuple[str, tuple[str, ...], list[tuple[int, ...]]]] = []
        if self._best_effort_loads():
            kinds.append((*self._best_effort(link), self.destinations(count, seed)))
        if self.streams == "on_off" and (rounds := self._rounds(count, link, seed)):
            goals = [tuple(one.goals[i] for one in rounds) for i in range(count)]
            kinds.append((*self._on_off(link, len(rounds)), goals))
        if self.control_per_frame:
            kinds.append((*self._control(link), everyone))
        found = []
        for i, node in enumerate(nodes):
            to = {
                word.split("=")[0]: tuple(nodes[j] for j in goals[i]) for word, _, goals in kinds
            }
            senders = tuple(
                nodes[j] for j in everyone[i] if any(i in goals[j] for _, _, goals in kinds)
            )
            options = tuple(option for _, some, _ in kinds for option in some)
            options += self._steps(kinds, link, seconds)
            if self.pattern == "hot_spot" and i != 0 and "best-effort" in to:
                options += ("--hot", f"{nodes[0]}={self.hot_share:g}")
            if any(to.values()) or senders:
                words = tuple(word for word, _, _ in kinds)
                found.append(Generator(node, to, senders, words, options))
        return Live(found, self._frame_streams(nodes, link, seed))

    def _check_live(self, link: Link) -> None:
        if virtual := [*(["flows"] if self.flows else []), *sorted(self.other)]:
            _refuse_live(virtual[0])
        if self.pulse_cycles and self.phases:
            _refuse_live("pulse_cycles and phases together")
        messages = self._best_effort_loads() or self.streams == "on_off"
        sizes = {"message_flits": messages, "control_flits": self.control_per_frame}
        low, high = link.packet_flits
        for name in (name for name, sent in sizes.items() if sent):
            if not low <= (flits := getattr(self, name)) <= high:
                _refuse_live(
                    f"{name} = {flits}, live {low} to {high} (network.flit_bits = "
                    f"{link.flit_bits}, datagrams of {link.datagram_bytes} bytes by hca.mtu)"
                )
        if not self._has_frames():
            return
        if self.phases:
            _refuse_live(f"phases with streams = {self.streams!r}")
        low, high = LIVE_FPS
        if not low <= self._fps() <= high:
            _refuse_live(f"frame_ms = {self.frame_ms:g}, live {1e3 / high:g} to {1e3 / low:g}")
        low, high = LIVE_FRAME_BYTES
        if self.streams != "mpeg2" and not low <= self._frame_bytes() <= high:
            what = f"stream_kbps = {self.stream_kbps:g} with frame_ms = {self.frame_ms:g}"
            _refuse_live(f"{what}: frames of {self._frame_bytes()} bytes, live {low} to {high}")

    def _fps(self) -> Fraction:
        """Of streams of frames, as near as a replayer's fraction comes: within 2e-5."""
        return 1 / Fraction(self.frame_ms / 1e3).limit_denominator(FPS_PART_MAX)

    def _frame_bytes(self) -> int:
        """The mean of a synthetic stream."""
        return round(self.stream_kbps * self.frame_ms / 8)

    def _shares(self) -> tuple[float, ...]:
        """Of real time, phase by phase."""
        return (0.0,) if self.streams == "none" else self.phases or (self.real_time_share,)

    def _has_frames(self) -> bool:
        return self.streams in ("vbr", "cbr", "mpeg2") and self.load * max(self._shares()) > 0

    def _best_effort_loads(self) -> list[float]:
        """By phases or pulses; none: there is none at any time."""
        loads = [self.load * (1 - share) for share in self._shares()]
        if self.pulse_cycles:
            loads.append(self.pulse_load * (1 - self._shares()[0]))
        return loads if max(loads) > 0 else []

    def _best_effort(self, link: Link) -> tuple[str, tuple[str, ...]]:
        loads = self._best_effort_loads()
        options = _profile("best-effort", loads)
        if self.arrivals != "poisson":
            options += ("--arrivals", self.arrivals, "--link-bps", f"{link.bps:g}")
        if self.arrivals == "self_similar":
            options += ("--pareto-shape", f"{self.pareto_shape:g}")
        bps = _live_bps(f"load = {self.load:g}", max(loads) * link.bps, self.message_flits, link)
        return f"best-effort={bps}", options

    def _on_off(self, link: Link, connections: int) -> tuple[str, tuple[str, ...]]:
        """The word's rate is that of one connection while it is ON."""
        bps = self.stream_kbps * 1e3 * (self.on_ms + self.off_ms) / self.on_ms
        bps *= self.message_flits / (self.message_flits - HEADER_FLITS)
        options = ("--on-ms", f"{self.on_ms:g}", "--off-ms", f"{self.off_ms:g}")
        active = [float(self._stream_count(share, link)) for share in self._shares()]
        options += _profile("on-off", active, connections)
        bps = _live_bps(f"stream_kbps = {self.stream_kbps:g}", bps, self.message_flits, link)
        return f"on-off={bps}", options

    def _control(self, link: Link) -> tuple[str, tuple[str, ...]]:
        bps = self.control_per_frame / self.frame_ms * 1e3 * self.control_flits * link.flit_bits
        what = f"control_per_frame = {self.control_per_frame:g}"
        bps = _live_bps(what, bps, self.control_flits, link)
        return f"control={bps}", ("--control-flits", str(self.control_flits))

    def _steps(
        self, kinds: list[tuple[str, tuple[str, ...], Any]], link: Link, seconds: float
    ) -> tuple[str, ...]:
        options: tuple[str, ...] = ("--packet-flits", str(self.message_flits))
        options += ("--flit-bytes", str(link.flit_bits // 8))
        if not any("--profile" in some for _, some, _ in kinds):
            return options
        step_ms, what = self.pulse_cycles * link.flit_bits / link.bps * 1e3, "pulse_cycles"
        if self.phases:
            step_ms, what = seconds * 1e3 / len(self.phases), "phases"
        if not LIVE_STEP_MS[0] <= step_ms <= LIVE_STEP_MS[1]:
            low, high = LIVE_STEP_MS
            _refuse_live(f"{what}: each for {step_ms:g} ms, live {low:g} to {high:g}")
        return options + ("--profile-step-ms", f"{step_ms:g}")

    def _stream_count(self, share: float, link: Link) -> int:
        """Streams of a node whose load comes nearest, as tools/sim/workload.cc counts them."""
        return math.floor(self.load * share * link.bps / (self.stream_kbps * 1e3) + 0.5)

    def _rounds(self, count: int, link: Link, seed: int) -> list[Round]:
        """In each round every node has one stream more."""
        if count < 2:
            return []
        rng = random.Random(seed)
        share = max(self._shares())
        if self.streams != "mpeg2":
            number = self._stream_count(share, link)
            if number > STREAMS_MAX:
                raise UsageError(f"workload: {number} streams a node, live at most {STREAMS_MAX}")
            return [Round(self._placed(count, rng)) for _ in range(number)]
        # A clip has its frames, however fast they are sent.
        rates = [read_clip(clip).video_bps * float(self._fps()) / CLIP_FPS for clip in CLIPS]
        bag: list[int] = []
        rounds: list[Round] = []
        offered = 0.0
        while True:
            if not bag:
                bag = list(range(len(CLIPS)))
                rng.shuffle(bag)
            clip = bag.pop()
            if offered + rates[clip] / 2 > self.load * share * link.bps:
                return rounds
            offered += rates[clip]
            rounds.append(Round(self._placed(count, rng), CLIPS[clip]))

    def _placed(self, count: int, rng: random.Random) -> tuple[int, ...]:
        """Where each node's next stream goes."""
        if self.placement == "uniform":
            return tuple(rng.choice([j for j in range(count) if j != i]) for i in range(count))
        goals = list(range(count))
        while any(goal == i for i, goal in enumerate(goals)):
            rng.shuffle(goals)
        return tuple(goals)

    def _frame_streams(self, nodes: tuple[str, ...], link: Link, seed: int) -> list[PlannedStream]:
        if not self._has_frames():
            return []
        rounds = self._rounds(len(nodes), link, seed)
        if len(rounds) * len(nodes) > STREAMS_MAX:
            raise UsageError(
                f"workload: {len(rounds) * len(nodes)} streams, live at most {STREAMS_MAX}"
            )
        rng = random.Random(f"frames {seed}")
        frame_us = round(self.frame_ms * 1e3)
        frame_bytes = self._frame_bytes()
        found = []
        for one in rounds:
            for i, node in enumerate(nodes):
                clip, frame = one.clip, rng.randrange(300)
                if self.streams == "cbr":
                    clip = f"cbr:{frame_bytes}"
                elif self.streams == "vbr":
                    clip = f"vbr:{rng.randrange(1 << 32)}:{frame_bytes}"
                found.append(PlannedStream(
                    name=f"{self.streams}-{len(found):04d}", clip=clip,
                    source=node, target=nodes[one.goals[i]], first_frame=frame,
                    phase_us=rng.randrange(frame_us), fps=self._fps(),
                ))  # fmt: skip
        return found

    def destinations(self, count: int, seed: int) -> list[tuple[int, ...]]:
        """Of each node; none: it is silent. As tools/sim/pattern.h, but for what is drawn."""
        everyone = range(count)
        if self.pattern in ("uniform", "hot_spot"):
            return [tuple(j for j in everyone if j != i) for i in everyone]
        if self.pattern in ("bit_reversal", "shuffle"):
            bits = count.bit_length() - 1
            if count != 1 << bits:
                raise UsageError(f"workload.pattern = {self.pattern}: does not fit {count} nodes")
            if count == 1:
                goals = [0]
            elif self.pattern == "shuffle":
                goals = [(i << 1 | i >> (bits - 1)) & (count - 1) for i in everyone]
            else:
                goals = [int(f"{i:0{bits}b}"[::-1], 2) for i in everyone]
        else:
            order = list(everyone)
            random.Random(seed).shuffle(order)
            goals = [0] * count
            for place, node in enumerate(order):
                pair = place if place + 1 == count and place % 2 == 0 else place ^ 1
                goals[node] = order[pair if self.pattern == "pairs" else (place + 1) % count]
        return [(goal,) if goal != i else () for i, goal in enumerate(goals)]


def _fits(value: Any, low: float, high: float, whole: bool) -> bool:
    """A number of a range; true and nan are none."""
    kinds = int if whole else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool) and low <= value <= high


def _refuse_live(what: str) -> NoReturn:
    raise UsageError(f"workload.{what}: only in virtual time")


def _live_bps(what: str, bps: float, flits: int, link: Link) -> int:
    """Whole bits a second of a kind, at most a packet a nanosecond."""
    low, high = LIVE_BPS[0], min(LIVE_BPS[1], flits * link.flit_bits * 1e9)
    if not low <= bps <= high:
        _refuse_live(f"{what}: {bps:g} b/s of a node, live {low:g} to {high:g}")
    return round(bps)


def _profile(kind: str, loads: list[float], most: float = 0) -> tuple[str, ...]:
    """Factors of the kind's rate, step by step; of one step none."""
    if len(loads) == 1:
        return ()
    most = most or max(loads)
    return ("--profile", f"{kind}={','.join(f'{load / most:g}' for load in loads)}")


@dataclass(frozen=True)
class Link:
    """A node's, and what one packet carries over it; `header_bytes` of a datagram."""

    mbps: float
    flit_bits: int = 128
    datagram_bytes: int = 2048
    header_bytes: int = 34

    @property
    def bps(self) -> float:
        return self.mbps * 1e6

    @property
    def packet_flits(self) -> tuple[int, int]:
        """The least, which holds a message's stamp, and the most that the port takes."""
        flit_bytes = self.flit_bits // 8
        least = math.ceil((self.header_bytes + STAMP_BYTES) / flit_bytes)
        return least, (self.header_bytes + self.datagram_bytes) // flit_bytes


@dataclass(frozen=True)
class Round:
    """A stream of every node: where it goes, and a clip of traces/."""

    goals: tuple[int, ...]
    clip: str = ""


@dataclass(frozen=True)
class Generator:
    """One flitnet-load: words of its command line."""

    node: str
    to: dict[str, tuple[str, ...]]  # by kind; of on-off each is a connection
    senders: tuple[str, ...]
    kinds: tuple[str, ...]
    options: tuple[str, ...] = ()

    @staticmethod
    def of_kind(
        word: str, node: str, others: tuple[str, ...], options: tuple[str, ...]
    ) -> Generator:
        return Generator(node, {word.split("=")[0]: others}, others, (word,), options)

    @property
    def peers(self) -> tuple[str, ...]:
        """Everybody to whom something goes."""
        return tuple(dict.fromkeys(node for some in self.to.values() for node in some))


@dataclass(frozen=True)
class Live:
    """A workload on a live cluster."""

    generators: list[Generator]
    streams: list[PlannedStream] = field(default_factory=list)


def parse_rate(text: str) -> int:
    """Bits per second from "80M", "1.5G", "64000"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKMG]?)", text)
    factor = {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
    rate = float(match[1]) * factor[match[2]] if match else 0.0
    if not 1e3 <= rate <= 1e11:
        raise UsageError(f"--rate {text!r}: bits per second from 1k to 100G, as 80M")
    return round(rate)
