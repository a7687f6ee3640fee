"""How much of what answers a question is among the first chosen of some hundred candidates?

    retrieval_set = read_beir("scifact")  # or read_retrieval_set(corpus, queries)
    rows = evaluate_retrieval(retrieval_set.sample(300))

Everything is searched exactly, in memory. Metrics are fractions; `metrics` defines them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from sift_core.checks import as_count, checked_positions
from sift_core.errors import InvalidInputError
from sift_core.evaluation.data import Question, RetrievalSet
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.evaluation.metrics import METRICS, all_metrics, check_metric
from sift_core.evaluation.search import (
    N_CANDIDATES,
    Pool,
    Versions,
    as_is,
    noisy_copies,
    pools,
    unit_rows,
)
from sift_core.evaluation.statistics import mean
from sift_core.progress import progress_bar
from sift_core.protocols import Selector
from sift_core.selection.baselines import MMRSelector
from sift_core.selection.context import ContextSelector
from sift_core.selection.sift import SIFTSelector
from sift_core.types import FloatArray, IntArray

CONDITIONS = ("as is", "duplicates")
N_VERSIONS = 4  # of every passage
MMR_WEIGHTS = (0.5, 0.7, 0.9)  # λ of MMR: 1 is relevance alone
OURS = "sift"  # the method whose paired differences are given ...
RIVALS = ("nn", "mmr")  # ... to those whose names begin so

Method: TypeAlias = Selector | Callable[[Pool, int], IntArray]
"""A selector, or (pool, n) → up to n positions of the pool in order of choice."""

Row: TypeAlias = dict[str, Any]


def default_methods() -> dict[str, Method]:
    """Return the methods that need nothing but this library, under their names in the rows.

    "nn" are the nearest neighbours, "sift" is the default for context (`ContextSelector`),
    "sift_paper" the paper's SIFT with the linear kernel, without repeats; "mmr .7" is MMR with
    that weight on relevance.
    """
    return {
        "nn": nearest_neighbors,
        "sift": ContextSelector(),
        "sift_paper": SIFTSelector(),
        **{f"mmr {short(w)}": MMRSelector(relevance_weight=w) for w in MMR_WEIGHTS},
    }


def nearest_neighbors(pool: Pool, n: int) -> IntArray:
    """Return the n most similar, which a pool has first."""
    return np.arange(min(n, len(pool.rows)))


def short(number: float) -> str:
    """Return ".7" for 0.7, as methods are named."""
    return f"{number:g}".removeprefix("0")


def choose(name: str, method: Method, pool: Pool, n: int) -> IntArray:
    """Return what a method chooses from a pool, each position once, at its first place.

    Args:
        name: Names the method in an error.
        method: What chooses.
        pool: The candidates.
        n: How many at most, at least 1.

    Raises:
        InvalidInputError: If it gives anything but at most n positions of the pool.
    """
    if isinstance(method, Selector):
        chosen = method.select(pool.query, pool.embeddings, n).positions
    else:
        chosen = method(pool, n)
    try:
        positions = checked_positions(chosen, len(pool.rows)).tolist()
    except InvalidInputError as error:
        raise InvalidInputError(f"method {name!r}: {error}") from error
    if len(positions) > n:
        raise InvalidInputError(f"method {name!r} must choose at most {n}, got {len(positions)}")
    return np.array(list(dict.fromkeys(positions)), dtype=np.intp)


def evaluate_retrieval(
    sets: RetrievalSet | Iterable[RetrievalSet],
    *,
    cache: EmbeddingCache | None = None,
    methods: Mapping[str, Method] | None = None,
    conditions: Sequence[str] = CONDITIONS,
    metrics: Sequence[str] = METRICS,
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
        cache: Embeds texts that it does not hold. It shows a bar if it was made to. Default:
            all-MiniLM-L6-v2 in the library's folder.
        methods: Name → selector or function. Default: `default_methods()`.
        conditions: "as is"; "duplicates": `n_versions` noisy copies of every embedding in place
            of it. Default: both.
        metrics: "recall@n", "all_gold@n", "ndcg@n" and "alpha_ndcg@n" of any n >= 1. As many are
            chosen as the largest n. Default: `METRICS`.
        n_versions: Number of copies in "duplicates", at least 1.
        n_candidates: How many of the nearest a method chooses from, at least 1.
        seed: Of the noise.
        per_query: Whether rows also have the metrics of each question. Default: False.
        progress: Whether to show bars. Default: True.

    Returns:
        Rows with "set", "condition", "method", each of `metrics` as the mean over the
        questions, "ci" (metric → 90 % bootstrap interval over the questions, missing if
        there is one question), "n_queries" and "values": "fractions". That of "sift" also has
        "differences": for "nn" and every method whose name begins with "mmr", metric →
        {"mean", "ci"} of "sift" minus it, question by question. With `per_query` "per_query"
        has "question_id" and each metric, lists with one entry a question.

    Raises:
        InvalidInputError: If an argument is not as above, a method chooses a position outside
            of the pool, or the embedder breaks a rule of `EmbeddingCache.embed`.
        MissingDependencyError: If the library of the cache's model is not installed.
    """
    cache = EmbeddingCache(progress=progress) if cache is None else cache
    methods = default_methods() if methods is None else methods
    if not methods or not all(isinstance(m, Selector) or callable(m) for m in methods.values()):
        raise InvalidInputError(
            f"`methods` must have at least one method, each a Selector or a function (pool, n) → "
            f"positions, got {methods!r:.200}"
        )
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
                methods,
                metrics=metrics,
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
    metrics: Sequence[str] = METRICS,
    n_candidates: int = N_CANDIDATES,
    per_query: bool = False,
    progress: bool = True,
) -> list[Row]:
    """Return one row a method in one condition, as `evaluate_retrieval`.

    Args:
        set_name: Name of the questions' set.
        questions: n of them, at least one.
        queries: Their embeddings, unit rows, shape (n, d).
        versions: All that is searched.
        methods: At least one.
        metrics: As for `evaluate_retrieval`. Default: `METRICS`.
        n_candidates: How many of the nearest a method chooses from, at least 1.
        per_query: Whether rows also have the metrics of each question. Default: False.
        progress: Whether to show a bar. Default: True.

    Raises:
        InvalidInputError: If a method chooses a position outside of the pool, or the embeddings
            of questions and passages have different dimensions.
    """
    if queries.shape[1] != versions.embeddings.shape[1]:
        raise InvalidInputError(
            f"questions have {queries.shape[1]} dimensions, passages "
            f"{versions.embeddings.shape[1]}: were both embedded by one model?"
        )
    n_chosen = max(check_metric(one)[1] for one in metrics)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in methods}
    n_versions = np.bincount(versions.originals).tolist()
    own_rows: list[IntArray | list[int]] = [
        [] if question.own_row is None else np.flatnonzero(versions.originals == question.own_row)
        for question in questions
    ]
    searched = pools(queries, versions.embeddings, n_candidates, left_out=own_rows)
    title = f"{set_name}, {versions.condition}"
    with progress_bar(len(questions), title, "questions", wanted=progress) as advance:
        for question, pool in zip(questions, searched, strict=True):
            originals = versions.originals[pool.rows]
            available = {row: n_versions[row] for row in question.grades}
            for name, method in methods.items():
                chosen = originals[choose(name, method, pool, n_chosen)].tolist()
                found[name].append(all_metrics(chosen, question.grades, available, metrics))
            advance(1)
    scores = {name: np.array([[*one.values()] for one in every]).T for name, every in found.items()}
    rows: list[Row] = []
    for name, ours in scores.items():  # (n_metrics, n)
        means = _means(ours, metrics)
        row: Row = {"set": set_name, "condition": versions.condition, "method": name}
        row |= {metric: one["mean"] for metric, one in means.items()}
        row["ci"] = {metric: one["ci"] for metric, one in means.items() if "ci" in one}
        if name == OURS:
            rivals = {rival: scores[rival] for rival in scores if rival.startswith(RIVALS)}
            row["differences"] = {
                rival: _means(ours - theirs, metrics) for rival, theirs in rivals.items()
            }
        row |= {"n_queries": len(questions), "values": "fractions"}
        if per_query:
            row["per_query"] = {
                "question_id": [question.question_id for question in questions],
                **dict(zip(metrics, ours.tolist(), strict=True)),
            }
        rows.append(row)
    return rows


def _means(scores: FloatArray, metrics: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return metric → "mean", and "ci" if there are several questions."""
    estimates = {metric: mean(values) for metric, values in zip(metrics, scores, strict=True)}
    return {
        metric: {"mean": one.value, **({"ci": [one.low, one.high]} if one.n > 1 else {})}
        for metric, one in estimates.items()
    }
