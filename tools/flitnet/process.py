"""Processes by identity: a pid alone may be reused, a pid with its start time is one process.

Everything that stops something goes through here, so only processes we started are ever signalled.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


def _stat(pid: int) -> list[str]:
    """/proc/PID/stat from its third field on, the state; nothing: there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return []
    # The command name may hold any bytes; fields count from the last ')'.
    return stat[stat.rindex(")") + 2 :].split()


@dataclass(frozen=True)
class ProcessId:
    """One process of this machine since its boot: pid and start time in clock ticks."""

    pid: int
    start_ticks: int

    @staticmethod
    def of(pid: int) -> ProcessId | None:
        """The identity of a running pid, or None when it does not run (a zombie does not)."""
        fields = _stat(pid)
        return ProcessId(pid, int(fields[19])) if fields and fields[0] not in "ZX" else None

    def alive(self) -> bool:
        return ProcessId.of(self.pid) == self

    def signal(self, number: int) -> bool:
        """Sends a signal to exactly this process; False when it is gone already."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # The pidfd pins the process it was opened for, so a check after opening is enough.
            if not self.alive():
                return False
            signal.pidfd_send_signal(fd, number)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)

    def _state(self) -> str:
        """As /proc has it, "Z" for a zombie; "": it is gone."""
        fields = _stat(self.pid)
        return fields[0] if fields and int(fields[19]) == self.start_ticks else ""

    def at_disk(self) -> bool:
        """In a call that SIGTERM does not interrupt, as those are that wait for a disk."""
        return self._state() == "D"

    def wait(self, timeout_s: float) -> bool:
        """True when the process is gone within the time; works for other people's children.

        A zombie is gone with the last of its threads: until then it holds its files and locks.
        """
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            if not self._state():
                return True
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            return bool(poll.poll(max(0, int(timeout_s * 1000))))
        finally:
            os.close(fd)


def stop_all(
    processes: list[ProcessId], grace_s: float = 3.0, at_disk_s: float = 20.0
) -> list[ProcessId]:
    """SIGTERM to all, one common grace period, SIGKILL to the rest; returns who needed SIGKILL.

    Before its files are gone a daemon may have to wait until they are written, on a busy disk for
    seconds. It ends by itself then, and SIGKILL would not end it sooner: another period, within a
    limit.
    """
    for process in processes:
        process.signal(signal.SIGTERM)
    limit = time.monotonic() + at_disk_s
    stubborn = processes
    while True:
        deadline = time.monotonic() + grace_s
        stubborn = [p for p in stubborn if not p.wait(deadline - time.monotonic())]
        if deadline > limit or not any(p.at_disk() for p in stubborn):
            break
    for process in stubborn:
        process.signal(signal.SIGKILL)
    for process in stubborn:
        process.wait(2.0)
    return stubborn


def free_port() -> int:
    """A TCP port of this host that nobody listens on now, for programs that have to be told one."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def listens(port: int, protocol: str = "tcp") -> bool:
    """Whether somebody of this host listens on a TCP port, or takes datagrams from all on one of
    UDP ("udp")."""
    with open(f"/proc/net/{protocol}6") as v6, open(f"/proc/net/{protocol}") as v4:
        lines = v6.readlines()[1:] + v4.readlines()[1:]
    # Column 1 is the local address, column 3 the state: LISTEN, or of UDP what is not connected.
    wanted, state = f":{port:04X}", {"tcp": "0A", "udp": "07"}[protocol]
    return any(f[1].endswith(wanted) and f[3] == state for f in map(str.split, lines))


# What asks a command to end: Ctrl-C, a service manager, the terminal that closes.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class _Held:
    depth: int = 0  # of uninterrupted()
    came: bool = False
    cleaned: int = 0  # of cleaned_up()
    ended: bool = False  # the first signal within it has come: it holds those after it


_held = _Held()


def _interrupt() -> None:
    if _held.cleaned and not _held.ended:
        _held.ended = True
        _held.depth += 1
    raise KeyboardInterrupt


def end_as_interrupted() -> None:
    """From now on SIGTERM and SIGHUP end this command as Ctrl-C does: it stops what it started."""

    def interrupt(*_: object) -> None:
        if _held.depth == 0:
            _interrupt()
        _held.came = True

    for number in ENDING:
        # Ignored by who started us (nohup, a shell's background): it stays so.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupt)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """What is begun in here is finished first: a process that is started gets into the record, and
    a second Ctrl-C does not end the cleaning up after the first. For what ends soon by itself."""
    _held.depth += 1
    try:
        yield
    finally:
        _held.depth -= 1
    if _held.came and _held.depth == 0:
        _held.came = False
        _interrupt()


def cleaned_up(work: Callable[[], Result], clean: Callable[[], None]) -> Result:
    """Does `work` and then `clean`, which may be called twice, whatever ends the work. From the
    moment of the first signal on the others wait until all is clean: a second Ctrl-C that comes
    before the first step of the cleaning up would else end it."""
    _held.cleaned += 1
    try:
        try:
            return work()
        finally:
            with uninterrupted():
                clean()
    except KeyboardInterrupt:  # it may have come in the line before clean() as well
        clean()
        raise
    finally:
        _held.cleaned -= 1
        if _held.ended and _held.cleaned == 0:
            _held.ended = _held.came = False
            _held.depth -= 1


def dies_with_us(argv: list[str]) -> list[str]:
    """A command line whose process the kernel kills when the thread that started it ends, also by
    SIGKILL. By a program in between: threads and code between fork and exec do not go together."""
    return ["/usr/bin/setpriv", "--pdeathsig", "KILL", "--", *argv]


def spawn(argv: list[str], log: Path, env: dict[str, str] | None = None) -> subprocess.Popen:
    """Starts a program in its own process group, output appended to a log file. Not in a session of
    its own: Linux gives each session a share of the processor (autogroup), and a daemon alone in
    one was seen to wait 100 ms for each turn beside niced work in another.
    """
    with open(log, "ab") as out:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=env,
            process_group=0,
        )


def yield_to_fabricd(pid: int) -> None:
    """Who is woken does not push fabricd off its core: everybody's emulated time waits for it."""
    with contextlib.suppress(OSError):  # it may have ended already
        os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))
