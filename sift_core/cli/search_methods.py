"""What `sift search` compares: nearest neighbours, MMR and SIFT over the same candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sift_core.cli.showing_chunks import chunk_records, repeats_of
from sift_core.cli.showing_text import explained
from sift_core.evaluation.retrieval.methods import mmr
from sift_core.evaluation.retrieval.search import Pool, unit_rows
from sift_core.protocols import Selector
from sift_core.selection import NearestNeighborSelector, posterior_variances
from sift_core.types import CandidatePool, FloatArray, IntArray, Query, Selection

# Of relevance: the middle one of those that `sift eval retrieval` measures.
MMR_WEIGHT = 0.7


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """What one method chose.

    Args:
        title: Name of the method, for a reader.
        positions: Shape (k,), rows of the pool in order of choice.
        chunks: These rows.
        question_variances: Shape (k + 1,), σ² at the question before the first and after every
            choice, in the paper's setting: the same measure for every method.
        selection: What the selector returned; None for MMR, which has no variances.
    """

    title: str
    positions: IntArray
    chunks: CandidatePool
    question_variances: FloatArray
    selection: Selection | None = None

    @property
    def n_redundant(self) -> int:
        """Return how many of the chunks are like an earlier one, copies counted."""
        return sum(repeat is not None for repeat in repeats_of(self.chunks.embeddings))

    @property
    def n_copies(self) -> int:
        """Return how many of the chunks are nearly copies of an earlier one."""
        return sum(repeat.is_copy for repeat in repeats_of(self.chunks.embeddings) if repeat)

    def record(self) -> dict[str, Any]:
        """Return the column for JSON."""
        record = {
            "chunks": chunk_records(self.chunks),
            "n_redundant": self.n_redundant,
            "n_copies": self.n_copies,
            "question_variances": self.question_variances.tolist(),
            "explained": explained(self.question_variances.tolist()),
        }
        if self.selection is not None:
            record["variances"] = self.selection.variances.tolist()
            record["stop_reason"] = self.selection.stop_reason.value
        return record


def sift_column(query: Query, pool: CandidatePool, selector: Selector, n_select: int) -> Column:
    """Return what a selector chooses, going by the store's own scores where it can.

    Args:
        query: The question.
        pool: Its candidates.
        selector: A `ContextSelector`, or any other.
        n_select: How many to choose at most.
    """
    selection = selector.select(query.vector, pool.embeddings, n_select, relevance=pool.relevance)
    return _column("SIFT", query, pool, selection.positions, selection)


def compared_columns(
    query: Query, pool: CandidatePool, selector: Selector, n_select: int
) -> Mapping[str, Column]:
    """Return the columns of the comparison by their names in JSON, SIFT the last.

    MMR is the one that `sift eval retrieval` measures, so that a user who goes on to measure
    meets the same method.
    """
    nearest = NearestNeighborSelector().select(query.vector, pool.embeddings, n_select)
    return {
        "nearest": _column("nearest neighbours", query, pool, nearest.positions, nearest),
        "mmr": _column(f"MMR, weight {MMR_WEIGHT}", query, pool, _mmr(query, pool, n_select)),
        "sift": sift_column(query, pool, selector, n_select),
    }


def _mmr(query: Query, pool: CandidatePool, n_select: int) -> IntArray:
    if not len(pool):
        return np.empty(0, dtype=np.intp)
    question = unit_rows(query.vector[np.newaxis, :], "question")[0]
    embeddings = unit_rows(pool.embeddings, "candidate")
    candidates = Pool(
        query=question,
        embeddings=embeddings,
        similarities=embeddings @ question,
        rows=np.arange(len(pool)),
    )
    return mmr(candidates, n_select, weight=MMR_WEIGHT)


def _column(
    title: str,
    query: Query,
    pool: CandidatePool,
    positions: IntArray,
    selection: Selection | None = None,
) -> Column:
    chunks = pool.take(positions)
    return Column(
        title=title,
        positions=positions,
        chunks=chunks,
        question_variances=posterior_variances(query.vector, chunks.embeddings),
        selection=selection,
    )
