"""The commands and their options. Each calls one function; errors become one line here."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import List, Optional

import click
import typer

from tools.flitnet import build, cli_measure, options, output, paths, process
from tools.flitnet.errors import (
    EXIT_ERROR, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, FlitnetError, UsageError,
)  # fmt: skip
from tools.flitnet.lab.commands import app as lab_app

EPILOG = (
    "Exit codes: 0 done, 1 something could not be done, 2 the command line or an input file is "
    "wrong. `exec` and `shell` exit with the program's own code, 127 where there is no such "
    "program. Environment: FLITNET_RUN (run directory), FLITNET_BUILD (build directory)."
)
app = typer.Typer(
    help="A QoS InfiniBand cluster in user space: every packet crosses a flit-accurate model.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.add_typer(lab_app, name="lab")
TOPOLOGY = typer.Option(
    None, metavar="SHAPE",
    help="single:8, mesh:4x4, torus:4x4, fat_mesh:2x2, fat_tree, tree:4x3 or file:PATH "
    "(ibnetdiscover's output or TOML).",
)  # fmt: skip
ROUTING = typer.Option(
    None, metavar="KIND",
    help="dor, dor_by_load, dateline, up_down, up_by_load, adaptive or recovery; "
    "default by topology.",
)  # fmt: skip
ROUTER = typer.Option(
    None, metavar="KIND",
    help="np (non-preemptive), tr (traditional), p (preemptive), pcs (circuits), vct "
    "(virtual cut-through) or cell (shared memory).",
)  # fmt: skip
CROSSBAR = typer.Option(None, metavar="KIND", help="multiplexed or full.")
SCHEDULER = typer.Option(
    None, metavar="KIND", help="vclk, fgvc, fcfs, rr, wrr, two_level, vclk_hol, fq or fgfq."
)
PASS_THROUGH = typer.Option(
    False, "--pass-through",
    help="Emulated latency 0 and links without a rate: packets cross the fabric's process whole.",
)  # fmt: skip
METRICS = typer.Option(None, metavar="HOST:PORT", help="Serve Prometheus metrics here.")
# Options after NODE belong to the program.
PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@app.callback()
def common(
    run: Optional[str] = typer.Option(
        None, "--run", metavar="DIR", help="Run directory; default FLITNET_RUN or a private one."
    ),
    version: bool = options.version(),
) -> None:
    if run == "":  # an empty path is the current directory
        raise UsageError("--run '': the name of a directory")
    if run is not None:
        paths.name_run(Path(run))


@app.command()
def demo(
    seconds: float = options.number(20.0, 1, 86400, "Emulated seconds to run."),
    load: float = options.number(0.6, 0.01, 0.95, "Load as a fraction of a link."),
    mix: str = typer.Option("80:20", help="Real-time to best-effort share of the load."),
    nodes: Optional[int] = typer.Option(
        None, min=2, max=64, help="Nodes on the switch; 8, where the topology does not say."
    ),
    topology: Optional[str] = TOPOLOGY,
    routing: Optional[str] = ROUTING,
    router: Optional[str] = ROUTER,
    crossbar: Optional[str] = CROSSBAR,
    scheduler: Optional[str] = SCHEDULER,
    link_mbps: int = typer.Option(400, min=10, max=100_000, help="Speed of a link."),
    seed: int = options.seed(0, "Chooses streams, phases and arrivals."),
    clock: str = typer.Option("elastic", help="elastic, real or virtual."),
    overload: bool = typer.Option(False, "--overload", help="Ask for more streams than fit."),
    no_admission: bool = typer.Option(False, "--no-admission", help="Admit every stream."),
    no_congestion_control: bool = typer.Option(
        False, "--no-congestion-control", help="No credits between post and injection."
    ),
    no_power_control: bool = typer.Option(
        False, "--no-power-control", help="No cap on the power of the fabric."
    ),
    keep: bool = typer.Option(False, "--keep", help="Leave the cluster up at the end."),
    json_file: Optional[Path] = options.json_file("Write the result here as JSON."),
) -> None:
    """Real MPEG-2 streams between 8 nodes under admission, congestion and power control."""
    from tools.flitnet import demo as demo_module
    from tools.flitnet.scenario import Request, nodes_of
    from tools.flitnet.topology import absolute

    if topology:
        topology = absolute(topology)
    if topology and topology.startswith("file:"):
        build.ready(("fabricd",))  # which counts its nodes
    of_shape = nodes_of(topology) if topology else nodes or 8
    if nodes not in (None, of_shape):
        raise UsageError(f"--nodes {nodes} --topology {topology}: that has {of_shape} nodes")
    request = Request(
        topology=topology or "single", routing=routing or "auto",
        router=router or "np", crossbar=crossbar or "multiplexed", scheduler=scheduler or "fgvc",
        seconds=seconds, load=load, mix=mix, nodes=of_shape, link_mbps=link_mbps, seed=seed,
        clock=clock, overload=overload, admission=not no_admission,
        congestion_control=not no_congestion_control, power_control=not no_power_control,
    )  # fmt: skip
    request.check()
    raise typer.Exit(demo_module.demo(request, keep=keep, json_file=json_file))


@app.command()
def test(
    sanitizers: bool = typer.Option(
        os.environ.get("FLITNET_SANITIZERS", "0") not in ("", "0"),
        help="Also run unit and simulation tests under ASan+UBSan and TSan.",
    ),
    only: str = typer.Option("", metavar="KINDS", help="Some of: meson,asan,tsan,tidy,apps,lab."),
) -> None:
    """Build everything, run every test; the last line counts them."""
    from tools.flitnet import suite

    raise typer.Exit(suite.run(sanitizers=sanitizers, only=only))


@app.command()
def up(
    file: Optional[Path] = typer.Argument(None, metavar="[cluster.toml]"),
    metrics: Optional[str] = METRICS,
    topology: Optional[str] = TOPOLOGY,
    routing: Optional[str] = ROUTING,
    router: Optional[str] = ROUTER,
    crossbar: Optional[str] = CROSSBAR,
    scheduler: Optional[str] = SCHEDULER,
    pass_through: bool = PASS_THROUGH,
    here: Optional[str] = typer.Option(
        None, metavar="NODE[,NODE]", help="These nodes only, or none; those of other hosts `join`."
    ),
) -> None:
    """Start a cluster; it stays until `down`."""
    from tools.flitnet import operate

    build.ready()
    network = {
        "topology": topology, "routing": routing, "router": router, "crossbar": crossbar,
        "qos.scheduler": scheduler, "pass_through": pass_through,
    }  # fmt: skip
    operate.up(paths.default_run_dir(), file, metrics, network, here)


@app.command()
def join(
    file: Path = typer.Argument(..., metavar="cluster.toml", help="A copy of the fabric's."),
    here: str = typer.Option(..., metavar="NODE[,NODE]", help="The nodes of this host."),
    key: Optional[Path] = typer.Option(
        None, metavar="FILE", help="A copy of cluster.key; not needed with attach.key_file."
    ),
    wait: float = options.number(20, 1, 86400, "Seconds in which the fabric has to let them in."),
    metrics: Optional[str] = METRICS,
) -> None:
    """Start nodes of a cluster whose fabric runs on another host; they stay until `down`."""
    from tools.flitnet import operate

    build.ready()
    operate.join(paths.default_run_dir(), file, key, here, wait, metrics)


@app.command()
def status(as_json: bool = typer.Option(False, "--json", help="Print JSON.")) -> None:
    """Nodes, streams, latency, power and clock of the running cluster."""
    from tools.flitnet import operate

    raise typer.Exit(operate.status(paths.default_run_dir(), as_json))


@app.command("set")
def set_(
    key: str = typer.Argument(
        ..., metavar="KEY",
        help="congestion, completion_queues, congestion_control, power_control or admission.",
    ),
    value: str = typer.Argument(..., metavar="VALUE"),
) -> None:  # fmt: skip
    """Change a control of the running cluster: set congestion none."""
    from tools.flitnet import operate

    operate.set_control(paths.default_run_dir(), key, value)


@app.command()
def link(
    name: Optional[str] = typer.Argument(
        None, metavar="[LINK]", help="A node's, n3, or a router and its port, 0:4. None: a list."
    ),
    state: Optional[str] = typer.Argument(None, metavar="[up|down]"),
    as_json: bool = typer.Option(False, "--json", help="Print the list as JSON."),
) -> None:
    """Links of the running cluster; takes one out of service or puts it back: link n3 down."""
    from tools.flitnet import operate

    if name is None:
        operate.links(paths.default_run_dir(), as_json)
    elif state in ("up", "down"):
        operate.set_link(paths.default_run_dir(), name, state)
    else:
        raise UsageError(f"link {name}: say up or down")


@app.command()
def node(
    name: str = typer.Argument(..., metavar="NODE"),
    action: str = typer.Argument(..., metavar="kill|stop|start"),
) -> None:
    """Lets a node of the running cluster die and come back: kill, as by a power failure; stop, in
    order; start. Programs on other nodes run on; its own hear IBV_EVENT_DEVICE_FATAL."""
    from tools.flitnet import nodes

    if action not in nodes.ACTIONS:
        raise UsageError(f"node {name} {action!r}: one of {', '.join(nodes.ACTIONS)}")
    nodes.ACTIONS[action](paths.default_run_dir(), name)


@app.command()
def fabric(action: str = typer.Argument(..., metavar="kill|stop|start")) -> None:
    """Lets the fabric of the running cluster die and come back. Nodes and programs live on: their
    ports are down, emulated time stands still; what was `set` holds again, links are all up."""
    from tools.flitnet import fabric as fabric_module

    if action not in fabric_module.ACTIONS:
        raise UsageError(f"fabric {action!r}: one of {', '.join(fabric_module.ACTIONS)}")
    fabric_module.ACTIONS[action](paths.default_run_dir())


@app.command()
def exporter(action: str = typer.Argument(..., metavar="start")) -> None:
    """Starts the exporter of the running cluster again, should it have died: the files below
    /sys/class/infiniband of programs are its work, and metrics for Prometheus."""
    from tools.flitnet import exporter as exporter_module

    if action not in exporter_module.ACTIONS:
        raise UsageError(f"exporter {action!r}: start")
    exporter_module.ACTIONS[action](paths.default_run_dir())


@app.command()
def capture(
    write: str = typer.Option(
        ..., "--write", "-w", metavar="FILE", help="A pcap file, or - for stdout."
    ),
    node: str = typer.Option(
        "", metavar="NODE[,NODE]", help="Only packets to these nodes or from them."
    ),
    count: int = typer.Option(0, min=0, help="Packets; 0: until Ctrl-C."),
    seconds: float = options.number(
        0.0, 0, 86400, "Emulated, from the first packet on; 0: until Ctrl-C."
    ),
) -> None:
    """Packets that cross the fabric, for Wireshark: capture -w - | wireshark -k -i -"""
    from tools.flitnet import operate

    operate.capture(paths.default_run_dir(), write, node, count, seconds)


@app.command()
def page(
    listen: str = typer.Option(
        "127.0.0.1:9713", metavar="HOST:PORT", help="Where the browser finds it; port 0: any."
    ),
) -> None:
    """The running cluster as a live page in a browser, until Ctrl-C."""
    from tools.flitnet import page as page_module

    page_module.serve(paths.default_run_dir(), listen)


@app.command()
def top() -> None:
    """`status`, live, until Ctrl-C."""
    from tools.flitnet import operate

    operate.top(paths.default_run_dir())


@app.command("exec", context_settings=PASS_ON)
def exec_(
    node: str = typer.Argument(
        ..., metavar="NODE[,NODE]", help="Of several each is a device: flitnet0, flitnet1 ..."
    ),
    command: List[str] = typer.Argument(..., metavar="-- CMD [ARG]..."),
    dropin: bool = typer.Option(
        False, "--dropin", help="By LD_LIBRARY_PATH instead of LD_PRELOAD (programs that dlopen)."
    ),
) -> None:
    """Run an unmodified verbs program on a node."""
    from tools.flitnet import operate

    # "--" before the program is for people; click leaves it where it stands.
    command = command[1:] if command[0] == "--" else command
    if not command or not command[0]:
        raise UsageError("exec: no program after '--'")
    operate.execute(paths.default_run_dir(), node, command, dropin)


@app.command()
def shell(
    node: str = typer.Argument(..., metavar="NODE"),
    dropin: bool = typer.Option(False, "--dropin", help="See exec."),
) -> None:
    """A shell whose programs run on a node."""
    from tools.flitnet import operate

    operate.execute(paths.default_run_dir(), node, [os.environ.get("SHELL") or "/bin/sh"], dropin)


@app.command()
def log(
    node: Optional[str] = typer.Argument(None, metavar="[NODE]", help="None: every daemon's."),
) -> None:
    """What the daemons wrote: why a program's request failed, who came and went."""
    from tools.flitnet import logs

    logs.show(paths.default_run_dir(), node)


@app.command()
def replay(
    file: Path = typer.Argument(..., metavar="FILE"),
    source: str = typer.Option(..., "--from", metavar="NODE", help="The node that sends."),
    target: str = typer.Option(..., "--to", metavar="NODE", help="The node that receives."),
    seconds: float = options.number(10.0, 0.1, 86400, "Emulated seconds."),
    copies: int = typer.Option(1, min=1, max=64, help="Streams, each with its own phase."),
    layout: Optional[options.TraceLayout] = typer.Option(
        None, help="Of a trace whose columns do not tell it."
    ),
    unit: Optional[options.SizeUnit] = typer.Option(
        None, help="Of the sizes in a terse trace."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Replay an MPEG-2 clip or a frame-size trace between two nodes of the running cluster."""
    from tools.flitnet import traffic

    code = traffic.replay(
        paths.default_run_dir(), file, source, target, seconds=seconds, copies=copies,
        trace={"--layout": layout and layout.value, "--unit": unit and unit.value}, as_json=as_json,
    )  # fmt: skip
    raise typer.Exit(code)


@app.command()
def load(
    kind: Optional[str] = typer.Argument(None, metavar="[best-effort|control|on-off]"),
    rate: Optional[str] = typer.Option(
        None, "--rate", metavar="R", help="Of each node: bits/s, as 80M."
    ),
    workload: Optional[Path] = typer.Option(
        None, "--workload", metavar="FILE", help="TOML with a table [workload], as the lab's."
    ),
    seconds: float = options.number(10.0, 0.1, 86400, "Emulated seconds."),
    seed: int = options.seed(0, "Of the arrivals."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Poisson (on-off: bursty) traffic from every node of the running cluster to all others."""
    from tools.flitnet import traffic

    run = paths.default_run_dir()
    if workload and not kind and not rate:
        code = traffic.load_workload(run, workload, seconds=seconds, seed=seed, as_json=as_json)
    elif kind and rate and not workload:
        code = traffic.load(run, kind, rate, seconds=seconds, seed=seed, as_json=as_json)
    else:
        raise UsageError("load: a kind with --rate, or --workload FILE")
    raise typer.Exit(code)


@app.command()
def down() -> None:
    """Stop the cluster and remove everything it left."""
    from tools.flitnet import operate

    operate.down(paths.default_run_dir())


@app.command()
def doctor() -> None:
    """What this machine offers and lacks, and what to do about it."""
    from tools.flitnet import doctor as doctor_module

    raise typer.Exit(doctor_module.main([]))


for measure in cli_measure.COMMANDS:
    app.command()(measure)


def _silent_without(command: click.Command) -> click.Command:
    """A help text tells defaults; typer's tells of a parameter without one that it is None."""
    for parameter in command.params:
        if parameter.default is None and hasattr(parameter, "show_default"):
            parameter.show_default = False
    for below in getattr(command, "commands", {}).values():
        _silent_without(below)
    return command


def run(argv: list[str]) -> int:
    """Runs a command line; returns the exit code. Every error is one line on stderr."""
    process.end_as_interrupted()
    try:
        argv = cli_measure.with_json(argv)
        command = _silent_without(typer.main.get_command(app))
        code = command.main(argv, "flitnet", standalone_mode=False)
        sys.stdout.flush()  # what a pipe does not take is known here, not after our last line
        return code if isinstance(code, int) else EXIT_OK
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context else ""
        return output.say(error.format_message().replace("\n", " ") + hint, EXIT_USAGE)
    except (click.Abort, KeyboardInterrupt):
        return output.say("interrupted", EXIT_INTERRUPTED)
    except UsageError as error:
        return output.say(str(error), EXIT_USAGE)
    except FlitnetError as error:
        return output.say(str(error), error.exit_code)
    except OSError as error:
        return output.say_os(error, EXIT_ERROR)
    finally:
        output.let_go()
