"""`flitnet test`: every kind of test, one after another, counted together in one last line.

A kind is a function that returns its counts; a kind that cannot run at all counts as one failure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.flitnet import build, paths
from tools.flitnet.errors import EXIT_ERROR, EXIT_OK, FlitnetError, UsageError
from tools.flitnet.lab import environment

# The slowest kind needs about half of this on two slow cores; a hang must not look like work.
KIND_TIMEOUT_S = 1500
# ASan and TSan need their own address layout: without randomisation gcc 12's TSan always finds it.
FIXED_LAYOUT = "setarch -R"
SANITIZED = ("tests/unit/", "tests/model/", "tests/sim/")
# Where the ordinary build has other code than a sanitizer's (engines by buffers and instruction
# sets, optimised): with the sanitizers these run in both, the other unit tests with them alone.
OPTIMISED = (
    "tests/model/", "tests/sim/", "tests/unit/emu/lane/", "tests/unit/fabric/link/",
    "tests/unit/fabric/router/", "tests/unit/hca/wire/",
)  # fmt: skip
DEMO = "apps/test_demo.py::test_small_demo"
# Tests of real programs wait for each other much of their time, one cluster fills about one core:
# so many files of them at once, if there are cores, and no more, because clusters are live.
FILES_AT_ONCE = 2
# Where two threads or two processes' memory meet; everything else is single-threaded by design.
THREADED = (
    "tests/unit/emu/ring/", "tests/unit/emu/metrics/", "tests/unit/fabric/port/",
    "tests/unit/fabric/crew/",
    "tests/unit/hca/attach/", "tests/unit/tools/load/", "tests/unit/tools/replay/",
    # Not the kill test of that room: it steps a process store by store until that is killed, half a
    # minute here, and what the sanitizer says of a process that dies so is nobody's result.
    "tests/unit/hca/verbs/hca_verbs_calls",
)  # fmt: skip

# What the compiler is told, and the folders of the tests.
SANITIZERS = {"asan": ("address,undefined", SANITIZED), "tsan": ("thread", THREADED)}


@dataclass(frozen=True)
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


def run(*, sanitizers: bool, only: str = "") -> int:
    beside = ThreadPoolExecutor(1)
    instrumented: dict[str, Future[list[str]]] = {}

    def build_beside(nice: bool = True) -> None:
        """What the sanitizers want, once, while tests that wait much of their time go on."""
        if not instrumented:
            for n in wanted:
                if n in SANITIZERS:
                    instrumented[n] = beside.submit(_instrumented, n, nice)

    kinds: dict[str, Callable[[], Counts]] = {
        "meson": lambda: _meson(ordinary),
        "tidy": lambda: _pytest("tidy", ordinary),
        "apps": lambda: _apps(ordinary, build_beside),
        "lab": lambda: _pytest("lab", ordinary, environment.ready()),
        "asan": lambda: _sanitizer("asan", instrumented["asan"].result()),
        "tsan": lambda: _sanitizer("tsan", instrumented["tsan"].result()),
    }
    wanted = [name for name in only.split(",") if name]
    if unknown := [name for name in wanted if name not in kinds]:
        raise UsageError(f"--only {unknown[0]!r}: one of {', '.join(kinds)}")
    if not wanted:
        wanted = [n for n in kinds if sanitizers or n not in SANITIZERS]
    # Folders of the tests that the ordinary build has; empty: all.
    ordinary = OPTIMISED if "asan" in wanted else ()
    total = Counts()
    begin = time.monotonic()
    for name in wanted:
        print(f"== {name}", flush=True)
        if name in SANITIZERS:
            build_beside(nice=False)
        start = time.monotonic()
        try:
            counts = kinds[name]()
        except (FlitnetError, subprocess.TimeoutExpired) as error:
            print(f"flitnet: {error}", file=sys.stderr)
            counts = Counts(failed=1)
        print(f"== {name}: {counts} in {time.monotonic() - start:.0f} s", flush=True)
        total += counts
    print(f"all kinds took {time.monotonic() - begin:.0f} s")
    print(total)
    return EXIT_OK if total.failed == 0 and total.passed > 0 else EXIT_ERROR


def _apps(folders: Sequence[str], build_beside: Callable[[], None]) -> Counts:
    """A live demo by itself, because it promises deadlines; then all others, beside the builds."""
    demo = _pytest(DEMO, folders)
    build_beside()
    at_once = min(FILES_AT_ONCE, len(os.sched_getaffinity(0)))
    return demo + _pytest("apps", folders, without=DEMO, files_at_once=at_once)


def _meson(folders: Sequence[str]) -> Counts:
    """Tests of the ordinary build: all, or these folders' and what no sanitizer's build has."""
    directory = _built(folders)
    return _meson_test(directory, list(_ordinary(_tests(directory), folders)), "")


def _sanitizer(name: str, chosen: Sequence[str]) -> Counts:
    return _meson_test(paths.ROOT / "build" / name, chosen, FIXED_LAYOUT)


def _instrumented(name: str, nice: bool) -> list[str]:
    """Builds tests with a sanitizer in a directory of their own; returns their names."""
    directory = paths.ROOT / "build" / name
    sanitize, folders = SANITIZERS[name]
    options = [f"-Db_sanitize={sanitize}", "-Db_lundef=false"]
    # What g++ says of code that it instrumented itself (maybe uninitialized, fences) is no error;
    # the ordinary build is the judge of warnings.
    # No build type beside it: meson 1.0 would optimise as that says, which takes twice the time.
    # -Og takes a quarter less to compile, and more than that to run.
    build.configure(directory, [*options, "-Doptimization=1", "-Dwerror=false"])
    chosen = {n: path for n, path in _tests(directory).items() if path.startswith(folders)}
    build.build(directory, _run_by(directory, chosen), nice=nice)
    return list(chosen)


def _run_by(directory: Path, names: Container[str]) -> list[str]:
    """The programs of these tests and what else these run."""
    files = {target["id"]: target["filename"] for target in _introspect(directory, "--targets")}
    return sorted({
        _below(file, directory)
        for test in _introspect(directory, "--tests") if test["name"] in names
        for target in test["depends"] for file in files[target]
    })  # fmt: skip


def _introspect(directory: Path, what: str) -> Any:
    argv = [build.MESON, "introspect", what, str(directory)]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=True, env=build.environment()
    )
    return json.loads(done.stdout)


def _tests(directory: Path) -> dict[str, str]:
    """Every test's name and the program that it is, in the order in which they are to start: meson
    goes by priority, but not where tests are named."""
    tests = sorted(_introspect(directory, "--tests"), key=lambda t: (-t["priority"], t["name"]))
    return {test["name"]: _below(test["cmd"][0], directory) for test in tests}


def _below(file: str, directory: Path) -> str:
    """As seen from the directory, which may be reached through links: meson has followed them."""
    return os.path.relpath(os.path.realpath(file), os.path.realpath(directory))


def _ordinary(tests: Mapping[str, str], folders: Sequence[str]) -> dict[str, str]:
    """Tests of the ordinary build: all, or these folders' and what no sanitizer's build has."""
    return {
        name: path for name, path in tests.items()
        if not folders or path.startswith(tuple(folders)) or not path.startswith(SANITIZED)
    }  # fmt: skip


def _targets(directory: Path, folders: Sequence[str]) -> list[str]:
    """Everything but the programs of tests that the sanitizers' builds alone have."""
    tests = _tests(directory)
    left_out = set(tests.values()) - set(_ordinary(tests, folders).values())
    made = {
        _below(file, directory)
        for target in _introspect(directory, "--targets")
        if target["build_by_default"]
        for file in target["filename"]
    }
    return sorted(made - left_out)


def _meson_test(directory: Path, names: Sequence[str], wrapper: str) -> Counts:
    jobs = str(len(os.sched_getaffinity(0)))
    argv = [build.MESON, "test", "-C", str(directory), "--no-rebuild", "--print-errorlogs"]
    # Timeouts are for hangs on a machine of its own; shared ones are slower, sanitizers much.
    argv += ["--timeout-multiplier", "6" if wrapper else "3"]
    argv += ["--num-processes", jobs, *(["--wrapper", wrapper] if wrapper else []), *names]
    logs = directory / "meson-logs"  # meson puts the wrapper's name into that of the report
    report = logs / f"testlog{'-' + wrapper.split()[0] if wrapper else ''}.junit.xml"
    report.unlink(missing_ok=True)
    env = build.environment() | {
        "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "TSAN_OPTIONS": "halt_on_error=1",
        # A sanitizer's shadow memory is larger than any limit of address space.
        **({"FLITNET_NO_MEMORY_LIMIT": "1"} if wrapper else {}),
    }
    done = subprocess.run(argv, env=env, timeout=KIND_TIMEOUT_S, stdin=subprocess.DEVNULL)
    return _counted(report, done.returncode)


def _pytest(
    folder: str,
    ordinary: Sequence[str],
    python: Path = Path("/usr/bin/python3"),
    without: str = "",
    files_at_once: int = 1,
) -> Counts:
    """The Python tests of one folder, without one of them, against the ordinary build."""
    directory = _built(ordinary)
    # Short, because tests have run directories below it, whose names are limited by sockets'.
    with tempfile.TemporaryDirectory(prefix="ft-") as scratch:
        report = Path(scratch) / "report.xml"
        argv = [
            str(python), "-B", "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rfEs",
            "--tb=short", "--durations=8", "--timeout=180", f"--junitxml={report}",
            f"--basetemp={scratch}/t", str(paths.ROOT / "tests" / folder),
        ]  # fmt: skip
        if without:
            argv.append(f"--deselect=tests/{without}")
        if files_at_once > 1:
            argv += ["-n", str(files_at_once), "--dist", "loadfile"]
        env = dict(os.environ) | {"FLITNET_BUILD": str(directory)}
        env.pop("FLITNET_RUN", None)  # the user's cluster is none of the tests' business
        done = subprocess.run(
            argv, env=env, cwd=paths.ROOT, timeout=KIND_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
        return _counted(report, done.returncode)


def _built(folders: Sequence[str]) -> Path:
    """The ordinary build, with the tests of these folders or with all."""
    directory = paths.build_dir()
    if "FLITNET_BUILD" not in os.environ:
        build.configure(directory)
        build.build(directory, _targets(directory, folders) if folders else [])
    return directory


def _counted(report: Path, returncode: int) -> Counts:
    """Counts the cases of a JUnit report; a bad exit without a failed case is a failure too."""
    counts = Counts()
    if report.exists():
        for case in xml.parse(report).getroot().iter("testcase"):
            kinds = {child.tag for child in case}
            if kinds & {"failure", "error"}:
                counts += Counts(failed=1)
            elif "skipped" in kinds:
                counts += Counts(skipped=1)
            else:
                counts += Counts(passed=1)
    if returncode != 0 and counts.failed == 0:
        counts += Counts(failed=1)
    return counts
