"""Relevance that spreads over a pool: from what the question names to what that leads to.

In the terms of SIFT's paper, the result is a prediction target with weights: the weights are the
relevance, taken through the graph kernel (1 - α)(I - αSᵀ)⁻¹, which is personalised PageRank.
Symbols: n candidates, k of them without near-duplicates, p starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sift_core.selection.question_parts import name_runs
from sift_core.selection.words import PoolWords
from sift_core.types import BoolArray, FloatArray, IntArray

# Decision 0036 has the measurements behind these five numbers.
FOLLOWED = 0.5  # α: probability of following a link at each step
TEMPERATURE = 0.7  # of the start, in standard deviations of relevance
OF_PART = 3.0  # what having a whole part adds to relevance, in standard deviations
OF_MENTION = 0.5  # a link by a mentioned heading, where two copies of a text have 1
COMMON = 0.05  # a part that a larger share of the pool has says nothing

SAME_PART = 0.2  # two parts are one if no candidate's shares differ by more
SMALLEST_DEVIATION = 1e-9  # below it, all candidates are equally relevant


@dataclass(frozen=True, kw_only=True, eq=False)
class Spread:
    """What each candidate counts as a target, and along which links it came to that."""

    weights: FloatArray
    """Weight of each candidate, shape (n,), >= 0, summing to 1. 0 for near-duplicates."""
    own: FloatArray
    """The part of `weights` that is the candidate's own relevance, shape (n,)."""
    kept: IntArray
    """The k candidates that are not near-duplicates of a more relevant one."""
    steps: FloatArray
    """Probability of a step from one to another of these, shape (k, k); a row sums to 1 or 0."""

    def flows(self, row: int, sources: IntArray) -> FloatArray:
        """Return what a candidate's weight owes to each of some others directly, shape (s,).

        Args:
            row: A candidate.
            sources: Candidates, shape (s,).
        """
        places = np.full(len(self.weights), -1)
        places[self.kept] = np.arange(len(self.kept))
        flows = np.zeros(len(sources))
        if places[row] >= 0:
            there = places[sources] >= 0
            steps = self.steps[places[sources[there]], places[row]]
            flows[there] = FOLLOWED * steps * self.weights[sources[there]]
        return flows


class QuestionPart(NamedTuple):
    """A name, number or heading in a question."""

    words: tuple[str, ...]
    """Its words as `words_of` spells them; empty for a heading, which a candidate has anyway."""
    shares: FloatArray
    """How much of it each candidate has, shape (n,), in [0, 1]."""

    @property
    def is_missing(self) -> bool:
        """Whether no candidate has all of it."""
        return not _has_all(self.shares).any()


def question_parts(words: PoolWords, question_text: str, question: int = 0) -> list[QuestionPart]:
    """Return the parts of a question, each of which starts a walk of its own.

    The parts are the headings of candidates that stand in the question, and its names and numbers.
    Names with short words between them are one if a candidate has all of it. The first word of a
    sentence counts only where a heading has it.

    Args:
        words: Of the pool.
        question_text: The question.
        question: Its position in `words`. Default: the first one.
    """
    found = [QuestionPart((), shares) for shares in words.question_headings(question)]
    for run in name_runs(question_text):
        segments = list(run.segments)
        if run.n_doubtful and not words.headings_have(segments[0][: run.n_doubtful]):
            segments[0] = segments[0][run.n_doubtful :]
        names = _names(words, segments)
        # "I", or how many things are asked for, is no name.
        found += [name for name in names if any(len(word) > 1 for word in name.words)]
    distinct: list[QuestionPart] = []
    for part in found:
        distances = (np.abs(part.shares - other.shares) for other in distinct)
        if not any(each.max(initial=0.0) < SAME_PART for each in distances):
            distinct.append(part)
    return distinct


def _names(words: PoolWords, segments: list[tuple[str, ...]]) -> list[QuestionPart]:
    """Return segments as names; they are one name as long as a candidate has it whole."""
    names: list[QuestionPart] = []
    for segment in filter(None, segments):
        if names:
            longer = tuple(dict.fromkeys([*names[-1].words, *segment]))
            joined = QuestionPart(longer, words.shares_of(longer))
            if not joined.is_missing:
                names[-1] = joined
                continue
        names.append(QuestionPart(segment, words.shares_of(segment)))
    return names


def spread(
    words: PoolWords,
    relevance: FloatArray,
    kept: IntArray,
    parts: Sequence[QuestionPart],
) -> Spread:
    """Return the candidates' weights after a walk from what is relevant along what they share.

    A walk starts at a candidate with probability softmax(relevance / T), T = 0.7 standard
    deviations. With probability 0.5 it ends there, else it follows a link. Links are the cosines of
    words that no question has, and 0.5 times the share of another's heading that a candidate has.
    Each part of the question starts a walk of its own, and the weights are the mean of all walks.
    A part that more than 5 % of the candidates have whole starts none.

    Costs one linear solve, O(k³): 1 ms for 200 candidates, 3 ms for 300.

    Args:
        words: Of the pool.
        relevance: To the question, shape (n,), on any scale.
        kept: The candidates that are not near-duplicates of a more relevant one, shape (k,).
        parts: Those of the question.

    References:
        Haveliwala (2002), Topic-sensitive PageRank.
    """
    n = len(relevance)
    relevance = relevance[kept]
    deviation = max(float(relevance.std()), SMALLEST_DEVIATION)
    starts = [relevance]
    for part in parts:
        shares = part.shares[kept]
        if _has_all(shares).mean() <= COMMON:
            starts.append(relevance + OF_PART * deviation * shares)
    exponents = np.array(starts) / (TEMPERATURE * deviation)
    walks = np.exp(exponents - exponents.max(axis=1, keepdims=True))
    walks /= walks.sum(axis=1, keepdims=True)
    links = (words.linked + OF_MENTION * words.mentions)[np.ix_(kept, kept)]
    np.fill_diagonal(links, 0.0)
    degrees = links.sum(axis=1, keepdims=True)
    steps = links / np.where(degrees > 0, degrees, 1.0)
    own = (1 - FOLLOWED) * walks
    reached = np.linalg.solve(np.eye(len(kept)) - FOLLOWED * steps.T, own.T).T
    totals = reached.sum(axis=1, keepdims=True) * len(starts)
    weights, of_own = np.zeros(n), np.zeros(n)
    weights[kept] = np.maximum((reached / totals).sum(axis=0), 0.0)
    of_own[kept] = (own / totals).sum(axis=0)
    return Spread(weights=weights, own=of_own, kept=kept, steps=steps)


def _has_all(shares: FloatArray) -> BoolArray:
    """Return which candidates have a part whole, up to rounding."""
    return np.asarray(shares > 1 - 1e-9)
