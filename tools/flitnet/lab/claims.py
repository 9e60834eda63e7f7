"""What a paper says of a figure, as a value that can be checked against results.

A claim holds when the 95 % confidence intervals say so at every place it names: what is to be below
has its whole interval below; what is to be alike has the whole interval of its difference within
what counts as alike. A place without results makes it fail, never pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tools.flitnet.lab.statistics import Estimate

# series, x, measure -> estimate
Table = Mapping[tuple[str, float, str], Estimate]
NOTHING = Estimate(math.nan, math.inf, 0)


@dataclass(frozen=True)
class Check:
    holds: bool
    text: str


def shown(value: Estimate) -> str:
    if math.isnan(value.mean):
        return "no value"
    half = "?" if math.isinf(value.half) else f"{value.half:.2g}"
    return f"{value.mean:.4g}±{half}"


@dataclass(frozen=True)
class Claim:
    measure: str
    at: tuple[float, ...]
    # Asked of full runs only, where quick ones are too short for the measure to say anything.
    full: bool = field(default=False, kw_only=True)

    places_least: ClassVar[int] = 1  # with fewer it says nothing

    def value(self, table: Table, series: str, x: float) -> Estimate:
        return table.get((series, x, self.measure), NOTHING)

    def series_names(self) -> tuple[str, ...]:
        """The curves that it speaks of."""
        names = (getattr(self, field, None) for field in ("series", "low", "high", "a", "b"))
        return tuple(name for name in names if isinstance(name, str))

    def check(self, table: Table) -> Check:
        failed = []
        for x in self.at:
            holds, text = self.place(table, x)
            if not holds:
                failed.append(f"at {x:g}: {text}")
        if failed:
            return Check(False, f"{self.sentence()}: no, {'; '.join(failed)}")
        return Check(True, f"{self.sentence()}: yes, at {', '.join(f'{x:g}' for x in self.at)}")

    def place(self, table: Table, x: float) -> tuple[bool, str]:
        raise NotImplementedError

    def sentence(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class Below(Claim):
    """One series is clearly below another, times `factor`; below 1: no more than so far above."""

    low: str
    high: str
    factor: float = 1.0

    def sentence(self) -> str:
        times = f"{self.factor:g} × " if self.factor != 1 else ""
        return f"{self.measure}: {times}{self.low} < {self.high}"

    def place(self, table: Table, x: float) -> tuple[bool, str]:
        a, b = self.value(table, self.low, x), self.value(table, self.high, x)
        scaled = Estimate(a.mean * self.factor, a.half * self.factor, a.count)
        return scaled.below(b), f"{shown(a)} and {shown(b)}"


@dataclass(frozen=True)
class Within(Claim):
    """A series lies in a band, with its confidence interval."""

    series: str
    low: float
    high: float

    def sentence(self) -> str:
        return f"{self.measure} of {self.series} in {self.low:g} … {self.high:g}"

    def place(self, table: Table, x: float) -> tuple[bool, str]:
        a = self.value(table, self.series, x)
        return a.low >= self.low and a.high <= self.high, shown(a)


@dataclass(frozen=True)
class AtMost(Claim):
    """A series lies below a bound; of what cannot be negative an interval may reach below 0."""

    series: str
    bound: float

    def sentence(self) -> str:
        return f"{self.measure} of {self.series} ≤ {self.bound:g}"

    def place(self, table: Table, x: float) -> tuple[bool, str]:
        a = self.value(table, self.series, x)
        return a.high <= self.bound, shown(a)


@dataclass(frozen=True)
class Above(Claim):
    """A series lies above a bound."""

    series: str
    bound: float

    def sentence(self) -> str:
        return f"{self.measure} of {self.series} > {self.bound:g}"

    def place(self, table: Table, x: float) -> tuple[bool, str]:
        a = self.value(table, self.series, x)
        return a.low > self.bound, shown(a)


@dataclass(frozen=True)
class Alike(Claim):
    """Two series differ by no more than a part of the larger one, or than `absolute`: the whole
    95 % interval of their difference does."""

    a: str
    b: str
    part: float
    absolute: float = 0.0

    def sentence(self) -> str:
        return f"{self.measure}: {self.a} ≈ {self.b} (within {self.part:.0%})"

    def place(self, table: Table, x: float) -> tuple[bool, str]:
        a, b = self.value(table, self.a, x), self.value(table, self.b, x)
        gap = abs(a.mean - b.mean) + math.hypot(a.half, b.half)
        most = max(self.part * max(abs(a.mean), abs(b.mean)), self.absolute)
        return gap <= most, f"{shown(a)} and {shown(b)}"


@dataclass(frozen=True)
class Rising(Claim):
    """A series is clearly larger at each place than at the one before."""

    places_least: ClassVar[int] = 2
    series: str

    def sentence(self) -> str:
        return f"{self.measure} of {self.series} rises"

    def check(self, table: Table) -> Check:
        values = [self.value(table, self.series, x) for x in self.at]
        holds = all(a.below(b) for a, b in zip(values, values[1:]))
        text = ", ".join(shown(v) for v in values)
        return Check(holds, f"{self.sentence()}: {'yes' if holds else 'no'}, {text}")


@dataclass(frozen=True)
class Collapses(Claim):
    """The last place of a series lies clearly below the most of those before, by `factor`."""

    places_least: ClassVar[int] = 2
    series: str
    factor: float

    def sentence(self) -> str:
        return f"{self.measure} of {self.series} falls by {self.factor:g}× from its most"

    def check(self, table: Table) -> Check:
        values = [self.value(table, self.series, x) for x in self.at]
        last = values[-1]
        scaled = Estimate(last.mean * self.factor, last.half * self.factor, last.count)
        # A place without a value compares false.
        holds = all(v.count > 0 for v in values) and any(scaled.below(v) for v in values[:-1])
        text = ", ".join(shown(v) for v in values)
        return Check(holds, f"{self.sentence()}: {'yes' if holds else 'no'}, {text}")


@dataclass(frozen=True)
class Proportional(Claim):
    """A series divided by its place is the same everywhere, within a part of it: the high end of
    any interval lies within that part of the low end of any other."""

    places_least: ClassVar[int] = 2
    series: str
    part: float

    def sentence(self) -> str:
        return f"{self.measure} of {self.series} is proportional (within {self.part:.0%})"

    def check(self, table: Table) -> Check:
        values = [(x, self.value(table, self.series, x)) for x in self.at]
        slopes = [Estimate(v.mean / x, v.half / x, v.count) for x, v in values]
        # A place without a value compares false.
        holds = all(
            a.high <= b.low * (1 + self.part) for a in slopes for b in slopes if a is not b
        )
        text = ", ".join(shown(slope) for slope in slopes)
        return Check(holds, f"{self.sentence()}: {'yes' if holds else 'no'}, {text}")


@dataclass(frozen=True)
class Slope(Claim):
    """A series grows by so much for each step of one between any two neighbours of its places: the
    whole 95 % interval of the growth does."""

    places_least: ClassVar[int] = 2
    series: str
    low: float
    high: float

    def sentence(self) -> str:
        return f"{self.measure} of {self.series} grows by {self.low:g} … {self.high:g} a step"

    def check(self, table: Table) -> Check:
        values = [(x, self.value(table, self.series, x)) for x in self.at]
        slopes = [
            Estimate((v.mean - u.mean) / (b - a), math.hypot(u.half, v.half) / abs(b - a), v.count)
            for (a, u), (b, v) in zip(values, values[1:])
        ]
        holds = all(self.low <= slope.low and slope.high <= self.high for slope in slopes)
        text = ", ".join(shown(slope) for slope in slopes)
        return Check(holds, f"{self.sentence()}: {'yes' if holds else 'no'}, {text}")
