"""What words, their spread and a second hop find, beside nearest neighbours and rivals.

    python -m benchmarks.words_in_choice --data FOLDER [--sets NAME …] [--json FILE]

`sift` is what `search` does with its defaults. Rivals choose from the same candidates, those of the
second hop, with the same words and spread. `dense mmr` is MMR as frameworks have it, by embeddings
alone. Their settings are tuned on the first half of a corpus' questions, in random order, and all
rows are of the second half, as was the default. Intervals are
90 % bootstrap intervals over questions of the difference from nearest neighbours. The first run
embeds the corpora with all-MiniLM-L6-v2 by ONNX Runtime, 10 minutes on two cores.

The tag `evidence-2026-11b` also measures SPRIG, planted pages, textual versions, templated sets,
German, Chinese and Python files, FastAPI's documentation, and answers in the first 512 and 1,024
tokens. The record keeps these sets' rows of `sift` and of nearest neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bars import bar, load_bars
from benchmarks.embedding_cache import project_cache
from benchmarks.options import options
from benchmarks.report import Report
from benchmarks.rivals import FAMILIES, RIVALS
from sift_core import (
    CandidatePool,
    ChoiceOptions,
    InMemorySource,
    MMRSelector,
    Query,
    choose,
    search,
)
from sift_core.embedders import OnnxEmbedder
from sift_core.evaluation.data import Question, RetrievalSet, read_retrieval_set
from sift_core.evaluation.retrieval import embed_questions
from sift_core.evaluation.search import as_is
from sift_core.evaluation.statistics import mean
from sift_core.sources.multi_query import fetch_for_all
from sift_core.types import FloatArray

CORPORA = ("2wikimultihopqa", "musique", "hotpotqa", "squad", "entailmentbank")
FOUR, MULTI_HOP = CORPORA[:4], CORPORA[:3]
N_CANDIDATES, N_SELECT, SEED = 200, 10, 3
MOST_QUESTIONS = 200  # of a half
NEAREST, FUSED, SIFT = "nearest", "fused by rank", "sift"
DENSE, RERANKED, NO_HOP = "embeddings alone", "reranked", "sift, no hop"
DENSE_MMR = "dense mmr"
DENSE_MMR_WEIGHTS = (0.5, 0.7, 0.85, 0.95)
MEASURES = ("recall@5", "recall@10", "all_gold@10")

Measured = dict[str, dict[str, list[float]]]  # method → measure → one value a question


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """A set of passages with their vectors."""

    found: RetrievalSet
    vectors: FloatArray

    @classmethod
    def read(cls, data: Path, name: str) -> Corpus:
        """Return a corpus of a data folder, embedded."""
        queries = data / "dev" / name / "queries.jsonl.gz"
        found = read_retrieval_set(data / "corpus" / name / "corpus.jsonl.gz", queries)
        cache = replace(project_cache(), make_embedder=OnnxEmbedder)
        return cls(found=found, vectors=as_is(found.passages, cache).embeddings)

    @cached_property
    def source(self) -> InMemorySource:
        passages = self.found.passages
        return InMemorySource(
            document_ids=[str(row) for row in range(len(passages))],
            texts=[one.text for one in passages],
            embeddings=self.vectors,
            metadata=[{"title": one.title} for one in passages],
        )

    def queries(self, questions: Sequence[Question]) -> list[Query]:
        cache = replace(project_cache(), make_embedder=OnnxEmbedder)
        vectors = embed_questions(questions, cache)
        return [
            Query(text=one.text, embedding=vector)
            for one, vector in zip(questions, vectors, strict=True)
        ]

    def halves(self) -> tuple[list[Question], list[Question]]:
        """Return the questions of both halves, at most `MOST_QUESTIONS` of each."""
        order = np.random.default_rng(SEED).permutation(len(self.found.questions)).tolist()
        questions = [self.found.questions[i] for i in order]
        half = len(questions) // 2
        return questions[:half][:MOST_QUESTIONS], questions[half:][:MOST_QUESTIONS]


def rows_in(pool: CandidatePool, positions: Sequence[int]) -> list[int]:
    return [int(pool.document_ids[i]) for i in positions]


def choose_by_all(corpus: Corpus, query: Query) -> dict[str, list[int]]:
    """Return what each method chooses, as rows of the corpus, in order."""
    options = ChoiceOptions(n_select=N_SELECT, n_candidates=N_CANDIDATES)
    dense = corpus.source.fetch(query, N_CANDIDATES)
    fused = fetch_for_all(corpus.source, query, N_CANDIDATES, with_words=True)
    found = search(corpus.source, query, options)
    without = search(corpus.source, query, replace(options, hops=0))
    chosen = {
        NEAREST: rows_in(dense, range(min(N_SELECT, len(dense)))),
        FUSED: rows_in(fused, range(min(N_SELECT, len(fused)))),
        DENSE: rows_in(dense, choose(dense, query, replace(options, words=0.0)).positions),
        RERANKED: rows_in(dense, choose(dense, query, options).positions),
        NO_HOP: rows_in(without.pool, without.positions),
        SIFT: rows_in(found.pool, found.positions),
    }
    for weight in DENSE_MMR_WEIGHTS:
        by_mmr = replace(options, words=0.0, selector=MMRSelector(relevance_weight=weight))
        other = choose(dense, query, by_mmr)
        chosen[f"{DENSE_MMR} {weight}"] = rows_in(dense, other.positions)
    for name, selector in RIVALS.items():
        other = choose(found.pool, query, replace(options, selector=selector))
        chosen[name] = rows_in(found.pool, other.positions)
    return chosen


def judge(question: Question, rows: Sequence[int]) -> dict[str, float]:
    """Return recall, in [0, 1], and whether all gold passages were found."""
    gold = question.gold
    values = {f"recall@{k}": len(gold.intersection(rows[:k])) / len(gold) for k in (5, 10)}
    return values | {"all_gold@10": float(gold <= set(rows))}


def measure(corpus: Corpus, questions: Sequence[Question]) -> Measured:
    """Return what each method reaches on each question."""
    measured: Measured = {}
    for question, query in zip(questions, corpus.queries(questions), strict=True):
        for name, rows in choose_by_all(corpus, query).items():
            for key, value in judge(question, rows).items():
                measured.setdefault(name, {}).setdefault(key, []).append(value)
    return measured


def rows_of(set_name: str, measured: Measured) -> list[dict[str, Any]]:
    """Return a row of results for each method; differences are in points."""
    rows = []
    for name, values in measured.items():
        row: dict[str, Any] = {"set": set_name, "method": name}
        for key, of_each in values.items():
            row["n_questions"] = len(of_each)
            row[key] = round(float(np.mean(of_each)), 4)
            if name != NEAREST:
                beyond = mean(100 * (np.array(of_each) - measured[NEAREST][key]))
                row[f"{key} over nearest"] = [
                    round(v, 2) for v in (beyond.value, beyond.low, beyond.high)
                ]
        rows.append(row)
    return rows


def without_tuning(measured: Measured, tuning: Measured) -> Measured:
    """Return the results with one setting of each rival, the best on the first half."""
    kept = dict(measured)
    for family in (DENSE_MMR, *FAMILIES[1:]):
        names = [name for name in measured if name.startswith(family)]
        best = max(names, key=lambda name: sum(np.mean(tuning[name][key]) for key in MEASURES))
        for name in set(names) - {best}:
            del kept[name]
    return kept


def bars_of(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the bars of issue 39 that these rows can be held against, in points."""
    goals = load_bars("words_in_choice")
    by_name = {(row["set"], row["method"]): row for row in rows}

    def over(method: str, key: str, sets: Sequence[str], base: str = NEAREST) -> float:
        differences = [by_name[one, method][key] - by_name[one, base][key] for one in sets]
        return float(100 * np.mean(differences))

    if not all((one, SIFT) in by_name for one in CORPORA):
        return []
    found = {
        "recall5_over_nearest": over(SIFT, "recall@5", FOUR),
        "recall10_over_nearest": over(SIFT, "recall@10", FOUR),
        "entailmentbank_recall5": over(SIFT, "recall@5", CORPORA[4:]),
        "entailmentbank_recall10": over(SIFT, "recall@10", CORPORA[4:]),
        "reranked_recall5": over(RERANKED, "recall@5", FOUR),
        "reranked_recall10": over(RERANKED, "recall@10", FOUR),
        "all_gold_multi_hop": over(SIFT, "all_gold@10", MULTI_HOP),
        "least_over_fused": min(over(SIFT, "recall@10", [one], FUSED) for one in CORPORA),
        "recall5_2wikimultihopqa": 100 * by_name[CORPORA[0], SIFT]["recall@5"],
    }
    rivals = {row["method"] for row in rows if row["method"].startswith(FAMILIES)}
    over_best = {
        one: min(over(SIFT, "recall@10", [one], r) for r in rivals if (one, r) in by_name)
        for one in CORPORA
    }
    found["best_rival_multi_hop"] = float(np.mean([over_best[one] for one in MULTI_HOP]))
    found["best_rival_least"] = min(over_best.values())
    return [bar(name, value, goals[name], "higher") for name, value in found.items()]


def main() -> None:
    parser = options(__doc__, data=True)
    parser.add_argument("--sets", nargs="+", choices=CORPORA, default=CORPORA)
    arguments = parser.parse_args()
    report = Report()
    for name in arguments.sets:
        corpus = Corpus.read(arguments.data, name)
        first, second = (measure(corpus, half) for half in corpus.halves())
        for row in rows_of(name, without_tuning(second, first)):
            report.add(**row)
    report.bars = bars_of(report.rows)
    report.finish(arguments.json, ["numpy", "sift-rerank"])


if __name__ == "__main__":
    main()
