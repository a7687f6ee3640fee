"""Where 200 candidates are few facts, what does asking for more bring?

    python -m benchmarks.oversampling --data FOLDER [--sets musique,hotpotqa,...] [--quick]
                                      [--json FILE]

Each set of a data folder as it is, with 4 to 64 noisy copies of every passage, with unevenly many,
and with 4 textual versions. `ContextSelector` chooses 10, 20 and 50 from the nearest 200, from the
nearest 1,000, and from what `OversamplingSource` makes of 200. Passages that benchmarks.retrieval
has embedded are not embedded again. Rows have fractions; tables and bars have points.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks.embedding_cache import project_cache
from benchmarks.oversampling_data import N_COPIES, Asked, asked, conditions
from benchmarks.report import Report
from benchmarks.retrieval import QuestionSet, read_sets, set_options
from sift_core import CandidatePool, ContextSelector
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.sources.oversampling import OversamplingSource

PACKAGES = ["numpy", "numba", "sentence-transformers", "sift-rerank"]
N_CANDIDATES, MANY_CANDIDATES = 200, 1000
N_SELECT = (10, 20, 50)
FEW, MANY, ADAPTIVE = f"{N_CANDIDATES}", f"{MANY_CANDIDATES}", "adaptive"

Row = dict[str, Any]
Policy = Callable[[Asked, int], CandidatePool]  # (question, n_select) → pool


def fixed(n_candidates: int) -> Policy:
    return lambda one, n_select: one.source.fetch(one.query, n_candidates)


def adaptive(one: Asked, n_select: int) -> CandidatePool:
    return OversamplingSource(one.source, n_select=n_select).fetch(one.query, N_CANDIDATES)


POLICIES: dict[str, Policy] = {
    FEW: fixed(N_CANDIDATES),
    MANY: fixed(MANY_CANDIDATES),
    ADAPTIVE: adaptive,
}


@dataclass
class Found:
    """What a policy brought, question by question."""

    recalls: list[float] = field(default_factory=list)
    all_gold: list[float] = field(default_factory=list)
    candidates: list[int] = field(default_factory=list)
    fetches: list[int] = field(default_factory=list)

    def add(self, one: Asked, policy: Policy, n_select: int) -> None:
        """Fetch by the policy, choose, and note what was found at what cost."""
        one.source.asked.clear()
        pool = policy(one, n_select)
        chosen = ContextSelector().select(one.query.embedding, pool.embeddings, n_select).positions
        hits = {int(pool.document_ids[i]) for i in chosen} & one.gold
        self.recalls.append(len(hits) / len(one.gold))
        self.all_gold.append(float(len(hits) == len(one.gold)))
        self.candidates.append(sum(one.source.asked))
        self.fetches.append(len(one.source.asked))

    def row(self) -> Row:
        """Return means over the questions."""
        return {
            "recall": round(float(np.mean(self.recalls)), 5),
            "all_gold": round(float(np.mean(self.all_gold)), 5),
            "candidates": round(float(np.mean(self.candidates)), 1),
            "fetches": round(float(np.mean(self.fetches)), 3),
            "n_queries": len(self.recalls),
        }


def measure_set(
    questions: QuestionSet, cache: EmbeddingCache, *, quick: bool, seed: int
) -> list[Row]:
    """Return the rows of one set: every condition, policy and n_select."""
    rows: list[Row] = []
    copies = (N_COPIES[1], N_COPIES[3]) if quick else N_COPIES
    for versions in conditions(questions, cache, n_copies=copies, seed=seed):
        found: dict[tuple[str, int], Found] = defaultdict(Found)
        what = f"{questions.name}, {versions.condition}"
        for one in tqdm(asked(questions, versions), total=len(questions.questions), desc=what):
            for name, policy in POLICIES.items():
                for n_select in N_SELECT:
                    found[name, n_select].add(one, policy, n_select)
        case = {"set": questions.name, "condition": versions.condition}
        rows += [
            {**case, "policy": name, "n_select": n_select, **each.row()}
            for (name, n_select), each in found.items()
        ]
    return rows


def judge(report: Report) -> None:
    """Hold the means over the sets against the bars."""
    table = means(report.rows)
    for (condition, policy, n_select), row in table.items():
        if policy != ADAPTIVE:
            continue
        name = f"{condition}, {n_select} chosen:"
        over_few = 100 * (row["recall"] - table[condition, FEW, n_select]["recall"])
        over_many = 100 * (row["recall"] - table[condition, MANY, n_select]["recall"])
        report.judge(f"{name} points of recall over {FEW}", over_few, "over_few")
        report.judge(f"{name} points of recall over {MANY}", over_many, "over_many")
        if condition == "as is":
            report.judge(f"{name} fetches", row["fetches"], "fetches_as_is", "lower")
        if condition == "duplicates 32" and n_select == 20:
            report.judge(f"{name} points of recall over {FEW}", over_few, "redundant_over_few")
            report.judge(f"{name} candidates", row["candidates"], "redundant_candidates", "lower")


def means(rows: Sequence[Row]) -> dict[tuple[str, str, int], Row]:
    """Return (condition, policy, n_select) → the numbers of a row, averaged over the sets."""
    groups: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["condition"], row["policy"], row["n_select"]].append(row)
    numbers = ("recall", "all_gold", "candidates", "fetches")
    return {
        key: {name: float(np.mean([row[name] for row in group])) for name in numbers}
        for key, group in groups.items()
    }


def print_means(rows: Sequence[Row]) -> None:
    print("\nMeans over sets: recall / all_gold in points, candidates, fetches")
    for (condition, policy, n_select), row in means(rows).items():
        print(
            f"{condition:<14} {n_select:>3} chosen {100 * row['recall']:6.1f} / "
            f"{100 * row['all_gold']:5.1f} {row['candidates']:7.0f} {row['fetches']:5.2f}  {policy}"
        )


def main() -> None:
    parser = set_options(__doc__, quick="10 questions of a set, fewer conditions")
    arguments = parser.parse_args()
    arguments.max_queries = arguments.max_queries or (10 if arguments.quick else 60)
    cache = project_cache()
    report = Report(section="oversampling")
    for questions in read_sets(arguments, cache):
        report.rows += measure_set(questions, cache, quick=arguments.quick, seed=arguments.seed)
    print_means(report.rows)
    judge(report)
    report.finish(arguments.json, PACKAGES)


if __name__ == "__main__":
    main()
