"""The figures of a report as PNG files of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.rows import Results
from sift_core.evaluation.figures.retrieval import copies_curve, retrieval_dots
from sift_core.evaluation.figures.style import CaptionedFigure, save
from sift_core.evaluation.report.parts import PARTS
from sift_core.evaluation.retrieval.run import Row


def save_figures(
    folder: str | Path,
    results: Results | None = None,
    retrieval: Sequence[Row] | None = None,
) -> list[Path]:
    """Draw what there are rows for and return the files, named after their parts.

    Takes about a second a figure.

    Args:
        folder: Where the files go; made where missing.
        results: Of language modelling; None where it was not measured.
        retrieval: Rows of retrieval; None where it was not measured.

    Raises:
        MissingDependencyError: If matplotlib is not installed.
    """
    figures = [*_of_language_modeling(results), *_of_retrieval(retrieval or [])]
    return [save(figure, Path(folder) / f"{name}.png") for name, figure in figures]


def _of_language_modeling(results: Results | None) -> Iterator[tuple[str, CaptionedFigure]]:
    for part in PARTS if results is not None else ():
        assert results is not None
        for number, make_figure in enumerate(part.figures, start=1):
            name = part.anchor if number == 1 else f"{part.anchor}-{number}"
            try:
                yield name, make_figure(results)
            except InvalidInputError:  # no rows for it; the report says so
                continue


def _of_retrieval(rows: Sequence[Row]) -> Iterator[tuple[str, CaptionedFigure]]:
    makers = {"retrieval": retrieval_dots, "retrieval-copies": copies_curve}
    for name, make_figure in makers.items() if rows else ():
        try:
            yield name, make_figure(rows)
        except InvalidInputError:  # not measured in several numbers of copies
            continue
