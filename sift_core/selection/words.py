"""Word vectors of a pool of candidates and of questions: TF-IDF with rarity counted in the pool.

Words of a template weigh almost nothing, and the number in which two candidates differ weighs much.
Symbols: n candidates, m questions, v different words, e pairs of a word and a candidate with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from sift_core.checks import as_count, as_number, checked_arrays, short_repr
from sift_core.errors import InvalidInputError, NumericalError
from sift_core.selection.kernels import unit_rows
from sift_core.selection.word_counts import WordCountCache, WordCounts, count_words, spellings
from sift_core.types import BoolArray, FloatArray, IntArray

# What a word of few candidates adds to their cosines is added pair by pair, the rest by a matrix
# product. Measured for 50 to 1,000 candidates: a limit of n / 16 to n / 25 of them is fastest.
FEW_CANDIDATES = 1 / 16
NUMBERS_AT_ONCE = 2**20  # of a matrix product or of pairs: 8 MiB each

# Two vectors whose cosine is nearer to 1 get the same row of a factor, so that copies tie. It is
# about the resolution of `RBFKernel`; the product of two such rows with another differs by 1e-7.
SAME_COSINE = 1e-14

_default_cache = WordCountCache()


@dataclass(frozen=True, kw_only=True, eq=False)
class PoolWords:
    """Cosines of the word vectors of n candidates and m questions; made by `pool_words`.

    The vector of a candidate has the value log(1 + count) · rarity for each word, scaled to unit
    length. rarity = log((n + 1) / (df + 0.5)) > 0 for a word of df candidates. The vector of a
    question is made in the same way from those of its words that the pool has. All cosines are in
    [0, 1]. A candidate without words has cosine 0 with everything else, and so has a question
    without a word of the pool.

    Keeps the texts, and 16 bytes for each different word of each candidate. Words are compared by
    64-bit hashes without the lowest bits of a number of e bits. The probability that two words of
    the pool count as one is 2e-8 for 200 chunks, and 1e-2 for 1,000 texts of 50,000 characters.
    """

    gram: FloatArray
    """Cosines of the candidates, shape (n, n), with ones on the diagonal."""
    question: FloatArray
    """Cosines of each question with the candidates, shape (m, n)."""
    question_gram: FloatArray
    """Cosines of the questions with one another, shape (m, m), with ones on the diagonal."""
    has_words: BoolArray
    """Whether each candidate has a word, shape (n,)."""
    question_has_words: BoolArray
    """Whether each question has a word of the pool, shape (m,)."""
    _table: _WordTable = field(repr=False)
    _questions: list[_Vector] = field(repr=False)
    _texts: Sequence[str] = field(repr=False)
    _headings: Sequence[str] | None = field(repr=False)

    @cached_property
    def linked(self) -> FloatArray:
        """Cosines of the candidates without the words of all questions, shape (n, n).

        Relevance can spread along these: they link candidates by what no question names. Has ones
        on the diagonal, and 0 beside it for candidates that have only words of questions. It is
        computed when first asked for, and takes 1 ms for 200 candidates of 256 tokens.
        """
        return _cosines(self._table.without(self._question_words))

    @cached_property
    def _question_words(self) -> IntArray:
        """Return which words any question has, in ascending order."""
        return np.unique(_concatenated([vector.words for vector in self._questions], np.intp))

    def shared_words(
        self, row: int, other: int, *, n: int = 3, linked: bool = False
    ) -> tuple[str, ...]:
        """Return the words that add most to the cosine of two candidates, best first.

        Words come in lower case. A word that is part of a better one is left out. Of words that
        add the same the longest comes first, then the first in the alphabet. Splits the text of
        `row` again, which takes 0.4 ms for 256 tokens.

        Args:
            row: Position of a candidate, 0 <= row < number of candidates.
            other: Position of another candidate, or of the same.
            n: How many to return at most, >= 0. Default: 3.
            linked: Leave out the words of the questions, as `linked` does. Default: False.

        Raises:
            InvalidInputError: If a position or `n` is not an integer in its range.
        """
        one, another = self._vector_of("row", row), self._vector_of("other", other)
        if linked:
            one = one.take(~np.isin(one.words, self._question_words))
        return self._best_words(one, another, row, n)

    def question_words(self, row: int, *, question: int = 0, n: int = 3) -> tuple[str, ...]:
        """Return the words that add most to the cosine of a question and a candidate, best first.

        Args:
            row: Position of a candidate, 0 <= row < number of candidates.
            question: Position of a question. Default: the first one.
            n: How many to return at most, >= 0. Default: 3.

        Raises:
            InvalidInputError: If a position or `n` is not an integer in its range.
        """
        question = as_count("question", question, minimum=0, maximum=len(self._questions) - 1)
        vector = self._vector_of("row", row)
        return self._best_words(self._questions[question], vector, row, n)

    def _vector_of(self, name: str, row: int) -> _Vector:
        row = as_count(name, row, minimum=0, maximum=len(self._texts) - 1)
        return self._table.vector_of(row)

    def _best_words(self, one: _Vector, another: _Vector, row: int, n: int) -> tuple[str, ...]:
        """Return the words of candidate `row` with the largest products of two vectors."""
        n = as_count("n", n, minimum=0)
        words, i, j = np.intersect1d(one.words, another.words, return_indices=True)
        products = (one.values[i] * another.values[j]).tolist()
        spelled = spellings(self._texts[row])
        if self._headings is not None:
            spelled |= spellings(self._headings[row])
        spelled = {found >> self._table.n_dropped: word for found, word in spelled.items()}
        named = [spelled[found] for found in self._table.hashes[words].tolist()]
        best: list[str] = []
        for _, _, word in sorted(
            (-product, -len(word), word) for product, word in zip(products, named, strict=True)
        ):
            if len(best) == n:
                break
            if not any(word in longer for longer in best):
                best.append(word)
        return tuple(best)


class JoinedVectors(NamedTuple):
    """Unit vectors of candidates and questions for any selector; made by `joined`."""

    candidates: FloatArray
    """Shape (n, r), float64."""
    questions: FloatArray
    """Shape (m, r), float64."""


def pool_words(
    texts: Sequence[str],
    questions: Sequence[str],
    *,
    headings: Sequence[str] | None = None,
    cache: WordCountCache | None = None,
) -> PoolWords:
    """Return the word vectors of a pool and of questions as cosines.

    Computes in float64. Results are the same in each process. The order of the texts and the
    number of threads change them by rounding alone (1e-15). Takes 2 ms for 200 texts of 256 tokens
    whose words were counted before, and 4 to 7 ms for new ones (`python -m benchmarks.words`).
    Memory is 60 bytes for each different word of each text, 32 MB, and four (n, n) arrays.

    Args:
        texts: Of the n candidates, n >= 0. Any string will do; `word_counts.words_of` says what
            its words are.
        questions: Any number m of texts. Their words are counted anew each time.
        headings: One for each text, for example the title of its page; "" for none. Words of a
            heading count 2 times in addition to those of the text. Default: no headings.
        cache: Keeps the words of the texts. Default: one cache of 64 MiB for the whole process.

    Raises:
        InvalidInputError: If `texts`, `questions` or `headings` is not a sequence of strings, or
            there is not one heading for each text.

    References:
        Salton and Buckley (1988), Term-weighting approaches in automatic text retrieval. The
        logarithm of counts and the smoothed rarity were measured by the prototype.
    """
    _check_strings("texts", texts)
    _check_strings("questions", questions)
    if headings is not None:
        _check_strings("headings", headings)
        if len(headings) != len(texts):
            raise InvalidInputError(
                f"`headings` must have one string a text: {len(texts)} text(s), "
                f"{len(headings)} heading(s)"
            )
    cache = _default_cache if cache is None else cache
    table = _WordTable.of(cache.count_words(texts, headings))
    vectors = [table.vector_of_question(counts) for counts in count_words(questions)]
    products = [table.products(vector) for vector in vectors]
    return PoolWords(
        gram=_cosines(table),
        question=np.minimum(np.array(products).reshape(len(questions), len(texts)), 1.0),
        question_gram=_question_gram(vectors),
        has_words=table.has_words,
        question_has_words=np.array([len(vector.words) > 0 for vector in vectors], dtype=bool),
        _table=table,
        _questions=vectors,
        _texts=tuple(texts),
        _headings=None if headings is None else tuple(headings),
    )


def joined(
    embeddings: FloatArray, query: FloatArray, words: PoolWords, share: float
) -> JoinedVectors:
    """Return unit vectors whose inner products join the cosines of embeddings and of words.

    The product of two vectors is (1 - share) · cosine of embeddings + share · cosine of words.
    It holds among candidates, among questions and between both, up to 1e-9, so that any
    selector can use the vectors in place of embeddings. Copies have equal vectors.

    A text whose words have no weight keeps its embedding alone, at unit length. Its product with
    another such text is the cosine of the embeddings, and with any other text √(1 - share) of that.
    So copies of it stay copies, and a question without a word of the pool ranks candidates by
    their embeddings. Its words count as missing, not as different from all others.

    Takes O((n + m)² · (d + n + m)) time and O((n + m)²) memory: 1 ms for 200 candidates and one
    question of 384 dimensions.

    Args:
        embeddings: Of the candidates, shape (n, d), in the order of the texts of `words`.
        query: Embeddings of the questions of `words`, shape (m, d), or (d,) for one question.
        words: Of the same candidates and questions.
        share: Share of words in the products, 0 <= share <= 1. 0 leaves the embeddings alone.

    Returns:
        Shapes (n, r) and (m, r) with r <= n + m. The vectors are rows of a Cholesky factor of
        the matrix of all products, so that their numbers depend on the order of the texts.

    Raises:
        InvalidInputError: If shapes do not fit, a number is not finite, an embedding is all
            zero, or `share` is out of its range.
        NumericalError: If the matrix of products is not positive semidefinite, which the cosines
            of `pool_words` rule out.
    """
    points, candidates = checked_arrays(query, embeddings)
    share = as_number("share", share, minimum=0, maximum=1)
    n, m = len(words.gram), len(words.question)
    if (len(candidates), len(points)) != (n, m):
        raise InvalidInputError(
            f"`embeddings` and `query` must have one row a text of `words`: {n} text(s) and {m} "
            f"question(s), {len(candidates)} embedding(s) and {len(points)} query(s)"
        )
    rows = np.concatenate([unit_rows(candidates), unit_rows(points)])
    has_words = np.concatenate([words.has_words, words.question_has_words])
    dense = np.where(has_words, np.sqrt(1 - share), 1.0)
    sparse = np.where(has_words, np.sqrt(share), 0.0)
    products = np.block([[words.gram, words.question.T], [words.question, words.question_gram]])
    products *= np.outer(sparse, sparse)
    rows *= dense[:, np.newaxis]
    products += rows @ rows.T
    vectors = _factor(products, n_summed=candidates.shape[1])
    return JoinedVectors(candidates=vectors[:n], questions=vectors[n:])


def _factor(products: FloatArray, *, n_summed: int) -> FloatArray:
    """Return unit rows (k, r) whose inner products are `products` (k, k), of unit diagonal.

    Cholesky's method fails if rounding makes an eigenvalue negative. The smallest must exceed
    k (k + 2) times the unit roundoff; sums of `n_summed` products have moved it by k · `n_summed`
    times as much. So twice both together is added to the diagonal: 5e-11 for 200 candidates. That
    is also how far products of the rows are off.

    Args:
        products: Changed in place.
        n_summed: How many products were summed for each number.

    References:
        Higham (2002), Accuracy and Stability of Numerical Algorithms, theorem 10.7.
    """
    k = len(products)
    np.fill_diagonal(products, 1.0)
    first = np.argmax(products >= 1.0 - SAME_COSINE, axis=1)  # copies; the row itself at the latest
    distinct, where = np.unique(first[first], return_inverse=True)
    jitter = k * (k + n_summed + 2) * float(np.finfo(np.float64).eps)
    try:
        factor = np.linalg.cholesky(
            products[np.ix_(distinct, distinct)] + jitter * np.eye(len(distinct))
        )
    except np.linalg.LinAlgError as error:
        raise NumericalError(
            "the products of words and embeddings are not positive semidefinite; were `gram` and "
            "`question` both made by one call of pool_words?"
        ) from error
    unit: FloatArray = factor / np.sqrt(1.0 + jitter)
    return unit[where]


class _Vector(NamedTuple):
    """A sparse vector over the words of a pool."""

    words: IntArray  # numbers of words, ascending
    values: FloatArray

    def take(self, positions: IntArray | BoolArray) -> _Vector:
        return _Vector(self.words[positions], self.values[positions])


@dataclass(frozen=True, kw_only=True, eq=False)
class _WordTable:
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
    def of(cls, counted: list[WordCounts]) -> _WordTable:
        """Return the table of n candidates."""
        n = len(counted)
        hashes = _concatenated([counts.hashes for counts in counted], np.uint64)
        values = _concatenated([counts.log_counts for counts in counted], np.float64)
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
        return cls._scaled(n, n_dropped, hashes[is_new], sizes, rarity, rows, values)

    @classmethod
    def _scaled(
        cls,
        n: int,
        n_dropped: int,
        hashes: IntArray,
        sizes: IntArray,
        rarity: FloatArray,
        rows: IntArray,
        values: FloatArray,
    ) -> _WordTable:
        """Return the table of vectors (e,) of any length, which are scaled in place."""
        lengths = np.sqrt(_sums(rows, values * values, n))
        values /= lengths[rows]
        return cls(
            n=n,
            n_dropped=n_dropped,
            hashes=hashes,
            starts=np.cumsum(sizes) - sizes,
            sizes=sizes,
            rarity=rarity,
            rows=rows,
            values=values,
            has_words=lengths > 0,
        )

    def without(self, words: IntArray) -> _WordTable:
        """Return the table without some words, its vectors of unit length again."""
        stays = np.ones(len(self.hashes), dtype=bool)
        stays[words] = False
        entries = np.repeat(stays, self.sizes)
        return self._scaled(
            self.n,
            self.n_dropped,
            self.hashes[stays],
            self.sizes[stays],
            self.rarity[stays],
            self.rows[entries],
            self.values[entries],
        )

    def vector_of(self, row: int) -> _Vector:
        """Return the unit vector of a candidate, in O(e)."""
        entries = np.flatnonzero(self.rows == row)
        words = np.searchsorted(self.starts, entries, side="right") - 1
        return _Vector(words, self.values[entries])

    def vector_of_question(self, counts: WordCounts) -> _Vector:
        """Return the unit vector of a question over the words of the pool."""
        hashes = counts.hashes >> self.n_dropped
        words = np.searchsorted(self.hashes, hashes)
        is_there = words < len(self.hashes)
        is_there[is_there] = self.hashes[words[is_there]] == hashes[is_there]
        words = words[is_there]
        values = counts.log_counts[is_there] * self.rarity[words]
        return _Vector(words, values / np.sqrt(values @ values) if len(words) else values)

    def products(self, vector: _Vector) -> FloatArray:
        """Return the inner products of a vector with those of the candidates, shape (n,)."""
        entries = self.entries_of(vector.words)
        weights = self.values[entries] * np.repeat(vector.values, self.sizes[vector.words])
        return _sums(self.rows[entries], weights, self.n)

    def entries_of(self, words: IntArray) -> IntArray:
        """Return the positions of some words in `rows`, word after word."""
        sizes = self.sizes[words]
        ends = np.cumsum(sizes)
        return np.repeat(self.starts[words] - ends + sizes, sizes) + np.arange(sizes.sum())


def _cosines(table: _WordTable) -> FloatArray:
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
    return _as_cosines(gram)


def _dense_columns(table: _WordTable, words: IntArray) -> FloatArray:
    """Return the values of all candidates for some words, shape (number of words, n)."""
    n, entries = table.n, table.entries_of(words)
    columns = np.zeros(len(words) * n)
    places = np.repeat(np.arange(len(words)) * n, table.sizes[words]) + table.rows[entries]
    columns[places] = table.values[entries]
    return columns.reshape(len(words), n)


def _sums_of_pairs(table: _WordTable, words: IntArray) -> FloatArray:
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
    return _sums(places, products, n * n).reshape(n, n)


def _question_gram(vectors: list[_Vector]) -> FloatArray:
    """Return the cosines of m sparse unit vectors, shape (m, m), with ones on the diagonal."""
    words = np.unique(_concatenated([vector.words for vector in vectors], np.intp))
    rows = np.zeros((len(vectors), len(words)))
    for row, vector in zip(rows, vectors, strict=True):
        row[np.searchsorted(words, vector.words)] = vector.values
    return _as_cosines(rows @ rows.T)


def _as_cosines(gram: FloatArray) -> FloatArray:
    """Return products of unit vectors without what rounding did, in place."""
    np.minimum(gram, 1.0, out=gram)
    np.fill_diagonal(gram, 1.0)
    return gram


def _sums(places: IntArray, values: FloatArray, n: int) -> FloatArray:
    """Return the sum of the values at each place, shape (n,)."""
    return np.asarray(np.bincount(places, weights=values, minlength=n), dtype=np.float64)


def _concatenated(arrays: list[Any], dtype: type[np.generic]) -> Any:
    """Return arrays one after the other; an empty one of `dtype` if there are none."""
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=dtype)


def _check_strings(name: str, texts: object) -> None:
    """Refuse anything but a sequence of strings. Surrogates are fine here.

    Raises:
        InvalidInputError: If so.
    """
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise InvalidInputError(f"`{name}` must be a sequence of strings, got {short_repr(texts)}")
    for text in texts:
        if not isinstance(text, str):
            raise InvalidInputError(f"`{name}` must hold strings, got {short_repr(text)}")
