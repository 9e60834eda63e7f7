"""From the batches that `flitnet-point` prints to the papers' measures of one run.

Latencies in microseconds: network (head injected to tail ejected; without a class: of all
messages), queue (in the HCA), message (both), total (with the wait before the HCA). Intervals in
milliseconds, loads in flits a cycle and node, power in watts. A measure without a sample (no frame
came) is nan.
"""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import Any

from tools.flitnet.lab.statistics import warm_up

CLASSES = ("control", "real_time", "best_effort")
NAN = math.nan
WINDOW_CYCLES = 500  # of a power window


def _sum(output: dict[str, Any], key: str, cut: int) -> float:
    return math.fsum(output[key][cut:])


def _ratio(a: float, b: float) -> float:
    return a / b if b else NAN


# Lists that have something else than a value a batch.
NOT_BY_BATCH = frozenset({"flow_labels", "flow_flits", "node_flits", "node_offered_flits"})


def part_of(output: dict[str, Any], number: int, count: int) -> dict[str, Any]:
    """One of `count` equal parts of a run, from 0, as if it were a run of its own. Quantiles,
    shares of nodes and what flows got are known of whole runs only: they are left out."""
    batches = len(output["frames"])
    if batches % count:
        raise ValueError(f"{batches} batches in {count} parts")
    chosen = slice(batches * number // count, batches * (number + 1) // count)
    return {
        key: value[chosen] if isinstance(value, list) and key not in NOT_BY_BATCH else value
        for key, value in output.items()
    } | {"part": number, "flow_labels": [], "flow_flits": []}


def _latency_series(output: dict[str, Any]) -> list[float]:
    """Mean time in the network of all messages, by batch; 0 of one in which none arrived."""
    cycles = [math.fsum(c) for c in zip(*(output[f"{c}_network_cycles"] for c in CLASSES))]
    counts = [math.fsum(c) for c in zip(*(output[f"{c}_messages"] for c in CLASSES))]
    return [_ratio(a, b) if b else 0.0 for a, b in zip(cycles, counts)]


def cut_of(output: dict[str, Any]) -> tuple[int, bool]:
    """The warm-up in batches: the longer of that of latency and that of frames."""
    cut, steady = warm_up(_latency_series(output))
    frames = output["frames"]
    if any(frames):
        # Frame intervals need two frames of every stream: what comes before is no sample.
        full = max(frames)
        first = next(i for i, count in enumerate(frames) if count > full / 2)
        cut = max(cut, min(first, len(frames) - 1))
    return cut, steady


def measures(
    output: dict[str, Any], frame_ms: float = 1000 / 30, *, transient: bool = False
) -> dict[str, float]:
    """`transient`: what follows an empty network is what is measured, and no warm-up."""
    cut, steady = cut_of(output)
    cut = 0 if transient else cut
    batches = len(output["frames"]) - cut
    cycles = batches * output["batch_cycles"]
    node_cycles = cycles * output["nodes"]
    cycle_us = output["cycle_ps"] / 1e6
    found: dict[str, float] = {"warm_up_batches": cut, "steady": float(steady)}
    found["stuck"] = float(bool(output["stuck"]))
    for name in CLASSES:
        messages = _sum(output, f"{name}_messages", cut)
        network = _sum(output, f"{name}_network_cycles", cut) * cycle_us
        queue = _sum(output, f"{name}_queue_cycles", cut) * cycle_us
        host = _sum(output, f"{name}_host_cycles", cut) * cycle_us
        flits = _sum(output, f"{name}_flits", cut)
        offered = _sum(output, f"{name}_offered_flits", cut)
        found[f"{name}_network_us"] = _ratio(network, messages)
        found[f"{name}_queue_us"] = _ratio(queue, messages)
        found[f"{name}_message_us"] = _ratio(network + queue, messages)
        found[f"{name}_total_us"] = _ratio(network + queue + host, messages)
        found[f"{name}_load"] = flits / node_cycles
        found[f"{name}_offered"] = offered / node_cycles
        found[f"{name}_accepted"] = _ratio(flits, offered)
    found["network_us"] = _ratio(
        math.fsum(_sum(output, f"{name}_network_cycles", cut) for name in CLASSES) * cycle_us,
        math.fsum(_sum(output, f"{name}_messages", cut) for name in CLASSES),
    )
    found |= _frames(output, cut, frame_ms)
    found["rejected"] = 1 - output["granted"] / output["asked"] if output["asked"] else 0.0
    found |= _connections(output) | _flows(output, cut) | _failures(output)
    if "part" not in output:
        found |= _tails(output, cycle_us)
    found["load"] = math.fsum(found[f"{name}_load"] for name in CLASSES)
    windows = output["window_pj"][cut:]
    found["power_max_w"] = max(windows) / (WINDOW_CYCLES * output["cycle_ps"])
    found["power_w"] = _sum(output, "energy_pj", cut) / (cycles * output["cycle_ps"])
    return found


def _frames(output: dict[str, Any], cut: int, frame_ms: float) -> dict[str, float]:
    intervals = _sum(output, "intervals", cut)
    mean = _ratio(_sum(output, "deviation_ms", cut), intervals)
    square = _ratio(_sum(output, "deviation_sq", cut), intervals)
    missed = _sum(output, "missed", cut)
    return {
        "interval_ms": frame_ms + mean,
        "sd_ms": math.sqrt(max(0.0, square - mean * mean)) if intervals else NAN,
        "dmp": _ratio(missed, _sum(output, "frames", cut)),
        "dmt_ms": _lateness(output, cut),
        "frames": _sum(output, "frames", cut),
    }




def _lateness(output: dict[str, Any], cut: int) -> float:
    """Of the frames that missed; 0 where none did, nan where there was none."""
    missed = _sum(output, "missed", cut)
    if missed:
        return _ratio(_sum(output, "late_ms", cut), missed)
    return 0.0 if _sum(output, "frames", cut) else NAN


def _connections(output: dict[str, Any]) -> dict[str, float]:
    asked, granted = output["asked"], output["granted"]
    return {"asked": asked, "granted": granted, "dropped": asked - granted}


def _failures(output: dict[str, Any]) -> dict[str, float]:
    """Before, while and after links are down; "before" leaves out the first half for warm-up."""
    if not any(output.get("links_down", ())):
        return {}
    down = [b for b, links in enumerate(output["links_down"]) if links]
    found = {
        "asked_again": output["asked_again"],
        "refused_again": output["asked_again"] - output["granted_again"],
        "asked_again_us": _ratio(output["asked_again_cycles"], output["asked_again"])
        * output["cycle_ps"] / 1e6,
        "given_up": output["given_up"],
    }  # fmt: skip
    phases = {
        "before": slice(down[0] // 2, down[0]),
        "during": slice(down[0], down[-1] + 1),
        "after": slice(down[-1] + 1, None),
    }
    for phase, batches in phases.items():
        part = {
            key: value[batches] if isinstance(value, list) and key in PER_BATCH else value
            for key, value in output.items()
        }
        found |= {f"{key}_{phase}": value for key, value in _phase(part).items()}
    return found


PER_BATCH = frozenset(
    {f"{c}_{field}" for c in CLASSES
     for field in ("messages", "flits", "network_cycles", "queue_cycles")}
    | {"frames", "missed", "late_ms", "energy_pj", "window_pj"}
)  # fmt: skip


def _phase(part: dict[str, Any]) -> dict[str, float]:
    cycles = len(part["frames"]) * part["batch_cycles"]
    frames = _sum(part, "frames", 0)
    found = {
        "dmp": _ratio(_sum(part, "missed", 0), frames),
        "late_us": _ratio(_sum(part, "late_ms", 0) * 1000, frames),
    }
    for name in CLASSES:
        messages = _sum(part, f"{name}_messages", 0)
        spent = _sum(part, f"{name}_network_cycles", 0) + _sum(part, f"{name}_queue_cycles", 0)
        found[f"{name}_load"] = _ratio(_sum(part, f"{name}_flits", 0), cycles * part["nodes"])
        found[f"{name}_message_us"] = _ratio(spent * part["cycle_ps"] / 1e6, messages)
    found["power_w"] = _ratio(_sum(part, "energy_pj", 0), cycles * part["cycle_ps"])
    windows = part["window_pj"]
    found["power_max_w"] = max(windows, default=NAN) / (WINDOW_CYCLES * part["cycle_ps"])
    return found


def jain(values: list[float]) -> float:
    """Fairness: 1 when all get the same, 1/n when one gets everything (Jain 1984)."""
    squares = math.fsum(v * v for v in values)
    return math.fsum(values) ** 2 / (len(values) * squares) if squares else NAN


def _tails(output: dict[str, Any], cycle_us: float) -> dict[str, float]:
    """Quantiles of latency with queueing, and fairness among those that sent best effort: of the
    run's second half, of all of it where a change is measured (`tails_from_cycle`)."""
    found = {}
    for name in CLASSES:
        for q in ("p50", "p99", "p999"):
            cycles = output[f"{name}_{q}_cycles"]
            found[f"{name}_{q}_us"] = NAN if cycles is None else cycles * cycle_us
    # A node that its pattern keeps silent is no sender; one of which nothing arrived is.
    offered, sent = output["node_offered_flits"], output["node_flits"]
    shares = [flits for flits, wanted in zip_longest(sent, offered, fillvalue=0.0) if wanted]
    return found | {"jain": jain(shares) if sent else NAN}


def _flows(output: dict[str, Any], cut: int) -> dict[str, float]:
    """MB/s of the named flows: of each label together, the mean, least and most of its flows."""
    found: dict[str, float] = {}
    batches = len(output["frames"]) - cut
    us = batches * output["batch_cycles"] * output["cycle_ps"] / 1e6
    rates: dict[str, list[float]] = {}
    for label, flits in zip(output["flow_labels"], output["flow_flits"]):
        rate = math.fsum(flits[cut:]) * output["flit_payload_bytes"] / us
        rates.setdefault(label, []).append(rate)
    if rates:
        rates["all"] = [rate for some in rates.values() for rate in some]
    for label, some in rates.items():
        found[f"{label}_mb_s"] = math.fsum(some)
        found[f"{label}_mean_mb_s"] = math.fsum(some) / len(some)
        found[f"{label}_least_mb_s"] = min(some)
        found[f"{label}_most_mb_s"] = max(some)
    return found
