"""What does `sift search --compare` find for the questions of a documentation corpus?

    python -m benchmarks.demo_questions --data FOLDER [--json FILE]

Pages are cut and embedded as `sift index` does, and 10 of the 200 nearest chunks are chosen as the
command chooses them: nearest neighbours, MMR, SIFT's default. Recall counts gold pages of which a
chunk was chosen; copies and alike are marked as on the screen. Intervals are 90 % bootstrap
intervals over questions, of differences from nearest neighbours. The corpus has no other split,
so nothing was tuned on it, and it has few questions: read the intervals.

Then what tells a question about the corpus from one about anything else: the share of σ² that ten
chunks for a prompt, the first ten lessons of a fine-tuning and all fifty of them explain, for these
questions and for 80 of SQuAD and HotpotQA (`VariancePolicy` goes by the first ten lessons).
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.embedding_cache import project_cache
from benchmarks.records import write_record
from sift_core import (
    ChoiceOptions,
    ContextSelector,
    InMemorySource,
    SIFTSelector,
    choose,
    posterior_variances,
)
from sift_core.answering.cost_model import TOPIC_STEPS
from sift_core.choice import compare_methods
from sift_core.documents.chunk_length import chunker_for
from sift_core.embedders import OnnxEmbedder, SentenceTransformerEmbedder
from sift_core.evaluation.data import read_json_lines
from sift_core.evaluation.statistics import mean
from sift_core.explanation import Chosen
from sift_core.types import CandidatePool, Document, Query

N_SELECT = 10
N_CANDIDATES = 200
N_LESSONS = 50
N_OTHERS = 40  # of each of two sets
MEASURES = ("recall", "recall_several", "copies", "alike", "variance")


def read_lines(path: Path) -> list[Mapping[str, Any]]:
    """Return the records of a file of JSON lines, packed or not."""
    return [line.values for line in read_json_lines(path)]


def chunks_of(
    pages: Sequence[Mapping[str, Any]], embedder: OnnxEmbedder | SentenceTransformerEmbedder
) -> list[Document]:
    """Return the chunks of all pages; "source" in their metadata is the page's id."""
    chunker = chunker_for(embedder)
    return [
        chunk
        for page in pages
        for chunk in chunker.split(page["text"], format="markdown", document_id=page["id"])
    ]


def measures_of(column: Chosen, gold: Sequence[str]) -> dict[str, float]:
    """Return what is measured of one choice for one question."""
    pages = {metadata["source"] for metadata in column.chunks.metadata}
    found = {
        "recall": len(pages.intersection(gold)) / len(gold),
        "copies": float(column.n_copies),
        "alike": float(column.n_redundant - column.n_copies),
        "variance": float(column.question_variances[-1]),
    }
    return {**found, "recall_several": found["recall"]} if len(gold) > 1 else found


def source_of(folder: Path, embedder: SentenceTransformerEmbedder) -> InMemorySource:
    """Return the chunks of the corpus."""
    documents = chunks_of(read_lines(folder / "pages.jsonl.gz"), embedder)
    texts = [document.text for document in documents]
    print(f"{len(texts)} chunks")
    return InMemorySource(
        project_cache().embed(texts, "chunks"),
        texts,
        document_ids=[document.document_id for document in documents],
        metadata=[document.metadata for document in documents],
        embedder_name=embedder.name,
    )


def asked(
    question: str, source: InMemorySource, embedder: SentenceTransformerEmbedder
) -> tuple[Query, CandidatePool]:
    """Return a question with its candidates."""
    embedding = embedder.embed_query(question)
    query = Query(text=question, embedding=embedding, embedder_name=embedder.name)
    return query, source.fetch(query, N_CANDIDATES)


def measure(
    records: Sequence[Mapping[str, Any]],
    source: InMemorySource,
    embedder: SentenceTransformerEmbedder,
) -> dict[str, dict[str, dict[str, float]]]:
    """Return every measure by method and question."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for record in records:
        query, pool = asked(record["question"], source, embedder)
        chosen = choose(pool, query, ChoiceOptions(n_select=N_SELECT))
        for name, column in compare_methods(chosen, N_SELECT).items():
            for key, value in measures_of(column, record["gold"]).items():
                found.setdefault(name, {}).setdefault(key, {})[record["id"]] = value
    return found


def explained_shares(query: Query, pool: CandidatePool) -> dict[str, float]:
    """Return which share of σ² at a question is explained by what is read and learned."""
    embeddings = pool.embeddings
    read = ContextSelector().select(query.vector, embeddings, N_SELECT).positions
    learned = SIFTSelector.for_fine_tuning().select(query.vector, embeddings, N_LESSONS)
    lessons = posterior_variances(query.vector, embeddings[learned.positions])
    reading = posterior_variances(query.vector, embeddings[read])
    return {
        "read": 1 - float(reading[-1] / reading[0]),
        "first_lessons": 1 - float(lessons[TOPIC_STEPS] / lessons[0]),
        "all_lessons": 1 - float(lessons[-1] / lessons[0]),
    }


def topic_rows(
    name: str,
    questions: Sequence[str],
    source: InMemorySource,
    embedder: SentenceTransformerEmbedder,
) -> list[dict[str, Any]]:
    """Return a row for each share: smallest, median and largest over the questions."""
    shares = [explained_shares(*asked(question, source, embedder)) for question in questions]
    return [
        {
            "questions": name,
            "n_questions": len(questions),
            "measure": f"explained, {key}",
            "min": round(min(share[key] for share in shares), 3),
            "median": round(statistics.median(share[key] for share in shares), 3),
            "max": round(max(share[key] for share in shares), 3),
        }
        for key in shares[0]
    ]


def rows_of(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[dict[str, Any]]:
    """Return a row a method and measure: mean, and difference from nearest neighbours."""
    rows = []
    for method, measures in found.items():
        for key in MEASURES:
            values = measures[key]
            nearest = found["nearest"][key]
            beside = mean([values[question] - nearest[question] for question in values])
            rows.append(
                {
                    "method": method,
                    "measure": key,
                    "n_questions": len(values),
                    "mean": round(mean(list(values.values())).value, 4),
                    "difference": round(beside.value, 4),
                    "low": round(beside.low, 4),
                    "high": round(beside.high, 4),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder that holds demo/")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    embedder = SentenceTransformerEmbedder()
    source = source_of(arguments.data / "demo", embedder)
    records = read_lines(arguments.data / "demo" / "questions.jsonl")
    rows = rows_of(measure(records, source, embedder))
    for row in rows:
        print(
            f"{row['method']:8} {row['measure']:15} {row['mean']:7.3f}  "
            f"{row['difference']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
        )
    others = [
        record["question"]
        for name in ("squad", "hotpotqa")
        for record in read_lines(arguments.data / "dev" / name / "queries.jsonl.gz")[:N_OTHERS]
    ]
    for name, questions in (
        ("about the corpus", [record["question"] for record in records]),
        ("about anything else", others),
    ):
        for row in topic_rows(name, questions, source, embedder):
            rows.append(row)
            print(
                f"{name:20} {row['measure']:26} "
                f"{row['min']:.2f} {row['median']:.2f} {row['max']:.2f}"
            )
    if arguments.json is not None:
        packages = ["numpy", "numba", "sentence-transformers", "semantic-text-splitter"]
        write_record(arguments.json, rows=rows, bars=[], packages=packages)


if __name__ == "__main__":
    main()
