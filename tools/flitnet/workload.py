"""A workload as a value: who sends what to whom, how much of a link.

The same value goes to the laboratory (as the table [workload] of a point, simulated by tools/sim)
and to a live cluster (as a generator for each node, tools/load). In: keyword arguments or TOML.
"""

from __future__ import annotations

import random
import tomllib
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tools.flitnet.errors import UsageError

STREAMS = ("none", "vbr", "cbr", "mpeg2", "on_off")
ARRIVALS = ("poisson", "on_off", "self_similar")
PLACEMENTS = ("balanced", "uniform")
PATTERNS = ("uniform", "bit_reversal", "shuffle", "hot_spot", "permutation", "pairs")
FRAME_MS = 1000 / 30
FLIT_BITS = 128
STREAM_KBPS = 4000  # of the generators' CBR and VBR streams
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
        try:
            table = tomllib.loads(text).get("workload")
        except ValueError as error:  # TOMLDecodeError, a number of thousands of digits
            raise UsageError(f"{where}: {error}") from None
        except RecursionError:
            raise UsageError(f"{where}: nested too deeply") from None
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

    def generators(
        self, nodes: tuple[str, ...], link_mbps: float, seed: int, seconds: float
    ) -> list[Generator]:
        """What has to run on a live cluster, a generator for each node that sends or receives.

        `seconds`: emulated length of the run, which phases divide.
        """
        if virtual := [*(["flows"] if self.flows else []), *sorted(self.other)]:
            raise UsageError(f"workload.{virtual[0]}: only in virtual time")
        if self.pulse_cycles and self.phases:
            raise UsageError("workload: pulse_cycles and phases together: only in virtual time")
        kinds, options = self._kinds(link_mbps * 1e6, seconds)
        goals = self.destinations(len(nodes), seed)
        found = []
        for i, node in enumerate(nodes):
            to = tuple(nodes[j] for j in goals[i])
            senders = tuple(nodes[j] for j in range(len(nodes)) if i in goals[j])
            hot = self.pattern == "hot_spot" and i != 0 and any("best" in k for k in kinds)
            more = ("--hot", f"{nodes[0]}={self.hot_share:g}") if hot else ()
            if kinds and (to or senders):
                found.append(Generator(node, to, senders, tuple(kinds), options + more))
        return found

    def _kinds(self, link_bps: float, seconds: float) -> tuple[list[str], tuple[str, ...]]:
        shares = self.phases or (self.real_time_share,)
        if self.streams == "none":
            shares = (0.0,)
        kinds = []
        options: tuple[str, ...] = ("--packet-flits", str(self.message_flits))
        if self.load > 0 and min(shares) < 1:
            kinds.append(f"best-effort={round(self.load * (1 - min(shares)) * link_bps)}")
            options += self._profile("best-effort", [1 - share for share in shares])
            if self.arrivals != "poisson":
                options += ("--arrivals", self.arrivals, "--link-bps", f"{link_bps:g}")
            if self.arrivals == "self_similar":
                options += ("--pareto-shape", f"{self.pareto_shape:g}")
        if self.load * max(shares) > 0:
            if self.streams != "on_off":
                raise UsageError(f"workload.streams = {self.streams}: flitnet replay sends streams")
            # The generators' rate is that while ON.
            mean = self.load * max(shares) * link_bps
            kinds.append(f"on-off={round(mean * (self.on_ms + self.off_ms) / self.on_ms)}")
            options += ("--on-ms", f"{self.on_ms:g}", "--off-ms", f"{self.off_ms:g}")
            options += self._profile("on-off", list(shares))
        if kinds and len(shares) > 1:
            options += ("--profile-step-ms", f"{seconds * 1e3 / len(shares):g}")
        elif any(word.startswith("best-effort") for word in kinds) and self.pulse_cycles:
            step_ms = self.pulse_cycles * FLIT_BITS / link_bps * 1e3
            options += ("--profile-step-ms", f"{step_ms:g}")
        if self.control_per_frame:
            bps = self.control_per_frame / self.frame_ms * 1e3 * self.control_flits * FLIT_BITS
            kinds.append(f"control={round(bps)}")
            options += ("--control-flits", str(self.control_flits))
        return kinds, options

    def _profile(self, kind: str, shares: list[float]) -> tuple[str, ...]:
        """Factors of the kind's rate by phases or pulses (these are best effort's)."""
        if len(shares) > 1:
            factors = [share / max(shares) for share in shares]
        elif self.pulse_cycles and kind == "best-effort":
            factors = [1.0, self.pulse_load / self.load]
        else:
            return ()
        return ("--profile", f"{kind}={','.join(f'{factor:g}' for factor in factors)}")

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


@dataclass(frozen=True)
class Generator:
    """One flitnet-load: words of its command line."""

    node: str
    to: tuple[str, ...]
    senders: tuple[str, ...]
    kinds: tuple[str, ...]
    options: tuple[str, ...] = ()
