"""The demo as data: which clip goes from where to where, and what else is on the links.

In: a Request (what the user asked for). Out: a Scenario, the same for the same request: streams,
generators, and the cluster file. Nothing here touches a process.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from tools.flitnet import paths, topology
from tools.flitnet.config import NODES_MAX, hold_packets
from tools.flitnet.errors import UsageError

# The seven clips that stand for the sequences of the papers' table (traces/README.md).
CLIPS = (
    "t1_bikes.mpg", "t2_city.ts", "t3_cockatoo.m2v", "t4_cockatoo.ts", "t5_bikes.mpg",
    "t6_city.m2v", "t7_city.ts",
)  # fmt: skip
# A packet of the transport: 612 B payload and 26 B of headers and CRCs fill 40 flits of 16 B.
PAYLOAD_BYTES = 612
OVERHEAD_BYTES = 26
FLIT_BYTES = 16
# The replayer cuts a frame into pieces of so many packets, each behind a header of its own
# (tools/replay/rate.h, frame_header.h).
PIECE_PACKETS = 32
PIECE_HEADER_BYTES = 64
CLOCKS = ("elastic", "real", "virtual")
# How much real-time traffic `--overload` asks for, of every link: clearly more than fits.
OVERLOAD_SHARE = 1.25
FRAME_US = 33_333
CLIP_FPS = 30


@dataclass(frozen=True)
class Request:
    """The options of `flitnet demo`."""

    seconds: float = 20.0
    load: float = 0.6
    mix: str = "80:20"
    nodes: int = 8
    link_mbps: int = 400
    seed: int = 1
    clock: str = "elastic"
    overload: bool = False
    admission: bool = True
    congestion_control: bool = True
    power_control: bool = True
    topology: str = "single"
    routing: str = "auto"
    router: str = "np"
    crossbar: str = "multiplexed"
    scheduler: str = "fgvc"

    def check(self) -> None:
        if self.clock not in CLOCKS:
            raise UsageError(f"--clock {self.clock!r}: one of {', '.join(CLOCKS)}")
        self.shares()

    def shares(self) -> tuple[float, float]:
        """Real-time and best-effort parts of the load, from "80:20"."""
        match = re.fullmatch(r"(\d{1,3}):(\d{1,3})", self.mix)
        if not match or int(match[1]) + int(match[2]) != 100:
            raise UsageError(f"--mix {self.mix!r}: two numbers that make 100, as 80:20")
        return int(match[1]) / 100, int(match[2]) / 100


def nodes_of(shape: str) -> int:
    """Nodes of a topology that `demo` can fill by itself; of a file as fabricd counts them."""
    try:
        kind, _, name = shape.partition(":")
        in_file = topology.count_in_file(Path(name)) if kind == "file" else None
        count = in_file or topology.node_count({"topology": shape})
    except ValueError:
        count = None
    if count is None or not 2 <= count <= NODES_MAX:
        raise UsageError(f"--topology {shape!r}: sizes of 2 to {NODES_MAX} nodes, as mesh:4x4")
    return count


@dataclass(frozen=True)
class Clip:
    """One of traces/, by its frame-size trace."""

    path: Path
    frames: tuple[int, ...]  # bytes

    @property
    def wire_bps(self) -> float:
        """Mean rate on a link, headers and the fill of last flits included."""
        flits = sum(flits_of(size) for size in self.frames)
        return flits * FLIT_BYTES * 8 * CLIP_FPS / len(self.frames)

    @property
    def peak_bps(self) -> float:
        """Rate while the largest frame is sent evenly over its frame time."""
        return flits_of(max(self.frames)) * FLIT_BYTES * 8 * CLIP_FPS

    @property
    def video_bps(self) -> float:
        """Mean rate of the frames alone."""
        return 8 * CLIP_FPS * sum(self.frames) / len(self.frames)


@dataclass(frozen=True, kw_only=True)
class PlannedStream:
    """Frames from one node to another: a line of a replayer's plan (tools/replay/plan.h)."""

    name: str
    clip: str  # a file, one of traces/ where it has no folder, or a synthetic one
    source: str
    target: str
    first_frame: int  # where in the clip it starts: its own GOP phase
    phase_us: int  # of its launches inside a frame time
    fps: Fraction = Fraction(CLIP_FPS)

    def line(self, base: Path = paths.ROOT / "traces") -> str:
        """`base`: the folder of traces, by a name without what a plan's line is split at."""
        bare = "/" not in self.clip and not self.clip.startswith(("cbr", "vbr"))
        clip = str(base / self.clip) if bare else self.clip
        if not clip.isprintable() or clip != clip.strip() or set(clip) & set(",#"):
            raise UsageError(f"{clip!r}: a plan's files have printable names without , and #")
        return (
            f"name={self.name},clip={clip},"
            f"from={self.source},to={self.target},frame={self.first_frame},"
            f"phase_us={self.phase_us}{f',fps={self.fps}' if self.fps != CLIP_FPS else ''}\n"
        )


@dataclass(frozen=True, kw_only=True)
class Stream(PlannedStream):
    """One copy of a clip."""

    rate_bps: int  # asked for at admission
    peak_bps: int


@dataclass(frozen=True)
class Scenario:
    request: Request
    nodes: tuple[str, ...]
    streams: tuple[Stream, ...]
    best_effort_bps: int  # of each node, Poisson, uniform destinations; 0: none

    def plan_text(self, folder: Path | None = None) -> str:
        """The plan that every replayer reads."""
        return "".join(s.line(folder or paths.ROOT / "traces") for s in self.streams)


def flits_of(frame_bytes: int) -> int:
    """Flits of a video frame on a link."""
    pieces, rest = divmod(frame_bytes, PIECE_PACKETS * PAYLOAD_BYTES - PIECE_HEADER_BYTES)
    full, rest = divmod(rest + PIECE_HEADER_BYTES if rest else 0, PAYLOAD_BYTES)
    tail = -(-(rest + OVERHEAD_BYTES) // FLIT_BYTES) if rest else 0
    return (pieces * PIECE_PACKETS + full) * 40 + tail


def read_clip(name: str, folder: Path | None = None) -> Clip:
    """Sizes of a clip's frames from the trace beside it."""
    path = (folder or paths.ROOT / "traces") / name
    sizes = []
    for line in path.with_suffix(".trace").read_text().splitlines():
        if line and not line.startswith("#"):
            sizes.append(int(line.split()[2]))
    return Clip(path, tuple(sizes))


def choose_rounds(clips: list[Clip], target_bps: float, rng: random.Random) -> list[int]:
    """Indexes of clips, each sent once by every node, whose rates together come closest to target.

    Whole sets of all clips first, in shuffled order, then the subset that fills the rest best.
    """
    whole = sum(clip.wire_bps for clip in clips)
    rounds: list[int] = []
    for _ in range(int(target_bps // whole)):
        order = list(range(len(clips)))
        rng.shuffle(order)
        rounds += order
    rest = target_bps - whole * (target_bps // whole)
    best: tuple[float, int] = (rest, 0)
    for subset in range(1 << len(clips)):
        total = sum(clip.wire_bps for i, clip in enumerate(clips) if subset >> i & 1)
        best = min(best, (abs(rest - total), subset))
    return rounds + [i for i in range(len(clips)) if best[1] >> i & 1]


def plan(request: Request) -> Scenario:
    """The scenario of a request; every node sends and receives the same load."""
    real_time, best_effort = request.shares()
    rng = random.Random(request.seed)
    names = tuple(f"n{i}" for i in range(request.nodes))
    clips = [read_clip(name) for name in CLIPS]
    link_bps = request.link_mbps * 1e6
    share = OVERLOAD_SHARE if request.overload else request.load * real_time
    rounds = choose_rounds(clips, share * link_bps, rng)
    if not rounds and share > 0:
        least = min(clip.wire_bps for clip in clips) / link_bps / real_time
        raise UsageError(f"--load {request.load:g}: no clip fits; at least {least:.2f}")
    streams = []
    for turn, index in enumerate(rounds):
        clip = clips[index]
        # A rotation: everybody sends one and receives one in each round.
        shift = 1 + turn % (request.nodes - 1)
        for i, source in enumerate(names):
            streams.append(
                Stream(
                    name=f"s{len(streams):03d}-{Path(CLIPS[index]).stem}",
                    clip=CLIPS[index],
                    source=source,
                    target=names[(i + shift) % request.nodes],
                    first_frame=rng.randrange(len(clip.frames)),
                    phase_us=rng.randrange(FRAME_US),
                    rate_bps=round(clip.wire_bps),
                    peak_bps=round(clip.peak_bps),
                )
            )
    best_effort_bps = round(request.load * best_effort * link_bps)
    return Scenario(request, names, tuple(streams), best_effort_bps)


def cluster_tables(request: Request) -> dict[str, Any]:
    """The cluster file of a request."""
    network = {
        "topology": request.topology, "routing": request.routing, "nodes": request.nodes,
        "link_mbps": request.link_mbps, "router": request.router, "crossbar": request.crossbar,
    }  # fmt: skip
    hold_packets(network)
    return {
        "network": network,
        "qos": {"scheduler": request.scheduler},
        "controls": {
            "admission": request.admission,
            "congestion_control": request.congestion_control,
            "power_control": request.power_control,
        },
        # Nodes may be late by so much before a frame is: two cores are shared by all of them.
        "hca": {"launch_horizon_us": 20_000},
        "clock": {"mode": request.clock},
    }  # fmt: skip
