"""Choose by each method of the demo, and count the facts among the chosen chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from demo_harbour import Question

from sift_core import (
    CandidatePool,
    ChoiceOptions,
    MMRSelector,
    Query,
    choose,
    search,
)
from sift_core.comparison import MMR_WEIGHT
from sift_core.explanation import Pick
from sift_core.sources import QdrantSource
from sift_core.sources.multi_query import fetch_for_all
from sift_core.types import IntArray

N_CHUNKS = 5
MMR_WEIGHTS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of relevance: those of benchmarks.retrieval
NEAREST, MMR, HYBRID, SIFT, NEWEST = "nearest", "MMR", "hybrid", "SIFT", "SIFT, newest"
METHODS = (NEAREST, MMR, HYBRID, SIFT)
DEFAULTS = ChoiceOptions(n_select=N_CHUNKS)


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """The choice of one method for a question: chunks in order, and SIFT's reasons."""

    chunks: CandidatePool
    picks: tuple[Pick, ...] = ()


def choose_by_all(source: QdrantSource, query: Query) -> tuple[dict[str, Choice], list[Choice]]:
    """Return what each method but MMR chooses, by its name, and what MMR does at each weight.

    Nearest neighbours and MMR go by embeddings alone. "hybrid" fuses embeddings and BM25 by rank.
    SIFT has the package's defaults, "SIFT, newest" also `newest="date"`.
    """
    nearest = source.fetch(query, DEFAULTS.n_candidates)
    hybrid = fetch_for_all(source, query, DEFAULTS.n_candidates, with_words=True)
    chosen = {
        NEAREST: Choice(chunks=_first(nearest)),
        HYBRID: Choice(chunks=_first(hybrid)),
    }
    for name, options in ((SIFT, DEFAULTS), (NEWEST, replace(DEFAULTS, newest="date"))):
        found = search(source, query, options)
        chosen[name] = Choice(chunks=found.chunks, picks=found.picks)
    by_embeddings = replace(DEFAULTS, words=0)
    mmr = []
    for weight in MMR_WEIGHTS:
        options = replace(by_embeddings, selector=MMRSelector(relevance_weight=weight))
        mmr.append(Choice(chunks=choose(nearest, query, options).chunks))
    return chosen, mmr


def _first(pool: CandidatePool) -> CandidatePool:
    return pool.take(range(min(N_CHUNKS, len(pool))))


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """The choices of each method for each question.

    Args:
        questions: The questions.
        chosen: By the method's name, a choice a question.
        mmr_weight: The weight of relevance that MMR has here.
    """

    questions: Sequence[Question]
    chosen: Mapping[str, Sequence[Choice]]
    mmr_weight: float

    @classmethod
    def of(
        cls,
        questions: Sequence[Question],
        choices: Sequence[tuple[Mapping[str, Choice], Sequence[Choice]]],
    ) -> Comparison:
        """Return the comparison in which MMR has the weight that finds most facts.

        Without facts, or of equals, it has the one nearest to the package's own.
        """
        of_weights = list(zip(*(mmr for _, mmr in choices), strict=True))

        def merit(i: int) -> tuple[int, float]:
            return sum(n_found(questions, of_weights[i])), -abs(MMR_WEIGHTS[i] - MMR_WEIGHT)

        best = max(range(len(MMR_WEIGHTS)), key=merit)
        chosen = {
            name: of_weights[best] if name == MMR else [others[name] for others, _ in choices]
            for name in (*METHODS, NEWEST)
        }
        return cls(questions=questions, chosen=chosen, mmr_weight=MMR_WEIGHTS[best])

    @property
    def n_facts(self) -> IntArray:
        """Return how many facts each question has, shape (n,)."""
        return np.array([len(one.facts) for one in self.questions], dtype=np.intp)

    def n_found(self, name: str) -> IntArray:
        """Return how many facts of each question a method found, shape (n,)."""
        return n_found(self.questions, self.chosen[name])

    def shown(self) -> list[int]:
        """Return one question of each kind: the first of which the nearest chunks lack a fact.

        If they lack none of that kind, the first. How SIFT does plays no part.
        """
        lacks = self.n_found(NEAREST) < self.n_facts
        rows: dict[str, int] = {}
        for row, question in enumerate(self.questions):
            first = rows.setdefault(question.kind, row)
            if lacks[row] and not lacks[first]:
                rows[question.kind] = row
        return list(rows.values())


def n_found(questions: Sequence[Question], choices: Sequence[Choice]) -> IntArray:
    """Return how many facts of each question stand in the chunks of its choice."""
    pairs = zip(questions, choices, strict=True)
    return np.array([sum(one.found(choice.chunks)) for one, choice in pairs], dtype=np.intp)
