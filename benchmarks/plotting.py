"""One figure with one pair of axes, in the project's style."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("sift.mplstyle")


@contextmanager
def drawn(path: Path, *, size: tuple[float, float]) -> Iterator[tuple[Figure, Any]]:
    """Yield a figure and its axes, and write it when the block ends.

    Args:
        path: A PNG file, made with its folder.
        size: Width and height in inches.
    """
    with matplotlib.style.context(["default", STYLE]):
        figure = Figure(figsize=size, layout="constrained")
        yield figure, figure.subplots()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, metadata={"Software": None})
