"""`sift diagnose`: whether a collection needs SIFT, on one page."""

from __future__ import annotations

import logging
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sift_core.cli.settings import (
    DEFAULT_STORE,
    EmbedderOption,
    JsonOption,
    ModelOption,
    StoreOption,
)
from sift_core.cli.showing_text import stderr_console, stdout_console
from sift_core.errors import InvalidInputError, MissingDependencyError

try:
    import typer
except ImportError as error:
    raise MissingDependencyError("typer", extra="cli") from error

if TYPE_CHECKING:
    from rich.console import Console

    from sift_core.answering import AnswerEngine
    from sift_core.diagnosis.measuring import Diagnosis, OnProgress
    from sift_core.diagnosis.recommendation import Recommendation

_WIDEST = 110  # columns of text and tables: longer lines are hard to read


def diagnose(
    store: StoreOption = DEFAULT_STORE,
    embedder: EmbedderOption = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Your own questions, one a line; or .jsonl with “question” or “query”. "
            "Sentences of the collection stand in if left out.",
        ),
    ] = None,
    sample: Annotated[int, typer.Option(min=1, help="How many questions at most.")] = 50,
    model: ModelOption = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the page with figures to this file.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of all random draws.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Say how redundant a collection is, what SIFT would change, and whether fine-tuning pays.

    Takes about half a minute for 100,000 chunks. With --model eight fine-tunings on top.

    Examples:
    sift diagnose --queries questions.txt --html report.html
    sift diagnose --store qdrant:http://localhost:6333#docs --embedder BAAI/bge-small-en-v1.5
    """
    import numpy as np

    from sift_core.cli.search_retrieval import embedder_name_of
    from sift_core.cli.stores import StoreAddress, load_embedder, open_store
    from sift_core.diagnosis.measuring import diagnose as measured
    from sift_core.diagnosis.measuring import draw_chunks
    from sift_core.diagnosis.questions import read_questions
    from sift_core.diagnosis.recommendation import recommend

    started = time.perf_counter()
    address = StoreAddress.parse(store)
    _check_page(html)
    generator = np.random.default_rng(seed)
    questions = None if queries is None else read_questions(queries, sample, generator)
    with open_store(address, embedder_name=embedder) as source, _progress() as tell:
        tell("drawing chunks", 0, 1)
        chunks = draw_chunks(source, sample, generator)
        tell("loading the embedding model", 0, 1)
        encoder = load_embedder(embedder or embedder_name_of(source, address))
        engine = None if model is None else _engine(model, tell)
        diagnosis = measured(
            source,
            encoder,
            sample=chunks,
            questions=questions,
            n_questions=sample,
            engine=engine,
            seed=seed,
            on_progress=tell,
        )
    recommendation = recommend(diagnosis)
    facts = {
        "store": str(address),
        "embedder": encoder.name,
        "model": model,
        "queries": None if queries is None else str(queries),
        "questions asked": len(diagnosis.pools),
        "chunks stored": diagnosis.n_stored,
        "chunks sampled": diagnosis.n_sampled,
        "seed": seed,
        "seconds": round(time.perf_counter() - started, 1),
    }
    _write_page(html, diagnosis, recommendation, facts)
    if as_json:
        from sift_core.cli.showing_text import print_json
        from sift_core.diagnosis.tables import as_record

        print_json({**as_record(diagnosis, recommendation), "settings": facts})
    else:
        _print(diagnosis, recommendation, facts, html)


def _check_page(html: Path | None) -> None:
    """Refuse a page that could not be written in the end."""
    if html is None:
        return
    if find_spec("matplotlib") is None:
        raise MissingDependencyError("matplotlib", extra="eval")
    if html.is_dir():
        raise InvalidInputError(f"--html must name a file, and {str(html)!r} is a folder")


def _engine(model: str, tell: OnProgress) -> AnswerEngine:
    from sift_core.answering import AnswerEngine
    from sift_core.cli.ask_model import load_language_model

    tell("loading the language model", 0, 1)
    # No passage is learned twice, so that a cache would hold adapters for nothing.
    return AnswerEngine(language_model=load_language_model(model, None), adapter_cache=None)


def _write_page(
    html: Path | None,
    diagnosis: Diagnosis,
    recommendation: Recommendation,
    facts: dict[str, Any],
) -> None:
    if html is None:
        return
    with stderr_console().status("drawing figures"), _quiet_matplotlib():
        from sift_core.diagnosis.html_page import html_report

        page = html_report(diagnosis, recommendation, facts, title=f"Diagnosis of {facts['store']}")
    try:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(
            f"the page cannot be written to {str(html)!r}: {error.strerror or error}; pass another "
            f"--html"
        ) from error


@contextmanager
def _quiet_matplotlib() -> Iterator[None]:
    """Keep matplotlib from telling how it builds its cache of fonts, as it does once a machine."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _progress() -> Iterator[OnProgress]:
    """Yield what shows progress on stderr, where that is a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = stderr_console()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("opening the store", total=None)

        def tell(what: str, done: int, of: int) -> None:
            progress.update(task, description=what, completed=done, total=of)

        yield tell


def _print(
    diagnosis: Diagnosis,
    recommendation: Recommendation,
    facts: dict[str, Any],
    html: Path | None,
) -> None:
    from sift_core.diagnosis.tables import tables_of

    console = stdout_console()
    console.print(f"Diagnosis of {facts['store']}: {facts['chunks stored']:,} chunks")
    console.print()
    headline = _wrapped(recommendation.headline, _width(console))
    console.print("\n".join(headline), style="bold")
    for title, sentences in (
        ("Why, and what to do", recommendation.reasons),
        ("Would fine-tuning pay?", recommendation.fine_tuning),
        ("What limits this", recommendation.caveats),
    ):
        _print_list(console, title, sentences)
    for table in tables_of(diagnosis).values():
        console.print()
        console.print(table.as_text(max_width=_width(console)).rstrip(), soft_wrap=True)
    console.print()
    if html is None:
        console.print("--html FILE writes this with figures, examples and definitions.")
    else:
        console.print(f"Page: {html}", soft_wrap=True)


def _print_list(console: Console, title: str, sentences: tuple[str, ...]) -> None:
    """Print sentences with bullets whose further lines are indented."""
    if not sentences:
        return
    console.print()
    if title:
        console.print(title, style="bold")
    for sentence in sentences:
        lines = _wrapped(sentence, _width(console) - 2)
        console.print("\n".join(f"{'-' if i == 0 else ' '} {line}" for i, line in enumerate(lines)))


def _width(console: Console) -> int:
    return max(22, min(console.width, _WIDEST))


def _wrapped(sentence: str, width: int) -> list[str]:
    """Return lines of a sentence; a per cent sign stays beside its number."""
    lines = textwrap.wrap(sentence.replace(" %", "\N{NO-BREAK SPACE}%"), width)
    return [line.replace("\N{NO-BREAK SPACE}%", " %") for line in lines]
