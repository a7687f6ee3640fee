"""Of several release notes that speak of one matter, does the newest come first?

    python -m benchmarks.release_notes --data FOLDER [--json FILE]

Thirty questions of our own (`release_notes.json`) on FastAPI's 228 release notes, whose dates are
read from their titles. They were written, with their answers, from the notes alone, before anything
was searched. "gold" is the newest release that treats the matter, "older" those before it. Notes
are cut and embedded as `sift index` does; 10 of the 200 nearest chunks are chosen.

`found` is the share of questions of which the gold note is among the ten, `first` that of which it
comes before all older ones, by order of choice.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.demo_questions import N_CANDIDATES, N_SELECT, chunks_of, read_lines
from benchmarks.embedding_cache import project_cache
from benchmarks.records import write_record
from sift_core import (
    CandidatePool,
    ChoiceOptions,
    ContextSelector,
    InMemorySource,
    MMRSelector,
    NearestNeighborSelector,
    Query,
    Selector,
    choose,
)
from sift_core.embedders import SentenceTransformerEmbedder

QUESTIONS = Path(__file__).with_suffix(".json")
_TITLE = re.compile(r"# FastAPI (\S+) \((\d{4}-\d\d-\d\d)\) release notes")
HALF_LIVES = (365.0, 90.0)  # days

Chooser = Callable[[Query, CandidatePool], Sequence[int]]


def notes_of(pages: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """Return version and date of the pages that are release notes, by their id."""
    titles = ((page["id"], _TITLE.match(page["text"])) for page in pages)
    return {name: (found[1], found[2]) for name, found in titles if found is not None}


def source_of(folder: Path, embedder: SentenceTransformerEmbedder) -> InMemorySource:
    """Return the chunks of the release notes, with "version" and "date" in their metadata."""
    pages = read_lines(folder / "pages.jsonl.gz")
    notes = notes_of(pages)
    documents = chunks_of([page for page in pages if page["id"] in notes], embedder)
    texts = [document.text for document in documents]
    named = [
        dict(zip(("version", "date"), notes[d.metadata["source"]], strict=True)) for d in documents
    ]
    print(f"{len(notes)} release notes, {len(texts)} chunks")
    return InMemorySource(
        project_cache().embed(texts, "chunks"),
        texts,
        document_ids=[document.document_id for document in documents],
        metadata=[{**d.metadata, **name} for d, name in zip(documents, named, strict=True)],
        embedder_name=embedder.name,
    )


def choosers() -> dict[str, Chooser]:
    """Return positions in a pool, in order of choice, by what chooses them."""

    def by(selector: Selector, **rules: Any) -> Chooser:
        words = ChoiceOptions().words if isinstance(selector, ContextSelector) else 0.0
        options = ChoiceOptions(n_select=N_SELECT, selector=selector, words=words, **rules)

        def positions(query: Query, pool: CandidatePool) -> Sequence[int]:
            rows: list[int] = choose(pool, query, options).positions.tolist()
            return rows

        return positions

    def newest_first(chooser: Chooser) -> Chooser:
        def chosen(query: Query, pool: CandidatePool) -> Sequence[int]:
            return sorted(chooser(query, pool), key=lambda i: str(pool.metadata[i]["date"]))[::-1]

        return chosen

    nearest, sift = by(NearestNeighborSelector()), ContextSelector()
    aging = {
        f"sift, newest, half-life {days:.0f} days": by(sift, newest="date", half_life_days=days)
        for days in HALF_LIVES
    }
    return {
        "nearest": nearest,
        "nearest, then by date": newest_first(nearest),
        "mmr 0.7": by(MMRSelector(relevance_weight=0.7)),
        "sift": by(sift),
        "sift, newest": by(sift, newest="date"),
        **aging,
        **{f"{name}, then by date": newest_first(one) for name, one in aging.items()},
    }


def measure(
    questions: Sequence[Mapping[str, Any]],
    source: InMemorySource,
    embedder: SentenceTransformerEmbedder,
) -> list[dict[str, Any]]:
    """Return a row a chooser, with the questions that it gets wrong."""
    found: dict[str, list[tuple[bool, bool]]] = {name: [] for name in choosers()}
    for asked in questions:
        query = Query(
            text=asked["question"],
            embedding=embedder.embed_query(asked["question"]),
            embedder_name=embedder.name,
        )
        pool = source.fetch(query, N_CANDIDATES)
        for name, chooser in choosers().items():
            versions = [pool.metadata[i]["version"] for i in chooser(query, pool)]
            told = [v for v in versions if v == asked["gold"] or v in asked["older"]]
            found[name].append((asked["gold"] in told, told[:1] == [asked["gold"]]))
    return [
        {
            "method": name,
            "n_questions": len(each),
            "found": float(np.mean([one for one, _ in each])),
            "first": float(np.mean([one for _, one in each])),
        }
        for name, each in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="has demo/pages.jsonl.gz")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    embedder = SentenceTransformerEmbedder()
    source = source_of(arguments.data / "demo", embedder)
    rows = measure(json.loads(QUESTIONS.read_text(encoding="utf-8")), source, embedder)
    for row in rows:
        print(f"{row['method']:36} found {row['found']:.2f}  first {row['first']:.2f}")
    if arguments.json:
        write_record(
            arguments.json, rows=rows, bars=[], packages=("numpy", "sentence-transformers")
        )


if __name__ == "__main__":
    main()
