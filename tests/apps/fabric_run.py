"""A fabricd without HCAs: its nodes are played by tests/bench/fabricd/peer.cc, which checks every
byte. Shared by the tests of fabricd and of nodes on other hosts.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tools.flitnet import ctl, paths

DEADLINE_S = 30.0  # of anything that is waited for; decides only when something hangs


def peer_program() -> Path:
    path = paths.build_dir() / "tests/bench/fabricd/fabric_peer"
    if not path.exists():
        pytest.skip("fabric_peer is not built")
    return path


class Run:
    """A run directory and what was started in it; all of it gone at the end."""

    def __init__(self, prefix: list[str] | None = None) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="flitnet-test-"))
        self.prefix = prefix or []
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *argv: str | Path, space: str = "") -> subprocess.Popen[str]:
        """In a network namespace if `space` names one."""
        prefix = ["ip", "netns", "exec", space] if space else self.prefix
        process = subprocess.Popen(
            [*prefix, *map(str, argv)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.dir,
        )  # fmt: skip
        self.started.append(process)
        return process

    def fabricd(
        self, config: str, wait: bool = True, space: str = ""
    ) -> subprocess.Popen[str]:
        (self.dir / "test.toml").write_text(config)
        process = self.start(
            paths.program("fabricd"), "--run", self.dir, "--config", self.dir / "test.toml",
            space=space,
        )  # fmt: skip
        if wait:
            self.until(lambda: self.status()["pid"] == process.pid, process)
        return process

    def peer(self, nodes: str, *options: str, space: str = "") -> subprocess.Popen[str]:
        return self.start(
            peer_program(), "--run", self.dir, "--nodes", nodes, *options, space=space
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        return ctl.ask(self.dir / "fabricd.ctl", request, timeout_s=DEADLINE_S)

    def status(self) -> dict[str, Any]:
        return self.ask(cmd="status")

    def attached(self) -> set[str]:
        return {node["name"] for node in self.status()["nodes"] if node["attached"]}

    def booked_bps(self) -> int:
        routers = self.ask(cmd="bookings")["routers"]
        return sum(port["out_bps"] for router in routers for port in router["ports"])

    def until(self, true: Any, process: subprocess.Popen[str] | None = None) -> None:
        end = time.monotonic() + DEADLINE_S
        while True:
            if process is not None and process.poll() is not None:
                raise AssertionError(f"{process.args} ended: {process.communicate()}")
            try:
                if true():
                    return
            except Exception:
                if time.monotonic() > end:
                    raise
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.02)

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=DEADLINE_S)
        shutil.rmtree(self.dir)


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    return json.loads(out)
