"""What was chosen and why: one record for each pick, in plain values that JSON takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.left_out import LeftOut
from sift_core.passages import Passage, passage_metadata
from sift_core.pool_reading import PoolReading
from sift_core.repeats import Repeat, repeats_of
from sift_core.selection.kernels import unit_rows
from sift_core.selection.near_duplicates import is_earlier
from sift_core.selection.posterior import posterior_variances
from sift_core.selection.topic import unrelated_cosine
from sift_core.types import CandidatePool, FloatArray, Query, Selection

SCORES = ("variance", "similarity")


@dataclass(frozen=True, kw_only=True)
class Pick:
    """Why one chunk, or one passage of joined chunks, was chosen.

    Args:
        row: The chunk's row in the pool; of a passage the chunk that was chosen first.
        similarity: Cosine with the query, in [-1, 1].
        score: The score that the store or an earlier ranker gave; None if it gave none.
        relevance: What the selector went by: the pool's `relevance`, else the cosine.
        redundancy: Largest cosine with an earlier pick; the first pick has None.
        gain: Fall of the variance σ² at the query from this pick, >= 0.
        variance: σ² after this pick.
        chunks: Ids of the chunks in a joined passage, in reading order; empty for one chunk.
        shares: Words that it shares with the question, those that count most first, at most 3.
            Words that tell nothing are left out, such as "of".
        reached_from: Rank, from 1, of the earlier pick that led here more than the question did.
            None if the question itself led here.
        reached_by: Words that it shares with that pick and not with the question, at most 3.

    Example:
        >>> pick = choose(pool, query).picks[1]
        >>> pool.document_ids[pick.row], round(pick.similarity, 2), round(pick.gain, 2)
        ('timetable', 0.32, 0.09)
        >>> pick.reason
        'similarity 0.32, gain 0.09'
    """

    row: int
    similarity: float
    score: float | None
    relevance: float
    redundancy: float | None
    gain: float
    variance: float
    chunks: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    reached_from: int | None = None
    reached_by: tuple[str, ...] = ()

    @property
    def numbers(self) -> dict[str, float | None]:
        """Return the six numbers by name."""
        return {name: getattr(self, name) for name in _NUMBERS}

    @property
    def reason(self) -> str:
        """Return the words by which it was chosen, or its numbers if there are none.

        It reads such as "shares: brunhild, ward; reached from 2 by kunigunde", or such as
        "similarity 0.31, gain 0.05".
        """
        parts = []
        if self.shares:
            parts.append(f"shares: {', '.join(self.shares)}")
        if self.reached_from is not None:
            words = f" by {', '.join(self.reached_by)}" if self.reached_by else ""
            parts.append(f"reached from {self.reached_from}{words}")
        return "; ".join(parts) or f"similarity {self.similarity:.2f}, gain {self.gain:.2f}"

    def as_dict(self) -> dict[str, Any]:
        """Return the six numbers for JSON, and of the other fields those that say something."""
        chunks = {"chunks": list(self.chunks)} if self.chunks else {}
        return {**self.numbers, **chunks, **self.words}

    @property
    def words(self) -> dict[str, Any]:
        """Return "shares", "reached_from" and "reached_by" for JSON, if they say something."""
        shares = {"shares": list(self.shares)} if self.shares else {}
        if self.reached_from is None:
            return shares
        return {
            **shares,
            "reached_from": self.reached_from,
            "reached_by": list(self.reached_by),
        }


_NUMBERS = ("similarity", "score", "relevance", "redundancy", "gain", "variance")


@dataclass(frozen=True, kw_only=True)
class Hop:
    """What a second fetch looked for, and what it brought.

    Args:
        seeds: Ids of the first choices, whose words and vectors were looked for.
        words: Rare words of each of these that the question does not have.
        first_row: Row of the pool from which on candidates came by this fetch.
        n_new: How many these are.
    """

    seeds: tuple[str, ...]
    words: tuple[tuple[str, ...], ...]
    first_row: int
    n_new: int

    def as_dict(self, *, n_chosen: int) -> dict[str, Any]:
        """Return for JSON what was looked for, what it brought and how many were chosen of it."""
        words = [list(words) for words in self.words]
        counts = {"n_new": self.n_new, "n_chosen": n_chosen}
        return {"seeds": list(self.seeds), "words": words, **counts}


@dataclass(frozen=True, kw_only=True, eq=False)
class Chosen(Selection):
    """A selection from a pool: its rows in order, why each was chosen, and why it stopped.

    `positions` are rows of the pool; of a passage the chunk that was chosen first. `variances`
    fall passage by passage.

    Args:
        query: The question.
        pool: The candidates.
        passages: What each pick is made of, in order of choice.
        relevance: What the selector took for the candidates' relevance, shape (n,), or (m, n) of m
            queries. Default: the pool's, or else the cosines.
        timings: Seconds of "fetch" and "select", and of "hop"; empty from `choose`.
        reading: The words that the choice went by. Default: it went by embeddings alone.
        hop: What a second fetch did. Default: there was none.
        left_out: Near-copies of what was chosen, and what limits left out. Default: nothing.

    Example:
        >>> chosen = choose(pool, query, ChoiceOptions(n_select=2))
        >>> chosen.chunks.document_ids, chosen.stop_reason.value
        (('prices', 'timetable'), 'n_select')
        >>> [round(pick.similarity, 2) for pick in chosen.picks]
        [0.47, 0.32]
    """

    query: Query
    pool: CandidatePool
    passages: Sequence[Passage]
    relevance: FloatArray | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    reading: PoolReading | None = field(default=None, repr=False)
    hop: Hop | None = None
    left_out: tuple[LeftOut, ...] = ()

    @cached_property
    def chunks(self) -> CandidatePool:
        """What was chosen as a pool, in order of choice; a joined passage is one row.

        Such a row has the passage's text, and the id, embedding and scores of the chunk that was
        chosen first. Its metadata names all of them under "chunks".
        """
        taken = self.pool.take(self.positions)
        if all(len(passage.rows) == 1 for passage in self.passages):
            return taken
        return replace(
            taken,
            texts=[passage.text for passage in self.passages],
            metadata=[
                passage_metadata(self.pool, one)
                if len(one.rows) > 1
                else self.pool.metadata[one.first]
                for one in self.passages
            ],
        )

    @cached_property
    def picks(self) -> tuple[Pick, ...]:
        """Why each was chosen, in order of choice. Costs O(k² · d) for k picks."""
        pool, rows = self.pool, self.positions
        given = pool.relevance if self.relevance is None else self.relevance
        relevance = pool.similarities if given is None else np.atleast_2d(given).max(axis=0)
        unit = unit_rows(pool.embeddings[rows])
        largest = (unit @ unit.T).max(axis=1, where=is_earlier(len(rows)), initial=-1.0)
        redundancy = [None, *np.minimum(largest[1:], 1.0).tolist()]  # rounding may exceed 1
        reached_from, reached_by = self._ways()
        shares, gains = self._shared_words(), self.gains.tolist()
        picks = []
        for i, (row, passage) in enumerate(zip(rows.tolist(), self.passages, strict=True)):
            score = pool.scores[row] if pool.scores else None
            chunks = passage.rows if len(passage.rows) > 1 else ()
            pick = Pick(
                row=row,
                similarity=float(pool.similarities[row]),
                score=None if score is None else float(score),
                relevance=float(relevance[row]),
                redundancy=redundancy[i],
                gain=gains[i],
                variance=float(self.variances[i + 1]),
                chunks=tuple(pool.document_ids[one] for one in chunks),
                shares=shares[i],
                reached_from=reached_from[i],
                reached_by=reached_by[i],
            )
            picks.append(pick)
        return tuple(picks)

    def _shared_words(self) -> list[tuple[str, ...]]:
        """Return the words that each pick shares with one of the questions."""
        rows = self.positions.tolist()
        if self.reading is None:
            return [()] * len(rows)
        words, cosines = self.reading.words, self.reading.cosines
        nearest = words.question[:, rows].argmax(axis=0).tolist()
        return [
            words.question_words(row, question=question, cosines=cosines[question])
            for row, question in zip(rows, nearest, strict=True)
        ]

    def _ways(self) -> tuple[list[int | None], list[tuple[str, ...]]]:
        """Return for each pick the rank of the one that led to it, and by which words."""
        rows = self.positions.tolist()
        ranks: list[int | None] = [None] * len(rows)
        by: list[tuple[str, ...]] = [()] * len(rows)
        if self.reading is None:
            return ranks, by
        for i, row in enumerate(rows[1:], start=1):
            earlier = self.positions[:i]
            flows = sum((one.flows(row, earlier) for one in self.reading.spreads), np.zeros(i))
            own = sum(float(one.own[row]) for one in self.reading.spreads)
            best = int(np.argmax(flows))
            if flows[best] > own and row not in rows[:i]:
                ranks[i] = best + 1
                by[i] = self.reading.words.shared_words(row, rows[best], linked=True)
        return ranks, by

    @cached_property
    def question_variances(self) -> FloatArray:
        """σ² at the question before the first pick and after each, shape (k + 1,).

        In the paper's setting, from 1 on: the same measure for every selector.
        """
        return question_variances(self.query, self.pool.embeddings[self.positions])

    def scores(self, kind: str = "variance") -> list[float]:
        """Return a score for each pick, in order of choice.

        Args:
            kind: "variance" for σ² before the pick. It falls from 1, so any descending sort keeps
                the order of choice. "similarity" for the cosine with the query, by which a
                threshold can cut; a sort by it undoes the order of choice.

        Raises:
            InvalidInputError: If there is no such score.
        """
        if kind not in SCORES:
            names = " or ".join(repr(name) for name in SCORES)
            raise InvalidInputError(f"`score` must be {names}, got {kind!r}")
        if kind == "similarity":
            similarities: list[float] = self.pool.similarities[self.positions].tolist()
            return similarities
        falling: list[float] = []
        for value in self.variances[:-1].tolist():
            # Ties are broken by one step of single precision, in which BEIR's evaluation compares.
            if falling and np.float32(value) >= np.float32(falling[-1]):
                value = float(np.nextafter(np.float32(falling[-1]), np.float32(-np.inf)))
            falling.append(value)
        return falling

    def ranking(self) -> list[str]:
        """Return the ids of all candidates: the chosen ones, then the others by similarity."""
        nearest = np.argsort(-self.pool.similarities, kind="stable").tolist()
        rows = dict.fromkeys([*self.positions.tolist(), *nearest])
        return [self.pool.document_ids[row] for row in rows]

    def first(self, n: int) -> Chosen:
        """Return the first n picks, or all if there are fewer."""
        return replace(
            self,
            positions=self.positions[:n],
            variances=self.variances[: n + 1],
            passages=self.passages[:n],
            left_out=tuple(one for one in self.left_out if (one.rank or 0) <= n),
        )

    @property
    def missing_names(self) -> tuple[str, ...]:
        """Return the names and numbers in the question that no candidate has, in lower case."""
        names = [part.words for part in self.reading.missing_parts] if self.reading else []
        return tuple(
            " ".join(word for word in words if not any(word in one != word for one in words))
            for words in names
        )

    @property
    def n_from_hop(self) -> int:
        """Return how many picks are candidates that the second fetch brought."""
        return 0 if self.hop is None else int((self.positions >= self.hop.first_row).sum())

    @cached_property
    def repeats(self) -> list[Repeat | None]:
        """For each pick the earlier one that it repeats, or None."""
        return repeats_of(self.chunks.embeddings, unrelated=unrelated_cosine(self.pool) or 0.0)

    @property
    def n_redundant(self) -> int:
        """Return how many chunks are like an earlier one, copies counted."""
        return sum(repeat is not None for repeat in self.repeats)

    @property
    def n_copies(self) -> int:
        """Return how many chunks are nearly copies of an earlier one."""
        return sum(repeat.is_copy for repeat in self.repeats if repeat)

    def as_dict(self) -> dict[str, Any]:
        """Return the choice for JSON, its texts unshortened."""
        return {
            "chunks": chunk_records(self.chunks, self.picks, self.repeats),
            "n_redundant": self.n_redundant,
            "n_copies": self.n_copies,
            "question_variances": self.question_variances.tolist(),
            "explained": explained(self.question_variances.tolist()),
            "variances": self.variances.tolist(),
            "stop_reason": self.stop_reason.value,
            **({"left_out": [one.as_dict() for one in self.left_out]} if self.left_out else {}),
            **({"missing_names": list(self.missing_names)} if self.missing_names else {}),
            **({"hop": self.hop.as_dict(n_chosen=self.n_from_hop)} if self.hop else {}),
        }


def question_variances(query: Query, embeddings: FloatArray) -> FloatArray:
    """Return σ² at the question before and after each of k embeddings (k, d), shape (k + 1,).

    In the paper's setting, from 1 on; of several queries the mean.
    """
    return posterior_variances(query.vectors, embeddings) / (1 + len(query.also))


def explained(variances: Sequence[float]) -> float:
    """Return the share of the first variance that is gone after the last, in [0, 1]."""
    return 1.0 - variances[-1] / variances[0] if variances[0] else 0.0


def chunk_records(
    chunks: CandidatePool, picks: Sequence[Pick], repeats: Sequence[Repeat | None]
) -> list[dict[str, Any]]:
    """Return chunks for JSON, in order of choice and unshortened, with why each was chosen."""
    return [
        {
            "rank": i + 1,
            "document_id": chunks.document_ids[i],
            **picks[i].numbers,
            **picks[i].words,
            "near_duplicate_of": (
                None if repeat is None else {"rank": repeat.rank, "cosine": repeat.cosine}
            ),
            "is_copy": repeat is not None and repeat.is_copy,
            "text": chunks.texts[i],
            "metadata": in_json(chunks.metadata[i]),
        }
        for i, repeat in enumerate(repeats)
    ]


def number_or_none(value: float) -> float | None:
    """Return a finite number for JSON; NaN and infinity become None."""
    return float(value) if math.isfinite(value) else None


def in_json(value: Any) -> Any:
    """Return metadata as JSON can hold it.

    NaN and infinity become None, arrays lists, keys texts, and anything else its text.
    """
    if isinstance(value, Mapping):
        return {str(key): in_json(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [in_json(one) for one in value]
    if isinstance(value, float):
        return number_or_none(value)
    return value if value is None or isinstance(value, str | int) else str(value)
