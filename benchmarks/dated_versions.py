"""Of several dated versions of a passage, is the newest the one that is chosen?

    python -m benchmarks.dated_versions --data FOLDER [--sets squad,musique] [--max-queries 100]

Passages get textual versions (`text_variants`) with dates in random order; the newest is gold.
Of the gold passages of which some version is among the ten chosen of 200, `right` is the share
of which the newest comes first; `recall@10` counts any version. Three conditions: every passage
in four versions, in two, and none but those that answer a question, in two.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for small products; torch keeps its own

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.embedding_cache import project_cache
from benchmarks.records import write_record
from benchmarks.retrieval import PACKAGES, QuestionSet, read_set
from benchmarks.text_variants import textual_variants
from sift_core import ContextSelector, NearestNeighborSelector
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.evaluation.search import Pool, pools

N_CHOSEN, N_VERSIONS = 10, 4
Row = dict[str, object]
Chooser = Callable[[Pool, np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True, eq=False)
class DatedCorpus:
    """Versions (n, d) of passages: which one each is of, and its date, both (n,)."""

    condition: str
    embeddings: np.ndarray
    originals: np.ndarray
    dates: np.ndarray

    def newest_of(self, passage: int) -> int:
        """Return the row of a passage's newest version."""
        own = np.flatnonzero(self.originals == passage)
        return int(own[np.argmax(self.dates[own])])


def choosers() -> dict[str, Chooser]:
    """Return positions in a pool, in order of choice, by what chooses them."""
    nearest, sift = NearestNeighborSelector(), ContextSelector()

    def plain(pool: Pool, dates: np.ndarray) -> np.ndarray:
        return nearest.select(pool.query, pool.embeddings, N_CHOSEN).positions

    def by_date(pool: Pool, dates: np.ndarray) -> np.ndarray:
        positions = plain(pool, dates)
        return positions[np.argsort(-dates[positions], kind="stable")]

    return {
        "nearest": plain,
        "nearest, newest first": by_date,
        "sift": lambda pool, dates: sift.select(pool.query, pool.embeddings, N_CHOSEN).positions,
        "sift, prefer": lambda pool, dates: (
            sift.select(pool.query, pool.embeddings, N_CHOSEN, prefer=dates).positions
        ),
    }


def smaller(questions: QuestionSet, n_passages: int, seed: int) -> QuestionSet:
    """Return the questions over the passages that answer them and random others."""
    gold = sorted(set().union(*(one.gold for one in questions.questions)))
    rest = np.setdiff1d(np.arange(len(questions.passages)), gold)
    n_others = min(len(rest), max(0, n_passages - len(gold)))
    others = np.random.default_rng(seed).choice(rest, n_others, replace=False)
    rows = [*gold, *sorted(others.tolist())]
    row_of = {row: i for i, row in enumerate(rows)}
    return replace(
        questions,
        passages=[questions.passages[row] for row in rows],
        questions=[
            replace(one, grades={row_of[row]: grade for row, grade in one.grades.items()})
            for one in questions.questions
        ],
    )


def corpora(questions: QuestionSet, seed: int, cache: EmbeddingCache) -> Iterator[DatedCorpus]:
    """Yield the three conditions; fewer versions are some of the four."""
    n = len(questions.passages)
    versions = textual_variants(questions.passages, N_VERSIONS, seed, cache)
    dates = np.random.default_rng(seed).permuted(np.tile(np.arange(N_VERSIONS), (n, 1)), axis=1)
    gold = set().union(*(one.gold for one in questions.questions))
    answers = np.isin(np.arange(n), sorted(gold))
    for condition, kept in {
        "all in four": np.ones((n, N_VERSIONS), dtype=bool),
        "all in two": np.tile(np.arange(N_VERSIONS) < 2, (n, 1)),
        "gold in two": (np.arange(N_VERSIONS) < np.where(answers, 2, 1)[:, None]),
    }.items():
        rows = np.flatnonzero(kept.T.ravel())  # version by version, as `Versions` has them
        yield DatedCorpus(
            condition=condition,
            embeddings=versions.embeddings[rows],
            originals=versions.originals[rows],
            dates=dates.T.ravel()[rows].astype(float),
        )


def measure(questions: QuestionSet, corpus: DatedCorpus) -> list[Row]:
    """Return one row a chooser; counts, so that sets can be added up."""
    found = list(pools(questions.embeddings, corpus.embeddings))
    rows: list[Row] = []
    for name, choose in choosers().items():
        n_gold = n_found = n_right = 0
        for question, pool in zip(questions.questions, found, strict=True):
            chosen = pool.rows[choose(pool, corpus.dates[pool.rows])]
            for passage in question.gold:
                own = chosen[corpus.originals[chosen] == passage]
                n_gold += 1
                n_found += len(own) > 0
                n_right += len(own) > 0 and int(own[0]) == corpus.newest_of(passage)
        rows.append(
            {
                "dataset": questions.name,
                "condition": corpus.condition,
                "method": name,
                "n_gold": n_gold,
                "recall@10": n_found / n_gold,
                "right": n_right / max(1, n_found),
            }
        )
    return rows


def print_rows(rows: Sequence[Row]) -> None:
    """Print a line a chooser and condition: right and recall@10 in points, set by set."""
    for row in rows:
        print(
            f"{row['dataset']:16} {row['condition']:12} {row['method']:22} "
            f"right {100 * float(str(row['right'])):5.1f}  "
            f"recall@10 {100 * float(str(row['recall@10'])):5.1f}  of {row['n_gold']}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="has corpus/SET and dev/SET")
    parser.add_argument("--sets", type=lambda text: text.split(","), default=["squad", "musique"])
    parser.add_argument("--passages", type=int, default=1200, help="of each set at most")
    parser.add_argument("--max-queries", type=int, default=100, help="a random subset of each set")
    parser.add_argument("--seed", type=int, default=0, help="of subset, versions and dates")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    cache = project_cache()
    rows: list[Row] = []
    for name in arguments.sets:
        questions = read_set(
            arguments.data / "corpus" / name / "corpus.jsonl.gz",
            arguments.data / "dev" / name / "queries.jsonl.gz",
            at_most=arguments.max_queries,
            seed=arguments.seed,
            cache=cache,
        )
        questions = smaller(questions, arguments.passages, arguments.seed)
        for corpus in corpora(questions, arguments.seed, cache):
            of_one = measure(questions, corpus)
            print_rows(of_one)
            rows += of_one
    if arguments.json:
        write_record(arguments.json, rows=rows, bars=[], packages=PACKAGES)


if __name__ == "__main__":
    main()
