"""The commands that work on a running cluster: up, status, top, exec, down."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
import tomllib
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from tools.flitnet import (
    addresses, config, controls, ctl, elf, heard, nodes, output, pages, part, paths,
)
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import (
    EXIT_ERROR, EXIT_NOT_FOUND, EXIT_NOT_RUN, EXIT_OK, FlitnetError, ProgramError, UsageError,
)  # fmt: skip
from tools.flitnet.options import try_writing

if TYPE_CHECKING:
    from tools.flitnet.pages import Snapshot
    from tools.flitnet.report import Report

REFRESH_S = 0.5


def _screen() -> ModuleType:
    """For those that print a table: its rich takes longer to import than most commands do."""
    from tools.flitnet import screen

    return screen


def up(
    run: Path,
    file: Path | None,
    metrics: str | None,
    network: dict[str, str | bool | None] | None = None,
    here: str | None = None,
) -> None:
    """Starts a cluster that outlives this command; `network`: keys that flags set anew; `here`: the
    nodes of this host, or "none", if others are elsewhere."""
    if metrics:
        metrics = addresses.parse_ipv4("--metrics", metrics)
    chosen = any((network or {}).values())
    tables = config.with_flags(file, network or {}) if chosen else file
    cluster = Cluster(tables, run=run, owned=False, exporter=metrics or "off")
    if here is not None:
        cluster.share(part.chosen(cluster.file, here, fabric=True))
    began = time.monotonic()
    cluster.up()
    ours = cluster.here
    took = time.monotonic() - began
    who = f"{part.number(len(ours))} ({part.span(ours)}) attached" if ours else "the fabric started"
    print(f"{who} in {took:.1f} s; run directory {run}")
    _print_metrics(metrics)
    if cluster.together and cluster.file.hca_process_chosen:
        print('one process runs the fabric and its nodes, for want of cores; [hca] process = "own" '
              "in a cluster file gives each its own")  # fmt: skip
    if here is not None:
        print(f"{'the others' if ours else 'the nodes'}: {_joining(run)}")
    if not cluster.file.pass_through:
        cap = ", and best effort its power cap" if cluster.file.power_scheme else ""
        print(f"programs meet this network's rates{cap}; for the bare software: "
              f"{paths.call('up --pass-through')}")  # fmt: skip
    if ours:
        _propose(ours[0])


def _joining(run: Path) -> str:
    """What to type on other hosts: the key is one that we made, or a file that each host has."""
    key = tables_of(run).get("attach", {}).get("key_file")
    if key:
        return f"flitnet join FILE --here NODES, with copies of {run}/cluster.toml and {key}"
    return f"flitnet join FILE --key KEY --here NODES, with copies of {run}/cluster.{{toml,key}}"


def join(
    run: Path, file: Path, key: Path | None, here: str, wait: float, metrics: str | None = None
) -> None:
    """Starts nodes of this host for a fabric elsewhere, which has `wait` seconds to let them in."""
    if metrics:
        metrics = addresses.parse_ipv4("--metrics", metrics)
    cluster = Cluster(file, run=run, owned=False, exporter=metrics or "off")
    cluster.attach_timeout_s = wait
    cluster.share(part.chosen(cluster.file, here, fabric=False, key=key))
    cluster.up()
    print(f"{', '.join(cluster.here)} joined; run directory {run}")
    _print_metrics(metrics)
    _propose(cluster.here[0])


def _print_metrics(listen: str | None) -> None:
    if listen:
        print(f"metrics: http://{listen}/metrics")


def _propose(node: str) -> None:
    print(f"try: {paths.call(f'exec {node} -- ibv_devinfo')}")


def _fabric_dead() -> str:
    return f"the fabric is dead; start it with: {paths.call('fabric start')}"


def down(run: Path) -> None:
    """Idempotent: nothing to stop is not an error."""
    cluster = Cluster(run=run, owned=False)  # the record says all that is needed
    killed = cluster.down() if (run / "processes.json").exists() else []
    if cluster.stopped is None:  # or another `down` was there first
        print(f"no cluster in {run}")
        return
    by_force = f" (by SIGKILL: {', '.join(killed)})" if killed else ""
    print(f"stopped {cluster.stopped} processes{by_force}")


def tables_of(run: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((run / "cluster.toml").read_text())
    except (OSError, tomllib.TOMLDecodeError):
        return {}


def current(run: Path) -> Report:
    return _report(pages.read(run), run)


def _report(snapshot: Snapshot, run: Path) -> Report:
    from tools.flitnet.report import report  # which only those need who show one

    return report(snapshot, tables_of(run))


def status(run: Path, as_json: bool) -> int:
    """0 when every daemon lives, and every node answers and is attached."""
    cluster = Cluster.open(run)
    dead, now = cluster.dead(), heard.listen(cluster)
    absent, down = now.absent(), now.links_down()
    value = current(run)
    if now.links is None:  # no fabric here that answers
        value.seconds = _emulated_s(now.nodes, value.seconds)
    else:  # its metrics, which it publishes now and then, may be of before
        value.links_down = len(down)
    if as_json:
        more = {"dead": dead, "absent": list(absent), "here": cluster.here, "run": str(run)}
        output.print_json(value.to_dict() | more)
    else:
        screen = _screen()
        power = pages.read(run).one("flitnet_power_last_watts")
        view = screen.View("flitnet", value, None, power, elsewhere=not cluster.part.fabric,
                           part=cluster.here != cluster.nodes)  # fmt: skip
        screen.show(screen.screen(view))
        # Nodes in the fabric's process died with it: that is said once.
        _print_dead(run, [r for r in dead if not (cluster.together and r.startswith("hcad:"))])
        for name in down:
            command = f"link {name} up"
            way = (f" with: {paths.call(command)}" if cluster.part.fabric
                   else f", on the fabric's host, with: flitnet {command}")  # fmt: skip
            print(f"link {name} is down; back into service{way}")
        for node, reason in absent.items():
            if f"hcad:{node}" in dead:
                continue
            if node in cluster.here:
                print(f"{node} is not attached: {reason}")
            else:
                print(f"{node}, of another host, is not attached; see flitnet join there")
    return EXIT_ERROR if dead or absent else EXIT_OK


def _emulated_s(said: dict[str, dict[str, Any]], fabric_s: float) -> float:
    """The fabric's time; on a host without it, or when it is dead, as the node has it that heard of
    it last."""
    return max([fabric_s, *(one["emulated_ns"] / 1e9 for one in said.values())])


def _print_dead(run: Path, dead: list[str]) -> None:
    """The fabric first: nodes do not start without it."""
    for role in dead:
        node = role.removeprefix("hcad:")
        if role == "fabricd":
            start = paths.call("fabric start")
            print(f"{role} is dead; see {run}/log, then: {start}, or: {paths.call('down')}")
        elif node == role:
            print(f"{role} is dead; see {run}/log, then: {paths.call(f'{role} start')}")
        else:
            start = paths.call(f"node {node} start")
            print(f"{node} is dead; see: {paths.call(f'log {node}')}; then: {start}")


def set_control(run: Path, key: str, value: str) -> None:
    """Changes a control of the running cluster; every daemon that has it must agree. One at a time:
    each is remembered beside those before it, and told to a daemon that starts."""
    with nodes.held(run) as cluster, controls.remembered(run, key, value):
        _set_control(cluster, key, value)


def _set_control(cluster: Cluster, key: str, value: str) -> None:
    run = cluster.run
    to_fabric = cluster.part.fabric and key in controls.OF_THE_FABRIC
    # By role: a node may have the name of the fabric's daemon.
    asked = {"fabricd": run / "fabricd.ctl"} if to_fabric else {}
    asked |= {f"hcad:{node}": cluster.node_dir(node) / "hcad.ctl" for node in cluster.here}
    if not asked:
        raise UsageError(f"set {key}: the nodes run on other hosts: set it there")
    before: Any = None
    for role, path in asked.items():
        try:
            before = ctl.ask(path, {"cmd": "status"}).get(key, before)
        except FlitnetError as error:
            if role == "fabricd" and not cluster.alive(role):
                raise FlitnetError(f"{_fabric_dead()}; nothing was changed") from None
            name = role.removeprefix("hcad:")
            dead = role in cluster.dead()
            why = f"dead, start it with: {cluster.revival(name)}" if dead else error
            raise FlitnetError(f"{name}: {why}; nothing was changed") from None
    changed: list[str] = []
    for role, path in asked.items():
        try:
            _agreed(ctl.ask(path, {"cmd": "set", key: value}))
        except FlitnetError as error:
            if not changed:
                raise
            # The nodes refuse alike, the first of them first: then only the fabric has changed.
            if changed == ["fabricd"] and isinstance(before, str):
                _agreed(ctl.ask(asked["fabricd"], {"cmd": "set", key: before}))
                raise type(error)(f"{error}; nothing was changed") from None
            done = ", ".join(one.removeprefix("hcad:") for one in changed)
            name = role.removeprefix("hcad:")
            raise FlitnetError(f"{name}: {error}; changed before that: {done}") from None
        changed.append(role)


def links(run: Path, as_json: bool) -> None:
    """Every link of the running cluster and whether it is in service."""
    found = _links(run)
    if as_json:
        output.print_json({"links": found})
        return
    _screen().show(_screen().link_table(found))


def _links(run: Path) -> list[dict[str, Any]]:
    return _ask_fabric(run, {"cmd": "links"})["links"]


def set_link(run: Path, name: str, state: str) -> None:
    """Takes a link out of service or puts it back."""
    _ask_fabric(run, {"cmd": "set", "link": name, "state": state})


def capture(run: Path, write: str, nodes: str, count: int, seconds: float) -> NoReturn:
    """Becomes flitnet-capture, once fabricd has made its ring."""
    Cluster.open(run)
    if write == "-" and sys.stdout.isatty():
        raise UsageError("capture --write -: pipe it, for example: | wireshark -k -i -")
    argv = [str(paths.program("flitnet-capture")), "--write", write, "--count", str(count),
            "--seconds", str(seconds)]  # fmt: skip
    made = write != "-" and _writable(Path(write))
    try:
        reply = _ask_fabric(run, {"cmd": "capture", "nodes": nodes})
    except BaseException:
        if made:
            Path(write).unlink()
        raise
    os.execv(argv[0], [*argv, "--ring", reply["ring"]])


def _writable(file: Path) -> bool:
    """True: it was made for that. Emptied by who writes it: not if that is refused."""
    try:
        with contextlib.suppress(FileExistsError):
            file.open("xb").close()
            return True
        try_writing(file)
        return False
    except OSError as error:
        raise FlitnetError(f"capture --write {file}: {error.strerror}") from None


def _ask_fabric(run: Path, request: dict[str, Any]) -> dict[str, Any]:
    cluster = Cluster.open(run)
    if not cluster.part.fabric:
        raise FlitnetError("the fabric runs on another host: ask there")
    if not cluster.alive("fabricd"):
        raise FlitnetError(_fabric_dead())
    return _agreed(ctl.ask(run / "fabricd.ctl", request))


def _agreed(reply: dict[str, Any]) -> dict[str, Any]:
    if not reply.get("ok"):
        raise UsageError(str(reply.get("error", "no answer")))
    return reply


def top(run: Path) -> None:
    cluster = Cluster.open(run)
    elsewhere = not cluster.part.fabric
    if not sys.stdout.isatty():
        raise FlitnetError(f"top needs a terminal; use: {paths.call('status')}")
    from rich.live import Live as Refreshed

    screen = _screen()
    before: Report | None = None
    # Ctrl-C is how one leaves, not an accident.
    with contextlib.suppress(KeyboardInterrupt), Refreshed(screen=True, auto_refresh=False) as live:
        while (run / "processes.json").exists():
            snapshot = pages.read(run)
            now = _report(snapshot, run)
            dead = cluster.dead()
            if elsewhere or "fabricd" in dead:
                now.seconds = _emulated_s(heard.nodes_of(cluster), now.seconds)
            power = snapshot.one("flitnet_power_last_watts")
            height = live.console.height
            title = ", ".join(["flitnet top", *(f"{role} is dead" for role in dead)])
            part_only = cluster.here != cluster.nodes
            view = screen.View(title, now, before, power, height, elsewhere, part_only)
            live.update(screen.screen(view), refresh=True)
            before = now
            time.sleep(REFRESH_S)


def execute(run: Path, node: str, command: list[str], dropin: bool) -> NoReturn:
    """Becomes the program: its exit code, its signals, its terminal."""
    cluster = Cluster.open(run)
    env = cluster.env(node, dropin=dropin)
    nodes.refuse_dead(cluster, node.split(","))
    for name in node.split(","):
        if not (cluster.node_dir(name) / "hcad.sock").exists():
            raise FlitnetError(f"{name} is not up; see: {paths.call('status')}")
    program = shutil.which(command[0])
    if "exporter" in cluster.dead() and elf.reads_sysfs(program, command):
        print(f"flitnet: the exporter is dead, and what is below {elf.SYSFS} is old; start it "
              f"with: {paths.call('exporter start')}", file=sys.stderr)  # fmt: skip
    if program and elf.defines(Path(program), "ibv_open_device"):
        print(f"flitnet: {command[0]} has libibverbs within it (libibverbs.a): it asks no library, "
              "and finds no device; link it with libibverbs.so", file=sys.stderr)  # fmt: skip
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, env)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ProgramError(f"{command[0]}: {error.strerror}", EXIT_NOT_FOUND) from None
    except OSError as error:
        raise ProgramError(f"{command[0]}: {error.strerror}", EXIT_NOT_RUN) from None
