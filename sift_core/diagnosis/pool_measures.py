"""What one question's candidates hold, and what two ways to choose ten of them make of it.

Symbols: u(x, x') = (1 - cos(x, x')) / t, with t how unlike two candidates usually are; the
paper's σ² → `variance`, η² → `floor`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sift_core.diagnosis.chunk_origins import printable
from sift_core.selection import ContextSelector, NearestNeighborSelector, posterior_variances
from sift_core.selection.context import KERNEL_DECAY, contents
from sift_core.selection.explain import irreducible_variance
from sift_core.types import CandidatePool, FloatArray, IntArray, Query

N_SELECT = 10
REDUNDANT_COSINE = 0.8  # as in the README: two chunks this close say mostly the same. Guess by eye.
_SMALLEST_USUAL = 1e-9  # a pool of copies: distances in it are rounding
_EXCERPT = 100  # characters


@dataclass(frozen=True, kw_only=True)
class ChosenChunk:
    """One of the ten.

    Args:
        document_id: As the store spells it, on one line.
        opening: Of its text, on one line.
        cosine: To the question.
        is_redundant: Whether an earlier one of the ten has a cosine of `REDUNDANT_COSINE` or
            more to it.
        is_version: Whether it is a version of a more relevant candidate, chosen or not.
    """

    document_id: str
    opening: str
    cosine: float
    is_redundant: bool
    is_version: bool


@dataclass(frozen=True, kw_only=True)
class TopTen:
    """What one selector chose for one question.

    Args:
        chunks: In order of choice, `N_SELECT` where there are as many candidates.
        n_redundant: How many of them are redundant.
        n_versions: How many are versions of a more relevant candidate, as `ContextSelector`
            tells versions (decision 0006); comparable between embedding models.
        variance: σ² at the question given all of them, in the paper's setting (linear kernel,
            λ = 0.01), in [0, 1] where vectors have unit length.
        n_characters: Of their texts together.
    """

    chunks: tuple[ChosenChunk, ...]
    n_redundant: int
    n_versions: int
    variance: float
    n_characters: int


@dataclass(frozen=True, kw_only=True)
class PoolMeasures:
    """Everything about one question.

    Args:
        question: Its text, on one line.
        n_candidates: How many candidates there were, after the stand-in's own document was
            left out.
        n_contents: How many of them are no version of a more relevant one.
        effective_number: See `effective_number`.
        mean_cosine: Of two different contents; 0 where there is one.
        variance_before: σ² at the question before any chunk.
        floor: The part of σ² that no choice from these candidates can remove.
        nearest: The nearest neighbours.
        sift: What `ContextSelector` chose.
        n_shared: How many chunks are in both.
    """

    question: str
    n_candidates: int
    n_contents: int
    effective_number: float
    mean_cosine: float
    variance_before: float
    floor: float
    nearest: TopTen
    sift: TopTen
    n_shared: int


def measure_pool(query: Query, pool: CandidatePool) -> PoolMeasures:
    """Return the measures of one question's candidates.

    Takes some 40 ms for 200 candidates of 384 dimensions.

    Args:
        query: The question.
        pool: Its candidates, at least one.

    Raises:
        InvalidInputError: If a vector is all zero.
    """
    rows = _unit_rows(pool.embeddings)
    cosines = rows @ rows.T
    own = contents(query.vector, pool.embeddings)
    nearest = NearestNeighborSelector().select(query.vector, pool.embeddings, N_SELECT)
    sift = ContextSelector().select(query.vector, pool.embeddings, N_SELECT)
    is_content = np.zeros(len(pool), dtype=bool)
    is_content[own] = True
    tens = {
        name: _top_ten(query, pool, positions, cosines, is_content)
        for name, positions in (("nearest", nearest.positions), ("sift", sift.positions))
    }
    return PoolMeasures(
        question=printable(query.text),
        n_candidates=len(pool),
        n_contents=len(own),
        effective_number=effective_number(query.vector, pool.embeddings),
        mean_cosine=_mean_of_pairs(cosines[np.ix_(own, own)]),
        variance_before=float(posterior_variances(query.vector, pool.embeddings[:0])[0]),
        floor=irreducible_variance(query.vector, pool.embeddings),
        nearest=tens["nearest"],
        sift=tens["sift"],
        n_shared=len(np.intersect1d(nearest.positions, sift.positions)),
    )


def redundant_rows(rows: FloatArray) -> list[bool]:
    """Return for each chunk whether an earlier one says mostly the same.

    Args:
        rows: Unit vectors in order of choice, shape (k, d).
    """
    earlier = np.tril(rows @ rows.T, k=-1)
    return [bool(row.max(initial=0.0) >= REDUNDANT_COSINE) for row in earlier]


def effective_number(query: FloatArray, candidates: FloatArray) -> float:
    """Return how many different chunks the candidates amount to, in [1, n].

    The Vendi score: the exponential of the Shannon entropy of the eigenvalues of K / n. n
    chunks that have nothing in common count n, n copies of one chunk 1, and c groups of equally
    many copies c.

    K is the kernel that `ContextSelector` chooses by, exp(-4 u) with u scaled so that two
    candidates that are as unlike as usual have u = 1, and not the cosine: with that a pool of
    198 different passages counts 56 for one embedding model and 5 for another (decision 0008),
    while here different chunks count about n for every model. The scale is at least the
    distance of the candidates to the query, or a pool of nothing but versions would look
    different in itself. Of the entropies it is Shannon's, since that of order 2 (the
    participation ratio 1 / Σ p²) hardly sees anything but the largest eigenvalue, and foretells
    worse which pools gain from more candidates (.785 of pairs in order against .814, there).

    Args:
        query: Shape (d,).
        candidates: Shape (n, d), n >= 1, none all zero.

    References:
        Friedman and Dieng (2023), The Vendi Score: A Diversity Evaluation Metric for Machine
        Learning, TMLR.
    """
    rows = _unit_rows(candidates)
    cosines = rows @ rows.T
    nearness = rows @ _unit_rows(np.asarray(query)[np.newaxis])[0]
    usual = 1.0 - float(nearness.mean())
    if len(rows) > 1:
        usual = max(usual, 1.0 - _mean_of_pairs(cosines))
    distances = np.maximum(1.0 - cosines, 0.0) / (usual if usual > _SMALLEST_USUAL else 1.0)
    eigenvalues = np.linalg.eigvalsh(np.exp(-KERNEL_DECAY * distances) / len(rows))
    shares = eigenvalues[eigenvalues > 0]
    return float(np.exp(-np.sum(shares * np.log(shares))))


def as_record(measures: PoolMeasures) -> Mapping[str, object]:
    """Return the measures as plain values, for JSON; chunks by id."""
    return {
        "question": measures.question,
        "n_candidates": measures.n_candidates,
        "n_contents": measures.n_contents,
        "effective_number": measures.effective_number,
        "mean_cosine": measures.mean_cosine,
        "variance_before": measures.variance_before,
        "variance_floor": measures.floor,
        "n_shared": measures.n_shared,
        **{
            name: {
                "document_ids": [chunk.document_id for chunk in ten.chunks],
                "n_redundant": ten.n_redundant,
                "n_versions": ten.n_versions,
                "variance": ten.variance,
                "n_characters": ten.n_characters,
            }
            for name, ten in (("nearest", measures.nearest), ("sift", measures.sift))
        },
    }


def _top_ten(
    query: Query,
    pool: CandidatePool,
    positions: IntArray,
    cosines: FloatArray,
    is_content: npt.NDArray[np.bool_],
) -> TopTen:
    chosen = pool.take(positions)
    is_redundant = redundant_rows(_unit_rows(chosen.embeddings))
    variances = posterior_variances(query.vector, chosen.embeddings)
    return TopTen(
        chunks=tuple(
            ChosenChunk(
                document_id=printable(chosen.document_ids[i]),
                opening=printable(chosen.texts[i], _EXCERPT),
                cosine=float(chosen.similarities[i]),
                is_redundant=is_redundant[i],
                is_version=not is_content[positions[i]],
            )
            for i in range(len(chosen))
        ),
        n_redundant=sum(is_redundant),
        n_versions=int(np.count_nonzero(~is_content[positions])),
        variance=float(variances[-1]),
        n_characters=sum(map(len, chosen.texts)),
    )


def _unit_rows(vectors: FloatArray) -> FloatArray:
    """Return rows (n, d) of unit length in float64; a row of zeros stays zero."""
    rows = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: FloatArray = rows / np.where(lengths > 0, lengths, 1.0)
    return unit


def _mean_of_pairs(cosines: FloatArray) -> float:
    """Return the mean off the diagonal; 0 for one row."""
    n = len(cosines)
    if n < 2:
        return 0.0
    return float((cosines.sum() - np.trace(cosines)) / (n * (n - 1)))
