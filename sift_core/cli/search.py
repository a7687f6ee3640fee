"""`sift search`: which chunks SIFT chooses for a question, also beside other methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import typer
from rich.columns import Columns
from rich.text import Text

from sift_core.choice import search as search_source
from sift_core.cli import options as flags
from sift_core.cli.output import (
    LEGEND,
    Terminal,
    counted,
    print_chunks,
    print_json,
    source_of,
    sparkline,
)
from sift_core.cli.stores import open_with_embedder
from sift_core.cli.streams import one_line
from sift_core.comparison import TITLES, compare_methods
from sift_core.embedders.unrelated import baseline_of
from sift_core.errors import InvalidInputError
from sift_core.explanation import Chosen, explained
from sift_core.left_out import left_out_line
from sift_core.options import ChoiceOptions
from sift_core.protocols import CandidateSource
from sift_core.selection.select import KernelName, selector_of
from sift_core.selection.topic import is_off_topic
from sift_core.sources.metadata_filters import filter_for
from sift_core.sources.multi_query import queries_of
from sift_core.sources.oversampling import OversamplingSource

SIDE_BY_SIDE_WIDTH = 100  # columns of a terminal; in narrower ones the names would be stumps


@flags.with_flags()
def search(
    question: Annotated[
        str,
        typer.Argument(metavar="QUESTION", help='What to look for; "-" reads it from stdin.'),
    ],
    queries: flags.QueryOption = None,
    filters: flags.FilterOption = None,
    store: flags.StoreOption = flags.DEFAULT_STORE,
    embedder: flags.EmbedderOption = None,
    *,
    layout: flags.StoreLayout,
    options: ChoiceOptions,
    kernel: Annotated[
        KernelName,
        typer.Option(help="auto reads its scales from the candidates; linear is the paper's."),
    ] = "auto",
    noise_variance: Annotated[
        float | None,
        typer.Option(
            help="λ > 0; .2 with auto, .1 with rbf, .01 with linear if left out.",
            show_default=False,
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", help="Nearest neighbours, MMR, hybrid search and SIFT side by side."
        ),
    ] = False,
    adaptive: Annotated[
        bool,
        typer.Option("--adaptive", help="Fetch more where the candidates repeat one another."),
    ] = False,
    json: flags.JsonOption = False,
) -> None:
    """Print the chunks that together say most about QUESTION.

    Examples:
    sift search "How do I upload a file and its description?" -n 5
    sift search "What changed in 0.115?" --compare
    sift search "What changed in 0.115?" --max-tokens 1000 --max-per-document 2
    sift search "Stream it, async or not?" --query "Stream a response" --query "async or def?"
    sift search "What changed?" --filter year=2025 --filter source=docs/news.md
    sift search - --json < question.txt
    """
    question = flags.question_from(question)
    if options.n_candidates < options.n_select:
        raise InvalidInputError(
            f"--candidates must be >= --n-select, got {options.n_candidates} and {options.n_select}"
        )
    if compare and queries:
        raise InvalidInputError(
            "--compare sets SIFT beside methods that take one question; leave out --query, or "
            "--compare"
        )
    if compare and options.rules:
        rules = ", ".join(f"--{name.replace('_', '-')}" for name in options.rules)
        raise InvalidInputError(
            f"--compare sets SIFT beside methods that keep no rules; leave out {rules}, or "
            f"--compare"
        )
    conditions = flags.conditions_from(filters)
    selector = selector_of(kernel, noise_variance)
    options = replace(options, selector=selector)
    with open_with_embedder(store, embedder, layout) as (address, source, model):
        query = queries_of(queries or [question], model)
        fetched: CandidateSource = source
        if adaptive:
            fetched = OversamplingSource(source, n_select=options.n_select, prefer=options.newness)
        chosen = search_source(fetched, query, options, filter=filter_for(source, conditions))
        if conditions and not len(chosen.pool):
            raise flags.no_match(conditions, source, query)
    asked = {
        "question": question,
        **({"queries": queries} if queries else {}),
        "store": str(address),
        "embedder": model.name,
        "n_candidates": len(chosen.pool),
    }
    if compare:
        columns = compare_methods(chosen, options.n_select)
        records = {name: column.as_dict() for name, column in columns.items()}
    if json:
        print_json({**asked, **({"columns": records} if compare else chosen.as_dict())})
    elif compare:
        _print_comparison(Terminal(), columns)
    else:
        off_topic = is_off_topic(chosen.pool, baseline=lambda: baseline_of(model))
        _print_search(Terminal(), chosen, warns=off_topic)


def _print_search(console: Terminal, chosen: Chosen, *, warns: bool) -> None:
    """Print what SIFT chose, and how certain it makes the answer."""
    print_chunks(console, chosen.chunks, picks=chosen.picks, repeats=chosen.repeats)
    console.say("")
    console.say(_variance_line(chosen.question_variances.tolist()))
    if warns:
        console.say("The index may have nothing about this: no chunk is near to the question.")
    console.say(f"{_counts(chosen)}, chosen from {len(chosen.pool)} candidates.")
    if chosen.hop is not None and chosen.hop.n_new:
        found = counted(chosen.hop.n_new, "candidate")
        console.say(f"A second fetch brought {found}, {chosen.n_from_hop} of them chosen.")
    if chosen.left_out:
        console.say(f"{one_line(left_out_line(chosen.left_out))}.")
    if chosen.missing_names:
        console.say(f"No candidate has: {one_line(', '.join(chosen.missing_names))}")
    if chosen.n_redundant:
        console.say(LEGEND, style="dim")


def _print_comparison(console: Terminal, columns: Mapping[str, Chosen]) -> None:
    """Print columns beside one another, or below one another where the terminal is narrow."""
    nearest = set(columns["nearest"].positions.tolist())
    n_beside = len(columns) if console.width >= SIDE_BY_SIDE_WIDTH else 1
    width = console.width // n_beside - 2
    console.print(
        Columns(
            [
                Text("\n").join(
                    [
                        Text(TITLES[name], style="bold"),
                        *_lines(column, width, nearest),
                        Text(f"{_counts(column)}\nσ² {column.question_variances[-1]:.2f}\n"),
                    ]
                )
                for name, column in columns.items()
            ],
            width=width,
            padding=(0, 2),
        )
    )
    console.say(f"{LEGEND}.", style="dim")
    meaning = "+ not among the nearest neighbours; σ²: what stays uncertain about the question."
    console.say(meaning, style="dim")


def _variance_line(variances: Sequence[float]) -> str:
    """Return how σ² at the question falls, as a sparkline, numbers and words."""
    share, n = explained(variances), len(variances) - 1
    chunks = "this chunk explains" if n == 1 else f"these {n} chunks explain"
    return (
        f"σ² at the question {sparkline(variances)} {variances[0]:.2f} → {variances[-1]:.2f}: "
        f"{chunks} {share:.0%} of what is uncertain about it."
    )


def _lines(chosen: Chosen, width: int, nearest: set[int]) -> list[Text]:
    """Return a line a chunk: rank, mark, similarity and the end of its source."""
    lines = []
    chunks = chosen.chunks
    for i, repeat in enumerate(chosen.repeats):
        mark = "" if repeat is None else repeat.mark
        new = " " if int(chosen.positions[i]) in nearest else "+"
        head = f"{i + 1:>2} {mark:<3}{new}{chunks.similarities[i]:.2f} "
        room = max(width - len(head), 8)
        source = source_of(chunks.metadata[i], chunks.document_ids[i], room)
        lines.append(Text(head + source, style="dim" if repeat else ""))
    return lines


def _counts(chosen: Chosen) -> str:
    """Return how many chunks there are, and how many of them repeat an earlier one, and how."""
    n_copies = chosen.n_copies
    n_alike = chosen.n_redundant - n_copies
    parts = [counted(len(chosen), "chunk")]
    if n_copies:
        parts.append(f"{n_copies} {'copy' if n_copies == 1 else 'copies'} ≡")
    parts.append(f"{n_alike or 'none'} alike{' ≈' if n_alike else ''}")
    return ", ".join(parts)
