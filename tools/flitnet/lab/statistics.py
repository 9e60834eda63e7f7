"""Statistics of simulation output: where the warm-up ends, means, 95 % confidence intervals.

Warm-up by MSER (White 1997): the cut that makes the standard error of what is left smallest, at
most half of the run. Confidence by replications: one value a seed, Student's t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# 97.5 % quantiles of Student's t by degrees of freedom. Beyond the table the normal's with the
# first term of its expansion in 1 / freedom (Abramowitz and Stegun 26.7.5) is right to 0.004.
T_QUANTILES = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
T_LIMIT = 1.960
T_SLOPE = (T_LIMIT**3 + T_LIMIT) / 4


@dataclass(frozen=True)
class Estimate:
    """A mean with the half width of its 95 % confidence interval, from `count` replications."""

    mean: float
    half: float
    count: int

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half

    def to_dict(self) -> dict[str, float | int | None]:
        """For JSON, which has neither infinity nor nan: null."""
        return {
            name: value if math.isfinite(value) else None for name, value in vars(self).items()
        }

    def below(self, other: Estimate) -> bool:
        """Clearly smaller: the intervals do not overlap."""
        return self.high < other.low

    def excess(self, relative: float, absolute: float) -> float:
        """Half width over the wanted one, of which the larger counts; at most 1: precise."""
        if math.isnan(self.mean):
            return math.inf
        wanted = max(relative * abs(self.mean), absolute)
        if self.half == 0:
            return 0.0
        return self.half / wanted if wanted > 0 else math.inf


def t_quantile(freedom: int) -> float:
    if freedom < 1:
        return math.inf
    return T_QUANTILES[freedom - 1] if freedom <= len(T_QUANTILES) else T_LIMIT + T_SLOPE / freedom


def estimate(values: Sequence[float]) -> Estimate:
    """Of independent replications. One value has no interval: its half width is infinite."""
    count = len(values)
    if count == 0 or any(math.isnan(value) for value in values):
        return Estimate(math.nan, math.inf, count)
    mean = math.fsum(values) / count
    if count == 1:
        return Estimate(mean, math.inf, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return Estimate(mean, t_quantile(count - 1) * math.sqrt(variance / count), count)


def warm_up(series: Sequence[float]) -> tuple[int, bool]:
    """How many of the first values to leave out, and whether what is left looks steady.

    Not steady: the best cut is the last one allowed, so the series has not settled in its first
    half (a queue that only grows, a run that is too short).
    """
    count = len(series)
    if count < 4:
        return 0, True
    most = count // 2
    best, best_error = 0, math.inf
    for cut in range(most + 1):
        left = series[cut:]
        mean = math.fsum(left) / len(left)
        error = math.fsum((value - mean) ** 2 for value in left) / len(left) ** 2
        # A later cut must be better by more than rounding.
        if error < best_error * (1 - 1e-12):
            best, best_error = cut, error
    return best, best < most
