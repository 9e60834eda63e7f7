"""What a person sees of a cluster: the live screen, the summary, plain progress lines.

In: Reports. Out: rich renderables and text, which `show` prints. No other file, no process and no
socket is touched here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich import box
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tools.flitnet.part import number
from tools.flitnet.report import Report, StreamReport, total_of

WORST = 10
BAR = " ▁▂▃▄▅▆▇█"


def show(what: RenderableType) -> None:
    Console().print(what)


@dataclass
class View:
    """A report and the one before it, for rates."""

    title: str
    now: Report
    before: Report | None = None
    power_now_w: float = 0.0
    height: int | None = None  # lines of a terminal; None: it scrolls
    elsewhere: bool = False  # the fabric is on another host: nobody of this one keeps a clock
    part: bool = False  # other hosts have nodes: what their HCAs count is there


def screen(view: View) -> RenderableType:
    """The whole live screen: as many streams as leave room for what is below them."""
    return _Screen(view)


@dataclass(frozen=True)
class _Screen:
    view: View

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        worst = WORST
        if self.view.height is not None:
            least = console.render_lines(self._parts(1), options.update(height=None))
            worst = max(1, min(WORST, self.view.height - len(least) + 1))
        yield self._parts(worst)

    def _parts(self, worst: int) -> Group:
        view = self.view
        ours = [] if view.elsewhere else [power_panel(view)]
        lanes = [lane_panel(view)] if any(view.now.lanes) else []
        side = Columns([class_table(view.now, view.part), *ours, *lanes], padding=(0, 1))
        return Group(heading(view), stream_table(view.now.streams, worst), side)


def heading(view: View) -> RenderableType:
    clock = view.now.clock
    dilation = clock["dilation"]
    if view.elsewhere:
        return Padding(Text.assemble(
            (view.title, "bold"), f"   nodes of this host attached: {view.now.nodes}   ",
            (f"{view.now.seconds:.1f} s", "bold cyan"), " emulated; the clock's pace, the power "
            "and the lanes are on the fabric's"), (0, 1))  # fmt: skip
    now = view.now
    links = "packets pass at once" if now.pass_through else f"{now.link_mbps} Mb/s links"
    text = Text.assemble(
        (view.title, "bold"),
        f"   {number(now.nodes)}, {links}   ",
        (f"{view.now.seconds:.1f} s", "bold cyan"),
        " emulated   clock ",
        (clock["mode"], "cyan"),
        ", dilation ",
        (f"{dilation:.3f}", "green" if dilation <= 1.05 else "yellow"),
        f", lag p99 {clock['lag_us_p99']:.0f} us",
    )
    if view.now.congestion:
        text.append(f"   congestion {', '.join(view.now.congestion)}")
    if view.now.links_down:
        text.append(f"   links down: {view.now.links_down}", "bold red")
    return Padding(text, (0, 1))


def badness(stream: StreamReport) -> tuple[float, float, float]:
    return (stream.dmp, stream.interval_ms_sd, stream.dmt_ms)


def stream_table(streams: list[StreamReport], worst: int = WORST) -> RenderableType:
    """The worst streams and all admitted ones as a total. A terminal may have 80 columns."""
    if not streams:
        return Text(" no streams\n", "dim")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column(f"stream (worst {worst})", no_wrap=True)
    for name in ("from", "to", "sent", "arrived", "DMP", "DMT ms", "interval ms", "sd ms"):
        table.add_column(name, justify="right", no_wrap=name != "interval ms")
    shown = [s for s in streams if not s.refused]
    for s in sorted(shown, key=badness, reverse=True)[:worst]:
        table.add_row(
            s.name, s.source, s.target, str(s.frames_sent), str(s.frames_delivered),
            f"{s.dmp:.4f}", f"{s.dmt_ms:.3f}", f"{s.interval_ms_mean:.2f}",
            f"{s.interval_ms_sd:.3f}",
        )  # fmt: skip
    total = total_of(streams)
    table.add_section()
    table.add_row(
        f"{total.admitted} of {total.admitted + total.refused} admitted", "", "",
        str(total.frames_sent),
        str(total.frames_delivered), f"{total.dmp:.4f}", f"{total.dmt_ms:.3f}",
        f"{total.interval_ms_mean:.2f}", f"{total.interval_ms_sd:.3f}", style="bold",
    )  # fmt: skip
    return table


def class_table(report: Report, part: bool = False) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    if part:
        table.caption = "as this host's HCAs received"
    for name in ("class", "packets", "latency us", "p99 us"):
        table.add_column(name, justify="left" if name == "class" else "right")
    for name, one in report.classes.items():
        table.add_row(
            name.replace("_", " "), f"{one.packets:,}", f"{one.latency_us_mean:.1f}",
            f"{one.latency_us_p99:.1f}",
        )  # fmt: skip
    return table


def link_table(links: list[dict[str, Any]]) -> Table:
    """Names of both ends, and whether it is in service."""
    table = Table("link", "to", "state", box=box.SIMPLE_HEAD)
    for link in links:
        table.add_row(link["link"], link["to"], "up" if link["up"] else "[red]down[/red]")
    return table


def lane_use(view: View) -> list[float]:
    """Fraction of all links that each lane used since the report before."""
    before = view.before
    seconds = view.now.seconds - (before.seconds if before else 0.0)
    links = max(view.now.links, 1)
    flits_max = seconds * view.now.link_mbps * 1e6 / view.now.flit_bits * links
    if flits_max <= 0:
        return [0.0] * len(view.now.lanes)
    old = before.lanes if before else [0] * len(view.now.lanes)
    return [max(0, a - b) / flits_max for a, b in zip(view.now.lanes, old)]


def lane_panel(view: View) -> RenderableType:
    use = lane_use(view)
    top = max(use, default=0.0)
    bars = "".join(BAR[round(8 * u / top)] + " " if top > 0 else "  " for u in use)
    names = "".join(f"{vl % 10} " for vl in range(len(use)))
    text = Text.assemble((bars + "\n", "cyan"), (names + "\n", "dim"), f"links {sum(use):.1%} used")
    return Panel(text, title="lanes", box=box.SIMPLE)


def power_panel(view: View) -> RenderableType:
    power = view.now.power
    cap = power["cap_w"]
    now = f"now  {watts(view.power_now_w)}\n" if view.power_now_w else ""
    text = Text(f"{now}mean {watts(power['mean_w'])}\n")
    style = "green" if cap <= 0 or power["max_w"] <= cap else "red"
    text.append(f"max  {watts(power['max_w'])}", style)
    text.append(f"\ncap  {watts(cap)}" if cap > 0 else "\nno cap")
    return Panel(text, title="power", box=box.SIMPLE)


def watts(value: float) -> str:
    """At 400 Mb/s a switch of the papers' technology takes milliwatts, at 2.5 Gb/s watts."""
    return f"{value * 1e3:.3f} mW" if abs(value) < 0.1 else f"{value:.3f} W"


def progress_line(report: Report) -> str:
    """One line for those who watch a log."""
    total = total_of(report.streams)
    real_time = report.classes["real_time"]
    return (
        f"{report.seconds:6.1f} s  {total.admitted} streams, {total.frames_delivered} frames, "
        f"DMP {total.dmp:.4f}, sd {total.interval_ms_sd:.3f} ms, "
        f"real time {real_time.latency_us_mean:.1f} us, power max {watts(report.power['max_w'])} "
        f"of {watts(report.power['cap_w'])}, dilation {report.clock['dilation']:.3f}"
    )


def summary(report: Report) -> str:
    """The last words of a run: facts, a line each."""
    total = total_of(report.streams)
    clock = report.clock
    lines = [
        f"{number(report.nodes)}, {report.link_mbps} Mb/s links, {report.seconds:.1f} s emulated, "
        f"clock {clock['mode']}: dilation {clock['dilation']:.3f}, "
        f"lag p99 {clock['lag_us_p99']:.0f} us",
        f"streams: {total.admitted} admitted, {total.refused} refused; frames "
        f"{total.frames_delivered} of {total.frames_sent} delivered, {report.corrupt} bytes "
        f"corrupt, {total.frames_lost} lost, {total.frames_duplicated} duplicated",
        f"deadlines: DMP {total.dmp:.4f}, DMT {total.dmt_ms:.3f} ms, interval "
        f"{total.interval_ms_mean:.2f} ms, sd at most {total.interval_ms_sd:.3f} ms",
    ]
    lost = max(0, report.lost - total.frames_lost)
    twice = max(0, report.duplicated - total.frames_duplicated)
    if lost or twice:
        why = "an HCA drops datagrams for which its program, late on a busy host, posted no receive"
        lines.append(
            f"generated traffic: {lost} messages did not arrive, {twice} arrived twice"
            + (f"; {why}" if lost else "")
        )
    if total.frames_posted_late:
        lines.append(
            f"host: {total.frames_posted_late} frames were given to their HCA after their time, "
            "as the host was busy; deadlines missed by them are not the fabric's"
        )
    for name, one in report.classes.items():
        lines.append(
            f"{name.replace('_', ' ')}: {one.packets:,} packets, latency mean "
            f"{one.latency_us_mean:.1f} us, p99 {one.latency_us_p99:.1f} us"
        )
    power = report.power
    lines.append(
        f"power: mean {watts(power['mean_w'])}, max {watts(power['max_w'])}, "
        f"cap {watts(power['cap_w'])}"
    )
    refusals: dict[str, int] = {}
    for stream in report.streams:
        if stream.rejected_by:
            refusals[stream.rejected_by] = refusals.get(stream.rejected_by, 0) + 1
    lines += [f"refused by {who}: {count} streams" for who, count in sorted(refusals.items())]
    return "\n".join(lines)
