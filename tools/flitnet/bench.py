"""`flitnet bench`: builds and runs a benchmark of tests/bench, which prints for itself."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.flitnet import build, paths
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import FlitnetError, UsageError

BENCHMARKS = ("engine", "verbs", "attach")


def run(what: str, as_json: bool, quick: bool) -> int:
    """With `as_json` the figures alone are on stdout, what people read goes to stderr."""
    if what not in BENCHMARKS:
        raise UsageError(f"bench {what!r}: one of {', '.join(BENCHMARKS)}")
    name = f"{what}_bench"
    build.ready((*build.RUNTIME, name) if what == "verbs" else (name,))
    with tempfile.TemporaryDirectory(prefix="flitnet-bench-") as folder:
        report = Path(folder) / "figures.json"
        argv = [str(paths.program(name)), "--json", str(report), *(["--quick"] if quick else [])]
        if what == "verbs":
            # A cluster of two nodes; the other end is a child of the benchmark itself.
            with Cluster({"network": {"nodes": 2}}) as cluster:
                code = _measure(argv, cluster.env("n0"), as_json)
        else:
            code = _measure(argv, dict(os.environ), as_json)
        if as_json:
            if not report.exists():
                raise FlitnetError(f"{name} wrote no figures (exit code {code})")
            sys.stdout.write(report.read_text())
    return code


def _measure(argv: list[str], env: dict[str, str], as_json: bool) -> int:
    sys.stdout.flush()
    out = sys.stderr if as_json else sys.stdout
    return subprocess.run(argv, env=env, stdout=out).returncode
