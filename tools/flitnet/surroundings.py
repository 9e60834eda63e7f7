"""What a verbs program finds around it: the environment, and the files that it points to."""

from __future__ import annotations

import contextlib
import os
import re
import time
import tomllib
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tools.flitnet import paths, rundir
from tools.flitnet.errors import FlitnetError, UsageError

if TYPE_CHECKING:
    from tools.flitnet.cluster import Cluster


PORTS_S = 20.0
# Where the loader ends the name of a library or folder in its variables, or puts another in.
SPLITS = set(" :;$")


def check(run: Path) -> None:
    """Of a cluster that is to be started: programs can be told where our libraries are."""
    if SPLITS & set(str(paths.build_dir())) and SPLITS & set(str(run)):
        raise UsageError(
            f"run directory {run}: the build directory has a blank, ':', ';' or '$' in its name "
            "already, at which the loader splits it; name a run directory without"
        )


def of(cluster: Cluster, nodes: list[str], dropin: bool) -> dict[str, str]:
    """The environment in which a program runs on these nodes."""
    if len(set(nodes)) != len(nodes):
        raise UsageError(f"{','.join(nodes)!r} names a node twice")
    sockets = [str(cluster.node_dir(name) / "hcad.sock") for name in nodes]
    _make_host(cluster, nodes)
    env = dict(os.environ)
    env["FLITNET_RUN"] = str(cluster.run)
    env["FLITNET_NODE"] = ",".join(nodes)
    env["FLITNET_NODE_SOCKET"] = ":".join(sockets)
    if dropin:  # for programs that dlopen libibverbs
        library = str(_library(cluster, "libibverbs.so.1").parent)
        before = env.get("LD_LIBRARY_PATH")
        env["LD_LIBRARY_PATH"] = f"{library}:{before}" if before else library
    # With the drop-in, what is preloaded knows files alone (rdma_cm's, sysfs).
    library = str(_library(cluster, "libflitnet_files.so" if dropin else "libflitnet_verbs.so"))
    env["LD_PRELOAD"] = _preloaded(library, env.get("LD_PRELOAD", ""))
    # A program of gcc -fsanitize=address ends at its start where another library is before its
    # runtime. What the user says of it comes last, and counts.
    options = env.get("ASAN_OPTIONS")
    env["ASAN_OPTIONS"] = "verify_asan_link_order=0" + (f":{options}" if options else "")
    return env


def wait_ports(cluster: Cluster, nodes: Iterable[str]) -> None:
    """Until the exporter has written of nodes of this host, which are attached, that their ports
    are up: ibstat, UCX and perftest believe that. Where it complained it writes nothing, and
    programs that ask verbs alone can do without."""
    late = time.monotonic() + PORTS_S
    for node in nodes:
        while not _port_is_up(cluster.run, node) and time.monotonic() < late:
            said = any(line.startswith("flitnet-exporter: ") for line in cluster.lines("exporter"))
            if said or "exporter" in cluster.dead() or _unplugged(cluster, node):
                break
            time.sleep(0.02)


def _unplugged(cluster: Cluster, node: str) -> bool:
    with contextlib.suppress(FlitnetError):  # asked again: it has answered before
        return bool(cluster.node_status(node)["link_down"])
    return False


def _port_is_up(run: Path, node: str) -> bool:
    devices = run / "sys" / "nodes" / node / "class" / "infiniband"
    return any(f.read_text().startswith("4") for f in devices.glob("*/ports/1/state"))


def _preloaded(library: str, before: str) -> str:
    """Ours before the user's, but for a sanitizer's runtime, which has to be the first."""
    theirs = [name for name in re.split(r"[ :]+", before) if name]
    known = ("libasan", "libclang_rt.asan")
    runtimes = [name for name in theirs if Path(name).name.startswith(known)]
    return ":".join([*runtimes, library, *(name for name in theirs if name not in runtimes)])


def _library(cluster: Cluster, name: str) -> Path:
    """One of ours by a name that the loader does not split: through a link in the run directory, if
    the build directory's has a blank or a colon."""
    path, build = paths.program(name), paths.build_dir()
    if not SPLITS & set(str(build)):
        return path
    check(cluster.run)
    # By a name for each: programs of another build may run in the cluster.
    link = cluster.run / "sys" / "lib" / f"{zlib.crc32(os.fsencode(build)):08x}"
    _make_links(cluster, {link: str(build)})
    return link / paths.PROGRAMS[name]


def _make_host(cluster: Cluster, nodes: list[str]) -> None:
    """Where /sys/class/infiniband of a program lies: links to what the exporter, if one runs,
    writes of its nodes. Programs see by the links alone that there are devices."""
    hca = tomllib.loads(cluster.file.text).get("hca", {})
    device = hca.get("device", "flitnet0")
    classes = cluster.run / "sys" / "nodes" / ",".join(nodes) / "class"
    several = [f"{device.rstrip('0123456789')}{place}" for place in range(len(nodes))]
    links: dict[Path, str] = {}
    for node, name in zip(nodes, several if len(nodes) > 1 else [device], strict=True):
        links[classes / "infiniband" / name] = f"../../../../class/infiniband/{node}-{device}"
    # Of one node alone the exporter writes this, too. RoCE has no subnet to be asked.
    if len(nodes) > 1 and hca.get("link_layer") != "roce_v2":
        _make_files(cluster, _umads(classes / "infiniband_mad", several))
    _make_links(cluster, links)


def _umads(folder: Path, devices: list[str]) -> dict[Path, str]:
    """What libibumad reads before it opens a device: as the exporter has it (make_umad)."""
    files = {folder / "abi_version": "5\n"}  # IB_USER_MAD_ABI_VERSION
    for place, device in enumerate(devices):
        files[folder / f"umad{place}" / "ibdev"] = f"{device}\n"
        files[folder / f"umad{place}" / "port"] = "1\n"
    return files


def _make_files(cluster: Cluster, files: dict[Path, str]) -> None:
    if all(file.is_file() for file in files):
        return
    with _making(cluster):
        for file, text in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            fresh = file.with_suffix(".new")
            fresh.write_text(text)
            fresh.rename(file)  # whoever finds it finds it whole


def _make_links(cluster: Cluster, links: dict[Path, str]) -> None:
    if all(link.is_symlink() for link in links):
        return  # nobody waits for a command that has the lock
    with _making(cluster):
        for link, target in links.items():
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(target)


@contextlib.contextmanager
def _making(cluster: Cluster) -> Iterator[None]:
    with rundir.lock(cluster.run):
        if cluster.ends:  # what is made now, nobody would remove
            raise rundir.no_cluster(cluster.run)
        yield
