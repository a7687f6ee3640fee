"""The progress bar of work that takes longer than a moment."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from sift_core.errors import MissingDependencyError


@contextlib.contextmanager
def progress_bar(
    total: int, what: str, unit: str, *, wanted: bool = True
) -> Iterator[Callable[[int], object]]:
    """Give what moves a bar on stderr on by so many steps; it shows itself on a terminal alone.

    Args:
        total: How many steps there are.
        what: Stands before the bar.
        unit: What a step is, in the plural.
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
    # smoothing 0: the mean speed, since steps take very different times
    with tqdm(total=total, desc=what, unit=f" {unit}", smoothing=0, disable=None) as bar:
        yield bar.update
