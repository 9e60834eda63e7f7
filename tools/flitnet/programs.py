"""The verbs programs that the demo and the commands run: replayers, generators, the simulation.

Their command lines are written here and nowhere else.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.flitnet import config, pages, paths
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import EXIT_USAGE, FlitnetError, UsageError
from tools.flitnet.nodes import refuse_dead
from tools.flitnet.process import cleaned_up, dies_with_us, stop_all, uninterrupted
from tools.flitnet.progress import progress
from tools.flitnet.report import LoadReport, Report, StreamReport
from tools.flitnet.scenario import FRAME_US, PlannedStream, Scenario, cluster_tables
from tools.flitnet.workload import Generator, Link, Live

# Peers start one after another on busy machines; nobody waits longer for the others.
WAIT_SECONDS = 30
LEAD_S = 0.2  # from the word that a workload begins to its first message
HEADERS = {"RC": 26, "UD": 34}  # bytes: LRH, BTH, ICRC, VCRC, of a datagram a DETH, too


def roles(scenario: Scenario) -> list[str]:
    """Every program that a scenario runs."""
    found = [f"replay:{node}" for node in scenario.nodes] if scenario.streams else []
    return found + [f"load:{node}" for node in scenario.nodes]


def start(cluster: Cluster, scenario: Scenario) -> None:
    """Starts a replayer and a generator on every node."""
    request = scenario.request
    plans = cluster.run / "plans"
    plan = plans / "streams.txt"
    plan.write_text(scenario.plan_text(_traces(plans, "streams")))
    for node in scenario.nodes:
        if scenario.streams:
            argv = replay_argv(
                cluster, node, plan, request.seconds, "streams", admission=request.admission
            )
            cluster.start(f"replay:{node}", argv, cluster.env(node))
    for node in scenario.nodes:
        argv = load_argv(cluster, node, scenario)
        cluster.start(f"load:{node}", argv, cluster.env(node))


def replay_argv(
    cluster: Cluster, node: str, plan: Path, seconds: float, name: str, *, admission: bool = True
) -> list[str]:
    """The replayer of one node; its result goes to plans/<name>-<node>.json."""
    plans = cluster.run / "plans"
    argv = [
        str(paths.program("flitnet-replay")), "--node", node, "--plan", str(plan),
        "--seconds", f"{seconds:g}", "--rendezvous", meeting(plans, name),
        "--wait-seconds", str(WAIT_SECONDS), "--metrics", str(cluster.run),
        "--json", str(plans / f"{name}-{node}.json"), *_frame_options(cluster, node),
    ]  # fmt: skip
    return argv + ([] if admission else ["--no-admission"])


def _frame_options(cluster: Cluster, node: str) -> tuple[str, ...]:
    """Into which packets a node's HCA cuts a replayer's messages."""
    hca = cluster.node_status(node)
    return (
        "--packet-payload", str(hca["payload_bytes"]), "--header-bytes", str(_headers(hca, "RC")),
        "--flit-bytes", str(_flit_bytes(_network(cluster))),
    )  # fmt: skip


def _header_options(cluster: Cluster, node: str) -> tuple[str, ...]:
    return "--header-bytes", str(_headers(cluster.node_status(node), "UD"))


def _headers(hca: dict[str, Any], service: str) -> int:
    return HEADERS[service] + int(hca["grh_bytes"])


def _flit_bytes(network: dict[str, Any]) -> int:
    return int(network.get("flit_bits", config.FLIT_BITS_DEFAULT)) // 8


def _network(cluster: Cluster) -> dict[str, Any]:
    return config.parse_toml(cluster.file.text, cluster.file.name).get("network", {})


def write_replay_plan(
    cluster: Cluster, file: Path, source: str, target: str, copies: int, name: str
) -> tuple[Path, Path]:
    """A plan of one file, and the link by which it names the file."""
    try:
        file.stat()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    plans = cluster.run / "plans"
    # A link, because a line of a plan cannot hold every file name; the suffix still tells the kind.
    suffix = file.suffix if re.fullmatch(r"\.[A-Za-z0-9]{1,8}", file.suffix) else ""
    link = plans / f"{name}-clip{suffix}"
    link.symlink_to(file.absolute())
    plan = plans / f"{name}.txt"
    # Copies start a few frames apart, so that their large frames do not meet.
    streams = [
        PlannedStream(name=f"{name}-{i}", clip=str(link), source=source, target=target,
                      first_frame=5 * i, phase_us=FRAME_US * i // copies)
        for i in range(copies)
    ]  # fmt: skip
    plan.write_text("".join(one.line() for one in streams))
    return plan, link


def _traces(folder: Path, name: str) -> Path:
    """The clips of traces/ by a link: where the source tree lies, a plan could not say it all."""
    link = folder / f"{name}-traces"
    link.symlink_to(paths.ROOT / "traces")
    return link


def start_replay(
    cluster: Cluster, plan: Path, nodes: Sequence[str], seconds: float, name: str,
    more: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """A replayer on each node of a plan; they meet in a folder of their own."""
    # Of a replay before, one end's page would be written over and the other's stay.
    pages.drop_ended(cluster.run, "replay")
    for node in nodes:
        argv = [*replay_argv(cluster, node, plan, seconds, name), *more]
        cluster.start(f"{name}:{node}", argv, cluster.env(node))
    return [f"{name}:{node}" for node in nodes]


@dataclass(frozen=True)
class Played:
    """What the programs of a workload wrote at their end; `failed`: one, and its exit code."""

    failed: tuple[str, int] | None
    loads: list[LoadReport]
    streams: list[StreamReport]


def play(cluster: Cluster, what: Live, seconds: float, seed: int, name: str) -> Played:
    """A workload by generators and replayers on every node that it needs, to its end."""
    frames = f"{name}s"  # replayers and generators of a node write files of their own
    folder = cluster.run / "plans" / f"{name}-begin"
    begin = ["--begin", str(folder)]

    def played() -> Played:
        folder.mkdir(exist_ok=True)
        started = _start_streams(cluster, what.streams, seconds, frames, begin)
        for one in what.generators:
            argv = workload_argv(cluster, one, seconds, seed, name) + begin
            cluster.start(f"{name}:{one.node}", argv, cluster.env(one.node))
            started.append(f"{name}:{one.node}")
        _begin_together(cluster, started, folder)
        failed = wait(cluster, started)
        return Played(
            failed, load_results(cluster, name), results(cluster, frames, cluster.nodes)
        )  # fmt: skip

    def clean() -> None:
        end(cluster, name)
        end(cluster, frames)

    return cleaned_up(played, clean)


def _begin_together(cluster: Cluster, started: list[str], folder: Path) -> None:
    """Says when, once all are ready: phases are everybody's, and streams meet the messages beside
    them. Who is not ready in time is not waited for."""
    late = time.monotonic() + WAIT_SECONDS
    while len(list(folder.glob("ready-*"))) < len(started) and time.monotonic() < late:
        ended = any(cluster.exit_code(role) is not None for role in started)
        if ended or not cluster.fabric_lives():
            return  # wait() says it
        time.sleep(0.01)
    part = folder / "part"
    part.write_text(f"{round((_emulated_s(cluster) + LEAD_S) * 1e9)}\n")
    part.rename(folder / "begin")


def _emulated_s(cluster: Cluster) -> float:
    """Now, as the fabric says, or where that is on another host, a node that lives here."""
    if cluster.part.fabric:
        return pages.read(cluster.run).one("flitnet_clock_emulated_seconds_total")
    return float(cluster.node_status(_living(cluster))["emulated_ns"]) / 1e9


def _living(cluster: Cluster) -> str:
    """A node of this host, if one lives; there are some."""
    dead = cluster.dead()
    return next((one for one in cluster.here if f"hcad:{one}" not in dead), cluster.here[0])


def _start_streams(
    cluster: Cluster, streams: list[PlannedStream], seconds: float, name: str, more: list[str]
) -> list[str]:
    if not streams:
        return []
    plan = cluster.run / "plans" / f"{name}.txt"
    base = _traces(cluster.run / "plans", name)
    plan.write_text("".join(one.line(base) for one in streams))
    named = {node for s in streams for node in (s.source, s.target)}
    nodes = [node for node in cluster.nodes if node in named]
    return start_replay(cluster, plan, nodes, seconds, name, more)


def wait(cluster: Cluster, started: list[str]) -> tuple[str, int] | None:
    """Until all ended well (None), or one failed: its role and exit code."""
    while True:
        try:
            codes = {role: cluster.exit_code(role) for role in started}
        except FlitnetError:
            if not cluster.ends:
                raise
            codes = {}  # none is known any more
        failed = [(role, code) for role, code in codes.items() if code]
        if cluster.ends:  # which is why one failed
            raise FlitnetError("the cluster was taken down before the end")
        if all(code == 0 for code in codes.values()):
            return None
        if died := _died(cluster, started if failed else []):
            raise FlitnetError(f"{died} died; see: {paths.call('status')}")
        if failed:
            return failed[0]
        time.sleep(0.05)


def _died(cluster: Cluster, programs: list[str]) -> str:
    """Without whom nothing goes on: the fabric, or a node of these programs."""
    if not cluster.fabric_lives():
        return "fabricd"
    dead = cluster.dead() if programs else []
    nodes = (role.partition(":")[2] for role in programs)
    return next((node for node in nodes if f"hcad:{node}" in dead), "")


def why(cluster: Cluster, role: str, code: int) -> str:
    """What a program complained of last: behind that come its figures."""
    said = [line for line in cluster.lines(role) if re.match(r"flitnet(-\w+)?: ", line)]
    if said:
        return said[-1].partition(": ")[2]
    # What is wrong with a command line is said without a name.
    return (cluster.last_line(role) if code == EXIT_USAGE else "") or f"ended with {code}"


def end(cluster: Cluster, name: str) -> None:
    """Stops what still runs of a plan, also if not all of it was started; removes what it left."""
    with uninterrupted():
        found = cluster.record().processes
        started = [role for role in found if role.startswith(f"{name}:")]
        stop_all([found[role] for role in started])
        for role in started:
            cluster.exit_code(role)  # reaped
            cluster.forget(role)
        _clean(cluster, name)


def _clean(cluster: Cluster, name: str) -> None:
    for path in (cluster.run / "plans").glob(f"{name}[-.]*"):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def load_argv(cluster: Cluster, node: str, scenario: Scenario) -> list[str]:
    """The generator of one node: control traffic and, if asked, best effort."""
    kinds = ["control"]
    if scenario.best_effort_bps:
        kinds.append(f"best-effort={scenario.best_effort_bps}")
    request = scenario.request
    return generator_argv(cluster, node, kinds, request.seconds, request.seed, "load")


def generator_argv(
    cluster: Cluster, node: str, kinds: list[str], seconds: float, seed: int, name: str
) -> list[str]:
    """A generator that sends to all other nodes; its result goes to plans/<name>-<node>.json."""
    plans = cluster.run / "plans"
    others = [other for other in cluster.nodes if other != node]
    return [
        str(paths.program("flitnet-load")), *kinds, "--node", node, "--to", ",".join(others),
        "--seconds", f"{seconds:g}", "--seed", str(seed), "--rendezvous", meeting(plans, name),
        "--wait-seconds", str(WAIT_SECONDS), "--metrics", str(cluster.run),
        *_header_options(cluster, node), *packet_options(cluster),
        "--json", str(plans / f"{name}-{node}.json"),
    ]  # fmt: skip


def link_of(cluster: Cluster) -> Link:
    """What a workload has to know of the nodes' links, by a node of this host that lives."""
    if not cluster.here:
        raise UsageError("the nodes run on other hosts: ask there")
    node = _living(cluster)
    refuse_dead(cluster, [node])
    network, hca = _network(cluster), cluster.node_status(node)
    return Link(
        network.get("link_mbps", config.LINK_MBPS_DEFAULT),
        network.get("flit_bits", config.FLIT_BITS_DEFAULT),
        int(hca["mtu_bytes"]), _headers(hca, "UD"),
    )  # fmt: skip


def packet_options(cluster: Cluster) -> tuple[str, ...]:
    """A generator's packets are the cluster's, or as long as a datagram may be."""
    network, (_, most) = _network(cluster), link_of(cluster).packet_flits
    return (
        "--packet-flits", str(min(network.get("packet_size", config.PACKET_SIZE_DEFAULT), most)),
        "--control-flits", str(min(network.get("control_packet_size", 10), most)),
        "--flit-bytes", str(_flit_bytes(network)),
    )  # fmt: skip


def workload_argv(
    cluster: Cluster, generator: Generator, seconds: float, seed: int, name: str
) -> list[str]:
    """One generator of a workload; its result goes to plans/<name>-<node>.json."""
    plans = cluster.run / "plans"
    argv = [
        str(paths.program("flitnet-load")), *generator.kinds, "--node", generator.node,
        "--seconds", f"{seconds:g}", "--seed", str(seed), "--rendezvous", meeting(plans, name),
        "--wait-seconds", str(WAIT_SECONDS), "--metrics", str(cluster.run),
        *_header_options(cluster, generator.node), *generator.options,
        "--json", str(plans / f"{name}-{generator.node}.json"),
    ]  # fmt: skip
    peers = generator.peers
    argv += ["--to", ",".join(peers)] if peers else ["--sink"]
    for kind, to in generator.to.items():
        if to != peers or kind == "on-off":
            argv += ["--kind-to", f"{kind}={':'.join(to)}"]
    return argv + (["--from", ",".join(generator.senders)] if generator.senders else [])


def meeting(plans: Path, name: str) -> str:
    """The folder where the programs of one plan find each other."""
    folder = plans / f"{name}-meet"
    folder.mkdir(exist_ok=True)
    return str(folder)


def results(cluster: Cluster, name: str, nodes: tuple[str, ...]) -> list[StreamReport]:
    """What the replayers of a plan wrote at their end: the sender's and the sink's words joined."""
    found: dict[str, StreamReport] = {}
    for node in nodes:
        path = cluster.run / "plans" / f"{name}-{node}.json"
        try:
            streams = json.loads(path.read_text())["streams"]
        except (OSError, ValueError, KeyError):
            continue  # it ended badly, which its exit code says
        for one in streams:
            stream = found.setdefault(
                one["name"], StreamReport(one["name"], one["from"], one["to"])
            )
            _join(stream, one)
    return [found[key] for key in sorted(found)]


def load_results(cluster: Cluster, name: str) -> list[LoadReport]:
    """What the generators wrote at their end, by kind."""
    found: dict[str, LoadReport] = {}
    for node in cluster.nodes:
        path = cluster.run / "plans" / f"{name}-{node}.json"
        try:
            loads = json.loads(path.read_text())["loads"]
        except (OSError, ValueError, KeyError):
            continue
        for one in loads:
            found.setdefault(one["kind"], LoadReport(one["kind"])).add(one)
    return [found[kind] for kind in sorted(found)]


def _join(stream: StreamReport, one: dict[str, Any]) -> None:
    if one["role"] == "send":
        stream.admitted = one["admitted"]
        stream.rejected_by = one["rejected_by"]
        stream.why = "" if one["admitted"] else one["why"]
        stream.frames_sent = one["frames_sent"]
        stream.posts_refused = one["credit_refusals"]
        stream.frames_posted_late = one["posted_late"]
        return
    for key in ("frames_delivered", "bytes_corrupt", "lost", "duplicated", "dmp", "dmt_ms",
                "interval_ms_mean", "interval_ms_sd"):  # fmt: skip
        setattr(stream, key, one[key])
    stream.frames_late = round(stream.dmp * stream.frames_delivered)


def simulate(scenario: Scenario) -> Report:
    """The same scenario in virtual time, on one thread, by flitnet-sim."""
    seconds = scenario.request.seconds
    with tempfile.TemporaryDirectory(prefix="flitnet-sim-") as scratch:
        folder = Path(scratch)
        tables = cluster_tables(scenario.request)
        config.write(folder / "cluster.toml", config.to_toml(tables))
        (folder / "streams.txt").write_text(scenario.plan_text(_traces(folder, "streams")))
        argv = [
            str(paths.program("flitnet-sim")), "--config", str(folder / "cluster.toml"),
            "--plan", str(folder / "streams.txt"), "--seconds", f"{seconds:g}",
            "--best-effort-bps", str(scenario.best_effort_bps), "--progress",
            "--seed", str(scenario.request.seed), "--json", str(folder / "out.json"),
        ]  # fmt: skip
        with open(folder / "err", "w+") as err:
            with (
                progress("emulated seconds") as tell,
                subprocess.Popen(
                    dies_with_us(argv), stdout=subprocess.PIPE, stderr=err, text=True
                ) as running,
            ):
                try:
                    for line in running.stdout or ():
                        tell(int(line), math.ceil(seconds))
                except BaseException:
                    running.kill()
                    raise
            err.seek(0)
            said = err.read().strip().splitlines()
        try:
            return Report.from_dict(json.loads((folder / "out.json").read_text()))
        except (OSError, ValueError, KeyError, TypeError):
            words = said or [f"exit code {running.returncode}"]
            kind = UsageError if running.returncode == EXIT_USAGE else FlitnetError
            raise kind(words[-1].removeprefix("flitnet-sim: ")) from None
