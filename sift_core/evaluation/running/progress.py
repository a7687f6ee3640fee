"""The progress bar of work that takes longer than a moment."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeAlias

from sift_core.errors import MissingDependencyError

Advance: TypeAlias = Callable[[int], object]
"""Moves a bar on by so many steps."""


@contextlib.contextmanager
def progress_bar(
    total: int, what: str, unit: str, *, n_done: int = 0, wanted: bool = True
) -> Iterator[Advance]:
    """Give what moves a bar on stderr, with the time left; it shows itself on a terminal alone.

    Args:
        total: How many steps there are, those done before among them.
        what: Stands before the bar.
        unit: What a step is, in the plural.
        n_done: How many were done before; the speed is that of the others.
        wanted: Whether there is a bar. If not, nothing is shown and tqdm is not needed.

    Raises:
        MissingDependencyError: If a bar is wanted and tqdm is not installed.
    """
    if not wanted:
        yield lambda n_steps: None
        return
    try:
        from tqdm import tqdm
    except ImportError as error:
        raise MissingDependencyError("tqdm", extra="eval") from error
    only_on_a_terminal = None  # as tqdm spells it
    with tqdm(
        total=total,
        initial=n_done,
        desc=what,
        unit=f" {unit}",
        smoothing=0,  # the mean speed: steps take very different times
        disable=only_on_a_terminal,
    ) as bar:
        yield bar.update
