"""`sift diagnose`: whether a collection needs SIFT."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from sift_core.cli import options as flags
from sift_core.cli.output import Terminal, Working, print_json, print_table
from sift_core.cli.settings import refuse_obeyed
from sift_core.cli.stores import open_with_embedder
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.evaluation.diagnosis import N_SELECT, Diagnosis, TopTen
from sift_core.evaluation.diagnosis import diagnose as measured
from sift_core.evaluation.figure import SUFFIXES, save_figure
from sift_core.evaluation.questions import read_questions
from sift_core.evaluation.statistics import CONFIDENCE, mean
from sift_core.evaluation.verdict import Recommendation, as_record, recommend

_MATPLOTLIB_SETTINGS = "matplotlibrc"  # of which 3.8 evaluates a line, and which can have LaTeX run
_WIDEST = 110  # columns of text: longer lines are hard to read


@flags.with_flags()
def diagnose(
    store: flags.StoreOption = flags.DEFAULT_STORE,
    embedder: flags.EmbedderOption = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Your own questions, one a line. Sentences of the collection stand in if left "
            "out.",
        ),
    ] = None,
    sample: Annotated[int, typer.Option(min=1, help="How many questions at most.")] = 50,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw a figure into this file (.png, .svg or .pdf)."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of all random draws.")] = 0,
    *,
    layout: flags.StoreLayout,
    json: flags.JsonOption = False,
) -> None:
    """Say how redundant a collection is, and what SIFT would change.

    Takes about half a minute for 100,000 chunks.

    Examples:
    sift diagnose --queries questions.txt --plot diagnosis.png
    sift diagnose --store qdrant:http://localhost:6333#docs --embedder BAAI/bge-small-en-v1.5
    """
    if plot is not None:
        _check_figure(plot)
        refuse_obeyed(_MATPLOTLIB_SETTINGS, "matplotlib")
    questions = None
    if queries is not None:
        questions = read_questions(queries, sample, np.random.default_rng(seed))
    with open_with_embedder(store, embedder, layout) as (address, source, encoder):
        with Working("Reading the store …") as status:
            diagnosis = measured(
                source,
                encoder,
                questions=questions,
                n_questions=sample,
                seed=seed,
                on_progress=lambda what, done, of: status.update(f"{what}, {done} of {of} …"),
            )
    recommendation = recommend(diagnosis)
    if plot is not None:
        save_figure(diagnosis, plot)
    if json:
        settings: dict[str, Any] = {"store": str(address), "embedder": encoder.name}
        settings["queries"] = None if queries is None else str(queries)
        print_json({**as_record(diagnosis, recommendation), "settings": settings})
    else:
        _print(diagnosis, recommendation, str(address))


def _check_figure(plot: Path) -> None:
    """Refuse a figure that could not be written in the end."""
    if find_spec("matplotlib") is None:
        raise MissingDependencyError("matplotlib", extra="eval")
    if plot.suffix.lower() not in SUFFIXES or plot.is_dir():
        raise InvalidInputError(f"--plot must name a file in {', '.join(SUFFIXES)}, got {plot}")


def _print(diagnosis: Diagnosis, recommendation: Recommendation, store: str) -> None:
    """Print the recommendation and then the numbers."""
    console = Terminal()
    width = min(console.width, _WIDEST)
    console.print(f"Diagnosis of {store}: {diagnosis.n_stored:,} chunks\n")
    console.print(recommendation.headline, style="bold", width=width)
    console.print(f"Rule: {recommendation.rule}.", width=width)
    for title, sentences in (
        ("Why, and what to do", recommendation.reasons),
        ("What limits this", recommendation.caveats),
    ):
        if sentences:
            console.print(f"\n{title}", style="bold")
        points = Table.grid()
        for sentence in sentences:
            points.add_row("- ", sentence)
        console.print(points, width=width)
    if diagnosis.pools:
        _print_table(console, diagnosis)


def _print_table(console: Terminal, diagnosis: Diagnosis) -> None:
    """Print what nearest neighbours and SIFT chose, on average and with intervals."""
    measures: tuple[tuple[str, Callable[[TopTen], float], int], ...] = (
        ("repeats", lambda ten: ten.n_redundant, 1),
        ("versions of one text", lambda ten: ten.n_versions, 1),
        ("σ² left", lambda ten: ten.variance, 2),
    )
    both = [pool.nearest for pool in diagnosis.pools], [pool.sift for pool in diagnosis.pools]
    lines = [
        (name, *(mean([*map(measure, tens)], seed=diagnosis.seed).text(digits) for tens in both))
        for name, measure, digits in measures
    ]
    n = len(diagnosis.pools)
    first = "one question" if n == 1 else f"average of {n} questions"
    console.print()
    print_table(console, (first, f"nearest {N_SELECT}", "SIFT"), lines)
    console.print(
        f"In brackets: {100 * CONFIDENCE:.0f} % bootstrap intervals. σ²: the share of "
        f"the question that stays unexplained.",
        style="dim",
    )
