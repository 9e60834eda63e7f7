"""`flitnet conformance`: rdma-core's own pyverbs tests on a node of a cluster made for them.

The suite is in no package: it runs from a checkout of rdma-core that the user names. Nothing of it
is kept here. Why tests skip stands in README.md of this folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tools.flitnet import build, paths
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import EXIT_ERROR, EXIT_OK, FlitnetError, UsageError

# Every module that is not one vendor's.
MODULES = (
    "test_addr", "test_atomic", "test_cq", "test_cq_events", "test_cqex", "test_cuda_dmabuf",
    "test_device", "test_flow", "test_fork", "test_mr", "test_odp", "test_parent_domain", "test_pd",
    "test_qp", "test_qpex", "test_rdmacm", "test_relaxed_ordering", "test_rss_traffic",
    "test_shared_pd", "test_tag_matching",
)  # fmt: skip
MODULE_TIMEOUT_S = 120
TREE_S = 20
PYTHON = "/usr/bin/python3"  # Debian's pyverbs is built for it


@dataclass
class Outcome:
    test: str
    outcome: str  # pass, skip or fail
    words: str

    def reason(self) -> str:
        """The last line of what was said."""
        lines = self.words.strip().splitlines()
        return lines[-1] if lines else ""


def run(checkout: Path, modules: list[str], as_json: bool) -> int:
    if not (checkout / "tests" / "args_parser.py").exists():
        raise UsageError(f"{checkout}: no checkout of rdma-core (v44.0) with its tests")
    if subprocess.run([PYTHON, "-c", "import pyverbs.qp"], capture_output=True).returncode != 0:
        raise UsageError("pyverbs is missing: apt-get install python3-pyverbs")
    build.ready(build.RUNTIME)
    outcomes: list[Outcome] = []
    # With the exporter, for its tree below /sys/class/infiniband.
    with Cluster({"network": {"nodes": 2}}, exporter="127.0.0.1:0") as cluster:
        _wait_for_tree(cluster)
        for module in modules or MODULES:
            outcomes += _module(cluster, checkout, module)
            if not as_json:
                _show([o for o in outcomes if o.test.split(".")[1:2] == [module]], module)
    if as_json:
        print(json.dumps([vars(o) for o in outcomes]))
    count = {kind: sum(o.outcome == kind for o in outcomes) for kind in ("pass", "skip", "fail")}
    words = f"{count['pass']} passed, {count['skip']} skipped, {count['fail']} failed"
    print(words, file=sys.stderr if as_json else sys.stdout)
    return EXIT_OK if count["fail"] == 0 and count["pass"] > 0 else EXIT_ERROR


def _wait_for_tree(cluster: Cluster) -> None:
    device = cluster.run / "sys" / "nodes" / "n0" / "class" / "infiniband" / "flitnet0"
    deadline = time.monotonic() + TREE_S
    while not device.exists():
        if time.monotonic() > deadline:
            raise FlitnetError(f"flitnet-exporter makes no {device}")
        time.sleep(0.05)


def _module(cluster: Cluster, checkout: Path, module: str) -> list[Outcome]:
    runner = str(paths.ROOT / "tools/flitnet/conformance_runner.py")
    try:
        done = cluster.exec(
            "n0", [PYTHON, runner, str(checkout), module], timeout=MODULE_TIMEOUT_S, cwd="/"
        )
        text, code, words = done.stdout, done.returncode, done.stderr
    except subprocess.TimeoutExpired as late:
        text, code, words = (late.stdout or b"").decode(), 1, f"hangs: {MODULE_TIMEOUT_S} s"
    outcomes = [Outcome(**json.loads(line)) for line in text.splitlines()]
    if code != 0:  # it died in the middle
        outcomes.append(Outcome(f"tests.{module}", "fail", words))
    return outcomes


def _show(outcomes: list[Outcome], module: str) -> None:
    passed = sum(o.outcome == "pass" for o in outcomes)
    print(f"{module}: {passed} of {len(outcomes)} passed", flush=True)
    for o in outcomes:
        if o.outcome != "pass":
            print(f"  {o.outcome} {o.test.removeprefix('tests.')}: {o.reason()}", flush=True)
