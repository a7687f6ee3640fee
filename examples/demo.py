"""Ask the documentation of a package that you have: nearest neighbours, MMR and SIFT, then answers.

    make demo
    make demo QUESTION="How is an image cut into patches?"
    make demo DOCS=folder QUESTION="..."

Reads the docstrings of all models in transformers that take images, where one text stands in dozens
of models, and embeds them into a Qdrant collection on disk (once). Within a minute it shows what
each method chooses for a question. Then it shows what the bundled language model answers from each
choice, and how well it predicts a passage that was held back: alone, with the chunks in its
context, fine-tuned on them, and both. With DOCS it takes the chunks of your own files instead.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from demo_questions import QUESTIONS
from demo_report import Comparison, draw, print_comparison, print_others, progress
from demo_store import EMBEDDER, MODEL, RememberingEmbedder
from qdrant_client import QdrantClient
from rich.console import Console
from rich.markup import escape
from transformers_docs import documents_of, image_models, model_files

from sift_core import (
    CandidateSourceError,
    ChoiceOptions,
    Document,
    InvalidInputError,
    MMRSelector,
    NearestNeighborSelector,
    Query,
    choose,
    select,
)
from sift_core.answering.model.bundled import SMOLLM2
from sift_core.choice import MMR_WEIGHT
from sift_core.cli import run
from sift_core.documents import find_files, index_documents, read_files
from sift_core.documents.chunk_length import chunker_for
from sift_core.hub import model_place
from sift_core.sources import QdrantSource
from sift_core.sources.content_ids import content_id

ROOT = Path(__file__).parent.parent
COLLECTION = "demo"
N_CHUNKS = 10
N_CANDIDATES = 200
MMR = MMRSelector(relevance_weight=MMR_WEIGHT)
# All by embeddings alone, so that what differs is the choice; the README shows what words find.
METHODS = {
    "nearest": ChoiceOptions(n_select=N_CHUNKS, words=0, selector=NearestNeighborSelector()),
    "MMR": ChoiceOptions(n_select=N_CHUNKS, words=0, selector=MMR),
    "SIFT": ChoiceOptions(n_select=N_CHUNKS, words=0),
}
# Of the minute in which the lists are to be there: imports come before, a last batch behind.
INDEXED_AFTER_S = 45
LEAST_INDEXING_S = 10
N_EMBEDDED_AT_ONCE = 64

console = Console(highlight=False)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Files, and how to read them."""

    name: str
    files: Sequence[Path]
    read: Callable[[RememberingEmbedder], list[Document]]

    @classmethod
    def of_models(cls) -> Corpus:
        """Return the docstrings of transformers' models."""
        files = model_files(image_models())

        def read(_: RememberingEmbedder) -> list[Document]:
            with progress(console) as bar:
                tracked = bar.track(files, description="Reading docstrings")
                return [document for path in tracked for document in documents_of(path)]

        return cls(name="docstrings of transformers' models", files=files, read=read)

    @classmethod
    def of_folder(cls, folder: Path) -> Corpus:
        """Return the chunks of the files in a folder, as `sift index` cuts them."""
        files = [Path(found.path) for found in find_files([folder]).files]
        if not files:
            raise InvalidInputError(
                f"no file below {str(folder)!r} that can be read; pass a folder with text, "
                f"Markdown, HTML, Python or PDF"
            )

        def read(encoder: RememberingEmbedder) -> list[Document]:
            return read_files([folder], chunker=chunker_for(encoder.model), base=folder).documents

        return cls(name=str(folder), files=files, read=read)

    def fingerprint(self) -> str:
        """Return a digest that changes when a file does, or what is read of it."""
        digest = hashlib.sha256()
        for path in (*self.files, Path(__file__).with_name("transformers_docs.py")):
            status = path.stat()
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
        return digest.hexdigest()


@app.command()
def demo(
    question: Annotated[str | None, typer.Option(help="Ask this instead of the twenty")] = None,
    docs: Annotated[Path | None, typer.Option(help="Folder with documents of your own")] = None,
    model: Annotated[str, typer.Option(help="Causal LM: a folder or an id on the hub")] = MODEL,
    embedder: Annotated[str, typer.Option(help="sentence-transformers model")] = EMBEDDER,
    qdrant: Annotated[
        str | None, typer.Option(help="URL of a server; a folder below --cache if left out")
    ] = None,
    cache: Annotated[Path, typer.Option(help="Where index and picture go")] = ROOT / ".cache/demo",
    whole: Annotated[
        bool,
        typer.Option("--whole", help="Index all before the first lists, whatever it takes"),
    ] = False,
    picture: Annotated[Path | None, typer.Option(help="Put the picture here")] = None,
) -> None:
    """Show nearest neighbours, MMR and SIFT side by side, and a small model with their help."""
    if question is None and docs is not None:
        raise InvalidInputError("the twenty questions are about transformers; pass --question too")
    if question is not None:
        if not question.strip():
            raise InvalidInputError("the question is empty; ask something")
        Query(text=question)  # refuses what is not text, before any model is loaded
    started = time.monotonic()
    corpus = Corpus.of_models() if docs is None else Corpus.of_folder(docs)
    if model != SMOLLM2:
        model = model_place(model, "transformers")  # before anything takes its time
    encoder = RememberingEmbedder(embedder, cache / "questions.npz")
    client = open_qdrant(qdrant, cache)
    with closing(client):
        collection = f"{COLLECTION}-{encoder.name.replace('/', '-')}"
        source = QdrantSource(client, collection, embedder_name=encoder.name)
        until = math.inf if whole else started + INDEXED_AFTER_S
        index(client, source, encoder, corpus, cache, until=until)
        vectors = np.eye(2, dtype=np.float32)
        select(vectors[0], vectors, 1)  # with what is loaded at first, untimed
        compared = compared_choices(source, encoder, QUESTIONS if question is None else [question])
        print_choices(compared)
        from demo_answers import answer_and_learn  # torch and transformers, some seconds

        picture = picture or cache / "demo.png"
        modes = answer_and_learn(console, compared[0], METHODS, model=model, cache=cache)
        draw(compared[0], modes, picture)
        console.print(f"\nPicture: {escape(_shown(picture))}")


def compared_choices(
    source: QdrantSource, embedder: RememberingEmbedder, questions: Sequence[str]
) -> list[Comparison]:
    """Return what each method chooses, the question whose nearest chunks have most copies first.

    That rule is over the nearest alone, so that no question comes first for how SIFT does.
    """
    compared = [compare(source, embedder, one) for one in questions]
    compared.sort(key=lambda one: (-one.n_copies("nearest"), -one.n_alike("nearest")))
    return compared


def compare(source: QdrantSource, embedder: RememberingEmbedder, question: str) -> Comparison:
    """Return what each method chooses for a question."""
    query = Query(
        text=question,
        embedding=embedder.embed_query(question),
        embedder_name=embedder.name,
    )
    pool = source.fetch(query, N_CANDIDATES)
    if not len(pool):
        raise InvalidInputError("the collection is empty; pass a folder with more text")
    chosen, seconds = {}, {}
    for name, options in METHODS.items():
        started = time.perf_counter()
        chosen[name] = choose(pool, query, options).positions
        seconds[name] = time.perf_counter() - started
    return Comparison(query=query, pool=pool, chosen=chosen, select_s=seconds["SIFT"])


def print_choices(compared: Sequence[Comparison]) -> None:
    """Print one question in full and, of several, two more in a table."""
    if len(compared) > 1:
        console.print(
            f"[dim]Of {len(compared)} questions (examples/demo_questions.py) the one whose "
            f"{N_CHUNKS} nearest chunks have the most copies (≡; of equals, the most that are "
            f"alike, ≈) is shown in full; then the median and the least.[/]"
        )
    console.rule(f"[bold]{escape(compared[0].query.text)}")
    median_s = statistics.median(one.select_s for one in compared)  # one may be slow by chance
    print_comparison(console, replace(compared[0], select_s=median_s))
    if len(compared) > 1:
        print_others(console, [compared[len(compared) // 2], compared[-1]], compared)


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
    encoder: RememberingEmbedder,
    corpus: Corpus,
    cache: Path,
    *,
    until: float,
) -> None:
    """Bring a collection up to date with the documents; only new ones are embedded.

    Stops at the moment `until` of `time.monotonic`, or `LEAST_INDEXING_S` after it began,
    whichever is later. The next run goes on from there.

    Raises:
        CandidateSourceError: If Qdrant fails.
        InvalidInputError: If the collection has another dimension, or nothing can be read.
    """
    options = client.init_options
    stamp = {
        "store": str(options.get("url") or options.get("path")),
        "model": encoder.name,
        "files": corpus.fingerprint(),
    }
    stamp_file = cache / "indexed.json"
    n_stored = len(source.content_ids())
    if read_stamp(stamp_file) == {**stamp, "n": n_stored}:
        console.print(f"{n_stored} chunks are indexed already.")
        return
    documents = corpus.read(encoder)
    if not documents:
        raise InvalidInputError(f"nothing to read in {corpus.name}; pass a folder with text")
    encoder.load_index_model()
    until = max(until, time.monotonic() + LEAST_INDEXING_S)
    at_most = "" if until == math.inf else f", at most {until - time.monotonic():.0f} s"
    console.print(f"Indexing {len(documents)} chunks: {escape(corpus.name)}{at_most}.")
    # In an order that mixes all files, so that a part of the chunks is a sample of them.
    by_id = {content_id(one): one for one in documents}
    distinct = [by_id[key] for key in sorted(by_id)]
    in_time = takewhile(lambda _: time.monotonic() < until, distinct)
    report = index_documents(
        source, in_time, encoder, batch_size=N_EMBEDDED_AT_ONCE, delete_vanished=False
    )
    if report.n_documents < len(distinct):
        console.print(
            f"{report.n_documents} of {len(distinct)} chunks are indexed: the first lists should "
            f"not take longer than a minute. The next run goes on from there; WHOLE=1 indexes all."
        )
        return
    index_documents(source, distinct, encoder)  # deletes what is no longer there
    write_stamp(stamp_file, {**stamp, "n": report.n_documents})
    console.print(f"{report.n_documents} chunks, {report.n_added} of them new.")


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


def _shown(path: Path) -> str:
    """Return a path as the reader would type it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


if __name__ == "__main__":
    sys.exit(run(app))
