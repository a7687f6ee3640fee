"""The figure of a diagnosis: wasted places by question, and how close the chunks are."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.evaluation.diagnosis import N_SELECT, Diagnosis
from sift_core.repeats import COPY_COSINE

SUFFIXES = (".pdf", ".png", ".svg")
_COLOURS = ("#999999", "#0072B2")  # of Okabe and Ito, which the colour-blind can tell apart


def save_figure(diagnosis: Diagnosis, path: str | Path) -> None:
    """Draw how many questions waste how many of ten places, and the nearest cosines.

    Args:
        diagnosis: With questions, so of more than ten chunks.
        path: The file to write; ends in one of `SUFFIXES`.

    Raises:
        InvalidInputError: If the path has another ending or cannot be written, or there is
            nothing to draw.
        MissingDependencyError: If matplotlib is not installed.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidInputError(f"a figure must end in {', '.join(SUFFIXES)}, got {str(path)!r}")
    if diagnosis.duplicates is None or not diagnosis.pools:
        raise InvalidInputError(
            f"nothing to draw: no question was asked of {diagnosis.n_stored} chunks"
        )
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError("matplotlib", extra="eval") from error
    figure = Figure(figsize=(9, 3), layout="constrained")
    left, right = figure.subplots(ncols=2)
    tens = {
        "nearest": [pool.nearest for pool in diagnosis.pools],
        "SIFT": [pool.sift for pool in diagnosis.pools],
    }
    for i, (name, chosen) in enumerate(tens.items()):
        heights = np.bincount([diagnosis.wasted(ten) for ten in chosen], minlength=N_SELECT)
        places = np.arange(len(heights)) + 0.4 * (i - 0.5)
        left.bar(places, heights, width=0.38, color=_COLOURS[i], label=name)
    noun = "versions" if diagnosis.counts_versions else "repeats"
    left.set_xlabel(f"{noun} among {N_SELECT} chunks")
    left.set_ylabel("questions")
    left.legend(frameon=False)
    right.hist(np.clip(diagnosis.duplicates.cosines, -1, 1), bins=40, color=_COLOURS[1])
    right.axvline(COPY_COSINE, color="black", linestyle="--", label="near-copies from")
    right.legend(frameon=False, loc="upper left")
    right.set_xlabel("cosine to the nearest other chunk")
    right.set_ylabel("chunks")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise InvalidInputError(
            f"the figure cannot be written to {str(path)!r}: {error.strerror or error}"
        ) from error
