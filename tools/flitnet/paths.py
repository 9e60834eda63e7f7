"""Where things are: the source tree, the build directory, the programs in it, the run directory."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from tools.flitnet.errors import FlitnetError

ROOT = Path(__file__).resolve().parents[2]

# Every program and library that the command line uses, by its place below the build directory.
PROGRAMS = {
    "fabricd": "fabric/daemon/fabricd",
    "hcad": "hca/daemon/hcad",
    "flitnetd": "tools/together/flitnetd",
    "flitnet-exporter": "tools/exporter/flitnet-exporter",
    "flitnet-capture": "tools/capture/flitnet-capture",
    "flitnet-replay": "tools/replay/flitnet-replay",
    "flitnet-load": "tools/load/flitnet-load",
    "flitnet-trace": "tools/trace/flitnet-trace",
    "libflitnet_verbs.so": "hca/verbs/libflitnet_verbs.so",
    "libflitnet_files.so": "hca/verbs/libflitnet_files.so",
    "libibverbs.so.1": "hca/verbs/dropin/libibverbs.so.1",
    "flitnet-point": "tools/sim/flitnet-point",
    "flitnet-sim": "tests/sim/flitnet-sim",
    "verbs_soak": "tests/abi/verbs_soak",
    "scribbler": "tests/abi/scribbler",
    "shared_blocks": "tests/abi/shared_blocks",
    "model_design_test": "tests/model/model_design_test",
    "engine_bench": "tests/bench/engine/engine_bench",
    "engine_curve": "tests/bench/engine/engine_curve",
    "verbs_bench": "tests/bench/verbs/verbs_bench",
    "scale_bench": "tests/bench/verbs/scale_bench",
    "attach_bench": "tests/bench/attach/attach_bench",
}


def build_dir() -> Path:
    """The build directory; FLITNET_BUILD overrides it (and then nobody builds for you)."""
    override = os.environ.get("FLITNET_BUILD")
    return Path(override).resolve() if override else ROOT / "build"


def program(name: str) -> Path:
    """The path of a built program; an error that says what to run when it is not there."""
    path = build_dir() / PROGRAMS[name]
    if not path.exists():
        raise FlitnetError(f"{name} is not built ({path}); run ./flitnet doctor")
    return path


_named_run: list[str] = []  # the words of --run, if it was given


def command_at(argv: list[str]) -> int:
    """The place of the command's word, behind `--run DIR` if that is there."""
    if argv[:1] == ["--run"]:
        return 2
    return 1 if argv and argv[0].startswith("--run=") else 0


def name_run(run: Path) -> None:
    """Of `--run DIR`: for this process and its children, and for what it tells people to type."""
    os.environ["FLITNET_RUN"] = str(run.absolute())
    _named_run[:] = ["--run", str(run)]


def call(words: str) -> str:
    """What to type next: `flitnet down`, with the `--run DIR` that this command was given."""
    return " ".join(["flitnet", *map(shlex.quote, _named_run), words])


def default_run_dir() -> Path:
    """FLITNET_RUN, or flitnet-<uid> below XDG_RUNTIME_DIR or /tmp (DESIGN: run directory)."""
    override = os.environ.get("FLITNET_RUN")
    if override:
        return Path(override).resolve()
    base = os.environ.get("XDG_RUNTIME_DIR") or "/tmp"
    return Path(base) / f"flitnet-{os.getuid()}"
