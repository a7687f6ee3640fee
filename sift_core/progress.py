"""How work gets on: a progress bar, seconds by stage, and a check whether it is still wanted."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Check: TypeAlias = Callable[[float], object]
"""Raises once nobody waits for a computation any more; its argument is a loss or 0.0."""
_check: ContextVar[Check | None] = ContextVar("sift_check", default=None)


class Cancelled(Exception):
    """Raised inside work that nobody waits for any more, to leave it as every other exception."""


def check_of_work() -> Check | None:
    """Return what long steps of the work in this flow of control call on their way, or None."""
    return _check.get()


@contextmanager
def checked(check: Check) -> Iterator[None]:
    """Let `check_of_work` return a check for the `with` block, in this flow of control alone."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


@contextmanager
def progress_bar(
    total: int | None, what: str, unit: str, *, wanted: bool = True
) -> Iterator[Callable[[int], object]]:
    """Give a function that moves a bar on stderr on by so many steps.

    The bar shows itself on a terminal alone, and not at all where tqdm is missing.

    Args:
        total: How many steps there are; None where nobody knows.
        what: Stands before the bar.
        unit: What a step is, in the plural.
        wanted: Whether there is a bar.
    """
    try:
        from tqdm import tqdm
    except ImportError:
        wanted = False
    if not wanted:
        yield lambda n_steps: None
        return
    # smoothing 0: the mean speed, since steps take very different times
    what = "".join(character for character in what if character.isprintable())
    file = getattr(sys.stderr, "rich_proxied_file", None)  # the `sift` command cleans stderr
    with tqdm(total=total, desc=what, unit=f" {unit}", smoothing=0, disable=None, file=file) as bar:
        yield bar.update


@contextmanager
def timed(timings: dict[str, float], stage: str) -> Iterator[None]:
    """Add the seconds that the block takes to those of a stage."""
    started = time.perf_counter()
    try:
        yield
    finally:
        timings[stage] = timings.get(stage, 0.0) + time.perf_counter() - started
