"""How much of what answers a question fits into so many tokens, for each method?

    python -m benchmarks.retrieval_tokens --data FOLDER [--sets musique,hotpotqa] [--json FILE]

Passages are measured as they are, then each in four textual versions. Every method chooses among
the 200 nearest. It fills a budget of 256, 512, 1,024 and 2,048 tokens in its own order, and skips
chunks that no longer fit. Chunks that it leaves out follow, nearest first. Tokens are those of
all-MiniLM-L6-v2 without its marks. `sift` knows the budget (`Limits`). `sift, filled` is filled
like the others. The tag `evidence-2026-11b` also has AdaGReS, and MMR with the best weight of each
question.

Recall of gold passages, any version, in points. Sets are smaller than `benchmarks.retrieval`'s:
random questions, the passages that answer them and random others.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for small products; torch keeps its own

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.bars import bar, load_bars
from benchmarks.embedding_cache import project_cache
from benchmarks.report import Report
from benchmarks.retrieval import PACKAGES, QuestionSet, read_sets, restricted, set_options
from benchmarks.retrieval_methods import gists, is_tuned_rival, methods
from benchmarks.text_variants import texts_of_variants, textual_variants
from benchmarks.timing import medians_ms, timed
from sift_core import ContextSelector, Limits
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.evaluation.retrieval import Method, choose
from sift_core.evaluation.search import Pool, Versions, as_is, pools
from sift_core.progress import progress_bar

BUDGETS = (256, 512, 1024, 2048)
N_VERSIONS = 4
N_TIMED = 40  # questions
TIMED_BUDGET = 1024
Row = dict[str, Any]
Filler = Callable[["Priced"], np.ndarray]


@dataclass(frozen=True, kw_only=True, eq=False)
class Priced:
    """A pool (n,) with the tokens of each candidate, a budget, and how many it may hold."""

    pool: Pool
    costs: np.ndarray
    budget: int

    @property
    def n_expected(self) -> int:
        """How many chunks of mean length the budget holds, at least one."""
        return max(1, int(self.budget // self.costs.mean()))


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """What is searched in one condition, with the tokens of every version, shape (n,)."""

    versions: Versions
    n_tokens: np.ndarray


def smaller(questions: QuestionSet, n_passages: int, seed: int) -> QuestionSet:
    """Return the questions over the passages that answer them and random others."""
    gold = sorted(set().union(*(one.gold for one in questions.questions)))
    rest = np.setdiff1d(np.arange(len(questions.passages)), gold)
    n_others = min(len(rest), max(0, n_passages - len(gold)))
    others = np.random.default_rng(seed).choice(rest, n_others, replace=False)
    return restricted(questions, [*gold, *sorted(others.tolist())])


def filled(order: np.ndarray, priced: Priced) -> np.ndarray:
    """Return the positions that fit, in an order; what it lacks comes last, nearest first."""
    rest = np.setdiff1d(np.arange(len(priced.costs)), order)
    left, chosen = priced.budget, []
    for position in [*order.tolist(), *rest.tolist()]:
        if priced.costs[position] <= left:
            chosen.append(position)
            left -= int(priced.costs[position])
    return np.array(chosen, dtype=np.intp)


def with_budget(priced: Priced) -> np.ndarray:
    """Return what the default chooses within the budget."""
    limits = Limits(costs=priced.costs, budget=priced.budget)
    selection = ContextSelector().select(priced.pool.query, priced.pool.embeddings, limits=limits)
    return selection.positions


def orders() -> dict[str, Method]:
    """Return the methods whose order does not depend on the budget."""
    every = methods()
    rivals = {name: one for name, one in every.items() if is_tuned_rival(name)}
    return {"nn": every["nn"], "sift, filled": every["sift"], **rivals}


def fillers() -> dict[str, Filler]:
    """Return the methods that go by how much there is room for."""
    return {
        "sift": with_budget,
        **{name: partial(_of_expected, name, one) for name, one in gists().items()},
    }


def _of_expected(name: str, method: Method, priced: Priced) -> np.ndarray:
    """Return what fits of a method that chooses a set of given size."""
    n_expected = min(priced.n_expected, len(priced.costs))
    return filled(choose(name, method, priced.pool, n_expected), priced)


def choices(pool: Pool, costs: np.ndarray) -> Iterator[tuple[int, str, np.ndarray]]:
    """Yield budget, method and chosen positions."""
    found = {name: choose(name, method, pool, len(costs)) for name, method in orders().items()}
    for budget in BUDGETS:
        priced = Priced(pool=pool, costs=costs, budget=budget)
        for name, order in found.items():
            yield budget, name, filled(order, priced)
        for name, fill in fillers().items():
            yield budget, name, fill(priced)


def measure(questions: QuestionSet, corpus: Corpus) -> list[Row]:
    """Return one row a budget and method, averaged over the questions; recall as a fraction."""
    recalls: dict[tuple[int, str], list[float]] = {}
    counts: dict[tuple[int, str], list[int]] = {}
    versions = corpus.versions
    searched = pools(questions.embeddings, versions.embeddings)
    title = f"{questions.name}, {versions.condition}"
    with progress_bar(len(questions.questions), title, "questions") as advance:
        for question, pool in zip(questions.questions, searched, strict=True):
            for budget, name, chosen in choices(pool, corpus.n_tokens[pool.rows]):
                passages = set(versions.originals[pool.rows[chosen]].tolist())
                recall = len(passages & question.gold) / len(question.gold)
                recalls.setdefault((budget, name), []).append(recall)
                counts.setdefault((budget, name), []).append(len(chosen))
            advance(1)
    return [
        {
            "set": questions.name,
            "condition": versions.condition,
            "budget": budget,
            "method": name,
            "recall": float(np.mean(values)),
            "n_chosen": float(np.mean(counts[budget, name])),
            "n_queries": len(values),
        }
        for (budget, name), values in recalls.items()
    ]


def time_over_unlimited(questions: QuestionSet, corpus: Corpus) -> float:
    """Return what a choice under a budget takes over one of as many chunks without, medians."""
    searched = pools(questions.embeddings[:N_TIMED], corpus.versions.embeddings)
    priced = [
        Priced(pool=pool, costs=corpus.n_tokens[pool.rows], budget=TIMED_BUDGET)
        for pool in searched
    ]
    problems = [(one, len(with_budget(one))) for one in priced]
    selector = ContextSelector()
    timers = {
        "without": timed(lambda p: selector.select(p[0].pool.query, p[0].pool.embeddings, p[1])),
        "budget": timed(lambda p: with_budget(p[0])),
    }
    times = medians_ms("without", timers, problems, rounds=5)
    return times["budget"] / times["without"]


def corpora(questions: QuestionSet, seed: int, cache: EmbeddingCache) -> Iterator[Corpus]:
    """Yield the two conditions."""
    count = cache.make_embedder().count_tokens
    n_marks = count("")
    texts = texts_of_variants(questions.passages, N_VERSIONS, seed)
    tokens = [np.array([max(1, count(text) - n_marks) for text in version]) for version in texts]
    yield Corpus(versions=as_is(questions.passages, cache), n_tokens=tokens[0])
    varied = textual_variants(questions.passages, N_VERSIONS, seed, cache)
    yield Corpus(versions=varied, n_tokens=np.concatenate(tokens))


def best_of(rows: Mapping[str, Row], prefix: str) -> tuple[str, float]:
    """Return name and recall, in points, of the best setting of one rival."""
    own = {name: row["recall"] for name, row in rows.items() if name.startswith(prefix)}
    name = max(own, key=lambda one: own[one])
    return name, 100 * own[name]


def rivals_of(rows: Mapping[str, Row]) -> list[str]:
    """Return the beginnings of the rivals' names that there are rows of."""
    every = ("nn", "mmr", "dpp", "pyversity dpp", "gist")
    return [one for one in every if any(name.startswith(one) for name in rows)]


def by_case(rows: Sequence[Row]) -> dict[tuple[str, str, int], dict[str, Row]]:
    """Return method → row for every condition, set and budget."""
    cases: dict[tuple[str, str, int], dict[str, Row]] = {}
    for row in rows:
        key = (row["condition"], row["set"], row["budget"])
        cases.setdefault(key, {})[row["method"]] = row
    return cases


def bars_of(rows: Sequence[Row], ratios: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the bars; recall in points."""
    numbers = load_bars("retrieval_tokens")
    cases, bars = by_case(rows), []
    for (condition, name, budget), methods_ in cases.items():
        ours = round(100 * methods_["sift"]["recall"], 6)
        case = f"{name}, {condition}, {budget} tokens: recall in points against"
        found = [best_of(methods_, one) for one in rivals_of(methods_)]
        rival, best = max(found, key=lambda one: one[1])
        margin = numbers["over_best_rival"]
        bars.append(bar(f"{case} {rival}", ours, round(best + margin, 6), "higher"))
        if (more := cases.get((condition, name, 2 * budget))) is not None:
            twice = 100 * more["nn"]["recall"]
            margin = numbers["half_as_is" if condition == "as is" else "half_redundant"]
            label = f"{case} nn with twice as many"
            bars.append(bar(label, ours, round(twice + margin, 6), "higher"))
    for case, ratio in ratios.items():
        name = f"{case}: time with a budget over without"
        bars.append(bar(name, round(ratio, 3), numbers["time_over_unlimited"], "lower"))
    return bars


def main() -> None:
    parser = set_options(__doc__, n_questions=300)
    parser.add_argument("--passages", type=int, default=1500, help="of each set at most")
    arguments = parser.parse_args()
    cache = project_cache()
    report, ratios = Report(), {}
    if not gists():
        report.skip("gist", "divsel is not installed")
    rows: list[Row] = []
    for every in read_sets(arguments, cache):
        questions = smaller(every, arguments.passages, arguments.seed)
        for corpus in corpora(questions, arguments.seed, cache):
            found = measure(questions, corpus)
            rows += found
            case = f"{questions.name}, {corpus.versions.condition}"
            ratios[case] = time_over_unlimited(questions, corpus)
    report.rows += rows
    report.bars = bars_of(rows, ratios)
    report.finish(arguments.json, [*PACKAGES, "divsel"])


if __name__ == "__main__":
    main()
