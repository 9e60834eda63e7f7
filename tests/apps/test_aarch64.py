"""The engine without x86 vectors: compiled for aarch64, run by qemu, same deliveries."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools.flitnet import paths

COMPILER = "aarch64-linux-gnu-g++-12"
QEMU = "qemu-aarch64-static"
FOLDERS = ("emu/lane", "hca/wire", "fabric/topo", "fabric/route", "fabric/link", "fabric/crew",
           "fabric/router",
           "tests/bench/engine")  # fmt: skip
UNIT_SIZE = 24
CASES = ("single8/vclk/0.8", "single8/two_level/0.8", "single8/rr/0.8", "single8/tr/0.8",
         "mesh4x4/vclk/0.4", "mesh4x4/two_level/0.4")


def sources() -> list[Path]:
    found = [source for folder in FOLDERS for source in sorted((paths.ROOT / folder).glob("*.cc"))]
    found.remove(paths.ROOT / "tests/bench/engine/curve.cc")  # a program of its own
    found += sorted((paths.ROOT / "tests/model").glob("plain_*.cc"))
    return [*found, paths.ROOT / "emu/base/check.cc"]


def units(folder: Path) -> list[Path]:
    """Many sources each: half the time goes into the same headers. The engines are long enough in
    two."""
    engines = [source for source in sources() if source.name.startswith("engine_")]
    rest = [source for source in sources() if source not in engines]
    found = [engines[:2], engines[2:]]
    found += [rest[i : i + UNIT_SIZE] for i in range(0, len(rest), UNIT_SIZE)]
    written = []
    for number, unit in enumerate(found):
        written.append(folder / f"unit{number}.cc")
        written[-1].write_text("".join(f'#include "{source}"\n' for source in unit))
    return written


def compile_all(folder: Path) -> Path:
    include = folder / "include"  # two header-only libraries, and nothing else of this machine's
    include.mkdir()
    for library in ("fmt", "toml++"):
        (include / library).symlink_to(Path("/usr/include") / library)
    # To optimise takes half as long again, and qemu but two seconds less.
    flags = ["-std=c++2b", "-O0", "-Wall", "-Wextra", "-Werror", "-DFMT_HEADER_ONLY",
             "-I", str(paths.ROOT), "-isystem", str(include)]  # fmt: skip

    def compile_one(source: Path) -> str:
        target = source.with_suffix(".o")
        done = subprocess.run(
            [COMPILER, *flags, "-c", str(source), "-o", str(target)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return str(target)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, units(folder)))
    program = folder / "engine_bench"
    subprocess.run([COMPILER, "-static", *objects, "-o", str(program)], check=True)
    return program


def digest(command: list[str], case: str) -> str:
    done = subprocess.run(
        [*command, "--only", case, "--cycles", "3000"], capture_output=True, text=True, check=True,
        timeout=120,
    )  # fmt: skip
    return done.stdout.split("digest ")[1].strip()


@pytest.mark.skipif(
    shutil.which(COMPILER) is None or shutil.which(QEMU) is None,
    reason="apt-get install g++-12-aarch64-linux-gnu qemu-user-static",
)
@pytest.mark.timeout(600)  # it compiles for a minute or two
def test_an_aarch64_engine_delivers_the_same(tmp_path: Path) -> None:
    program = compile_all(tmp_path)
    for case in CASES:
        there = digest([QEMU, str(program)], case)
        assert there == digest([str(paths.program("engine_bench"))], case), case
