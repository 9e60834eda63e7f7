"""A running cluster on this machine: a run directory, one fabricd, one hcad per node.

In: a cluster file. Out: processes that are attached to each other, and no trace of them after
`down`. Used by the commands and by tests/apps:

    with Cluster({"network": {"nodes": 2}}) as cluster:      # own temporary run directory
        done = cluster.exec("n0", ["ibv_devices"])           # CompletedProcess, text
        cluster.kill("hcad:n1"); cluster.start_node("n1")

Processes are stopped by the identities recorded in the run directory, never by name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.flitnet import config, ctl, heard, limits, paths, record, rundir, surroundings
from tools.flitnet.errors import FlitnetError, RunningError, UsageError
from tools.flitnet.heard import attached_nodes
from tools.flitnet.part import Part, span
from tools.flitnet.process import ProcessId, stop_all, uninterrupted, yield_to_fabricd
from tools.flitnet.record import Record

ATTACH_TIMEOUT_S = 20.0
USAGE_HINT = "Run with --help"  # behind the message of a usage error


class Cluster:
    """See the module's text. Roles: "fabricd", "hcad:<node>", "exporter", "replay:<node>", ..."""

    def __init__(
        self,
        tables: dict[str, Any] | str | Path | config.ClusterFile | None = None,
        *,
        run: Path | None = None,
        owned: bool = True,
        exporter: str | None = None,
    ) -> None:
        """`tables`: what config.of() takes; `run` None: a temporary run directory.

        `owned`: the cluster belongs to this process, so who comes after its death may clear it.
        `exporter`: address for flitnet-exporter to listen on; "off": it keeps the tree for programs
        that read /sys/class/infiniband, no more; None: no exporter.
        """
        self.file = config.of(tables)
        self._temporary = run is None
        self.run = Path(tempfile.mkdtemp(prefix="flitnet-")) if run is None else run
        self.nodes = self.file.node_names
        self.share(Part())
        self._owned = owned
        self._exporter = exporter
        self.attach_timeout_s = ATTACH_TIMEOUT_S
        self.stopped: int | None = None  # how many lived when down() came; None: no cluster
        self._mine = False  # whether this object started what is in the run directory

    def share(self, part: Part) -> None:
        """With other hosts; `here`: the nodes that this one runs."""
        self.part, self.here = part, part.of(self.nodes)

    @staticmethod
    def open(run: Path) -> Cluster:
        """The cluster that runs in a run directory."""
        if not (run / record.NAME).exists():
            raise rundir.no_cluster(run)
        try:
            cluster = Cluster(run / "cluster.toml", run=run, owned=False)
        except FlitnetError:
            if record.ends(run):
                raise rundir.no_cluster(run) from None
            raise
        cluster.share(Part.read(run))
        return cluster

    # Start and stop.

    def __enter__(self) -> Cluster:
        try:
            self.up()
            return self
        except BaseException:
            self.undo()
            raise

    def __exit__(self, *_: object) -> None:
        self.down()

    def up(self) -> None:
        """Starts everything and returns when all nodes are attached; clears crashed leftovers."""
        config.check(self.file)
        limits.check(self.run, self.nodes, self.part, self.file.hca_process == "fabric")
        with rundir.lock(self.run, make=True):
            try:
                with uninterrupted():
                    self._take_over()
                    self._mine = True
                self._start_all()
            except BaseException as failure:
                if self._mine:
                    # The daemons' last words are worth more than our timeout: read before they go.
                    if isinstance(failure, FlitnetError) and (words := self.last_words()):
                        failure.args = (f"{failure.args[0]}; {words}",)
                    # Still under the lock: whoever waits for it finds nothing. What cannot be
                    # removed now, the next command names; why we failed is said first.
                    with contextlib.suppress(FlitnetError, OSError):
                        self._clear()
                raise

    def _start_all(self) -> None:
        self._prepare()
        if self.part.fabric:
            self.start_fabricd(wait=False)
        if not self.together:
            for node in self.here:
                self.start_node(node, wait=False)
        if self._exporter:
            self.start_exporter(self._exporter)
        self.wait_attached()
        if self._exporter:
            surroundings.wait_ports(self, self.here)
        if self._exporter and not self.alive("exporter"):
            raise FlitnetError("exporter stopped at its start")

    def down(self) -> list[str]:
        """Stops what is recorded and removes the run directory; names who needed SIGKILL."""
        with rundir.lock(self.run) as there:
            return self._clear() if there else []

    @property
    def ends(self) -> bool:
        """Somebody takes it down, or has."""
        return record.ends(self.run)

    def undo(self) -> None:
        """After a failure: takes down what this object started, and nobody else's cluster."""
        if self._mine:
            self.down()

    def _clear(self) -> list[str]:
        with uninterrupted():
            with contextlib.suppress(OSError):  # on a full disk, too
                (self.run / record.ENDING).touch()  # for commands that wait for what runs here
            killed = self._stop_recorded()
            rundir.clear(self.run)
            self._mine = False
            with contextlib.suppress(OSError):  # somebody else's files may be in it
                self.run.rmdir()
        return killed

    def start_fabricd(self, wait: bool = True) -> None:
        program = paths.program("flitnetd" if self.together else "fabricd")
        nodes = [f"hcad:{node}" for node in self.here] if self.together else []
        self.start("fabricd", [str(program), "--run", str(self.run)], more_roles=nodes)
        if wait:
            self.wait_attached()

    def start_node(self, node: str, wait: bool = True) -> None:
        argv = [str(paths.program("hcad")), "--run", str(self.run), "--node", node]
        self.start(f"hcad:{node}", argv)
        if wait:
            self.wait_serving(node)

    def start_exporter(self, listen: str) -> None:
        program = str(paths.program("flitnet-exporter"))
        here = ["--nodes", ",".join(self.here)] if self.part != Part() else []
        self.start("exporter", [program, "--run", str(self.run), "--listen", listen, *here])

    def start(
        self,
        role: str,
        argv: list[str],
        env: dict[str, str] | None = None,
        more_roles: Sequence[str] = (),
    ) -> ProcessId:
        """Starts a program of ours, records it and returns its identity."""
        with uninterrupted():
            roles = [role, *more_roles]
            process, popen = record.start(self.run, roles, argv, self._log(role), env)
            _children[process] = popen  # reaped by poll() in exit_code
        if role != "fabricd" and not self.file.pass_through:
            yield_to_fabricd(popen.pid)
        return process

    def kill(self, role: str, number: int = signal.SIGKILL) -> None:
        """Sends a signal to one of ours and, for SIGKILL, waits until it is gone."""
        process = self.process(role)
        process.signal(number)
        if number == signal.SIGKILL:
            process.wait(5.0)

    def forget(self, role: str) -> None:
        """Takes a program that ended off the record."""
        with record.changed(self.run) as found:
            _children.pop(found.processes.pop(role), None)

    # Questions.

    def process(self, role: str) -> ProcessId:
        try:
            return self.record().processes[role]
        except KeyError:
            raise FlitnetError(f"{role} was not started in {self.run}") from None

    @property
    def together(self) -> bool:
        """The nodes of this host are in the fabric's process: as recorded, or as it will be."""
        found = self.record().processes
        nodes = [found[role] for role in (f"hcad:{node}" for node in self.here) if role in found]
        if "fabricd" in found and nodes:
            return nodes[0] == found["fabricd"]
        return self.file.hca_process == "fabric"

    def revival(self, node: str) -> str:
        """How a dead node is started."""
        return paths.call("fabric start" if self.together else f"node {node} start")

    def alive(self, role: str) -> bool:
        return self.process(role).alive()

    def fabric_lives(self) -> bool:
        return not self.part.fabric or self.alive("fabricd")  # elsewhere nothing is known of it

    def exit_code(self, role: str) -> int | None:
        """Exit code of a program this process started; None while it runs."""
        popen = _children.get(self.process(role))
        return popen.poll() if popen else None

    def status(self) -> dict[str, Any]:
        """What fabricd says of itself and of the attached nodes."""
        return ctl.ask(self.run / "fabricd.ctl", {"cmd": "status"})

    def node_status(self, node: str, timeout_s: float | None = None) -> dict[str, Any]:
        return ctl.ask(self.node_dir(node) / "hcad.ctl", {"cmd": "status"}, timeout_s)

    def dead(self) -> list[str]:
        """Daemons that should run and do not: of the record, or that never came into it."""
        found = self.record().processes
        wanted = self.part.roles(self.nodes)
        wanted += [role for role in found if record.stop_rank(role) and role not in wanted]
        return [role for role in wanted if role not in found or not found[role].alive()]

    def absent(self) -> dict[str, str]:
        """Nodes that are not attached, and why (heard.py)."""
        return heard.listen(self).absent()

    def _attached(self) -> set[str]:
        """As the fabric says, or where that is on another host, the nodes; there one with a pulled
        cable counts, too, for nothing more will come of it."""
        if self.part.fabric:
            return attached_nodes(self.status())
        return set(self.here) - self.absent().keys()

    def wait_attached(self, nodes: list[str] | None = None) -> None:
        """Returns when fabricd and the nodes (default: all) say that they are attached."""
        wanted = set(self.here if nodes is None else nodes)
        roles = Part(self.part.fabric, tuple(wanted)).roles(self.nodes)
        deadline = time.monotonic() + self.attach_timeout_s
        missing: set[str] | None = None  # nobody has been asked
        while time.monotonic() < deadline:
            for role in roles:
                if not self.alive(role):
                    raise FlitnetError(f"{role} stopped at its start")
            with contextlib.suppress(FlitnetError):
                missing = wanted - self._attached()
            if missing == set() and all((self.node_dir(n) / "hcad.sock").exists() for n in wanted):
                return
            time.sleep(0.02)
        said = ", ".join(self._why_missing(node) for node in sorted(missing or ()))
        what = said or "an hcad's control socket"
        raise FlitnetError(f"not attached after {self.attach_timeout_s:g} s: {what}")

    def _why_missing(self, node: str) -> str:
        """The node, and what its hcad says of it where that is here: a key that does not fit, or an
        address where nobody answers."""
        with contextlib.suppress(FlitnetError):
            if node in self.here and (reason := self.node_status(node).get("reason")):
                return f"{node} ({reason})"
        return node

    def wait_serving(self, node: str, timeout_s: float = ATTACH_TIMEOUT_S) -> None:
        """Until a node that was started in a running cluster says so. The fabric may still hear the
        one before it, whose sockets may be there, too: so by the process that answers."""
        process, reason = self.process(f"hcad:{node}"), "no answer"
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not process.alive():
                words = self.last_line(f"hcad:{node}")
                raise FlitnetError(f"{node} stopped at its start; {words}")
            with contextlib.suppress(FlitnetError):
                said = self.node_status(node)
                reason = str(said["reason"])
                # Its link was taken out of service by `flitnet link`: no fault.
                if said["pid"] == process.pid and (said["attached"] or said["link_down"]):
                    return
            time.sleep(0.02)
        raise FlitnetError(f"{node} is not attached after {timeout_s:g} s: {reason}")

    def last_words(self) -> str:
        """The last line that a dead daemon wrote, or nothing."""
        for role, process in self.record().processes.items():
            if not process.alive() and (line := self.last_line(role)):
                return f"{role} said: {line}"
        return ""

    def last_line(self, role: str) -> str:
        """The last line that a program of ours wrote."""
        said = (line for line in reversed(self.lines(role)) if line.strip())
        return next((line for line in said if not line.startswith(USAGE_HINT)), "")

    def lines(self, role: str) -> list[str]:
        """What a program of ours wrote."""
        with contextlib.suppress(OSError):
            return self._log(role).read_text(errors="replace").splitlines()
        return []

    def _log(self, role: str) -> Path:
        return self.run / "log" / f"{role.replace(':', '-')}.log"

    def record(self) -> Record:
        return record.read(self.run)

    # Programs on nodes.

    def node_dir(self, node: str) -> Path:
        if node not in self.nodes:
            there = f"{len(self.nodes)}: {span(self.nodes)}"
            raise UsageError(f"no node {node!r}; this cluster has {there}")
        if node not in self.here:
            there = ", ".join(self.here) or "none"
            raise UsageError(f"{node} runs on another host; this one has {there}")
        return self.run / "nodes" / node

    def env(self, node: str, *, dropin: bool = False) -> dict[str, str]:
        """The environment in which a verbs program runs on a node, or on several: "n0,n1"."""
        return surroundings.of(self, node.split(","), dropin)

    def exec(
        self,
        node: str,
        argv: list[str],
        *,
        dropin: bool = False,
        timeout: float = 60.0,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program on a node to its end; output is captured as text."""
        env = self.env(node, dropin=dropin) | options.pop("env", {})
        defaults = {"capture_output": True, "text": True}
        return subprocess.run(argv, env=env, timeout=timeout, **(defaults | options))

    def popen(
        self, node: str, argv: list[str], *, dropin: bool = False, **options: Any
    ) -> subprocess.Popen[str]:
        """Starts a program on a node; the caller waits for it. Output is captured as text."""
        env = self.env(node, dropin=dropin) | options.pop("env", {})
        defaults = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(argv, env=env, **(defaults | options))

    # Below: how it is done.

    def _take_over(self) -> None:
        """Clears what a crash left; refuses when somebody who lives answers for the cluster."""
        if not self._temporary:
            rundir.refuse_strangers(self.run)
        found = self.record()
        alive = [role for role, process in found.processes.items() if process.alive()]
        ranks = (("hcad",), ("fabricd",))
        daemons = [role for role in found.processes if record.stop_rank(role) in ranks]
        if found.owner is not None and found.owner.alive() and alive:
            raise RunningError(f"a demo runs in {self.run} (pid {found.owner.pid})")
        # A cluster without owner (`up`, `demo --keep`) is somebody's as long as a part of it lives:
        # programs may run there, and wait for a node to come back.
        if found.owner is None and any(role in alive for role in daemons):
            raise RunningError(f"a cluster runs in {self.run}; {record.advice(daemons, alive)}")
        self._stop_recorded()
        rundir.clear(self.run)

    def _prepare(self) -> None:
        owner = ProcessId.of(os.getpid()) if self._owned else None
        record.write(self.run, Record(owner, exporter=self._exporter))
        for name in ("log", "metrics", "nodes", "sys", "plans"):
            (self.run / name).mkdir(mode=0o700, exist_ok=True)
        (self.run / "cluster.toml").write_text(self.file.text)
        self.part.prepare(self.run)

    def release(self) -> None:
        """The cluster stays when this process ends (demo --keep)."""
        with record.changed(self.run) as found:
            found.owner = None
        self._mine = False

    def _stop_recorded(self) -> list[str]:
        """Programs first, then nodes, then the fabric: each sees its peers end in order."""
        found = self.record()
        self.stopped = sum(process.alive() for process in set(found.processes.values()))
        killed: list[str] = []
        for rank in ((), ("exporter",), ("hcad",), ("fabricd",)):
            wave = {
                role: process
                for role, process in found.processes.items()
                if record.stop_rank(role) == rank
            }
            stubborn = stop_all(list(wave.values()))
            killed += [role for role, process in wave.items() if process in stubborn]
        for process in found.processes.values():
            if popen := _children.pop(process, None):
                popen.wait()
        return killed


# Children of this process, so that they are reaped; identity -> handle.
_children: dict[ProcessId, subprocess.Popen] = {}
