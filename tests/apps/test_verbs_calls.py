"""Calls that Debian's programs do not make, who may run programs, and with which rdma-core."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.flitnet import paths
from tools.flitnet.cluster import Cluster


def probe() -> str:
    return str(paths.build_dir() / "tests/abi/verbs_probe")


@pytest.mark.parametrize("dropin", [False, True], ids=["preload", "dropin"])
@pytest.mark.parametrize("call", [
    "wr", "word", "resize", "rereg", "fork", "async", "twice", "rebind", "full", "late", "limits",
    "main", "cancel",
])  # fmt: skip
def test_call(cluster2: Cluster, call: str, dropin: bool) -> None:
    done = cluster2.exec("n0", [probe(), call], timeout=30, dropin=dropin)
    assert done.returncode == 0 and done.stdout == "good\n", done.stdout + done.stderr


@pytest.mark.parametrize("kind", [
    "big", "unaligned", "huge", "read_only", "file", "truncated", "in_flight",
])  # fmt: skip
def test_memory(cluster2: Cluster, kind: str) -> None:
    """Of big: a message of 1 GiB from a region of 1 GiB into another."""
    program = str(paths.build_dir() / "tests/abi/memory_probe")
    done = cluster2.exec("n0", [program, kind], timeout=120)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0 and done.stdout == "good\n", done.stdout + done.stderr


@pytest.mark.parametrize("dropin", [False, True], ids=["preload", "dropin"])
@pytest.mark.parametrize(
    "when", ["post", "notify", "interfaces", "destroy", "reset", "resize", "late"]
)
def test_threads_that_end_and_calls_within_calls(
    cluster2: Cluster, when: str, dropin: bool
) -> None:
    program = str(paths.build_dir() / "tests/abi/thread_probe")
    done = cluster2.exec("n0", [program, when], timeout=30, dropin=dropin)
    late = "1 device\n" if when == "late" else ""
    assert (done.returncode, done.stdout) == (0, f"{when} done\n{late}"), done.stdout + done.stderr


def test_memory_that_does_not_come(make_cluster: Callable[..., Cluster]) -> None:
    """Who holds its own pages back is killed, before those beside it lose anything."""
    cluster = make_cluster()
    hcad = cluster.process("hcad:n0")
    slow = cluster.popen("n0", [str(paths.build_dir() / "tests/abi/memory_probe"), "slow"])
    beside = cluster.exec("n0", ["ibv_devinfo"], timeout=60)
    said, _ = slow.communicate(timeout=60)
    if slow.returncode == 77:
        pytest.skip(said.strip())
    assert slow.returncode == -signal.SIGKILL, said
    assert beside.returncode == 0, beside.stderr
    assert cluster.process("hcad:n0") == hcad and cluster.alive("hcad:n0")
    # hcad answers when the copy has returned, and says before that what became of it.
    assert cluster.exec("n0", ["ibv_devinfo"]).returncode == 0
    assert "its memory did not come" in "\n".join(cluster.lines("hcad:n0"))
    assert not any(cluster.node_status("n0")["objects"].values())


MISTAKES = {
    "key": ("remote access error", "n0 asked for is refused: no memory region or window has the"),
    "bounds": ("remote access error", "are not all in key"),
    "access": ("remote access error", "registered or bound without IBV_ACCESS_REMOTE_WRITE"),
    "short": ("remote invalid request error", "receive request 7 has 16 bytes, the message of n0"),
    "unmapped": ("remote operation error", "the memory for what n0 asked for cannot be had"),
    "invalidate": ("remote access error", "no memory window that is bound for this QP has the key"),
    "missing": ("RNR retry counter exceeded", "request 42 failed: QP 0x"),
    "list": ("local protection error", "send request 42: no memory region or window has the key"),
    "order": ("Invalid argument", "from RESET to RTS: there is no such transition"),
    "mtu": ("Invalid argument", "from INIT to RTR lacks IBV_QP_PATH_MTU"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_log_says_why(cluster2: Cluster, mistake: str) -> None:
    program = str(paths.build_dir() / "tests/abi/mistake_probe")
    log = cluster2.run / "log" / "hcad-n0.log"
    before = len(log.read_text())
    done = cluster2.exec("n0", [program, mistake], timeout=30)
    status, why = MISTAKES[mistake]
    assert done.returncode == 0 and status in done.stdout, done.stdout + done.stderr
    assert why in log.read_text()[before:]


def test_the_command_line_shows_the_logs(cluster2: Cluster) -> None:
    def said(*node: str) -> list[str]:
        argv = [paths.ROOT / "flitnet", "log", *node]
        env = dict(os.environ) | {"FLITNET_RUN": str(cluster2.run)}
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert said("n1") == (cluster2.run / "log" / "hcad-n1.log").read_text().splitlines()
    everybody = said()
    times = [line[:23] for line in everybody]
    assert times == sorted(times)
    assert {line.split()[2] for line in everybody} == {"fabricd", "n0", "n1"}


def test_a_refused_rate_says_who_refused(make_cluster: Callable[..., Cluster]) -> None:
    """n0 and n1 both want n2's link: the router refuses the second, n0's own link what it lacks."""
    cluster = make_cluster({"network": {"nodes": 3}})
    holder = cluster.popen("n1", [probe(), "rate", "3", "90000"], stdin=subprocess.PIPE)
    assert holder.stdout.readline() == "granted\n"
    refused = cluster.exec("n0", [probe(), "rate", "3", "300000"], timeout=30)
    assert refused.returncode == 1 and "No space left on device" in refused.stdout
    log = (cluster.run / "log" / "hcad-n0.log").read_text()
    assert "refused by router 0" in log, log
    too_much = cluster.exec("n0", [probe(), "rate", "3", "500000"], timeout=30)
    assert too_much.returncode == 1
    assert "refused by this HCA's link" in (cluster.run / "log" / "hcad-n0.log").read_text()
    holder.communicate("\n", timeout=10)


def test_an_rdma_core_never_tried_is_refused(cluster2: Cluster, tmp_path: Path) -> None:
    library = next(Path("/usr/lib").glob("*/libibverbs.so.1")).resolve()
    other = tmp_path / "libibverbs.so.1.15.57.0"
    shutil.copy(library, other)
    (tmp_path / "libibverbs.so.1").symlink_to(other)
    env = cluster2.env("n0") | {"LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(["ibv_devices"], env=env, capture_output=True, text=True, timeout=20)
    assert "flitnet0" not in done.stdout
    assert done.stderr.count("\n") == 1 and str(other) in done.stderr and "44" in done.stderr
    env["FLITNET_RDMA_CORE"] = "any"
    done = subprocess.run(["ibv_devices"], env=env, capture_output=True, text=True, timeout=20)
    assert "flitnet0" in done.stdout and done.stderr == ""


UNPRIVILEGED = """
    import sys
    sys.path[:0] = [{root!r}]
    import tests.apps.test_verbs as t
    from tools.flitnet.cluster import Cluster
    with Cluster({{"network": {{"nodes": 2}}}}) as cluster:
        for argv in (["ibv_rc_pingpong", "-n", "99"], ["ibv_ud_pingpong", "-n", "99", "-e"]):
            t.assert_done(t.pingpong(cluster, argv, next(t.PORTS) + 300))
    print("good")
"""


def test_without_privileges(tmp_path_factory: pytest.TempPathFactory) -> None:
    if os.geteuid() != 0:
        pytest.skip("the other tests run without privileges already")
    drop = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    if not shutil.which("setpriv"):
        pytest.skip("setpriv is not installed")
    if subprocess.run([*drop, "test", "-x", str(paths.program("hcad"))], check=False).returncode:
        pytest.skip(f"nobody may not enter {paths.build_dir()}")
    script = textwrap.dedent(UNPRIVILEGED).format(root=str(paths.ROOT))
    env = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_RUNTIME_DIR", "TMPDIR")}
    env |= {"HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*drop, sys.executable, "-c", script], env=env, cwd="/", capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.endswith("good\n"), done.stdout + done.stderr
