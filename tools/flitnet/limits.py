"""What a cluster that is to be started needs of this machine: names of folders that can be told to
programs, and open files. In: who would run. Out: nothing, or the one line that says what to do."""

from __future__ import annotations

import resource
from pathlib import Path

from tools.flitnet import rundir, surroundings
from tools.flitnet.errors import FlitnetError
from tools.flitnet.part import Part

# Open files of fabricd and of an hcad, as counted, and for each node of the cluster; the reserve is
# for programs and commands, each of which has some of them as well.
FABRIC_FILES, FABRIC_FILES_A_NODE = 17, 6
HCA_FILES, HCA_FILES_A_NODE = 19, 1
RESERVE_FILES = 32
USUAL_FILES = 1024


def check(run: Path, nodes: tuple[str, ...], part: Part, together: bool) -> None:
    rundir.check(run, nodes)
    surroundings.check(run)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)  # up to which daemons raise their own
    need = files_of(len(nodes), len(part.of(nodes)), part.fabric, together)
    if most != resource.RLIM_INFINITY and most < need:
        raise FlitnetError(
            f"at most {most} open files, and a daemon of this cluster needs {need}; raise the "
            f"limit: ulimit -n {max(need, USUAL_FILES)}"
        )


def files_of(nodes: int, here: int, fabric: bool, together: bool) -> int:
    """Of the daemon that has most: the fabric, with the nodes of its process, or a node."""
    of_hca = HCA_FILES + HCA_FILES_A_NODE * nodes
    of_fabric = (FABRIC_FILES + FABRIC_FILES_A_NODE * nodes) * fabric
    both = of_fabric + of_hca * here if together else max(of_fabric, of_hca)
    return both + RESERVE_FILES
