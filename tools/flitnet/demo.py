"""`flitnet demo`: a cluster, the scenario's streams and generators on it, the screen, the summary.

In: a Request. Out: exit code 0 when everything that was admitted arrived whole, and the JSON file.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.live import Live

from tools.flitnet import build, config, pages, paths, programs, screen
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import EXIT_ERROR, EXIT_OK, UsageError
from tools.flitnet.report import Report, report
from tools.flitnet.scenario import Request, Scenario, cluster_tables, plan

REFRESH_S = 0.5
LINE_EVERY_S = 2.0
PLAIN_WIDTH = 120
# Emulated time that stands still for so long means that the fabric is gone.
STALLED_S = 20.0
# After the last frame, programs have this long to see their last completions.
ENDING_S = 30.0


def demo(request: Request, *, keep: bool, json_file: Path | None) -> int:
    if keep and request.clock == "virtual":
        raise UsageError("--keep --clock virtual: virtual time has no cluster that could stay")
    scenario = plan(request)
    if request.clock == "virtual" and not scenario.streams:
        raise UsageError(
            f"--mix {request.mix} --clock virtual: virtual time needs streams; use --clock elastic"
        )
    build.ready((*build.RUNTIME, *(["flitnet-sim"] if request.clock == "virtual" else [])))
    if request.clock == "virtual":
        final, problems = programs.simulate(scenario), []
    else:
        final, problems = _live(scenario, keep)
    early = bool(problems)  # then what did not arrive follows from them
    problems = problems or shortfalls(final, scenario)
    # On a terminal the live screen is gone by now; in a log there was none.
    Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH).print(
        screen.screen(screen.View(f"flitnet demo: {len(scenario.streams)} streams asked", final))
    )
    print(screen.summary(final))
    if early:
        # Emulated time is the cluster's; streams begin when all are admitted.
        print(f"ended early, {final.seconds:.1f} s after the start of its cluster, before "
              f"{request.seconds:g} s of streams")  # fmt: skip
    if json_file:
        value = final.to_dict() | {"problems": problems, "seed": request.seed}
        json_file.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n")
    for problem in problems:
        print(f"flitnet: {problem}", file=sys.stderr)
    return EXIT_ERROR if problems else EXIT_OK


def shortfalls(final: Report, scenario: Scenario) -> list[str]:
    """What must not be, in words; empty after a good run."""
    request = scenario.request
    found = []
    # Without admission more may be on its way at the end than the links can carry: that is shown
    # by the deadlines and is no fault.
    if request.admission and (undelivered := final.undelivered()):
        found.append(f"{undelivered} frames of admitted streams did not arrive")
    if request.admission and final.lost:
        found.append(f"{final.lost} messages were lost")
    if final.duplicated:
        found.append(f"{final.duplicated} messages arrived twice")
    if final.corrupt:
        found.append(f"{final.corrupt} bytes arrived corrupt")
    delivered = any(stream.admitted and stream.frames_delivered for stream in final.streams)
    if scenario.streams and not delivered:
        found.append("no stream delivered a frame")
    if scenario.best_effort_bps and not final.classes["best_effort"].packets:
        found.append("no packet of best effort arrived")
    return found


def _live(scenario: Scenario, keep: bool) -> tuple[Report, list[str]]:
    """Runs on a cluster of its own; the report is of its last moment."""
    request = scenario.request
    tables = cluster_tables(request)
    cluster = Cluster(config.to_toml(tables), run=paths.default_run_dir())
    try:
        cluster.up()
        programs.start(cluster, scenario)
        run = Run(cluster, scenario)
        problems = run.watch()
        # A fabric that died took its numbers along: what was shown last has them.
        final = (run.before if problems else None) or run.now()
        if scenario.streams:
            final.streams = programs.results(cluster, "streams", scenario.nodes)
        loads = programs.load_results(cluster, "load")
        final.lost = sum(one.lost for one in [*final.streams, *loads])
        final.duplicated = sum(one.duplicated for one in [*final.streams, *loads])
        if not problems:
            final.seconds = request.seconds
        if keep and not problems:
            cluster.release()
            print(f"the cluster stays in {cluster.run}; stop it with: {paths.call('down')}")
        else:
            cluster.down()
    except BaseException:
        cluster.undo()
        raise
    return final, problems


class Run:
    """The time between start and end: what is shown, and when it is over."""

    def __init__(self, cluster: Cluster, scenario: Scenario) -> None:
        self.cluster = cluster
        self.scenario = scenario
        self.tables = cluster_tables(scenario.request)
        self.title = f"flitnet demo: {len(scenario.streams)} streams asked"
        self.before: Report | None = None

    def now(self) -> Report:
        return report(pages.read(self.cluster.run), self.tables)

    def watch(self) -> list[str]:
        """Shows the run until all programs ended; what went wrong meanwhile."""
        if sys.stdout.isatty():
            with Live(screen=True, auto_refresh=False) as live:
                return self._loop(live)
        return self._loop(None)

    def _loop(self, live: Live | None) -> list[str]:
        roles = programs.roles(self.scenario)
        last_line = moved_at = time.monotonic()
        emulated = 0.0
        while running := [role for role in roles if self.cluster.exit_code(role) is None]:
            time.sleep(REFRESH_S)
            now = self._show(live)
            host = time.monotonic()
            if live is None and host - last_line >= LINE_EVERY_S:
                print(screen.progress_line(now), flush=True)
                last_line = host
            if now.seconds > emulated:
                emulated, moved_at = now.seconds, host
            elif host - moved_at > STALLED_S:
                return [f"emulated time stands still at {emulated:.1f} s"]
            if dead := self._dead():
                return dead
            if emulated > self.scenario.request.seconds + ENDING_S:
                return [f"{', '.join(running)} did not end"]
        self._show(live)
        return self._exits(roles)

    def _show(self, live: Live | None) -> Report:
        snapshot = pages.read(self.cluster.run)
        now = report(snapshot, self.tables)
        if live is not None:
            power = snapshot.one("flitnet_power_last_watts")
            view = screen.View(self.title, now, self.before, power, live.console.height)
            live.update(screen.screen(view), refresh=True)
        if now.nodes:
            self.before = now
        return now

    def _dead(self) -> list[str]:
        daemons = ["fabricd", *(f"hcad:{node}" for node in self.cluster.nodes)]
        words = self.cluster.last_words()
        return [
            f"{role} died" + (f"; {words}" if words else "")
            for role in daemons
            if not self.cluster.alive(role)
        ]

    def _exits(self, roles: list[str]) -> list[str]:
        found = []
        for role in roles:
            if code := self.cluster.exit_code(role):
                found.append(f"{role}: {programs.why(self.cluster, role, code)}")
        return found
