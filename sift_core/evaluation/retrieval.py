"""How much of what answers a question do the first choices among some hundred candidates hold?

    retrieval_set = read_beir("scifact")  # or read_retrieval_set(corpus, queries)
    rows = evaluate_retrieval(retrieval_set.sample(300))
    for table in retrieval_tables(rows):
        print(table.as_text())

Everything is searched exactly, in memory. Metrics are fractions; `metrics` defines them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sift_core.checks import as_count
from sift_core.errors import InvalidInputError
from sift_core.evaluation.data import Question, RetrievalSet
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.evaluation.methods import Method, as_methods, choose, default_methods
from sift_core.evaluation.metrics import CUTS, METRICS, all_metrics
from sift_core.evaluation.progress import progress_bar
from sift_core.evaluation.redundancy import (
    Versions,
    as_is,
    noisy_copies,
)
from sift_core.evaluation.search import N_CANDIDATES, pools, unit_rows
from sift_core.evaluation.statistics import Estimate, mean
from sift_core.protocols import Selector
from sift_core.types import FloatArray

CONDITIONS = ("as is", "duplicates")
N_VERSIONS = 4  # of every passage
OURS = "sift"  # the method whose paired differences are given ...
RIVALS = ("nn", "mmr")  # ... to those whose names begin so

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class QueryScores:
    """What every method reached on every question of one set in one condition.

    Args:
        set_name: Of the set.
        condition: As in the rows: "as is" or "duplicates n".
        question_ids: n of them.
        scores: Method → metric → fractions, shape (n,), in the order of `question_ids`.
    """

    set_name: str
    condition: str
    question_ids: Sequence[str]
    scores: Mapping[str, Mapping[str, FloatArray]]


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
        MissingDependencyError: If a bar is wanted and tqdm is not installed, or the model's
            library is not.
    """
    cache = EmbeddingCache(progress=progress) if cache is None else cache
    compared = as_methods(default_methods() if methods is None else methods)
    n_candidates = as_count("n_candidates", n_candidates, minimum=1)
    n_versions = as_count("n_versions", n_versions, minimum=1)
    _check_conditions(conditions)
    rows: list[Row] = []
    for one in [sets] if isinstance(sets, RetrievalSet) else sets:
        queries = embed_questions(one.questions, cache)
        for versions in versions_of(one, cache, conditions, n_versions=n_versions, seed=seed):
            found = measure(
                one.name,
                one.questions,
                queries,
                versions,
                compared,
                n_candidates=n_candidates,
                progress=progress,
            )
            rows += rows_of(found, per_query=per_query)
    return rows


def embed_questions(questions: Sequence[Question], cache: EmbeddingCache) -> FloatArray:
    """Return the embeddings of the questions, unit rows, shape (n, d).

    Raises:
        InvalidInputError: As `EmbeddingCache.embed`, or if an embedding is zero.
    """
    embedded = cache.embed_queries([question.text for question in questions], "questions")
    return unit_rows(embedded, "question")


def versions_of(
    retrieval_set: RetrievalSet,
    cache: EmbeddingCache,
    conditions: Sequence[str] = CONDITIONS,
    *,
    n_versions: int = N_VERSIONS,
    seed: int = 0,
) -> Iterator[Versions]:
    """Yield the corpus in each condition; arguments as `evaluate_retrieval`."""
    plain = as_is(retrieval_set.passages, cache)
    for condition in conditions:
        yield plain if condition == "as is" else noisy_copies(plain, n_versions, seed)


def measure(
    set_name: str,
    questions: Sequence[Question],
    queries: FloatArray,
    versions: Versions,
    methods: Mapping[str, Method],
    *,
    n_candidates: int = N_CANDIDATES,
    progress: bool = True,
) -> QueryScores:
    """Return what every method reaches on every question.

    Args:
        set_name: Of the questions.
        questions: n of them, at least one.
        queries: Their embeddings, unit rows, shape (n, d).
        versions: What is searched.
        methods: At least one.
        n_candidates: How many of the nearest a method chooses from.
        progress: Whether a bar is shown.

    Raises:
        InvalidInputError: If a method chooses what is not in the pool, or the embeddings of
            questions and passages have different dimensions.
        MissingDependencyError: If a bar is wanted and tqdm is not installed.
    """
    if queries.shape[1] != versions.embeddings.shape[1]:
        raise InvalidInputError(
            f"questions have {queries.shape[1]} dimensions, passages "
            f"{versions.embeddings.shape[1]}: were both embedded by one model?"
        )
    found: dict[str, dict[str, list[float]]] = {
        name: {metric: [] for metric in METRICS} for name in methods
    }
    n_versions = np.bincount(versions.originals).tolist()
    searched = pools(queries, versions.embeddings, n_candidates)
    what = f"{set_name}, {versions.condition}"
    with progress_bar(len(questions), what, "questions", wanted=progress) as advance:
        for question, pool in zip(questions, searched, strict=True):
            originals = versions.originals[pool.rows]
            available = {row: n_versions[row] for row in question.grades}
            for name, method in methods.items():
                chosen = originals[choose(name, method, pool, max(CUTS))]
                reached = all_metrics(chosen.tolist(), question.grades, available)
                for metric, value in reached.items():
                    found[name][metric].append(value)
            advance(1)
    return QueryScores(
        set_name=set_name,
        condition=versions.condition,
        question_ids=[question.question_id for question in questions],
        scores={
            name: {metric: np.array(values) for metric, values in metrics.items()}
            for name, metrics in found.items()
        },
    )


def rows_of(found: QueryScores, *, per_query: bool = False) -> list[Row]:
    """Return one row a method, as `evaluate_retrieval` has them."""
    rows = []
    for name, scores in found.scores.items():
        estimates = {metric: mean(values) for metric, values in scores.items()}
        row: Row = {
            "set": found.set_name,
            "condition": found.condition,
            "method": name,
            **{metric: one.value for metric, one in estimates.items()},
            "ci": {metric: _interval(one) for metric, one in estimates.items() if one.n > 1},
        }
        if name == OURS:
            row["differences"] = _differences(found)
        row |= {"n_queries": len(found.question_ids), "values": "fractions"}
        if per_query:
            row["per_query"] = {
                "question_id": list(found.question_ids),
                **{metric: values.tolist() for metric, values in scores.items()},
            }
        rows.append(row)
    return rows


def _differences(found: QueryScores) -> dict[str, dict[str, Any]]:
    """Return rival → metric → mean and interval of `OURS` minus the rival, paired."""
    ours = found.scores[OURS]
    differences: dict[str, dict[str, Any]] = {}
    for rival, theirs in found.scores.items():
        if rival != OURS and rival.startswith(RIVALS):
            estimates = {metric: mean(ours[metric] - theirs[metric]) for metric in ours}
            differences[rival] = {
                metric: {"mean": one.value, **({"ci": _interval(one)} if one.n > 1 else {})}
                for metric, one in estimates.items()
            }
    return differences


def _interval(estimate: Estimate) -> list[float]:
    return [estimate.low, estimate.high]


def _check_conditions(conditions: Sequence[str]) -> None:
    if isinstance(conditions, str) or not conditions or not set(conditions) <= set(CONDITIONS):
        raise InvalidInputError(
            f"`conditions` must be a sequence of some of {CONDITIONS}, got {conditions!r}"
        )
