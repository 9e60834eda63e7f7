"""Cluster files: what the command line reads of them and how it writes its own.

The C++ side (emu/config) owns keys, types and ranges; here is only what starting needs: the names
of the nodes. `fabricd --check` says whether a file is right.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tools.flitnet import paths, topology
from tools.flitnet.errors import FlitnetError, UsageError
from tools.flitnet.toml_text import Place, retold, spelled

NODES_DEFAULT = 8
LINK_MBPS_DEFAULT = 400
FLIT_BITS_DEFAULT = 128
PACKET_SIZE_DEFAULT = 40
NODES_MAX = 64  # emu::kNodesMax; fabricd --check refuses more


@dataclass(frozen=True)
class ClusterFile:
    """The text of a cluster file and what starting it needs to know."""

    text: str
    node_names: tuple[str, ...]
    name: str = "cluster.toml"  # for messages
    pass_through: bool = False  # no emulated time passes between nodes
    hca_process: str = "own"  # who runs the nodes: each its own process, or "fabric"
    hca_process_chosen: bool = False  # by us
    power_scheme: bool = True  # HCAs keep best effort below the cap on power, as the daemons begin
    own: str | None = None  # the user's, where the text is written anew
    made: frozenset[Place] = frozenset()  # what of it flags have made


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """What a user wrote. `where`: its name in the one line that says what is wrong."""
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, a number of thousands of digits
        raise UsageError(f"{where}: {error}") from None
    except RecursionError:
        raise UsageError(f"{where}: nested too deeply") from None


def parse(text: str, where: str = "cluster.toml") -> ClusterFile:
    """Reads the node names; everything else is for fabricd to judge."""
    table = parse_toml(text, where)
    try:
        names = _node_names(table)
    except (TypeError, AttributeError, ValueError, LookupError, ArithmeticError):
        names = []  # fabricd --check names the fault with its range
    network = table.get("network")
    passes = isinstance(network, dict) and network.get("pass_through") is True
    hca = table.get("hca")
    process = hca.get("process", "auto") if isinstance(hca, dict) else "auto"
    chosen = process == "auto"
    if chosen:
        process = _hca_process(table) if passes else "own"
    scheme = _power_scheme(table.get("controls"))
    return ClusterFile(text, tuple(names), Path(where).name, passes, str(process), chosen, scheme)


def _power_scheme(controls: Any) -> bool:
    """As emu::Config::power_scheme."""
    if not isinstance(controls, dict):
        return True
    on = controls.get("power_control", True) is True
    return on and controls.get("peak_power", "scheme") == "scheme"


def _hca_process(table: dict[str, Any]) -> str:
    """Where packets only pass, a message waits for switches of processes: nodes share the fabric's
    process, unless two programs, their nodes and the fabric have a core each."""
    attach = table.get("attach")
    local = not isinstance(attach, dict) or attach.get("kind", "shm") == "shm"
    return "fabric" if local and len(os.sched_getaffinity(0)) < 5 else "own"


def _node_names(table: dict[str, Any]) -> list[str]:
    network, named = table.get("network", {}), table.get("node", [])
    count = NODES_DEFAULT
    if "topology" in network:
        count = topology.node_count(network) or count
    count = network.get("nodes", len(named) or count)
    names = [f"n{i}" for i in range(min(count, NODES_MAX))]
    for i, node in enumerate(named[:count]):
        names[i] = str(node.get("name", names[i]))
    return names


def read(path: Path) -> ClusterFile:
    own = read_text(path)
    return replace(parse(with_files(own, path), str(path)), own=own)


def of(what: dict[str, Any] | str | Path | ClusterFile | None) -> ClusterFile:
    """Of tables, TOML text, a path, or what was read already."""
    if isinstance(what, ClusterFile):
        return what
    if isinstance(what, Path):
        return read(what)
    return parse(what if isinstance(what, str) else to_toml(what or {}))


def with_flags(path: Path | None, choices: dict[str, str | bool | None]) -> ClusterFile:
    """A cluster file as with_network() writes it."""
    file = parse(with_network(path, choices), str(path or "cluster.toml"))
    user = read(path) if path else None
    before = tomllib.loads(user.text) if user else {}
    after = tomllib.loads(file.text)
    made = {
        (name, key)
        for name, table in after.items() if isinstance(table, dict)
        for key, value in table.items() if before.get(name, {}).get(key) != value
    }  # fmt: skip
    return replace(file, own=user.own if user else "", made=frozenset(made))


def with_files(text: str, path: Path) -> str:
    """Other files are named as the cluster file sees them; daemons read a copy of it elsewhere. A
    topology's file has as many nodes as it has."""
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError):
        return text  # parse() says why
    network, attach = tables.get("network"), tables.get("attach")
    named = network.get("topology") if isinstance(network, dict) else None
    key = attach.get("key_file") if isinstance(attach, dict) else None
    has_topology = isinstance(named, str) and named.startswith("file:")
    has_key = isinstance(key, str) and key != "" and not Path(key).is_absolute()
    if not (has_topology or has_key) or not _plain(tables):
        return text
    folder = path.absolute().parent
    if has_key:
        attach["key_file"] = str(folder / key)
    if has_topology:
        file = folder / named.removeprefix("file:")
        network["topology"] = f"file:{file}"
        if "nodes" not in network and "node" not in tables:
            network["nodes"] = topology.count_in_file(file)
    return to_toml(tables)


def read_text(path: Path) -> str:
    """Of a file that the user named. fabricd skips a byte order mark, tomllib does not."""
    try:
        return path.read_text().removeprefix("\ufeff")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a text file ({error.reason})") from None


def with_network(file: Path | None, choices: dict[str, str | bool | None]) -> str:
    """The text of a cluster file (None: the defaults) with some keys set anew: those of [network]
    by their name, others as "qos.scheduler"."""
    text = read(file).text if file else ""
    chosen = {key: value for key, value in choices.items() if value}
    if not chosen:
        return text
    tables: dict[str, Any] = tomllib.loads(text)
    if not _plain(tables):
        return text  # fabricd --check names the fault
    network = tables.setdefault("network", {})
    if "topology" in chosen:
        chosen["topology"] = shape = topology.absolute(str(chosen["topology"]))
        if "node" not in tables:
            network.pop("nodes", None)  # as many as the topology asked for has
            if shape.startswith("file:"):
                network["nodes"] = topology.count_in_file(Path(shape.removeprefix("file:")))
    for key, value in chosen.items():
        table, _, name = key.rpartition(".")
        tables.setdefault(table or "network", {})[name] = value
    if "router" in chosen:
        hold_packets(network)
    return to_toml(tables)


def hold_packets(network: dict[str, Any]) -> None:
    """Routers that take packets in whole have buffers for a packet and for the longest datagram of
    a port, 2048 bytes and 78 of headers, unless the file says how long they are."""
    flit_bits = network.get("flit_bits", FLIT_BITS_DEFAULT)
    packet_size = network.get("packet_size", PACKET_SIZE_DEFAULT)
    whole = isinstance(flit_bits, int) and flit_bits > 0 and isinstance(packet_size, int)
    if network.get("router") == "vct" and whole:
        longest = math.ceil((2048 + 78) * 8 / flit_bits)
        network.setdefault("vc_buf_size", max(longest, packet_size))


def _plain(tables: dict[str, Any]) -> bool:
    """Whether to_toml can write it: what a cluster file may hold."""

    def scalar(value: Any) -> bool:
        return isinstance(value, (str, int)) or isinstance(value, float) and math.isfinite(value)

    def table(value: Any) -> bool:
        return isinstance(value, dict) and all(
            all(map(scalar, item)) if isinstance(item, list) else scalar(item)
            for item in value.values()
        )

    several = tables.get("node", [])
    rest = [value for name, value in tables.items() if name != "node"]
    return isinstance(several, list) and all(map(table, [*several, *rest]))


def write(path: Path, text: str) -> None:
    """A cluster file for a program of ours. TOML is UTF-8; what users name need not be."""
    try:
        path.write_text(text)
    except UnicodeEncodeError as error:
        line = text[text.rfind("\n", 0, error.start) + 1 :].splitlines()[0]
        raise UsageError(f"{path.name}: {line!r}: not UTF-8, as TOML is") from None


def check(file: ClusterFile) -> None:
    """Asks fabricd whether a file is right; its one line is the error."""
    with tempfile.TemporaryDirectory(prefix="flitnet-check-") as folder:
        path = Path(folder) / file.name
        write(path, file.text)
        done = topology.ask_fabricd("--check", path)
    if done.returncode < 0:
        died = f"fabricd --check ended by signal {-done.returncode}"
        raise FlitnetError(f"{died}, a bug, over:\n{file.text}")
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or "rejected").splitlines()
        line = lines[0].removeprefix("fabricd: ")
        if file.own not in (None, file.text):
            line = retold(line, file.name, file.text, file.own, file.made)
        raise UsageError(line)


def to_toml(tables: dict[str, Any]) -> str:
    """Writes nested plain values as TOML: tables, lists of tables, scalars, lists of scalars."""
    lines: list[str] = []
    for name, value in tables.items():
        several = isinstance(value, list)
        for table in value if several else [value]:
            lines.append(f"[[{spelled(name)}]]" if several else f"[{spelled(name)}]")
            # JSON's spelling of strings, numbers, booleans and lists is TOML's too.
            lines += [
                f"{spelled(key)} = {json.dumps(item, ensure_ascii=False)}"
                for key, item in table.items()
            ]
            lines.append("")
    return "\n".join(lines)
