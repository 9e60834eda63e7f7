"""The commands that play traffic on a running cluster: replay, load.

A module of their own for what they import: plans, workloads and reports take as long as all that
`exec` does before it becomes the program.
"""

from __future__ import annotations

import os
from pathlib import Path

from tools.flitnet import config, nodes, output, paths, programs
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import (
    EXIT_ERROR, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, FlitnetError, UsageError,
)  # fmt: skip
from tools.flitnet.process import cleaned_up
from tools.flitnet.report import LoadReport, StreamReport
from tools.flitnet.workload import Generator, Live, Workload, parse_rate

LOAD_KINDS = ("best-effort", "control", "on-off")


def replay(
    run: Path, file: Path, source: str, target: str, *, seconds: float, copies: int,
    trace: dict[str, str | None], as_json: bool,
) -> int:  # fmt: skip
    """Replays a file between two nodes: a replayer on each, both for this stream alone. `trace`:
    the replayer's options that say how a text is to be read."""
    cluster = Cluster.open(run)
    for node in (source, target):
        cluster.node_dir(node)
    if source == target:
        raise UsageError(f"--from {source} --to {target}: a stream needs two nodes")
    nodes.refuse_dead(cluster, [source, target])
    name = f"r{os.getpid()}"
    pair = (source, target)

    def played() -> list[StreamReport]:
        plan, link = programs.write_replay_plan(cluster, file, source, target, copies, name)
        more = [word for option, value in trace.items() if value for word in (option, value)]
        started = programs.start_replay(cluster, plan, pair, seconds, name, more)
        if failed := programs.wait(cluster, started):
            raise _failure(cluster, *failed, {str(link): str(file), link.name: file.name})
        return programs.results(cluster, name, pair)

    streams = cleaned_up(played, lambda: programs.end(cluster, name))
    if as_json:
        output.print_json([stream.to_dict() for stream in streams])
    else:
        _show(streams)
    if refused := [stream for stream in streams if not stream.admitted]:
        raise FlitnetError(f"{len(refused)} of {copies} streams {_refusal(refused[0])}")
    whole = all(s.frames_delivered == s.frames_sent and not s.bytes_corrupt for s in streams)
    return EXIT_OK if whole else EXIT_ERROR


def _refusal(stream: StreamReport) -> str:
    """Nobody refused one whose probe had no answer, as behind a cable that is pulled."""
    if stream.rejected_by:
        return f"refused by {stream.rejected_by}"
    return f"not admitted: {stream.why or 'no answer'}; see: {paths.call('status')}"


def load(run: Path, kind: str, rate: str, *, seconds: float, seed: int, as_json: bool) -> int:
    """A generator on every node, each sending to all others."""
    if kind not in LOAD_KINDS:
        raise UsageError(f"load {kind!r}: one of {', '.join(LOAD_KINDS)}")
    bps = parse_rate(rate)
    cluster = Cluster.open(run)
    link_mbps = programs.link_of(cluster).mbps
    if bps > link_mbps * 1e6 and not cluster.file.pass_through:
        raise UsageError(f"--rate {rate}: at most what a link carries, {link_mbps:g}M")
    nodes.refuse_dead(cluster, cluster.here)
    packets = programs.packet_options(cluster)
    if kind == "on-off":  # a connection to each other node, and each is ON half of the time
        bps = round(2 * bps / max(1, len(cluster.nodes) - 1))
    wanted = [
        Generator.of_kind(f"{kind}={bps}", node, others, packets)
        for node in cluster.nodes
        if (others := tuple(other for other in cluster.nodes if other != node))
    ]
    played = _play(cluster, Live(wanted), seconds=seconds, seed=seed)
    if as_json:
        output.print_json([one.to_dict() for one in played.loads])
    else:
        print_loads(played.loads)
    return _verdict(played)


def load_workload(run: Path, file: Path, *, seconds: float, seed: int, as_json: bool) -> int:
    """The [workload] of a file, as the laboratory simulates it."""
    workload = Workload.from_toml(config.read_text(file), file.name)
    cluster = Cluster.open(run)
    played = _play(
        cluster, workload.live(cluster.nodes, programs.link_of(cluster), seed, seconds),
        seconds=seconds, seed=seed,
    )  # fmt: skip
    if as_json:
        output.print_json({
            "loads": [one.to_dict() for one in played.loads],
            "streams": [one.to_dict() for one in played.streams],
        })  # fmt: skip
    else:
        if played.streams:
            _show(played.streams)
        print_loads(played.loads)
    return _verdict(played)


def _play(cluster: Cluster, what: Live, *, seconds: float, seed: int) -> programs.Played:
    if not what.generators and not what.streams:
        raise UsageError("load: nobody has anybody to send to")
    named = {node for stream in what.streams for node in (stream.source, stream.target)}
    named |= {one.node for one in what.generators}
    nodes.refuse_dead(cluster, [node for node in cluster.here if node in named])
    played = programs.play(cluster, what, seconds, seed, f"l{os.getpid()}")
    if played.failed:
        raise _failure(cluster, *played.failed, {})
    return played


def _show(streams: list[StreamReport]) -> None:
    from tools.flitnet import screen  # and rich, which --json has no use for

    screen.show(screen.stream_table(streams))


def print_loads(loads: list[LoadReport]) -> None:
    for one in loads:
        print(
            f"{one.kind}: {one.sent} packets sent, {one.received} received, {one.lost} lost, "
            f"{one.bytes_corrupt} bytes corrupt; latency mean {one.latency_us_mean:.1f} us, "
            f"p99 {one.latency_us_p99:.1f} us"
        )
        if one.behind:
            print(
                f"{one.kind}: the rate asked for could not be kept: {one.behind} packets were "
                f"posted after their time, by {one.behind_us_mean:.1f} us in the mean and "
                f"{one.behind_us_max:.1f} us at most, and the latency has that in it"
            )


def _verdict(played: programs.Played) -> int:
    """A stream that was refused is admission at work."""
    whole = all(not (one.lost or one.duplicated or one.bytes_corrupt) for one in played.loads)
    whole &= all(
        one.frames_delivered == one.frames_sent and not one.bytes_corrupt
        for one in played.streams if one.admitted
    )
    return EXIT_OK if whole and (played.loads or played.streams) else EXIT_ERROR


def _failure(cluster: Cluster, role: str, code: int, renamed: dict[str, str]) -> FlitnetError:
    """A program's complaint as our error; the user's names for files instead of the plan's."""
    words = programs.why(cluster, role, code)
    for plans, users in renamed.items():
        words = words.replace(plans, users)
    if code == EXIT_USAGE:
        return UsageError(words)
    if code == EXIT_INTERRUPTED:
        return FlitnetError("stopped by a signal before the end")
    return FlitnetError(f"{role.partition(':')[2]}: {words}")
