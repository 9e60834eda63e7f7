"""`flitnet bench booksim`: our latency and throughput curves beside BookSim2's.

A reference directory holds BookSim2's configuration files (configs/*.cfg) and what it measured with
them (curves*.csv). Each configuration is translated, word by word, into ours, and engine_curve runs
the same points. docs/booksim.md explains what differs and why.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tools.flitnet import paths
from tools.flitnet.errors import FlitnetError, UsageError

REFERENCE = paths.ROOT / "docs" / "booksim" / "reference"
ZERO_LOAD = 0.0002
STEADY_DRIFT_MAX = 1.3  # beyond it a latency of BookSim2's has no steady value
NODE_CYCLES = 1_600_000  # of a measurement: fewer cycles in a larger network
CYCLES = range(10_000, 200_001)
POINT_S = 600  # more is no measurement any more
# Our lane allocation, allocator and pipeline are said by the program, not by the file; these words
# must have these values for the two to be the same machine.
SAME = {
    "num_vcs": "16", "input_speedup": "1", "output_speedup": "1", "internal_speedup": "1.0",
    "routing_delay": "1", "vc_alloc_delay": "1", "sw_alloc_delay": "1", "st_final_delay": "1",
    "hold_switch_for_packet": "0", "wait_for_tail_credit": "0", "traffic": "uniform",
    "injection_process": "bernoulli", "use_noc_latency": "0",
}  # fmt: skip


@dataclass(frozen=True)
class Point:
    offered: float  # flits per node and cycle, like accepted
    accepted: float
    packet_latency: float  # cycles, with the wait at the source
    network_latency: float
    hops: float
    steady: bool = True


@dataclass(frozen=True)
class Reference:
    """A network of BookSim2's; sources with one queue, and with sixteen where that was measured."""

    name: str
    words: Mapping[str, str]
    one_queue: list[Point] = field(default_factory=list)
    sixteen_queues: list[Point] = field(default_factory=list)

    def loads(self) -> list[float]:
        return sorted({point.offered for point in (*self.one_queue, *self.sixteen_queues)})


@dataclass(frozen=True)
class Comparison:
    name: str
    flits: int
    zero_load: Point
    ours: list[Point]
    one_queue: list[Point]
    sixteen_queues: list[Point]

    def zero_load_formula(self) -> float:
        """fabric/router/README.md: 5 a hop, a link more, N - 1 for the tail."""
        return 5 * self.zero_load.hops + self.flits

    def as_dict(self) -> dict[str, Any]:
        return {
            "network": self.name,
            "zero_load": self.zero_load.packet_latency,
            "zero_load_formula": self.zero_load_formula(),
            "saturation": {
                name: saturation(points)
                for name, points in (
                    ("ours", self.ours),
                    ("one_queue", self.one_queue),
                    ("sixteen_queues", self.sixteen_queues),
                )
            },
            "ours": [asdict(point) for point in self.ours],
            "one_queue": [asdict(point) for point in self.one_queue],
            "sixteen_queues": [asdict(point) for point in self.sixteen_queues],
        }


def saturation(points: Iterable[Point]) -> float | None:
    """The most that was accepted, where more was offered; None where nobody offered that."""
    points = list(points)
    if all(point.steady for point in points):
        return None
    return max(point.accepted for point in points)


def read_words(path: Path) -> dict[str, str]:
    text = re.sub(r"//.*", "", path.read_text())
    return dict(re.findall(r"(\w+)\s*=\s*([^;\s]+)\s*;", text))


def read_points(path: Path) -> dict[str, list[Point]]:
    """Either kind of header; the columns are the same and in the same order."""
    found: dict[str, list[Point]] = {}
    with path.open(newline="") as file:
        for row in list(csv.reader(file))[1:]:
            try:
                offered, _, packet, network, _, hops, _, accepted, drift = map(float, row[1:])
            except ValueError:
                raise UsageError(f"{path}: {','.join(row)}: a name and nine numbers") from None
            steady = drift <= STEADY_DRIFT_MAX
            point = Point(offered, accepted, packet, network, hops, steady)
            found.setdefault(row[0], []).append(point)
    return found


def read_reference(directory: Path) -> list[Reference]:
    configs = sorted((directory / "configs").glob("*.cfg"))
    if not configs or not (directory / "curves.csv").is_file():
        raise UsageError(f"--reference {directory}: has no curves.csv and configs/*.cfg")
    one = read_points(directory / "curves.csv")
    sixteen: dict[str, list[Point]] = {}
    for path in sorted(directory.glob("curves_16_source_queues_*.csv")):
        sixteen.update(read_points(path))
    return [
        Reference(path.stem, read_words(path), one.get(path.stem, []), sixteen.get(path.stem, []))
        for path in configs
    ]


def translate(name: str, words: Mapping[str, str]) -> list[str]:
    """Options of engine_curve for a configuration of BookSim2; an error names what we do not do."""
    for word in ("k", "n"):
        if not words.get(word, "").isdecimal():
            raise UsageError(f"{name}.cfg: {word} = {words.get(word)}: a number")
    for word in ("topology", "routing_function", "vc_buf_size", "packet_size", "alloc_iters"):
        if word not in words:
            raise UsageError(f"{name}.cfg: has no {word}")
    for word, value in SAME.items():
        if words.get(word) != value:
            raise UsageError(f"{name}.cfg: {word} = {words.get(word)}: only {value} is compared")
    k, n = int(words["k"]), int(words["n"])
    kind = (words["topology"], words["routing_function"])
    if kind == ("fly", "dest_tag") and n == 1:
        network = ["--topology", "single", "--nodes", str(k)]
    elif kind == ("mesh", "dor"):
        network = ["--topology", "mesh", "--sides", ",".join([str(k)] * n)]
    elif kind == ("torus", "dim_order"):
        network = ["--topology", "torus", "--sides", ",".join([str(k)] * n)]
    elif kind == ("fattree", "nca"):
        network = ["--topology", "tree", "--sides", f"{k},{n}"]
    else:
        raise UsageError(f"{name}.cfg: topology {kind[0]} with {kind[1]} is not compared")
    return [*network, "--vc-buf-size", words["vc_buf_size"], "--packet-size", words["packet_size"],
            "--alloc-iters", words["alloc_iters"]]  # fmt: skip


def nodes_of(words: Mapping[str, str]) -> int:
    return int(words["k"]) ** int(words["n"])


def run_point(options: list[str], load: float, cycles: int) -> Point:
    argv = [str(paths.program("engine_curve")), *options, "--injection-rate", str(load),
            "--cycles", str(cycles), "--warm-up", str(cycles // 3)]  # fmt: skip
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=POINT_S)
    except subprocess.TimeoutExpired:
        raise FlitnetError(f"engine_curve at load {load}: not done in {POINT_S} s") from None
    if done.returncode != 0:
        raise FlitnetError(done.stderr.strip() or f"engine_curve: exit code {done.returncode}")
    got = json.loads(done.stdout)
    steady = got["accepted"] > 0.97 * got["offered"]  # what was drawn, not what was asked for
    return Point(load, got["accepted"], got["packet_latency"], got["network_latency"],
                 got["hops"], steady)  # fmt: skip


def compare(reference: Reference, quick: bool) -> Comparison:
    options = translate(reference.name, reference.words)
    cycles = NODE_CYCLES // nodes_of(reference.words) // (4 if quick else 1)
    cycles = min(max(cycles, CYCLES.start // (4 if quick else 1)), CYCLES.stop)
    # Few packets at no load: as long as it takes for some hundreds.
    idle = run_point(options, ZERO_LOAD, 200_000_000 // nodes_of(reference.words))
    return Comparison(
        name=reference.name,
        flits=int(reference.words["packet_size"]),
        zero_load=idle,
        ours=[run_point(options, load, cycles) for load in reference.loads()],
        one_queue=reference.one_queue,
        sixteen_queues=reference.sixteen_queues,
    )


PICTURE = "curves.svg"


def run(reference: Path, quick: bool, plot: Path | None, say: Callable[[str], None]) -> str:
    """Measures, prints the table by `say`, draws into the directory `plot`; returns JSON."""
    found = []
    for one in read_reference(reference):
        found.append(compare(one, quick))
        for line in table(found[-1]):
            say(line)
    if plot:
        draw(found, plot / PICTURE)
    return json.dumps({"results": [one.as_dict() for one in found]}, indent=1) + "\n"


def table(one: Comparison) -> list[str]:
    """Lines of Markdown: packet latency and what was accepted, of BookSim2 twice and ours."""
    lines = [
        f"| {one.name}, offered | BookSim2, one queue | BookSim2, 16 queues | flitnet |",
        "|---|---|---|---|",
    ]
    for ours in one.ours:
        cells = [_cell(_at(points, ours.offered)) for points in (one.one_queue, one.sixteen_queues)]
        lines.append(f"| {ours.offered:g} | {cells[0]} | {cells[1]} | {_cell(ours)} |")
    most = [saturation(points) for points in (one.one_queue, one.sixteen_queues, one.ours)]
    cells = [f"{m:.3f}" if m else "-" for m in most]
    lines.append(f"| accepted at most | {' | '.join(cells)} |")
    idle = one.zero_load
    lines += [
        "",
        f"{one.name} at {idle.offered:g}: {idle.packet_latency:.2f} cycles at "
        f"{idle.hops:.3f} hops; the pipeline says {one.zero_load_formula():.2f}",
        "",
    ]
    return lines


def _at(points: Iterable[Point], offered: float) -> Point | None:
    return next((point for point in points if point.offered == offered), None)


def _cell(point: Point | None) -> str:
    if point is None:
        return "-"
    return f"{point.packet_latency:.1f}" if point.steady else f"saturated, {point.accepted:.3f}"


def draw(found: list[Comparison], target: Path) -> None:
    """A column a network: latency above, accepted flits below. The same results, the same bytes."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "flitnet", "font.size": 8, "svg.fonttype": "none"})
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3 * len(found), 5), layout="constrained")
    rows = figure.subplots(2, len(found), squeeze=False, sharex="col")
    for column, one in enumerate(found):
        above, below = rows[0][column], rows[1][column]
        for points, label, style in (
            (one.one_queue, "BookSim2, one queue", "C0s:"),
            (one.sixteen_queues, "BookSim2, 16 queues", "C1^--"),
            (one.ours, "flitnet", "C2o-"),
        ):
            if not points:
                continue
            steady = [point for point in points if point.steady]
            above.plot([p.offered for p in steady], [p.packet_latency for p in steady], style,
                       label=label, markersize=3)  # fmt: skip
            below.plot([p.offered for p in points], [p.accepted for p in points], style,
                       label=label, markersize=3)  # fmt: skip
        above.set_title(one.name)
        above.set_yscale("log")
        below.set_xlabel("offered, flits per node and cycle")
        for axes in (above, below):
            axes.grid(alpha=0.3)
    rows[0][0].set_ylabel("packet latency, cycles")
    rows[1][0].set_ylabel("accepted, flits per node and cycle")
    legend = max(rows[0], key=lambda axes: len(axes.lines))
    legend.legend(fontsize=6)
    figure.savefig(target, metadata={"Date": None})
