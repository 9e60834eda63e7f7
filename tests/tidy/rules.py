"""The table of DESIGN section 4 and the rules of style that a machine can hold, as functions.

Each rule takes a Tree (root and the project's files) and returns violations, one line each:
"path:line: what is wrong". A rule knows nothing of pytest, so it is tested on made-up trees.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

TOPS = ("emu", "hca", "fabric", "tools")
COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 450
TEST_LINES_MAX = 600  # a file of tests may be a longer list

# Who may include whom. A room may always include itself. "emu" stands for every room of emu.
ALLOWED: dict[str, tuple[str, ...]] = {
    "emu/base": (),
    "emu/cli": ("emu/base",),
    "emu/ring": ("emu/base",),
    "emu/packet": ("emu/base",),
    "emu/lane": ("emu/base",),
    "emu/energy": ("emu/base",),
    "emu/metrics": ("emu/base", "emu/ring"),
    "emu/clock": ("emu/base", "emu/metrics"),
    "emu/wire": ("emu/base", "emu/packet", "emu/ring"),
    "emu/daemon": ("emu/base", "emu/clock", "emu/ring"),
    "emu/config": ("emu/base", "emu/lane", "emu/energy", "emu/clock"),
    "hca/abi": ("emu",),
    "hca/verbs": ("emu", "hca/abi"),
    "hca/host": ("emu", "hca/abi"),
    "hca/cm": ("emu", "hca/abi", "hca/host"),
    "hca/umad": ("emu",),
    "hca/wire": ("emu",),
    "hca/attach": ("emu",),
    "hca/daemon": ("emu", "hca/abi", "hca/host", "hca/cm", "hca/umad", "hca/attach"),
    "fabric/topo": ("emu",),
    "fabric/route": ("emu", "fabric/topo"),
    "fabric/link": ("emu", "fabric/topo"),
    "fabric/crew": (),
    "fabric/admit": ("emu", "fabric/topo", "fabric/route"),
    # The network is routers and the wire halves at their edge, stepped together.
    "fabric/router": (
        "emu", "hca/wire", "fabric/topo", "fabric/route", "fabric/link", "fabric/admit",
        "fabric/crew",
    ),
    # Asks the network; its own state is what ports had counted when somebody reset them.
    "fabric/subnet": ("emu", "fabric/topo", "fabric/route", "fabric/router"),
    "fabric/port": ("emu",),
    "fabric/daemon": (
        "emu", "hca/wire", "fabric/topo", "fabric/route", "fabric/link", "fabric/admit",
        "fabric/router", "fabric/subnet", "fabric/port",
    ),
    "tools/trace": ("emu/base", "emu/cli"),
    "tools/replay": ("emu/base", "emu/cli", "emu/metrics", "tools/trace"),
    "tools/load": ("emu/base", "emu/cli", "emu/metrics", "tools/replay"),
    # A whole network in virtual time: composes what the daemons compose.
    "tools/sim": (
        "emu", "hca/abi", "hca/host", "hca/wire", "hca/daemon", "fabric/topo", "fabric/route",
        "fabric/admit", "fabric/router", "fabric/daemon", "tools/trace", "tools/replay",
        "tools/load",  # the laws of arrivals
    ),
    # The daemons of a host in one process.
    "tools/together": ("emu", "fabric/daemon", "hca/daemon"),
    "tools/exporter": ("emu/base", "emu/cli", "emu/metrics", "emu/config"),
    "tools/capture": ("emu/base", "emu/cli", "emu/packet", "emu/ring", "emu/wire"),
}  # fmt: skip

# Third-party headers: pattern of the include -> places where it may stand (prefixes of paths).
# The unit test, fuzz target or benchmark of a place may use what the place may use.
THIRD_PARTY: dict[str, tuple[str, ...]] = {
    r"rte_.*": ("fabric/port/", "fabric/daemon/eal", "tests/bench/attach/"),
    r"liburing.*": ("hca/attach/udp", "hca/daemon/control", "fabric/daemon/control"),
    r"lib(avformat|avcodec|avutil)/.*": ("tools/trace/",),
    r"prometheus/.*": ("tools/exporter/",),
    r"pcap/.*": ("tools/capture/",),
    r"infiniband/.*": (
        "hca/verbs/", "tools/replay/", "tools/load/", "tests/abi/", "tests/bench/verbs/",
    ),
    r"rdma/.*": ("hca/verbs/", "hca/cm/", "hca/umad/", "tests/abi/"),
    r"sodium.*": ("emu/wire/",),
    r"toml\+\+/.*|toml\.hpp": ("emu/config/", "fabric/topo/toml", "tools/sim/point"),
    r"CLI/.*": ("emu/cli/command_line.cc",),
    r"spdlog/.*": ("emu/base/log", "hca/daemon/", "fabric/daemon/", "tools/exporter/"),
    r"(gtest|gmock|benchmark)/.*": ("tests/",),
}  # fmt: skip

# Libraries hold no wall clock: time is handed in.
# (emu/ring waits for a dying process's lock in pid_file, at start only.)
LIBRARIES = ("emu/base/", "emu/clock/", "emu/config/", "emu/energy/", "emu/lane/", "emu/metrics/",
             "emu/packet/", "emu/wire/", "hca/abi/", "hca/cm/", "hca/host/", "hca/wire/",
             "fabric/topo/",
             "fabric/route/", "fabric/link/", "fabric/admit/", "fabric/router/",
             "fabric/subnet/")  # fmt: skip
PRODUCT = tuple(f"{top}/" for top in TOPS)
BANNED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (r"(?<![\w.>:])(std::)?system\s*\(", "system(): start programs by argument list", ()),
    (r"\b(strcpy|strcat|sprintf|vsprintf|gets)\s*\(", "unbounded string call", ()),
    (r"(?<![\w.>])(std::)?s?rand\s*\(", "rand(): use emu::Prng with a printed seed", ()),
    (r"\bstd::random_device", "random from nowhere: use emu::Prng", PRODUCT),
    (r"\bstd::mt19937", "use emu::Prng", PRODUCT),
    (r"\b(sleep_for|sleep_until)\b|(?<![\w])(u|nano|clock_nano)?sleep\s*\(",
     "a library does not wait: time is handed in", LIBRARIES),
    (r"#include <(chrono|thread)>", "a library has no wall clock and no threads",
     ("hca/host/", "hca/wire/", "fabric/router/", "fabric/link/", "fabric/admit/", "emu/lane/")),
    (r"\bfmt::print\s*\(\s*stderr", "throws where stderr is full: emu::complain", PRODUCT),
    (r"\bshell\s*=\s*True|\bos\.system\s*\(", "no shell strings", ()),
    (r"\b(pkill|killall)\b", "stop processes by the pid that was started", ()),
)  # fmt: skip

# Ratchets: what was too long when its rule came. Nothing may join without being written down here,
# and an entry that is no longer needed fails the test, so the list only shrinks.
LONG_FUNCTIONS: dict[str, int] = {}  # "path:function" -> lines
LONG_FILES: dict[str, int] = {}  # path -> lines


def not_ignored(root: Path) -> Iterator[str]:
    """What .gitignore leaves, of a tree that came without git: a line with a slash at its start
    names what stands in the root, any other what stands anywhere."""
    ignore = root / ".gitignore"
    patterns = [line.rstrip("/") for line in ignore.read_text().split()] if ignore.exists() else []

    def is_ours(name: str) -> bool:
        last = name.rpartition("/")[2]
        return not any(
            fnmatchcase("/" + name if pattern.startswith("/") else last, pattern)
            for pattern in patterns
        )

    for folder, folders, files in os.walk(root):
        prefix = "".join(f"{part}/" for part in Path(folder).relative_to(root).parts)
        folders[:] = [name for name in folders if is_ours(prefix + name)]
        yield from (prefix + name for name in folders + files if is_ours(prefix + name))


@dataclass
class Tree:
    root: Path
    long_functions: dict[str, int] = field(default_factory=lambda: LONG_FUNCTIONS)
    long_files: dict[str, int] = field(default_factory=lambda: LONG_FILES)

    @cached_property
    def names(self) -> list[str]:
        """What git would commit, or what it would where there is no git."""
        argv = ["git", "-C", str(self.root), "ls-files", "-co", "--exclude-standard"]
        done = subprocess.run(argv, capture_output=True, text=True)
        names = done.stdout.split("\n") if done.returncode == 0 else not_ignored(self.root)
        return sorted(name for name in names if name)

    @cached_property
    def files(self) -> list[str]:
        """The project's text files."""
        return [name for name in self.names if (self.root / name).is_file()]

    @cached_property
    def cpp(self) -> list[str]:
        return [name for name in self.files if name.endswith((".h", ".cc"))]

    @cached_property
    def python(self) -> list[str]:
        return [name for name in self.files if name.endswith(".py")]

    def lines(self, name: str) -> list[str]:
        return (self.root / name).read_text(errors="replace").splitlines()


def room_of(name: str) -> str:
    return "/".join(name.split("/")[:2])


def place_of(name: str) -> str:
    """Where a file counts as standing: a test stands where what it tests does."""
    for prefix in ("tests/unit/",):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return {
        "tests/fuzz/wqe": "hca/host/", "tests/fuzz/datagram": "fabric/port/",
        "tests/fuzz/trace": "tools/trace/",
    }.get("/".join(name.split("/")[:3]), name)  # fmt: skip


INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes(tree: Tree, name: str) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(tree.lines(name), 1):
        if match := INCLUDE.match(line):
            yield number, match[1], match[2]


def may_include(room: str, target: str) -> bool:
    allowed = ALLOWED.get(room, ())
    return target == room or target in allowed or target.split("/")[0] in allowed


def include_direction(tree: Tree) -> list[str]:
    """Rooms include only whom the table lets them; tests are free."""
    found = []
    for name in tree.cpp:
        if name.split("/")[0] not in TOPS:
            continue
        room = room_of(name)
        if room not in ALLOWED:
            found.append(f"{name}:1: {room} is not a room of DESIGN section 4")
            continue
        for number, quote, path in includes(tree, name):
            target = room_of(path)
            is_ours = quote == '"' and path.split("/")[0] in (*TOPS, "tests")
            if is_ours and not may_include(room, target):
                found.append(f"{name}:{number}: {room} may not include {target}")
    return found


def include_paths(tree: Tree) -> list[str]:
    """Our own headers are included by their full path from the root, in quotes."""
    found = []
    generated = ("emu/config/schema_table.inc",)
    for name in tree.cpp:
        for number, quote, path in includes(tree, name):
            ours = path.split("/")[0] in (*TOPS, "tests") and "/" in path
            if quote == "<" and ours:
                found.append(f"{name}:{number}: <{path}> is ours: use quotes")
            elif quote == '"' and not path.endswith(generated):
                if not ours or not (tree.root / path).is_file():
                    found.append(f'{name}:{number}: "{path}" is not a path from the root')
    return found


def third_party(tree: Tree) -> list[str]:
    """Each library is seen by the one room that wraps it."""
    found = []
    for name in tree.cpp:
        place = place_of(name)
        for number, _, path in includes(tree, name):
            for pattern, places in THIRD_PARTY.items():
                if re.fullmatch(pattern, path) and not (place + "/").startswith(places):
                    if not name.startswith(places):
                        found.append(f"{name}:{number}: <{path}> may stand in {', '.join(places)}")
    return found


def room_papers(tree: Tree) -> list[str]:
    """Every room says what it is (README.md) and builds itself (meson.build)."""
    rooms = {room_of(name) for name in tree.cpp if name.split("/")[0] in TOPS}
    wanted = [(room, paper) for room in sorted(rooms) for paper in ("README.md", "meson.build")]
    return [f"{room}:1: has no {paper}" for room, paper in wanted
            if not (tree.root / room / paper).is_file()]  # fmt: skip


def banned_calls(tree: Tree) -> list[str]:
    found = []
    for name in (*tree.cpp, *tree.python):
        if name.startswith("tests/tidy/"):  # names what it forbids
            continue
        for number, line in enumerate(strip(tree, name), 1):
            for pattern, why, places in BANNED:
                if (not places or name.startswith(places)) and re.search(pattern, line):
                    found.append(f"{name}:{number}: {why}")
    return found


def one_namespace(tree: Tree) -> list[str]:
    """One namespace per top room; names of its own inside it are free."""
    found = []
    for name in tree.cpp:
        top = name.split("/")[0]
        if top not in TOPS:
            continue
        for number, line in enumerate(tree.lines(name), 1):
            match = re.match(r"namespace (\w+)", line)
            if match and match[1] not in (top, "std", "toml"):
                found.append(f"{name}:{number}: namespace {match[1]} in {top}")
    return found


CLASS = re.compile(
    r"(?:struct|class) (?:\[\[.*?\]\] |alignas\(.*?\) )?(\w+)(?: final)?(?: :.*)? \{"
)


def defined_twice(tree: Tree) -> list[str]:
    """A class has one definition (C++ [basic.def.odr]): of two in one namespace, a program that
    links both destroys one's objects as the other's, and no compiler says so."""
    first: dict[str, str] = {}
    found = []
    for name in tree.cpp:
        if name.split("/")[0] not in TOPS:
            continue
        spaces: list[str] = []
        for number, line in enumerate(tree.lines(name), 1):
            if opened := re.match(r"namespace ?([\w:]*) \{$", line):
                spaces.append(opened[1] or name)  # without a name it is the file's own
            elif re.match(r"\}  // namespace", line) and spaces:
                spaces.pop()
            elif defined := CLASS.match(line):
                full = "::".join([*spaces, defined[1]])
                if first.setdefault(full, name) != name:
                    found.append(f"{name}:{number}: {full} is in {first[full]}, too")
    return found


def file_headers(tree: Tree) -> list[str]:
    """A header file opens with the sentences that say what it is for, and guards itself."""
    found = []
    for name in tree.cpp:
        lines = tree.lines(name)
        if not name.endswith(".h"):
            continue
        if not lines or not lines[0].startswith(("//", "/*")):
            found.append(f"{name}:1: no sentence that says what this file is for")
        if "#pragma once" not in lines:
            found.append(f"{name}:1: no #pragma once")
    return found


def line_length(tree: Tree) -> list[str]:
    found = []
    names = [n for n in tree.files if n.endswith((".h", ".cc", ".py"))]
    for name in names:
        for number, line in enumerate(tree.lines(name), 1):
            # A string that cannot be cut (a pattern, an address) is clang-format's affair.
            if len(line) > COLUMNS_MAX and "http" not in line:
                found.append(f"{name}:{number}: {len(line)} columns, at most {COLUMNS_MAX}")
    return found


def file_length(tree: Tree) -> list[str]:
    found = []
    for is_test, limit in ((False, FILE_LINES_MAX), (True, TEST_LINES_MAX)):
        counts = {name: len(tree.lines(name)) for name in (*tree.cpp, *tree.python)}
        found += ratchet(_of_kind(counts, is_test), _of_kind(tree.long_files, is_test), limit)
    return found


def _of_kind(counts: dict[str, int], is_test: bool) -> dict[str, int]:
    return {name: n for name, n in counts.items() if name.startswith("tests/") == is_test}


def function_length(tree: Tree) -> list[str]:
    lengths: dict[str, int] = {}
    for name in tree.cpp:
        for function, count in cpp_functions(strip(tree, name)):
            key = f"{name}:{function}"
            lengths[key] = max(count, lengths.get(key, 0))
    for name in tree.python:
        module = ast.parse("\n".join(tree.lines(name)))
        for node in ast.walk(module):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert node.end_lineno is not None
                lengths[f"{name}:{node.name}"] = node.end_lineno - node.lineno + 1
    return list(ratchet(lengths, tree.long_functions, FUNCTION_LINES_MAX))


def ratchet(lengths: dict[str, int], known: dict[str, int], limit: int) -> Iterator[str]:
    for name, count in sorted(lengths.items()):
        if count > known.get(name, limit):
            yield f"{name}: {count} lines, at most {known.get(name, limit)}"
    for name in sorted(known):
        if lengths.get(name, 0) <= limit:
            yield f"{name}: is short enough now: take it off the list of exceptions"


def machine_paths(tree: Tree) -> list[str]:
    """Nothing in the tree names the machine it was written on."""
    found = []
    pattern = re.compile(r"(?<![\w.])/(work|root|home/\w+)/")
    for name in tree.files:
        if name.endswith((".trace", ".mpg", ".ts", ".m2v", ".png", ".svg")):
            continue
        if name.startswith("tests/tidy/"):
            continue
        for number, line in enumerate(tree.lines(name), 1):
            if pattern.search(line):
                found.append(f"{name}:{number}: a path of one machine")
    return found


def symbolic_links(tree: Tree) -> list[str]:
    """None: one to a build directory elsewhere is committed in passing, where it is not ignored."""
    return [f"{name}: a symbolic link" for name in tree.names if (tree.root / name).is_symlink()]


def documented_paths(tree: Tree) -> list[str]:
    """What a README calls by its path is there."""
    found = []
    pattern = re.compile(r"`((?:emu|hca|fabric|tools|tests|traces|dashboards|docs)/[\w./-]+)`")
    for name in tree.files:
        if name.endswith(".md"):
            for number, line in enumerate(tree.lines(name), 1):
                for path in pattern.findall(line):
                    stems = (path, f"{path}.h", f"{path}.cc")  # a pair of files by its stem
                    if not any((tree.root / stem).exists() for stem in stems):
                        found.append(f"{name}:{number}: {path} is not there")
    return found


def formatting(tree: Tree) -> list[str]:
    """clang-format has nothing to say."""
    if not tree.cpp:
        return []
    argv = ["clang-format-16", "--dry-run", "--ferror-limit=1", "--style=file", *tree.cpp]
    done = subprocess.run(argv, cwd=tree.root, capture_output=True, text=True)
    lines = re.findall(r"^(\S+?):(\d+):\d+: warning: code should be", done.stderr, re.M)
    files = {name: number for name, number in reversed(lines)}
    return [f"{name}:{number}: not formatted" for name, number in sorted(files.items())]


def imported_twice(tree: Tree) -> list[str]:
    """A second import under a name takes the first one away, and nothing else would say so."""
    found = []
    for name in tree.python:
        known: set[str] = set()
        for node in ast.parse("\n".join(tree.lines(name))).body:
            if isinstance(node, ast.ImportFrom):
                names = [alias.asname or alias.name for alias in node.names]
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names = [node.name]
            else:
                continue
            taken = [one for one in names if one in known]
            found += [f"{name}:{node.lineno}: {one} is another's name" for one in taken]
            known.update(names)
    return found


RULES = (
    include_direction, include_paths, third_party, room_papers, banned_calls, one_namespace,
    file_headers, line_length, file_length, function_length, machine_paths,
    symbolic_links, documented_paths, formatting, imported_twice, defined_twice,
)  # fmt: skip


def strip(tree: Tree, name: str) -> list[str]:
    """The file's lines without comments and string contents; line numbers stay."""
    text = "\n".join(tree.lines(name))
    if name.endswith(".py"):
        text = re.sub(r'("""|\'\'\')(.*?)\1', _keep_newlines, text, flags=re.S)
        return [re.sub(r"#.*", "", line) for line in text.split("\n")]
    pattern = r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|//[^\n]*|/\*.*?\*/'
    lines = re.sub(pattern, _keep_newlines, text, flags=re.S).split("\n")
    # Includes are looked at by name, so their "strings" stay.
    return [o if INCLUDE.match(o) else line for o, line in zip(text.split("\n"), lines)]


def _keep_newlines(match: re.Match[str]) -> str:
    return '""' + "\n" * match[0].count("\n")


SCOPE = re.compile(r"^\s*(inline\s+)?(namespace|class|struct|union|enum|extern\s+\"\")\b")


def cpp_functions(lines: list[str]) -> Iterator[tuple[str, int]]:
    """Name and length of each outermost function body; lambdas count in the function they are in.

    Enough of a parser for clang-formatted code: a brace that follows a parameter list, outside any
    other function, opens a body.
    """
    head, head_line = "", 0  # text since the last ; { or } and the line on which it began
    open_function: tuple[str, int, int] | None = None  # name, first line, depth
    depth = 0
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("#"):
            continue
        for char in line + "\n":
            if char == "{":
                depth += 1
                if open_function is None and _opens_body(head):
                    open_function = (_function_name(head), head_line or number, depth)
                head, head_line = "", 0
            elif char == "}":
                if open_function and open_function[2] == depth:
                    yield open_function[0], number - open_function[1] + 1
                    open_function = None
                depth -= 1
                head, head_line = "", 0
            elif char == ";" and "for (" not in head[-200:]:
                head, head_line = "", 0
            else:
                if not head.strip() and char.strip():
                    head, head_line = "", number
                head += char


def _opens_body(head: str) -> bool:
    text = re.sub(r"^\s*(public|private|protected):", "", head).strip()
    text = re.sub(r"^template\s*<.*?>\s*(?=\w)", "", text, flags=re.S)
    if SCOPE.match(text) and "(" not in text:
        return False
    return ")" in text and not re.search(r"=\s*$", text)


def _function_name(head: str) -> str:
    if test := re.search(r"\b(TEST\w*|BENCHMARK\w*)\s*\(([^)]*)\)", head):
        return f"{test[1]}({' '.join(test[2].split())})"
    names = re.findall(r"([\w:~]+|operator\S+)\s*\(", head)
    names = [n for n in names if n not in ("requires", "noexcept", "decltype", "alignas")]
    return names[0] if names else "?"
