"""The version of a result names all that it was computed by."""

from __future__ import annotations

import re

from tools.flitnet import paths
from tools.flitnet.lab.simulator import SOURCES

# Rings, sockets and ports, which files for live attachments include; nothing is simulated there.
# A point's command line names its file, no more.
NOT_SIMULATED = ("emu/ring/", "fabric/port/", "emu/cli/")
OURS = re.compile(r'^#include "((?:emu|hca|fabric|tools)/[^"]+)"', re.MULTILINE)


def test_whatever_the_simulator_includes_is_a_part_of_the_version() -> None:
    places = [paths.ROOT / place for place in SOURCES]
    files = [f for p in places for f in ([p] if p.is_file() else p.rglob("*")) if f.is_file()]
    assert len(files) > 100
    for file in files:
        if file.suffix not in (".h", ".cc", ".inc"):
            continue
        for header in OURS.findall(file.read_text()):
            # What the build makes (tables of the schema) comes from sources that are in it.
            if not (paths.ROOT / header).exists() or header.startswith(NOT_SIMULATED):
                continue
            inside = any(header == p or header.startswith(f"{p}/") for p in SOURCES)
            assert inside, f"{file} includes {header}, which simulator.SOURCES does not have"
