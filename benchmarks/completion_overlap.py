"""How much of a held-back body stands before the cursor, in the rest, and in the chunks read?

    python -m benchmarks.completion_overlap [--sets a2a-sdk,…] [--bodies N] [--data FOLDER]

A next token counts if it ends a run of four tokens that stands there, too. So these are the tokens
that a model could copy. "rest", "best four" and the arms leave out the runs before the cursor.

"best four" are found greedily: four times the chunk with the most runs that are missing. They know
the body, which no choice does. The bodies and the arms are those of `benchmarks.completion`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import TypeAlias

import pandas as pd
from tqdm import tqdm

from benchmarks.completion import FOLDER, choose, engine_of
from benchmarks.completion_data import Collection, Example, parse_with_sets, read_collection
from benchmarks.language_modeling.running import Row
from benchmarks.options import options
from benchmarks.report import Report
from benchmarks.table import Table, number, word
from sift_core.answering import AnswerEngine, LanguageModel
from sift_core.answering.completing import N_CHUNKS, PROMPT_TOKENS
from sift_core.documents.chunk_length import chunker_for
from sift_core.embedders.loading import load_embedder

N = 4  # tokens of a run
ARMS = ("nearest", "sift")
PLACES = ("prompt", "rest", f"best {N_CHUNKS}", *ARMS)
Run: TypeAlias = tuple[int, ...]


def runs(ids: Sequence[int]) -> list[Run]:
    """Return the runs of four tokens, in their order."""
    return [tuple(ids[i : i + N]) for i in range(len(ids) - N + 1)]


def count(wanted: Iterable[Run], place: Set[Run]) -> int:
    """Return how many of the runs stand in a place."""
    return sum(run in place for run in wanted)


def best(wanted: Sequence[Run], chunks: Iterable[Set[Run]], n: int) -> int:
    """Return how many of the runs are in n chunks that are chosen greedily."""
    left, chunks = list(wanted), list(chunks)
    for _ in range(min(n, len(chunks))):
        chunk = max(chunks, key=lambda one: count(left, one))
        left = [run for run in left if run not in chunk]
    return len(wanted) - len(left)


def overlap(
    engine: AnswerEngine, collection: Collection, chunks: Sequence[Set[Run]], example: Example
) -> Row:
    """Return how many tokens of a body end a run of each place.

    Args:
        engine: Chooses from the collection.
        collection: What is left of it.
        chunks: The runs of its chunks.
        example: The body.
    """
    tokens = engine.language_model.token_ids
    tail = example.prompt.tail(PROMPT_TOKENS, engine.language_model.n_tokens)
    before, body = tokens(tail), tokens(example.body)
    wanted = runs([*before[1 - N :], *body])
    shown = set(runs(before))
    new = [run for run in wanted if run not in shown]
    may_be_read = example.prompt.may_be_read(tail)
    readable = [
        found
        for found, chunk in zip(chunks, collection.chunks, strict=True)
        if may_be_read(chunk.text, chunk.metadata)
    ]
    counts = [len(wanted) - len(new), count(new, set().union(*readable))]
    counts.append(best(new, readable, N_CHUNKS))
    for arm in ARMS:
        _, choice = choose(engine, example, arm)
        read = {run for text in choice.chunks(choice.read).texts for run in runs(tokens(text))}
        counts.append(count(new, read))
    return {"tokens": len(body), **dict(zip(PLACES, counts, strict=True))}


def measure(model: LanguageModel, collection: Collection) -> list[Row]:
    """Return the counts of each body."""
    chunks = [set(runs(model.token_ids(chunk.text))) for chunk in collection.chunks]
    engine = engine_of(collection, model, n_chunks=1, learns=False)
    examples = tqdm(collection.examples, collection.name)
    return [overlap(engine, collection, chunks, example) for example in examples]


def main() -> None:
    """Print the shares, and write the record if there is a path."""
    arguments = parse_with_sets(options(__doc__))
    model = LanguageModel.from_pretrained()
    chunker = chunker_for(load_embedder("all-MiniLM-L6-v2"))
    report = Report()
    for name in arguments.sets:
        part = {"n": arguments.bodies, "cache": FOLDER, "data": arguments.data}
        collection = read_collection(name, chunker, **part)
        counts = pd.DataFrame(measure(model, collection)).sum()
        shares = {place: 100 * counts[place] / counts["tokens"] for place in PLACES}
        report.rows.append({"set": name, "n": len(collection.examples), **shares})
    lines = tuple(
        (word(f"{row['set']} ({row['n']})"), *(number(row[place], 1) for place in PLACES))
        for row in report.rows
    )
    title = "% of next tokens that end a run of four that stands there, too"
    Table(title=title, heads=("texts", *PLACES), rows=lines).show()
    report.finish(arguments.json, ["transformers", "sift-rerank"])


if __name__ == "__main__":
    main()
