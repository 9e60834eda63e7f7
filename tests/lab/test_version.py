"""The version of a result names all that it was computed by."""

from __future__ import annotations

import re
from pathlib import Path

from tools.flitnet import paths
from tools.flitnet.lab.simulator import SOURCES

# Rings, sockets and ports, which files for live attachments include; nothing is simulated there.
# A point's command line names its file, no more.
NOT_SIMULATED = ("emu/ring/", "fabric/port/", "emu/cli/")
PACES_ALONE = "emu/clock/pace.cc"  # configurations are read of its header; virtual time has no pace
OURS = re.compile(r'^#include "((?:emu|hca|fabric|tools)/[^"]+)"', re.MULTILINE)


def simulated() -> list[Path]:
    places = [paths.ROOT / place for place in SOURCES]
    files = [f for p in places for f in ([p] if p.is_file() else p.rglob("*")) if f.is_file()]
    assert len(files) > 100
    return [file for file in files if file.suffix in (".h", ".cc", ".inc")]


def in_version(name: str) -> bool:
    return any(name == place or name.startswith(f"{place}/") for place in SOURCES)


def test_whatever_the_simulator_includes_is_a_part_of_the_version() -> None:
    for file in simulated():
        for header in OURS.findall(file.read_text()):
            # What the build makes (tables of the schema) comes from sources that are in it.
            if not (paths.ROOT / header).exists() or header.startswith(NOT_SIMULATED):
                continue
            assert in_version(header), f"{file} includes {header}, which SOURCES does not have"


def test_what_computes_is_a_part_of_the_version_as_what_declares_it() -> None:
    for file in simulated():
        beside = file.with_suffix(".cc")
        name = str(beside.relative_to(paths.ROOT))
        if beside.exists() and name != PACES_ALONE:
            assert in_version(name), f"{name} is not in SOURCES, its header is"
