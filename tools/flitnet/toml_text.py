"""The text of TOML that the command line writes, and where in the user's own the same thing stands.

What we write of a user's file has a line a key and nothing else. A program that reads it names a
line of that; users have theirs.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection
from typing import Any

BARE = r"[A-Za-z0-9_-]+"
KEY = rf"""(?:{BARE}|"(?:[^"\\]|\\.)*"|'[^']*')"""
DOTTED = rf"{KEY}(?:\s*\.\s*{KEY})*"
HEADER = re.compile(rf"\s*(\[\[?)\s*({DOTTED})\s*\]")
ASSIGNED = re.compile(rf"\s*({DOTTED})\s*=")

Place = tuple[str, ...]  # a table and a key; the second of several tables is "node[1]"
WHOLE = "{}"  # as key: a table on one line


def spelled(key: str) -> str:
    """A key as TOML has it."""
    return key if re.fullmatch(BARE, key) else json.dumps(key, ensure_ascii=False)


def _place(dotted: str) -> Place:
    table: Any = tomllib.loads(f"{dotted} = 0")
    keys = []
    while isinstance(table, dict):
        [(key, table)] = table.items()
        keys.append(key)
    return tuple(keys)


def places(text: str) -> dict[Place, int]:
    """Lines of tables and keys. Of what spans lines it is the first; a line of a text in quotes
    that looks like a key is not told from one."""
    found: dict[Place, int] = {}
    table: Place = ()
    count: dict[Place, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := HEADER.match(line):
            table = _place(header[2])
            if header[1] == "[[":
                at = count[table] = count.get(table, -1) + 1
                table = (*table[:-1], f"{table[-1]}[{at}]")
            found.setdefault(table, number)
        elif assigned := ASSIGNED.match(line):
            place = table + _place(assigned[1])
            if line[assigned.end() :].lstrip().startswith("{"):
                place = (*place, WHOLE)
            found.setdefault(place, number)
    return found


def retold(message: str, name: str, written: str, own: str, made: Collection[Place] = ()) -> str:
    """What a program says of `written`, which it knows as `name`, as it is of the user's own text.
    `made`: what is not in that, or not so; it has no line."""
    match = re.fullmatch(rf"{re.escape(name)}:(?:(\d+):)? (.*)", message, re.DOTALL)
    if not match:
        return message
    if match[1] is None:
        place = tuple(match[2].split(" ")[0].split("."))
    else:
        line_of_ours = int(match[1])
        place = next((p for p, line in places(written).items() if line == line_of_ours), ())
    if place in made:
        return f"cluster.toml: {match[2]}"
    theirs = places(own)
    line = theirs.get(place) or theirs.get((*place[:-1], WHOLE))
    return f"{name}:{line}: {match[2]}" if match[1] and line else f"{name}: {match[2]}"
