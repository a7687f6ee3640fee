"""Ratios of times in the minutes range: few visits, ours and a rival in turn.

`benchmarks.timing` repeats calls of milliseconds; here one call takes seconds, so each visit is
one call, and a rival's ratio is the median over visits of its time over that of the visit to
ours right before. Noise that lasts longer than two visits cancels.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

Visit = Callable[[int], float]  # number of the round → seconds


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Median seconds of every way by name, and of its time over ours, visit by visit."""

    seconds: dict[str, float]
    over_ours: dict[str, float]


def alternate(ours: str, visits: Mapping[str, Visit], *, rounds: int) -> Measured:
    """Visit ours before each other way, `rounds` times, after one round that does not count.

    Args:
        ours: Name of the way that is visited before each of the others.
        visits: What to measure, ours included; called with 0 to warm up, then with 1, 2, ...
        rounds: How often each is visited.
    """
    for visit in visits.values():
        visit(0)
    seconds: dict[str, list[float]] = {name: [] for name in visits}
    ratios: dict[str, list[float]] = {name: [] for name in visits}
    for round_ in range(1, rounds + 1):
        gc.collect()
        for name in [name for name in visits if name != ours] or [ours]:
            before = visits[ours](round_)
            seconds[ours].append(before)
            if name != ours:
                seconds[name].append(visits[name](round_))
                ratios[name].append(seconds[name][-1] / before)
    ratios[ours] = [1.0]
    return Measured(
        seconds={name: median(values) for name, values in seconds.items()},
        over_ours={name: median(values) for name, values in ratios.items()},
    )
