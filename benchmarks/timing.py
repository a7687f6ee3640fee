"""Times of several ways to do one thing, measured side by side.

Load on the machine comes and goes, so calls alternate: every visit to a rival is preceded
by a visit to ours, on the same problem, and noise hits both.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")
Timer = Callable[[T], float]  # does the work on one problem, returns seconds

BURST_S = 0.004  # a visit repeats a call for about as long, so that its data are in cache
LONGEST_BURST = 7
BUDGET_S = 4.0  # a call that took this long in all is not visited in later rounds


def timed(call: Callable[[T], object]) -> Timer[T]:
    """Return a timer of `call` by the wall clock."""

    def timer(problem: T) -> float:
        started = time.perf_counter()
        call(problem)
        return time.perf_counter() - started

    return timer


def medians_ms(
    ours: str, timers: Mapping[str, Timer[T]], problems: Sequence[T], *, rounds: int
) -> dict[str, float]:
    """Return the median over rounds and problems of every timer, in milliseconds.

    Args:
        ours: Name of the timer that runs before each of the others.
        timers: What to measure; each runs once untimed first (compiling, imports).
        problems: A run time may depend on the data, so several.
        rounds: How often each problem is visited; slow timers stop at `BUDGET_S`.
    """
    bursts = {}
    for name, timer in timers.items():
        timer(problems[0])
        fastest = min(timer(problems[0]) for _ in range(2))
        bursts[name] = int(np.clip(BURST_S / max(fastest, 1e-9), 1, LONGEST_BURST))
    seconds: dict[str, list[float]] = {name: [] for name in timers}
    rivals = [name for name in timers if name != ours] or [ours]
    gc.collect()
    gc.disable()  # like timeit: a collection belongs to no call
    try:
        for _ in range(rounds):
            visited = [name for name in rivals if sum(seconds[name]) < BUDGET_S]
            for problem in problems:
                for rival in visited:
                    for name in dict.fromkeys((ours, rival)):
                        seconds[name] += [timers[name](problem) for _ in range(bursts[name])]
    finally:
        gc.enable()
    return {name: float(np.median(times)) * 1000 for name, times in seconds.items()}
