"""Where the live page draws routers and nodes: a grid for meshes and tori, rows by level for trees,
a ring for anything else. In: links as fabricd lists them. Out: places of a picture 1000 by 620.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from tools.flitnet.topology import GRIDS

WIDTH, HEIGHT, EDGE = 1000.0, 620.0, 50.0
BEND_MAX = 60.0  # of a link around routers: the outer ones have EDGE and half of their part


@dataclass(frozen=True)
class Place:
    x: float
    y: float


@dataclass(frozen=True)
class Layout:
    routers: Mapping[int, Place]
    nodes: Mapping[str, Place]


def router_of(end: str) -> int:
    return int(end.partition(":")[0])


def layout(topology: str, home: Mapping[str, int], pairs: list[tuple[int, int]]) -> Layout:
    """`home`: the router of each node; `pairs`: routers that a link joins."""
    ids = sorted({*home.values(), *(router for pair in pairs for router in pair)})
    kind, _, rest = topology.partition(":")
    if len(ids) == 1:
        return _star(ids[0], list(home))
    if kind in GRIDS and rest:
        routers = _grid(ids, [int(size) for size in rest.split("x")])
    elif len(set(home.values())) < len(ids):
        return _levels(ids, home, pairs)
    else:
        routers = _ring(ids)
    return Layout(routers, _around(routers, home))


def _spread(count: float, at: float, extent: float) -> float:
    """The middle of the at-th of `count` equal parts."""
    return EDGE + (at + 0.5) / count * (extent - 2 * EDGE)


def _star(router: int, nodes: list[str]) -> Layout:
    middle = Place(WIDTH / 2, HEIGHT / 2)
    return Layout({router: middle}, _circle(nodes, middle, WIDTH / 2 - EDGE, HEIGHT / 2 - EDGE))


def _circle(names: list[str], middle: Place, rx: float, ry: float) -> dict[str, Place]:
    places = {}
    for i, name in enumerate(names):
        angle = 2 * math.pi * i / len(names) - math.pi / 2
        places[name] = Place(middle.x + rx * math.cos(angle), middle.y + ry * math.sin(angle))
    return places


def _grid(ids: list[int], sizes: list[int]) -> dict[int, Place]:
    """The first dimension to the right, the second down, further ones as pictures side by side."""
    columns, rows = sizes[0], sizes[1] if len(sizes) > 1 else 1
    planes = max(1, math.ceil(len(ids) / (columns * rows)))
    gap = 0.5 if planes > 1 else 0.0  # between pictures, in columns
    places = {}
    for router in ids:
        x, y = router % columns, router // columns % rows
        plane = router // (columns * rows)
        at = plane * (columns + gap) + x
        places[router] = Place(
            _spread(planes * (columns + gap) - gap, at, WIDTH), _spread(rows, y, HEIGHT)
        )
    return places


def _ring(ids: list[int]) -> dict[int, Place]:
    middle = Place(WIDTH / 2, HEIGHT / 2)
    places = _circle([str(i) for i in ids], middle, WIDTH / 2 - 3 * EDGE, HEIGHT / 2 - 3 * EDGE)
    return {int(name): place for name, place in places.items()}


def _levels(ids: list[int], home: Mapping[str, int], pairs: list[tuple[int, int]]) -> Layout:
    """Routers with nodes at the bottom, others above by how far they are from one of those."""
    beside = defaultdict(set)
    for a, b in pairs:
        beside[a].add(b)
        beside[b].add(a)
    level = dict.fromkeys(home.values(), 0)
    front = sorted(level)
    while front:
        further = sorted({b for a in front for b in beside[a]} - level.keys())
        level |= {b: level[front[0]] + 1 for b in further}
        front = further
    rows = max(level.values()) + 2  # the nodes' own below
    routers = {}
    for height in range(rows - 1):
        row = [router for router in ids if level.get(router, rows - 2) == height]
        for i, router in enumerate(row):
            y = _spread(rows, rows - 2 - height, HEIGHT)
            routers[router] = Place(_spread(len(row), i, WIDTH), y)
    ordered = sorted(home, key=lambda name: (routers[home[name]].x, list(home).index(name)))
    bottom = _spread(rows, rows - 1, HEIGHT)
    nodes = {  # in two rows, so that many do not lie on each other
        name: Place(_spread(len(ordered), i, WIDTH),
                    bottom + (26 * (i % 2) if len(ordered) > 16 else 0))
        for i, name in enumerate(ordered)
    }  # fmt: skip
    return Layout(routers, nodes)


def _around(routers: Mapping[int, Place], home: Mapping[str, int]) -> dict[str, Place]:
    """The nodes of a router close around it, off the ways to its neighbours."""
    mine = defaultdict(list)
    for name, router in home.items():
        mine[router].append(name)
    near = min(
        (math.dist((a.x, a.y), (b.x, b.y))
         for i, a in routers.items() for j, b in routers.items() if i < j),
        default=WIDTH,
    )  # fmt: skip
    radius = min(near * 0.42, 80.0)
    nodes = {}
    for router, names in mine.items():
        middle = routers[router]
        for i, name in enumerate(names):
            angle = math.pi / 4 + 2 * math.pi * i / max(len(names), 1)
            nodes[name] = Place(
                middle.x + radius * math.cos(angle), middle.y + radius * math.sin(angle)
            )
    return nodes


def bends(routers: Mapping[int, Place], pairs: list[tuple[int, int]]) -> list[float]:
    """How far the control point of each link's curve is beside its middle, in lengths of the link:
    parallel links are drawn beside each other, and those that would lie on others around what is
    between their ends."""
    seen: dict[tuple[int, ...], int] = defaultdict(int)
    ways = [_around_others(routers, *pair) for pair in pairs]
    longest = max((length for length, room in ways if room), default=1.0)
    found = []
    for pair, (length, room) in zip(pairs, ways):
        both = tuple(sorted(pair))
        nth = seen[both]
        seen[both] += 1
        beside = 0.12 * ((nth + 1) // 2) * (1 if nth % 2 else -1)
        # Long ones further out than short ones, which are in the same row. A curve is half as far
        # out as its control point.
        out = 2 * room * math.sqrt(length / longest) / length if room else 0.0
        a, b = routers[pair[0]], routers[pair[1]]
        up = -1 if (a.x, -a.y) < (b.x, -b.y) else 1  # or to the left
        found.append(beside + up * out)
    return found


def _around_others(routers: Mapping[int, Place], start: int, end: int) -> tuple[float, float]:
    """The length of a straight link, and how far off it there is room for one that leads around the
    routers that it would pass; 0: it passes none."""
    a, b = routers[start], routers[end]
    length = math.dist((a.x, a.y), (b.x, b.y)) or 1.0  # of a router to itself
    passes, room = False, BEND_MAX
    for router, at in routers.items():
        along = ((at.x - a.x) * (b.x - a.x) + (at.y - a.y) * (b.y - a.y)) / length
        if router in (start, end) or not 0 < along < length:
            continue
        off = abs((at.x - a.x) * (b.y - a.y) - (at.y - a.y) * (b.x - a.x)) / length
        if off < 1:
            passes = True
        else:
            room = min(room, 0.45 * off)
    return length, room if passes else 0.0
