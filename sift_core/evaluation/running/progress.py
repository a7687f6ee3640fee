"""The progress bar of work that takes longer than a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sift_core.errors import MissingDependencyError

if TYPE_CHECKING:
    from tqdm import tqdm


def progress_bar(total: int, what: str, unit: str) -> tqdm[Any]:
    """Return a bar on stderr, which shows itself on a terminal alone; use it in a `with`.

    Args:
        total: How many steps there are.
        what: Stands before the bar.
        unit: What a step is, in the plural.

    Raises:
        MissingDependencyError: If tqdm is not installed.
    """
    try:
        from tqdm import tqdm
    except ImportError as error:
        raise MissingDependencyError("tqdm", extra="eval") from error
    only_on_a_terminal = None  # as tqdm spells it
    return tqdm(total=total, desc=what, unit=f" {unit}", disable=only_on_a_terminal)
