"""What words, their spread and a second hop find, beside nearest neighbours and rivals.

    python -m benchmarks.words_in_choice --data FOLDER [--sets NAME …] [--json FILE]

Five corpora are searched as they are, with ten planted pages of each of four kinds, and ten
templated sets. Then come German, Chinese and Python files, and FastAPI's documentation. `sift` is
what `search` does with its defaults. Rivals choose from the same candidates, those of the second
hop, with the same words and spread. SPRIG retrieves in its own way, over a graph of the whole
corpus. Their settings are tuned on the first half of a corpus' questions, in random order, and all
rows are of the second half, as was the default. "Answer at" is the share of questions of which an
answer stands in the first chunks of so many tokens together. Intervals are 90 % bootstrap intervals
over questions of the difference from nearest neighbours. The first run embeds the corpora with
all-MiniLM-L6-v2 by ONNX Runtime, 10 minutes on two cores.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bars import bar, in_words, load_bars
from benchmarks.embedding_cache import project_cache
from benchmarks.records import write_record
from benchmarks.rivals import FAMILIES, RIVALS
from benchmarks.sprig import NameGraph
from benchmarks.text_variants import versions
from benchmarks.word_sets.documentation import Documentation, read_documentation
from benchmarks.word_sets.languages import read_language_sets
from benchmarks.word_sets.planted import find_planted_rows, plant
from benchmarks.word_sets.templates import make_templated_sets
from sift_core import (
    CandidatePool,
    ChoiceOptions,
    InMemorySource,
    Query,
    choose,
    search,
)
from sift_core.embedders import OnnxEmbedder
from sift_core.evaluation.data import Question, RetrievalSet, read_json_lines, read_retrieval_set
from sift_core.evaluation.retrieval import embed_questions
from sift_core.evaluation.search import as_is
from sift_core.evaluation.statistics import mean
from sift_core.protocols import Lookup
from sift_core.selection.word_counts import words_of
from sift_core.sources.multi_query import fetch_for_all
from sift_core.token_estimate import estimated_tokens
from sift_core.types import FloatArray

CORPORA = ("2wikimultihopqa", "musique", "hotpotqa", "squad", "entailmentbank")
FOUR, MULTI_HOP = CORPORA[:4], CORPORA[:3]
OTHERS = ("planted", "versions", "templates", "languages", "documentation")
N_CANDIDATES, N_SELECT, SEED = 200, 10, 3
VERSIONED, N_VERSIONED, N_VERSIONED_QUESTIONS, N_VERSIONS = CORPORA[:3:2], 700, 60, 4
MOST_QUESTIONS = 200  # of a half
TOKENS = (512, 1024)
NEAREST, FUSED, SIFT = "nearest", "fused by rank", "sift"
DENSE, RERANKED, NO_HOP = "embeddings alone", "reranked", "sift, no hop"
MEASURES = ("recall@5", "recall@10", "all_gold@10")
TUNED = (*FAMILIES[1:], "sprig")


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """A set of passages with their vectors, and how its questions are judged."""

    found: RetrievalSet
    vectors: FloatArray
    answers: Mapping[str, Sequence[str]]  # by question id; empty where there are none

    @classmethod
    def of(cls, found: RetrievalSet, answers: Mapping[str, Sequence[str]] | None = None) -> Corpus:
        cache = replace(project_cache(), make_embedder=OnnxEmbedder)
        vectors = as_is(found.passages, cache).embeddings
        return cls(found=found, vectors=vectors, answers=answers or {})

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

    @staticmethod
    def halves_of(found: RetrievalSet) -> tuple[list[Question], list[Question]]:
        """Return the questions of both halves, at most `MOST_QUESTIONS` of each."""
        order = np.random.default_rng(SEED).permutation(len(found.questions)).tolist()
        questions = [found.questions[i] for i in order]
        half = len(questions) // 2
        return questions[:half][:MOST_QUESTIONS], questions[half:][:MOST_QUESTIONS]


def rows_in(pool: CandidatePool, positions: Sequence[int]) -> list[int]:
    return [int(pool.document_ids[i]) for i in positions]


def choose_by_all(
    corpus: Corpus, query: Query, *, rivals: bool = True, graph: NameGraph | None = None
) -> dict[str, list[int]]:
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
    if rivals:
        for name, selector in RIVALS.items():
            other = choose(found.pool, query, replace(options, selector=selector))
            chosen[name] = rows_in(found.pool, other.positions)
    if graph is not None:
        lookups = [Lookup(n_candidates=N_CANDIDATES, vector=query.vector)]
        lookups += [Lookup(n_candidates=N_CANDIDATES, words=words_of(query.text))]
        lists = [rows_in(one, range(len(one))) for one in corpus.source.look_up(query, lookups)]
        chosen |= graph.choose(query.text, *lists, n=N_SELECT)
    return chosen


def judge(corpus: Corpus, question: Question, rows: Sequence[int]) -> dict[str, float]:
    """Return recall and answers in context, each in [0, 1]."""
    gold = question.gold
    values = {f"recall@{k}": len(gold.intersection(rows[:k])) / len(gold) for k in (5, 10)}
    values["all_gold@10"] = float(gold <= set(rows))
    for limit in TOKENS if corpus.answers else ():
        total, texts = 0, []
        for row in rows:
            text = corpus.found.passages[row].to_embed
            total += estimated_tokens(text)
            if total > limit:
                break
            texts.append(text.casefold())
        answers = [one.casefold() for one in corpus.answers[question.question_id]]
        values[f"answer_at_{limit}"] = float(any(a in text for a in answers for text in texts))
    return values


Measured = dict[str, dict[str, list[float]]]  # method → measure → one value a question


def measure(
    corpus: Corpus,
    questions: Sequence[Question],
    *,
    rivals: bool = True,
    graph: NameGraph | None = None,
    judged: Callable[[Corpus, Question, Sequence[int]], dict[str, float]] = judge,
) -> Measured:
    """Return what each method reaches on each question; SPRIG is one where a graph is given."""
    measured: Measured = {}
    for question, query in zip(questions, corpus.queries(questions), strict=True):
        for name, rows in choose_by_all(corpus, query, rivals=rivals, graph=graph).items():
            for key, value in judged(corpus, question, rows).items():
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
    for family in TUNED:
        names = [name for name in measured if name.startswith(family)]
        best = max(names, key=lambda name: sum(np.mean(tuning[name][key]) for key in MEASURES))
        for name in set(names) - {best}:
            del kept[name]
    return kept


def read_corpus(data: Path, name: str) -> tuple[RetrievalSet, dict[str, list[str]]]:
    queries = data / "dev" / name / "queries.jsonl.gz"
    found = read_retrieval_set(data / "corpus" / name / "corpus.jsonl.gz", queries)
    answers = {line.values["id"]: line.values["answers"] for line in read_json_lines(queries)}
    return found, answers


def measure_corpus(data: Path, name: str) -> list[dict[str, Any]]:
    corpus = Corpus.of(*read_corpus(data, name))
    graph = NameGraph(corpus.found.passages)
    first, second = (measure(corpus, half, graph=graph) for half in Corpus.halves_of(corpus.found))
    return rows_of(name, without_tuning(second, first))


def measure_planted(data: Path) -> list[dict[str, Any]]:
    """Return rows with planted pages, and how many of these are chosen of ten."""
    rows = []
    for name in CORPORA:
        found, _ = read_corpus(data, name)
        planted = plant(found)
        kinds = find_planted_rows(planted)
        corpus = Corpus.of(planted)

        def judged(
            corpus: Corpus,
            question: Question,
            chosen: Sequence[int],
            kinds: Mapping[str, Sequence[int]] = kinds,
        ) -> dict[str, float]:
            counts = {kind: len(set(those).intersection(chosen)) for kind, those in kinds.items()}
            return judge(corpus, question, chosen) | {k: float(n) for k, n in counts.items()}

        _, second = Corpus.halves_of(corpus.found)
        rows += rows_of(f"{name}, planted", measure(corpus, second, rivals=False, judged=judged))
    return rows


def measure_versions(data: Path) -> list[dict[str, Any]]:
    """Return rows of passages that are there in four textual versions each, any of them gold."""
    rows = []
    for name in VERSIONED:
        found, _ = read_corpus(data, name)
        _, second = Corpus.halves_of(found)
        questions = second[:N_VERSIONED_QUESTIONS]
        gold = sorted({row for one in questions for row in one.gold})
        others = [row for row in range(len(found.passages)) if row not in set(gold)]
        kept = gold + others[: N_VERSIONED - len(gold)]
        passages = [found.passages[row] for row in kept]
        made = [versions(one.text, one.passage_id, N_VERSIONS, SEED) for one in passages]
        of_all = [
            replace(one, text=own[i], passage_id=f"{one.passage_id} {i}")
            for i in range(N_VERSIONS)
            for one, own in zip(passages, made, strict=True)
        ]
        place = {row: i for i, row in enumerate(kept)}
        asked = [
            replace(one, grades={place[row]: grade for row, grade in one.grades.items()})
            for one in questions
        ]
        n = len(passages)

        def judged(
            corpus: Corpus, question: Question, chosen: Sequence[int], n: int = n
        ) -> dict[str, float]:
            gold, rows = question.gold, [row % n for row in chosen]
            values = {f"recall@{k}": len(gold & set(rows[:k])) / len(gold) for k in (5, 10)}
            return values | {"all_gold@10": float(gold <= set(rows))}

        name = f"{name}, {N_VERSIONS} versions"
        corpus = Corpus.of(RetrievalSet(name=name, passages=of_all, questions=asked))
        rows += rows_of(name, measure(corpus, asked, judged=judged))
    return rows


def measure_templates(data: Path) -> list[dict[str, Any]]:
    """Return rows of templated sets: is the gold chunk first, and the answer in the ten?"""
    rows = []
    for made in make_templated_sets():

        def judged(
            corpus: Corpus,
            question: Question,
            chosen: Sequence[int],
            made: Any = made,
        ) -> dict[str, float]:
            return {
                "first": float(chosen[0] in question.gold),
                "answer@10": float(made.holds_answer(question, chosen)),
                **judge(corpus, question, chosen),
            }

        corpus = Corpus.of(made.retrieval_set)
        measured = measure(corpus, made.retrieval_set.questions, rivals=False, judged=judged)
        rows += rows_of(made.retrieval_set.name, measured)
    return rows


def measure_languages(data: Path) -> list[dict[str, Any]]:
    rows = []
    for found in read_language_sets(data):
        rows += rows_of(found.name, measure(Corpus.of(found), found.questions, rivals=False))
    return rows


def measure_documentation(data: Path) -> list[dict[str, Any]]:
    """Return rows of FastAPI's questions, judged by pages."""
    docs: Documentation = read_documentation(data)

    def judged(corpus: Corpus, question: Question, chosen: Sequence[int]) -> dict[str, float]:
        return {f"recall@{k}": docs.recall(question, chosen[:k]) for k in (5, 10)}

    corpus = Corpus.of(docs.retrieval_set)
    measured = measure(corpus, docs.retrieval_set.questions, rivals=False, judged=judged)
    return rows_of("documentation", measured)


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


OTHER_MEASURES: dict[str, Callable[[Path], list[dict[str, Any]]]] = dict(
    zip(
        OTHERS,
        (
            measure_planted,
            measure_versions,
            measure_templates,
            measure_languages,
            measure_documentation,
        ),
        strict=True,
    )
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the corpora")
    parser.add_argument(
        "--sets", nargs="+", choices=[*CORPORA, *OTHERS], default=[*CORPORA, *OTHERS]
    )
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in arguments.sets:
        new = (
            OTHER_MEASURES[name](arguments.data)
            if name in OTHER_MEASURES
            else measure_corpus(arguments.data, name)
        )
        rows += new
        for row in new:
            numbers = {k: v for k, v in row.items() if isinstance(v, float)}
            shown = "  ".join(f"{key} {value:.3f}" for key, value in numbers.items())
            print(f"{row['set']:24} {row['method']:18} {shown}", flush=True)
    bars = bars_of(rows)
    print(*map(in_words, bars), sep="\n")
    if arguments.json:
        write_record(arguments.json, rows=rows, bars=bars, packages=["numpy", "sift-rerank"])


if __name__ == "__main__":
    main()
