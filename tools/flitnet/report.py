"""The figures of a cluster: from metric pages to the JSON that `demo` and `status` write.

In: a Snapshot and what the cluster file says. Out: Report, whose to_dict is the documented JSON.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tools.flitnet.config import LINK_MBPS_DEFAULT
from tools.flitnet.pages import Snapshot, quantile

CLASSES = ("control", "real_time", "best_effort")
LANES = 16
HCA_REFUSED = -2  # flitnet_stream_rejected_by_switch


@dataclass
class StreamReport:
    name: str
    source: str
    target: str
    admitted: bool = False
    rejected_by: str | None = None
    why: str = ""  # of one that was not admitted at its end, whoever or whatever kept it out
    frames_sent: int = 0
    posts_refused: int = 0  # for want of credit; tried again
    frames_posted_late: int = 0  # the host was late, not the fabric
    frames_delivered: int = 0
    frames_late: int = 0
    bytes_corrupt: int = 0
    lost: int = 0
    duplicated: int = 0
    dmp: float = 0.0
    dmt_ms: float = 0.0
    interval_ms_mean: float = 0.0
    interval_ms_sd: float = 0.0

    @property
    def refused(self) -> bool:
        """Not one that waits for its peer."""
        return not self.admitted and (self.rejected_by is not None or self.why != "")

    def to_dict(self) -> dict[str, Any]:
        value = asdict(self)
        return {"name": value.pop("name"), "from": value.pop("source"),
                "to": value.pop("target"), **value}  # fmt: skip

    @staticmethod
    def from_dict(value: dict[str, Any]) -> StreamReport:
        known = {f.name for f in fields(StreamReport)}
        rest = {key: item for key, item in value.items() if key in known - {"name"}}
        if router := re.fullmatch(r"(?:switch|router) (\d+)", rest.get("rejected_by") or ""):
            rest["rejected_by"] = f"r{router[1]}"
        return StreamReport(value["name"], value["from"], value["to"], **rest)


@dataclass
class ClassReport:
    packets: int = 0
    latency_count: int = 0  # of those that the fabric carried: not what a node sent to itself
    latency_us_total: float = 0.0  # of these
    latency_us_mean: float = 0.0
    latency_us_p99: float = 0.0


@dataclass
class Report:
    nodes: int
    link_mbps: int  # which no link has where packets pass through
    flit_bits: int
    seconds: float
    clock: dict[str, Any]
    streams: list[StreamReport]
    classes: dict[str, ClassReport]
    power: dict[str, float]
    lost: int  # frames of streams and messages of generators
    duplicated: int
    lanes: list[int] = field(default_factory=list)  # flits that left the switches, by lane
    links: int = 0  # that routers feed; 0: the fabric is on another host
    links_down: int = 0
    congestion: list[str] = field(default_factory=list)  # schemes in force; one, if all agree
    pass_through: bool = False  # packets pass at once: no rates of links, no cap on power

    def to_dict(self) -> dict[str, Any]:
        value = asdict(self)
        value["streams"] = [stream.to_dict() for stream in self.streams]
        value["lane_flits"] = value.pop("lanes")
        return value

    @staticmethod
    def from_dict(value: dict[str, Any]) -> Report:
        """From JSON of the same shape (flitnet-sim writes it)."""
        return Report(
            nodes=value["nodes"],
            link_mbps=value["link_mbps"],
            flit_bits=value["flit_bits"],
            seconds=value["seconds"],
            clock=value["clock"],
            streams=[StreamReport.from_dict(stream) for stream in value["streams"]],
            classes={name: ClassReport(**one) for name, one in value["classes"].items()},
            power=value["power"],
            lost=value["lost"],
            duplicated=value["duplicated"],
            lanes=value.get("lane_flits", []),
        )

    @property
    def corrupt(self) -> int:
        return sum(stream.bytes_corrupt for stream in self.streams)

    def undelivered(self) -> int:
        """Frames of admitted streams that were sent and have not arrived; lost, once all ended."""
        return sum(
            max(0, s.frames_sent - s.frames_delivered) for s in self.streams if s.admitted
        )


STREAM_COUNTERS = {
    "frames_sent": "flitnet_stream_transmitted_frames_total",
    "posts_refused": "flitnet_stream_refused_posts_total",
    "frames_delivered": "flitnet_stream_delivered_frames_total",
    "frames_late": "flitnet_stream_late_frames_total",
    "bytes_corrupt": "flitnet_stream_corrupt_bytes_total",
    "lost": "flitnet_stream_lost_messages_total",
    "duplicated": "flitnet_stream_duplicated_messages_total",
}
STREAM_GAUGES = {
    "dmp": ("flitnet_stream_deadline_missing_ratio", 1.0),
    "dmt_ms": ("flitnet_stream_deadline_missing_time_seconds", 1e3),
    "interval_ms_mean": ("flitnet_stream_interval_mean_seconds", 1e3),
    "interval_ms_sd": ("flitnet_stream_interval_deviation_seconds", 1e3),
}


def streams_of(snapshot: Snapshot) -> list[StreamReport]:
    found: dict[str, StreamReport] = {}

    def stream(labels: dict[str, str]) -> StreamReport:
        name = labels.get("stream", "")
        if name not in found:
            found[name] = StreamReport(name, labels.get("from", ""), labels.get("to", ""))
        return found[name]

    for attribute, metric in STREAM_COUNTERS.items():
        for labels, value in snapshot.series(metric):
            one = stream(labels)
            setattr(one, attribute, getattr(one, attribute) + round(value))
    for attribute, (metric, factor) in STREAM_GAUGES.items():
        for labels, value in snapshot.series(metric):
            setattr(stream(labels), attribute, value * factor)
    for labels, value in snapshot.series("flitnet_stream_admitted"):
        stream(labels).admitted = value > 0
    for labels, value in snapshot.series("flitnet_stream_rejected_by_switch"):
        one = stream(labels)
        if not one.admitted and value != -1:
            one.rejected_by = "hca" if value == HCA_REFUSED else f"r{value:.0f}"
    return [found[name] for name in sorted(found)]


def report(snapshot: Snapshot, tables: dict[str, Any]) -> Report:
    """Everything, as it is now. `tables`: the cluster file."""
    network = tables.get("network", {})
    ends = list(snapshot.series("flitnet_attach_up"))
    # Where the fabric is on another host, the nodes of this one say whether they are attached.
    side = "fabric" if any(labels.get("side") == "fabric" for labels, _ in ends) else "hca"
    nodes = {labels.get("node") for labels, up in ends if up and labels.get("side") == side}
    streams = streams_of(snapshot)
    classes = {}
    for name in CLASSES:
        latency = snapshot.distribution("flitnet_class_latency_seconds", class_=name)
        classes[name] = ClassReport(
            packets=round(snapshot.total("flitnet_class_received_packets_total", class_=name)),
            latency_count=latency.count,
            latency_us_total=latency.total * 1e6,
            latency_us_mean=latency.mean * 1e6,
            latency_us_p99=latency.quantile(0.99) * 1e6,
        )
    lanes, links = _lanes(snapshot)
    passes = network.get("pass_through") is True
    loads_lost = snapshot.total("flitnet_load_lost_messages_total")
    return Report(
        nodes=len(nodes),
        link_mbps=network.get("link_mbps", LINK_MBPS_DEFAULT),
        flit_bits=network.get("flit_bits", 128),
        seconds=snapshot.one("flitnet_clock_emulated_seconds_total"),
        clock=clock_of(snapshot),
        streams=streams,
        classes=classes,
        power={
            "cap_w": 0.0 if passes else snapshot.one("flitnet_power_cap_watts"),  # 0: none
            "mean_w": snapshot.one("flitnet_power_mean_watts"),
            "max_w": snapshot.one("flitnet_power_max_watts"),
        },
        lost=round(sum(s.lost for s in streams) + loads_lost),
        duplicated=sum(s.duplicated for s in streams),
        lanes=lanes,
        links=links,
        links_down=round(snapshot.total("flitnet_links_down")),
        congestion=sorted({
            labels.get("scheme", "")
            for labels, on in snapshot.series("flitnet_congestion_scheme") if on
        }),
        pass_through=passes,
    )


def _lanes(snapshot: Snapshot) -> tuple[list[int], int]:
    """Flits that left the switches by lane, and the links that they feed: in one look at each of
    what are most of a large network's series."""
    flits: dict[str, float] = defaultdict(float)
    links = set()
    for labels, value in snapshot.series("flitnet_switch_transmitted_flits_total"):
        flits[labels.get("vl", "")] += value
        links.add((labels.get("switch"), labels.get("port")))
    return [round(flits.get(str(vl), 0)) for vl in range(LANES)], len(links)


def clock_of(snapshot: Snapshot) -> dict[str, Any]:
    modes = [labels.get("mode", "") for labels, on in snapshot.series("flitnet_clock_mode") if on]
    lag = snapshot.distribution("flitnet_clock_lag_seconds")
    return {
        "mode": modes[0] if modes else "unknown",
        "dilation": snapshot.one("flitnet_clock_dilation_ratio", 1.0),
        "dilation_window": snapshot.one("flitnet_clock_dilation_window_ratio", 1.0),
        "lag_us_p99": lag.quantile(0.99) * 1e6,
    }


@dataclass(frozen=True)
class Total:
    """All admitted streams as one line, and what was lost of any."""

    admitted: int
    refused: int
    frames_sent: int
    frames_delivered: int
    frames_posted_late: int
    frames_lost: int
    frames_duplicated: int
    dmp: float
    dmt_ms: float
    interval_ms_mean: float
    interval_ms_sd: float  # of the worst stream


def total_of(streams: list[StreamReport]) -> Total:
    admitted = [stream for stream in streams if stream.admitted]
    delivered = sum(s.frames_delivered for s in admitted)
    late = sum(s.frames_late for s in admitted)
    measured = [s for s in admitted if s.frames_delivered > 1]
    return Total(
        admitted=len(admitted),
        refused=sum(s.refused for s in streams),
        frames_sent=sum(s.frames_sent for s in admitted),
        frames_delivered=delivered,
        frames_posted_late=sum(s.frames_posted_late for s in admitted),
        frames_lost=sum(s.lost for s in streams),
        frames_duplicated=sum(s.duplicated for s in streams),
        dmp=late / delivered if delivered else 0.0,
        dmt_ms=sum(s.dmt_ms * s.frames_late for s in admitted) / late if late else 0.0,
        interval_ms_mean=(
            sum(s.interval_ms_mean for s in measured) / len(measured) if measured else 0.0
        ),
        interval_ms_sd=max((s.interval_ms_sd for s in measured), default=0.0),
    )


@dataclass
class LoadReport:
    """One kind of generated traffic, summed over the nodes."""

    kind: str
    sent: int = 0
    refused: int = 0
    behind: int = 0  # posted after their time, as the send queue had been full
    behind_us_mean: float = 0.0
    behind_us_max: float = 0.0
    received: int = 0
    lost: int = 0
    duplicated: int = 0
    bytes_corrupt: int = 0
    latency_us_mean: float = 0.0
    latency_us_p99: float = 0.0
    buckets: dict[tuple[int, int], int] = field(default_factory=dict)  # [low, high) in ns -> count

    def add(self, one: dict[str, Any]) -> None:
        """Adds what one node's generator wrote."""
        total = self.latency_us_mean * self.received + one["latency_us_mean"] * one["received"]
        behind = self.behind_us_mean * self.behind + one["behind_us_mean"] * one["behind"]
        for key in ("sent", "refused", "behind", "received", "lost", "duplicated", "bytes_corrupt"):
            setattr(self, key, getattr(self, key) + one[key])
        self.latency_us_mean = total / self.received if self.received else 0.0
        self.behind_us_mean = behind / self.behind if self.behind else 0.0
        self.behind_us_max = max(self.behind_us_max, one["behind_us_max"])
        for low, high, count in one["latency_ns_buckets"]:
            self.buckets[low, high] = self.buckets.get((low, high), 0) + count
        rising = ((low, high, count) for (low, high), count in sorted(self.buckets.items()))
        self.latency_us_p99 = quantile(rising, 0.99) / 1e3

    def to_dict(self) -> dict[str, Any]:
        value = asdict(self)
        del value["buckets"]
        return value
