"""Word vectors of a pool of candidates and of questions: TF-IDF with rarity counted in the pool.

Words of a template weigh almost nothing, and the number in which two candidates differ weighs much.
Symbols: n candidates, m questions, v different words, e pairs of a word and a candidate with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from sift_core.checks import as_count, short_repr
from sift_core.errors import InvalidInputError
from sift_core.selection.word_counts import WordCountCache, count_words, hashes_of, spellings
from sift_core.selection.word_table import (
    SparseVector,
    WordTable,
    as_cosines,
    concatenated,
    cosines_of,
    sums_at,
)
from sift_core.types import BoolArray, FloatArray, IntArray

# A candidate mentions another one if it has this share of its heading, words counted by rarity².
LEAST_MENTIONED = 0.6
# A heading that a larger share of the candidates mentions is a common word, not a name.
MOST_MENTIONED = 0.1

# Of a squared length of 1: what is left of less, rounding has a part in.
SMALLEST_LEFT = 1e-6

SPELLED_FOR_EACH = 4  # words that are spelled for each that an explanation names

# An explanation names a word if it has this share of the rarity of the question's rarest word. In
# pools of 200 "of", "in" and "are" have 0.03 to 0.27 of it, and "crane" and "chunks" have 0.3.
LEAST_RARITY = 0.3
# "which" has more than 0.3. A word of so many candidates is named only if these are on average the
# more similar ones. The mean of fewer cosines says little.
FEWEST_TO_COMPARE = 10

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
    has_words: BoolArray
    """Whether each candidate has a word, shape (n,)."""
    question_has_words: BoolArray
    """Whether each question has a word of the pool, shape (m,)."""
    _table: WordTable = field(repr=False)
    _questions: list[SparseVector] = field(repr=False)
    _question_texts: Sequence[str] = field(repr=False)
    _texts: Sequence[str] = field(repr=False)
    _headings: Sequence[str] | None = field(repr=False)
    _cache: WordCountCache = field(repr=False)

    @cached_property
    def linked(self) -> FloatArray:
        """Cosines of the candidates without the words of all questions, shape (n, n).

        Relevance can spread along these: they link candidates by what no question names. Has ones
        on the diagonal, and 0 beside it for candidates of which less than 1e-6 of the squared
        length is left without these words. It is computed from `gram` when first asked for, up to
        1e-9, and takes 0.3 ms for 200 candidates.
        """
        table, n = self._table, len(self._texts)
        words = self._question_words
        entries = table.entries_of(words)
        of_questions = np.zeros((n, len(words)))
        columns = np.repeat(np.arange(len(words)), table.sizes[words])
        of_questions[table.rows[entries], columns] = table.values[entries]
        left = 1.0 - np.square(of_questions).sum(axis=1)
        scales = np.where(left > SMALLEST_LEFT, 1.0, 0.0) / np.sqrt(np.maximum(left, SMALLEST_LEFT))
        linked = self.gram - of_questions @ of_questions.T
        linked *= scales[:, np.newaxis]
        linked *= scales
        return as_cosines(np.maximum(linked, 0.0))

    @cached_property
    def _question_words(self) -> IntArray:
        """Return which words any question has, in ascending order."""
        return np.unique(concatenated([vector.words for vector in self._questions], np.intp))

    @cached_property
    def mentions(self) -> FloatArray:
        """How much of each heading the other candidates have, shape (n, n), in [0, 1].

        Row i, column j: the share of the words of j's heading that i has, each counted by the
        square of its rarity. Words of questions count as words that i lacks. Shares below 0.6 are
        0, and so is the diagonal. So are headings that more than 10 % of the candidates mention.
        All is 0 without headings. It is computed when first asked for, and takes 0.5 ms for 200
        candidates.
        """
        n, table = len(self._texts), self._table
        if self._headings is None:
            return np.zeros((n, n))
        rows, words = self._heading_words
        weights = table.rarity[words] ** 2
        shares = weights / sums_at(rows, weights, n)[rows]
        linked = ~np.isin(words, self._question_words)
        rows, words, shares = rows[linked], words[linked], shares[linked]
        sizes = table.sizes[words]
        places = table.rows[table.entries_of(words)] * n + np.repeat(rows, sizes)
        found = sums_at(places, np.repeat(shares, sizes), n * n).reshape(n, n)
        found[found < LEAST_MENTIONED] = 0.0
        np.fill_diagonal(found, 0.0)
        found[:, np.count_nonzero(found, axis=0) > MOST_MENTIONED * n] = 0.0
        return found

    def question_headings(self, question: int = 0) -> list[FloatArray]:
        """Return, for each heading that a question names, how much of it each candidate has.

        A question names a heading if it has all of its words. A heading within a longer one that
        is named does not count.

        Args:
            question: Position of a question. Default: the first one.

        Returns:
            Shares in [0, 1], each shape (n,), as for `shares_of`; the rarest heading first.
        """
        rows, words = self._heading_words
        in_question = np.isin(words, self._questions[question].words)
        n = len(self._texts)
        is_named = (np.bincount(rows, minlength=n) > 0) & (
            np.bincount(rows[~in_question], minlength=n) == 0
        )
        named = {frozenset(words[rows == row].tolist()) for row in np.flatnonzero(is_named)}
        rarity = self._table.rarity
        found: list[frozenset[int]] = []
        for heading in sorted(named, key=lambda one: (-rarity[sorted(one)].sum(), sorted(one))):
            if not any(heading <= longer for longer in found):
                found.append(heading)
        return [self._shares(np.array(sorted(one), dtype=np.intp), 0) for one in found]

    def shares_of(self, words: Sequence[str]) -> FloatArray:
        """Return how much of some words each candidate has, shape (n,), in [0, 1].

        Each word counts by its rarity; one that no candidate has is the rarest.

        Args:
            words: As `words_of` spells them, each once.
        """
        hashes = hashes_of(words)
        found = self._table.words_with(hashes)
        return self._shares(found, len(hashes) - len(found))

    def headings_have(self, words: Sequence[str]) -> bool:
        """Return whether a heading of some candidate has all of some words."""
        hashes = hashes_of(words)
        found = self._table.words_with(hashes)
        rows, those = self._heading_words
        counts = np.bincount(rows[np.isin(those, found)], minlength=len(self._texts))
        return len(found) == len(hashes) and bool((counts == len(found)).any())

    def rare_words(self, row: int, n: int) -> tuple[str, ...]:
        """Return the words of largest weight of a candidate that no question has, best first.

        Args:
            row: Position of a candidate, 0 <= row < number of candidates.
            n: How many to return at most, >= 0.
        """
        vector = self._vector_of("row", row)
        vector = vector.take(~np.isin(vector.words, self._question_words))
        order = np.argsort(-vector.values, kind="stable")[:n]
        return tuple(self._spelled(row, vector.words[order]))

    def _shares(self, words: IntArray, n_missing: int) -> FloatArray:
        n, rarity = len(self._texts), self._table.rarity[words]
        total = rarity.sum() + n_missing * np.log((n + 1) / 0.5)
        entries = self._table.entries_of(words)
        had = np.repeat(rarity, self._table.sizes[words])
        return sums_at(self._table.rows[entries], had, n) / (total or 1.0)

    @cached_property
    def _heading_words(self) -> tuple[IntArray, IntArray]:
        """Return candidates and words, shape (k,) each: a pair for each word of each heading."""
        if self._headings is None:
            return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
        counted = self._cache.count_words(self._headings)
        rows = np.repeat(np.arange(len(counted)), [len(one.hashes) for one in counted])
        hashes = concatenated([one.hashes for one in counted], np.uint64)
        words = np.searchsorted(self._table.hashes, hashes >> self._table.n_dropped)
        return rows, words

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
        return self._best_words(one, another, partial(self._spelled, row), n)

    def question_words(
        self, row: int, *, question: int = 0, n: int = 3, cosines: FloatArray | None = None
    ) -> tuple[str, ...]:
        """Return the words that add most to the cosine of a question and a candidate, best first.

        Words that tell nothing are left out. They have less than 0.3 of the rarity of the
        question's rarest word. Or 10 or more candidates have them, whose mean cosine is not above
        that of all: a subject is near the question, and "which" is everywhere.

        Args:
            row: Position of a candidate, 0 <= row < number of candidates.
            question: Position of a question. Default: the first one.
            n: How many to return at most, >= 0. Default: 3.
            cosines: Of the embeddings of candidates and question, shape (number of candidates,).
                Default: only rarity decides.

        Raises:
            InvalidInputError: If a position or `n` is not an integer in its range.
        """
        question = as_count("question", question, minimum=0, maximum=len(self._questions) - 1)
        vector = self._vector_of("row", row)
        asked = self._questions[question]
        asked = asked.take(self._is_telling(asked.words, cosines))
        spell = partial(self._spelled_in_question, question)
        return self._best_words(asked, vector, spell, n)

    def _is_telling(self, words: IntArray, cosines: FloatArray | None) -> BoolArray:
        """Return which words of a question tell something, shape (number of words,)."""
        table = self._table
        rarity, sizes = table.rarity[words], table.sizes[words]
        is_telling = np.asarray(rarity >= LEAST_RARITY * rarity.max(initial=0.0))
        if cosines is None:
            return is_telling
        having = cosines[table.rows[table.entries_of(words)]]
        means = sums_at(np.repeat(np.arange(len(words)), sizes), having, len(words)) / sizes
        is_near = means > cosines.mean() + 1e-9  # rounding: what all have is nowhere nearer
        return np.asarray(is_telling & ((sizes < FEWEST_TO_COMPARE) | is_near))

    def _vector_of(self, name: str, row: int) -> SparseVector:
        row = as_count(name, row, minimum=0, maximum=len(self._texts) - 1)
        return self._table.vector_of(row)

    def _spelled(self, row: int, words: IntArray) -> list[str]:
        """Return how some words of a candidate are spelled."""
        hashes, n_dropped = self._table.hashes[words], self._table.n_dropped
        spelled = spellings(self._texts[row], hashes, n_dropped)
        if self._headings is not None and len(spelled) < len(hashes):
            spelled |= spellings(self._headings[row], hashes, n_dropped)
        return [spelled[found] for found in hashes.tolist()]

    def _spelled_in_question(self, question: int, words: IntArray) -> list[str]:
        """Return how some words of a question are spelled."""
        hashes = self._table.hashes[words].tolist()
        return [self._question_spellings[question][found] for found in hashes]

    @cached_property
    def _question_spellings(self) -> list[dict[int, str]]:
        """Return the words of each question by their hashes in the table."""
        n_dropped = self._table.n_dropped
        return [spellings(text, n_dropped=n_dropped) for text in self._question_texts]

    def _best_words(
        self,
        one: SparseVector,
        another: SparseVector,
        spell: Callable[[IntArray], list[str]],
        n: int,
    ) -> tuple[str, ...]:
        """Return the words with the largest products of two vectors, as `spell` spells them."""
        n = as_count("n", n, minimum=0)
        words, i, j = np.intersect1d(one.words, another.words, return_indices=True)
        products = one.values[i] * another.values[j]
        # Words within better ones are left out, so that more are read than are returned.
        n_read = min(len(products), SPELLED_FOR_EACH * n)
        if n_read < len(products):
            is_read = (
                products >= np.partition(products, -n_read)[-n_read] if n_read else products < 0
            )
            words, products = words[is_read], products[is_read]
        named = zip(products.tolist(), spell(words), strict=True)
        best: list[str] = []
        for _, _, word in sorted((-product, -len(word), word) for product, word in named):
            if len(best) == n:
                break
            if not any(word in longer for longer in best):
                best.append(word)
        return tuple(best)


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
    table = WordTable.of(cache.count_words(texts, headings))
    vectors = [table.vector_of_question(counts) for counts in count_words(questions)]
    products = [table.products(vector) for vector in vectors]
    return PoolWords(
        gram=cosines_of(table),
        question=np.minimum(np.array(products).reshape(len(questions), len(texts)), 1.0),
        has_words=table.has_words,
        question_has_words=np.array([len(vector.words) > 0 for vector in vectors], dtype=bool),
        _table=table,
        _questions=vectors,
        _question_texts=tuple(questions),
        _texts=tuple(texts),
        _headings=None if headings is None else tuple(headings),
        _cache=cache,
    )


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
