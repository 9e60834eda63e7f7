"""Every result of the papers that can be checked, by its id. A paper a file."""

from __future__ import annotations

from tools.flitnet.errors import UsageError
from tools.flitnet.lab.catalog import acp, beyond, gn, mw, rn, vct
from tools.flitnet.lab.experiment import Experiment

ALL: dict[str, Experiment] = {
    experiment.id: experiment
    for paper in (acp, rn, mw, vct, gn, beyond)
    for experiment in paper.EXPERIMENTS
}


def choose(names: list[str]) -> list[Experiment]:
    """By id, by paper ("mw"), or "all"."""
    found: dict[str, Experiment] = {}
    for name in names:
        matching = [e for e in ALL.values() if name in ("all", e.id, e.id.split(".")[0])]
        if not matching:
            raise UsageError(f"no experiment {name!r}: see ./flitnet lab list")
        found |= {e.id: e for e in matching}
    return list(found.values())
