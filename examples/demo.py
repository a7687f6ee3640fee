"""Ask the documentation of your own Python: nearest neighbours beside SIFT, then answers.

    make demo
    make demo QUESTION="How do I walk a folder and zip its files?"

Reads the docstrings of the standard library, embeds them into a Qdrant collection on disk
(once), and for each question shows what nearest neighbours and SIFT choose, how uncertain
either leaves the answer, and how well a small language model then predicts a passage that
was held back: alone, with the chunks as context, and fine-tuned on them.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from demo_report import ModeResult, QuestionResult, draw, print_choices, print_modes
from demo_store import MODEL
from python_docs import documents_of, python_files, standard_library
from qdrant_client import QdrantClient
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers.utils import logging as transformers_logging

from sift_core import (
    CandidatePool,
    CandidateSourceError,
    ContextSelector,
    Document,
    InvalidInputError,
    NearestNeighborSelector,
    Query,
)
from sift_core.answering import AnswerEngine, Choice, LanguageModel
from sift_core.cli import run
from sift_core.documents import index_documents
from sift_core.embedders import MINILM, SentenceTransformerEmbedder
from sift_core.sources import QdrantSource

ROOT = Path(__file__).parent.parent
COLLECTION = "standard-library"
QUESTIONS = [  # each needs two different facts
    "How do I read rows from a CSV file and compress the result with gzip?",
    "How do I create a temporary directory and write a zip archive into it?",
    "How do I parse an XML file and find all elements with a given tag?",
]
N_CHUNKS = 10
N_CANDIDATES = 200
N_STEPS = 10  # of a fine-tuning; the paper's 50 take a minute and more on two cores
MIN_HELD_BACK_BYTES = 300  # a shorter passage says little about a model
OPENING_WORDS = 12  # of the held-back passage, given to the model to continue
COPY_COSINE = 0.95  # a passage this close to the held-back one would give it away

console = Console(highlight=False)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def demo(
    question: Annotated[str | None, typer.Option(help="Ask this instead of the three")] = None,
    docs: Annotated[Path | None, typer.Option(help="Folder with Python files")] = None,
    model: Annotated[str, typer.Option(help="Causal LM: a folder or an id on the hub")] = MODEL,
    embedder: Annotated[str, typer.Option(help="sentence-transformers model")] = MINILM,
    qdrant: Annotated[
        str | None, typer.Option(help="URL of a server; a folder below --cache if left out")
    ] = None,
    cache: Annotated[Path, typer.Option(help="Where index and picture go")] = ROOT / ".cache/demo",
) -> None:
    """Show nearest neighbours beside SIFT, and a small model with either kind of help."""
    folder = docs or standard_library()
    files = python_files(folder)
    if question is not None:
        check_question(question)
    with console.status("Loading the models …"):
        encoder = SentenceTransformerEmbedder(embedder)
        language_model = LanguageModel.from_pretrained(model)
        vectors = encoder.embed_documents(["one text", "another"])
        ContextSelector().select(vectors[0], vectors, 1)  # loads the compiled loop, untimed
        client = open_qdrant(qdrant, cache)
    with closing(client):
        show(client, encoder, language_model, folder, files, cache, question)


def show(
    client: QdrantClient,
    encoder: SentenceTransformerEmbedder,
    language_model: LanguageModel,
    folder: Path,
    files: list[Path],
    cache: Path,
    question: str | None,
) -> None:
    """Index the documentation and go through the questions."""
    collection = f"{COLLECTION}-{encoder.name.replace('/', '-')}"
    source = QdrantSource(client, collection, embedder_name=encoder.name)
    index(client, source, encoder, folder, files, cache)
    engine = AnswerEngine(
        language_model=language_model,
        source=source,
        embedder=encoder,
        n_candidates=N_CANDIDATES,
        n_context=N_CHUNKS,
        n_steps=N_STEPS,
        max_new_tokens=30,
    )
    results = [ask(engine, q) for q in ([question] if question else QUESTIONS)]
    picture = cache / "demo.png"
    draw(results, picture)
    console.print(f"\nCurves and bars: {escape(_shown(picture))}")


def check_question(question: str) -> None:
    """Refuse a question before any model is loaded."""
    if not question.strip():
        raise InvalidInputError("the question is empty; ask something")
    Query(text=question)  # refuses what is not text


def ask(engine: AnswerEngine, question: str) -> QuestionResult:
    """Return and print everything about one question."""
    console.rule(f"[bold]{escape(question)}")
    query = Query(
        text=question,
        embedding=engine.embedder.embed_query(question),
        embedder_name=engine.embedder.name,
    )
    pool, held_back = hold_back(engine.source.fetch(query, N_CANDIDATES))
    started = time.perf_counter()
    sift = ContextSelector().select(query.embedding, pool.embeddings, N_CHUNKS)
    select_s = time.perf_counter() - started
    nearest = NearestNeighborSelector().select(query.embedding, pool.embeddings, N_CHUNKS)
    result = QuestionResult(
        query=query,
        pool=pool,
        held_back=held_back,
        nearest=pool.take(nearest.positions),
        sift=pool.take(sift.positions),
    )
    print_choices(console, result, select_s)
    opening = " ".join(held_back.split(" ")[:OPENING_WORDS])
    for mode in ("base", "context", "fine_tune"):
        choice = engine.choose_from(query, pool, mode=mode)
        result.modes.append(try_mode(engine, choice, held_back, opening))
    print_modes(console, result, opening)
    automatic = engine.choose_from(query, pool, mode="auto")
    reasons = escape("; ".join(automatic.reasons))
    console.print(f"auto would choose [bold]{automatic.mode.value}[/]: {reasons}")
    return result


def hold_back(candidates: CandidatePool) -> tuple[CandidatePool, str]:
    """Return the candidates without their nearest long passage or its copies, and it.

    Raises:
        InvalidInputError: If no candidate is long enough.
    """
    sizes = [len(text.encode()) for text in candidates.texts]
    long_ones = [i for i, size in enumerate(sizes) if size >= MIN_HELD_BACK_BYTES]
    if not long_ones:
        raise InvalidInputError(
            f"none of the {len(sizes)} nearest chunks has {MIN_HELD_BACK_BYTES} bytes to score a "
            f"model on; pass a folder with more documentation"
        )
    held = long_ones[0]
    body = candidates.metadata[held]["body"]
    cosines = candidates.embeddings @ candidates.embeddings[held]  # Qdrant returns unit vectors
    kept = [
        i
        for i, metadata in enumerate(candidates.metadata)
        if cosines[i] < COPY_COSINE
        and body not in metadata["body"]
        and metadata["body"] not in body
    ]
    return candidates.take(kept), candidates.texts[held]


def try_mode(engine: AnswerEngine, choice: Choice, held_back: str, opening: str) -> ModeResult:
    """Return bits per byte of the held-back passage and a continuation in one mode."""
    n_steps = 0 if choice.learned is None else len(choice.learned)
    with _progress() as progress:
        task = progress.add_task(f"Asking in mode {choice.mode.value}", total=n_steps + 1)
        started = time.perf_counter()
        model = engine.prepared(choice, on_step=lambda loss: progress.advance(task))
        bits_per_byte = model.bits_per_byte(held_back)
        answer = model.answer(replace(choice.query, text=opening))
        seconds = time.perf_counter() - started
    return ModeResult(
        mode=choice.mode.value,
        bits_per_byte=bits_per_byte,
        continuation=answer.text,
        n_chunks=0 if answer.chunks is None else len(answer.chunks),
        seconds=seconds,
    )


def open_qdrant(url: str | None, cache: Path) -> QdrantClient:
    """Return a client of the server, or of a folder below the cache.

    Raises:
        CandidateSourceError: If the folder is in use; a dead server shows at first use.
    """
    where = url or _shown(cache / "qdrant")
    try:
        if url is not None:
            return QdrantClient(url=url, timeout=10, check_compatibility=False)
        return QdrantClient(path=str(cache / "qdrant"))
    # RuntimeError: the folder is locked; ValueError: no such kind of URL
    except (RuntimeError, ValueError, OSError, sqlite3.Error) as error:
        raise CandidateSourceError(
            f"cannot open Qdrant at {where}: {error}; wait for the other run, or pass another "
            f"--cache or --qdrant"
        ) from error


def index(
    client: QdrantClient,
    source: QdrantSource,
    encoder: SentenceTransformerEmbedder,
    folder: Path,
    files: list[Path],
    cache: Path,
) -> None:
    """Bring a collection up to date with the documents; only new ones are embedded.

    Raises:
        CandidateSourceError: If Qdrant fails.
        InvalidInputError: If the collection has another dimension.
    """
    stamp = {"store": qdrant_name(client), "model": encoder.name, "files": fingerprint(files)}
    stamp_file = cache / "indexed.json"
    n_stored = len(source.content_ids())
    if read_stamp(stamp_file) == {**stamp, "n": n_stored}:
        console.print(f"{n_stored} chunks are indexed already.")
        return
    documents = read_documents(folder, files)
    console.print(f"Indexing {len(documents)} chunks; the next run will not have to.")
    report = index_documents(source, documents, encoder)
    write_stamp(stamp_file, {**stamp, "n": report.n_documents})
    console.print(
        f"{report.n_documents} chunks of {len(files)} modules, {report.n_added} of them new."
    )


def qdrant_name(client: QdrantClient) -> str:
    """Return where a client's data is."""
    options = client.init_options
    return str(options.get("url") or options.get("path"))


def read_stamp(path: Path) -> dict[str, object] | None:
    """Return what was last indexed; None if that is not known."""
    try:
        stamp: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return stamp


def write_stamp(path: Path, stamp: dict[str, object]) -> None:
    """Note what was indexed, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(stamp), encoding="utf-8")
    part.replace(path)


def read_documents(folder: Path, files: list[Path]) -> list[Document]:
    with _progress() as progress:
        tracked = progress.track(files, description="Reading docstrings")
        documents = [document for path in tracked for document in documents_of(path, folder)]
    if not documents:
        raise InvalidInputError(
            f"no docstring in the {len(files)} Python files below {str(folder)!r}; "
            f"pass a folder with documented modules"
        )
    return documents


def fingerprint(files: list[Path]) -> str:
    """Return a digest that changes when a file does."""
    digest = hashlib.sha256()
    for path in files:
        status = path.stat()
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _shown(path: Path) -> str:
    """Return a path as the reader would type it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


if __name__ == "__main__":
    transformers_logging.disable_progress_bar()  # the console has one of its own
    sys.exit(run(app))
