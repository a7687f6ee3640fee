"""Which candidates of a pool have each word, as one sparse table; the cosines that follow from it.

Symbols: n candidates, v different words, e pairs of a word and a candidate that has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sift_core.selection.word_counts import WordCounts
from sift_core.types import BoolArray, FloatArray, IntArray

# What a word of few candidates adds to their cosines is added pair by pair, the rest by a matrix
# product. Measured for 50 to 1,000 candidates: a limit of n / 16 to n / 25 of them is fastest.
FEW_CANDIDATES = 1 / 16
NUMBERS_AT_ONCE = 2**20  # of a matrix product or of pairs: 8 MiB each


class SparseVector(NamedTuple):
    """A sparse vector over the words of a pool."""

    words: IntArray  # numbers of words, ascending
    values: FloatArray

    def take(self, positions: IntArray | BoolArray) -> SparseVector:
        """Return the vector with some of its words alone."""
        return SparseVector(self.words[positions], self.values[positions])


@dataclass(frozen=True, kw_only=True, eq=False)
class WordTable:
    """Which candidates have each word of a pool. Words are numbered in the order of their hashes.

    Word i stands in sizes[i] rows. These are at starts[i], starts[i] + 1, … of `rows`, ascending.
    """

    n: int
    n_dropped: int  # lowest bits of hashes that `hashes` lacks
    hashes: IntArray  # (v,), ascending
    starts: IntArray  # (v,)
    sizes: IntArray  # (v,), df
    rarity: FloatArray  # (v,)
    rows: IntArray  # (e,)
    values: FloatArray  # (e,), of vectors of unit length
    has_words: BoolArray  # (n,)

    @classmethod
    def of(cls, counted: list[WordCounts]) -> WordTable:
        """Return the table of n candidates."""
        n = len(counted)
        hashes = concatenated([counts.hashes for counts in counted], np.uint64)
        values = concatenated([counts.log_counts for counts in counted], np.float64)
        rows = np.repeat(np.arange(n), [len(counts.hashes) for counts in counted])
        # Positions in the lowest bits of hashes: this sorts in less than half the time of argsort.
        n_dropped = len(hashes).bit_length()
        hashes >>= n_dropped
        hashes <<= n_dropped
        hashes |= np.arange(len(hashes), dtype=np.uint64)
        hashes.sort()
        order = (hashes & ((1 << n_dropped) - 1)).view(np.int64)
        hashes >>= n_dropped
        values, rows = values[order], rows[order]
        is_new = np.ones(len(hashes), dtype=bool)
        is_new[1:] = hashes[1:] != hashes[:-1]
        sizes = np.diff(np.flatnonzero(is_new), append=len(hashes))
        rarity = np.log((n + 1) / (sizes + 0.5))
        values *= np.repeat(rarity, sizes)
        lengths = np.sqrt(sums_at(rows, values * values, n))
        values /= lengths[rows]
        return cls(
            n=n,
            n_dropped=n_dropped,
            hashes=hashes[is_new],
            starts=np.cumsum(sizes) - sizes,
            sizes=sizes,
            rarity=rarity,
            rows=rows,
            values=values,
            has_words=lengths > 0,
        )

    def vector_of(self, row: int) -> SparseVector:
        """Return the unit vector of a candidate, in O(e)."""
        entries = np.flatnonzero(self.rows == row)
        words = np.searchsorted(self.starts, entries, side="right") - 1
        return SparseVector(words, self.values[entries])

    def vector_of_question(self, counts: WordCounts) -> SparseVector:
        """Return the unit vector of a question over the words of the pool."""
        words, is_there = self._find(counts.hashes)
        values = counts.log_counts[is_there] * self.rarity[words]
        return SparseVector(words, values / np.sqrt(values @ values) if len(words) else values)

    def words_with(self, hashes: IntArray) -> IntArray:
        """Return the words that have some of the hashes of `count_words`, in their order."""
        return self._find(hashes)[0]

    def _find(self, hashes: IntArray) -> tuple[IntArray, BoolArray]:
        """Return the words with some hashes, and for each hash whether there is one."""
        hashes = hashes >> self.n_dropped
        words = np.searchsorted(self.hashes, hashes)
        is_there = words < len(self.hashes)
        is_there[is_there] = self.hashes[words[is_there]] == hashes[is_there]
        return words[is_there], is_there

    def products(self, vector: SparseVector) -> FloatArray:
        """Return the inner products of a vector with those of the candidates, shape (n,)."""
        entries = self.entries_of(vector.words)
        weights = self.values[entries] * np.repeat(vector.values, self.sizes[vector.words])
        return sums_at(self.rows[entries], weights, self.n)

    def entries_of(self, words: IntArray) -> IntArray:
        """Return the positions of some words in `rows`, word after word."""
        sizes = self.sizes[words]
        ends = np.cumsum(sizes)
        return np.repeat(self.starts[words] - ends + sizes, sizes) + np.arange(sizes.sum())


def cosines_of(table: WordTable) -> FloatArray:
    """Return the cosines of the candidates, shape (n, n), with ones on the diagonal."""
    n, sizes = table.n, table.sizes
    few = max(1, int(FEW_CANDIDATES * n))
    gram = np.zeros((n, n))
    common = np.flatnonzero(sizes > few)
    step = NUMBERS_AT_ONCE // max(1, n) + 1
    for start in range(0, len(common), step):
        columns = _dense_columns(table, common[start : start + step])
        gram += columns.T @ columns
    # A word of one candidate adds to the diagonal alone.
    rare = np.flatnonzero((sizes > 1) & (sizes <= few))
    block = np.cumsum(sizes[rare] ** 2) // NUMBERS_AT_ONCE
    for words in np.split(rare, np.flatnonzero(np.diff(block)) + 1):
        if len(words):
            above = _sums_of_pairs(table, words)
            gram += above
            gram += above.T
    return as_cosines(gram)


def _dense_columns(table: WordTable, words: IntArray) -> FloatArray:
    """Return the values of all candidates for some words, shape (number of words, n)."""
    n, entries = table.n, table.entries_of(words)
    columns = np.zeros(len(words) * n)
    places = np.repeat(np.arange(len(words)) * n, table.sizes[words]) + table.rows[entries]
    columns[places] = table.values[entries]
    return columns.reshape(len(words), n)


def _sums_of_pairs(table: WordTable, words: IntArray) -> FloatArray:
    """Return what some words add to the cosines of two candidates, above the diagonal of (n, n).

    Each word adds the product of its two values for each pair of its candidates. Words are sorted
    by how many candidates they have, so that those with an i-th and a j-th are the first ones.
    """
    n = table.n
    words = words[np.argsort(-table.sizes[words], kind="stable")]
    sizes, starts = table.sizes[words], table.starts[words]
    n_words = np.searchsorted(-sizes, -np.arange(sizes[0])).tolist()  # with an i-th candidate
    rows = [table.rows[starts[:count] + i] for i, count in enumerate(n_words)]
    values = [table.values[starts[:count] + i] for i, count in enumerate(n_words)]
    places = np.empty(int((sizes * (sizes - 1) // 2).sum()), dtype=np.intp)
    products = np.empty(len(places))
    n_done = 0
    for j, count in enumerate(n_words):
        for i in range(j):
            pairs = slice(n_done, n_done + count)
            np.add(rows[i][:count] * n, rows[j], out=places[pairs])
            np.multiply(values[i][:count], values[j], out=products[pairs])
            n_done += count
    return sums_at(places, products, n * n).reshape(n, n)


def as_cosines(gram: FloatArray) -> FloatArray:
    """Return products of unit vectors without what rounding did, in place."""
    np.minimum(gram, 1.0, out=gram)
    np.fill_diagonal(gram, 1.0)
    return gram


def sums_at(places: IntArray, values: FloatArray, n: int) -> FloatArray:
    """Return the sum of the values at each place, shape (n,)."""
    return np.asarray(np.bincount(places, weights=values, minlength=n), dtype=np.float64)


def concatenated(arrays: list[Any], dtype: type[np.generic]) -> Any:
    """Return arrays one after the other; an empty one of `dtype` if there are none."""
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=dtype)
