"""How much of what answers a question do the first choices among some hundred candidates hold?

    retrieval_set = read_beir("scifact")  # or read_retrieval_set(corpus, queries)
    rows = evaluate_retrieval(retrieval_set.sample(300))
    for table in retrieval_tables(rows):
        print(table.as_text())

Everything is searched exactly, in memory. Metrics are fractions; `metrics` defines them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from sift_core.checks import as_count
from sift_core.errors import InvalidInputError
from sift_core.evaluation.data import Question, RetrievalSet
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.evaluation.methods import Method, as_methods, choose, default_methods
from sift_core.evaluation.metrics import CUTS, METRICS, all_metrics
from sift_core.evaluation.search import (
    N_CANDIDATES,
    Versions,
    as_is,
    noisy_copies,
    pools,
    unit_rows,
)
from sift_core.evaluation.statistics import mean
from sift_core.progress import progress_bar
from sift_core.protocols import Selector
from sift_core.types import FloatArray

CONDITIONS = ("as is", "duplicates")
N_VERSIONS = 4  # of every passage
OURS = "sift"  # the method whose paired differences are given ...
RIVALS = ("nn", "mmr")  # ... to those whose names begin so

Row: TypeAlias = dict[str, Any]
Scores: TypeAlias = dict[str, FloatArray]  # metric → fractions (n,), one a question


def evaluate_retrieval(
    sets: RetrievalSet | Iterable[RetrievalSet],
    *,
    cache: EmbeddingCache | None = None,
    methods: Mapping[str, Method | Selector] | None = None,
    conditions: Sequence[str] = CONDITIONS,
    n_versions: int = N_VERSIONS,
    n_candidates: int = N_CANDIDATES,
    seed: int = 0,
    per_query: bool = False,
    progress: bool = True,
) -> list[Row]:
    """Return one row a set, condition and method, which `json` can write.

    The first run embeds the corpus, at 10 to 100 passages a second and core with
    all-MiniLM-L6-v2. It can be interrupted.

    Args:
        sets: One or several.
        cache: Embeds what is not in it, with a bar or without as it was made; all-MiniLM-L6-v2 in
            the library's folder if None.
        methods: Name → selector or function; `default_methods()` if None.
        conditions: "as is"; "duplicates": `n_versions` noisy copies of every embedding in place
            of it.
        n_versions: Of every passage where there are several, at least 1.
        n_candidates: How many of the nearest a method chooses from, at least 1.
        seed: Of the noise.
        per_query: Whether rows also have what each question gave.
        progress: Whether bars are shown.

    Returns:
        Rows with "set", "condition", "method", each metric of `METRICS` as the mean over the
        questions, "ci" (metric → 90 % bootstrap interval over the questions, missing where
        there is one question), "n_queries" and "values": "fractions". That of "sift" also has
        "differences": for "nn" and every method whose name begins with "mmr", metric →
        {"mean", "ci"} of "sift" minus it, question by question. With `per_query` "per_query"
        has "question_id" and each metric, lists with one entry a question.

    Raises:
        InvalidInputError: If an argument is not as above, a method chooses what is not in the
            pool, or the embedder fails in what `EmbeddingCache.embed` asks of it.
        MissingDependencyError: If the library of the cache's model is not installed.
    """
    cache = EmbeddingCache(progress=progress) if cache is None else cache
    compared = as_methods(default_methods() if methods is None else methods)
    n_candidates = as_count("n_candidates", n_candidates, minimum=1)
    n_versions = as_count("n_versions", n_versions, minimum=1)
    if isinstance(conditions, str) or not conditions or not set(conditions) <= set(CONDITIONS):
        raise InvalidInputError(
            f"`conditions` must be a sequence of some of {CONDITIONS}, got {conditions!r}"
        )
    rows: list[Row] = []
    for one in [sets] if isinstance(sets, RetrievalSet) else sets:
        queries = embed_questions(one.questions, cache)
        plain = as_is(one.passages, cache)
        for condition in conditions:
            rows += measure(
                one.name,
                one.questions,
                queries,
                plain if condition == "as is" else noisy_copies(plain, n_versions, seed),
                compared,
                n_candidates=n_candidates,
                per_query=per_query,
                progress=progress,
            )
    return rows


def embed_questions(questions: Sequence[Question], cache: EmbeddingCache) -> FloatArray:
    """Return the embeddings of the questions, unit rows, shape (n, d).

    Raises:
        InvalidInputError: As `EmbeddingCache.embed`, or if an embedding is zero.
    """
    embedded = cache.embed_queries([question.text for question in questions], "questions")
    return unit_rows(embedded, "question")


def measure(
    set_name: str,
    questions: Sequence[Question],
    queries: FloatArray,
    versions: Versions,
    methods: Mapping[str, Method],
    *,
    n_candidates: int = N_CANDIDATES,
    per_query: bool = False,
    progress: bool = True,
) -> list[Row]:
    """Return one row a method in one condition, as `evaluate_retrieval`.

    Args:
        set_name: Of the questions.
        questions: n of them, at least one.
        queries: Their embeddings, unit rows, shape (n, d).
        versions: What is searched.
        methods: At least one.
        n_candidates: As there.
        per_query: As there.
        progress: As there.

    Raises:
        InvalidInputError: If a method chooses what is not in the pool, or the embeddings of
            questions and passages have different dimensions.
    """
    if queries.shape[1] != versions.embeddings.shape[1]:
        raise InvalidInputError(
            f"questions have {queries.shape[1]} dimensions, passages "
            f"{versions.embeddings.shape[1]}: were both embedded by one model?"
        )
    found: dict[str, list[dict[str, float]]] = {name: [] for name in methods}
    n_versions = np.bincount(versions.originals).tolist()
    searched = pools(queries, versions.embeddings, n_candidates)
    what = f"{set_name}, {versions.condition}"
    with progress_bar(len(questions), what, "questions", wanted=progress) as advance:
        for question, pool in zip(questions, searched, strict=True):
            originals = versions.originals[pool.rows]
            available = {row: n_versions[row] for row in question.grades}
            for name, method in methods.items():
                chosen = originals[choose(name, method, pool, max(CUTS))]
                found[name].append(all_metrics(chosen.tolist(), question.grades, available))
            advance(1)
    scores: dict[str, Scores] = {
        name: {metric: np.array([one[metric] for one in reached]) for metric in METRICS}
        for name, reached in found.items()
    }
    ids = [question.question_id for question in questions]
    return [
        {"set": set_name, "condition": versions.condition, **_row(name, scores, ids, per_query)}
        for name in methods
    ]


def _row(method: str, scores: Mapping[str, Scores], ids: list[str], per_query: bool) -> Row:
    """Return what is said of one method; `scores` are all methods', for the differences."""
    estimates = {metric: mean(values) for metric, values in scores[method].items()}
    row: Row = {
        "method": method,
        **{metric: one.value for metric, one in estimates.items()},
        "ci": {metric: [one.low, one.high] for metric, one in estimates.items() if one.n > 1},
    }
    if method == OURS:
        row["differences"] = {
            rival: _difference(scores[OURS], theirs)
            for rival, theirs in scores.items()
            if rival != OURS and rival.startswith(RIVALS)
        }
    row |= {"n_queries": len(ids), "values": "fractions"}
    if per_query:
        values = {metric: reached.tolist() for metric, reached in scores[method].items()}
        row["per_query"] = {"question_id": ids, **values}
    return row


def _difference(ours: Scores, theirs: Scores) -> dict[str, Any]:
    """Return metric → mean and interval of ours minus theirs, question by question."""
    estimates = {metric: mean(ours[metric] - theirs[metric]) for metric in METRICS}
    return {
        metric: {"mean": one.value, **({"ci": [one.low, one.high]} if one.n > 1 else {})}
        for metric, one in estimates.items()
    }
