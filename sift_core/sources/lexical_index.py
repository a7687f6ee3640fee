"""BM25 over documents in memory, and the file that keeps its numbers.

Words are the 64-bit hashes of `count_words`. Decision 0035 says why this is no library's index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import NamedTuple, TypeAlias

import numpy as np

from sift_core.selection.word_counts import WordCounts, count_words, hashes_of
from sift_core.types import FloatArray, IntArray

K1, B = 1.2, 0.75  # as Lucene has them
LARGEST_SHARE = 1 / 2  # of the documents may have a word that is looked for. Guess.
FORMAT = 1  # rises where words, hashes or columns change
_DOCUMENTS_A_BLOCK = 4096  # counted together: Python holds objects of so many documents at once
_LARGEST_COUNT = 255  # of a word in a document: beyond, BM25 grows by less than 0.5 %

ReadTexts: TypeAlias = Callable[[list[int]], tuple[Sequence[str], Sequence[str]]]
"""Returns texts and headings of documents, by their ids."""


class Ranked(NamedTuple):
    """Documents by descending score, ties by id: ids (n,) and scores (n,)."""

    ids: list[int]
    scores: list[float]


@dataclass(frozen=True, kw_only=True, eq=False)
class LexicalIndex:
    """The words of documents, which no method changes; any number of threads may search it.

    Memory: 9 bytes for each different word of a document, of which the file has 5.

    Args:
        ids: Shape (n,), ascending: the numbers by which a store knows its documents.
        lengths: Shape (n,), words of each document, those of headings counted as often as
            `count_words` counts them.
        words: Shape (v,), uint64, ascending: hashes of all words.
        starts: Shape (v + 1,), where the documents of each word begin in the next two.
        rows: Shape (p,), int32, positions in `ids` of the documents with a word.
        counts: Shape (p,), uint8, how often they have it, at most 255.
    """

    ids: IntArray
    lengths: IntArray
    words: IntArray
    starts: IntArray
    rows: IntArray
    counts: IntArray

    @classmethod
    def empty(cls) -> LexicalIndex:
        """Return an index without documents."""
        return cls(
            ids=np.empty(0, np.int64),
            lengths=np.empty(0, np.int64),
            words=np.empty(0, np.uint64),
            starts=np.zeros(1, np.int64),
            rows=np.empty(0, np.int32),
            counts=np.empty(0, np.uint8),
        )

    def updated(self, ids: IntArray, read: ReadTexts) -> LexicalIndex:
        """Return the index of exactly these documents; itself if they are its own.

        Only documents that it lacks are read, which takes 25 to 30 µs for each. All words are
        then sorted again, in O(p log p): some 0.3 s for a million of them.

        Args:
            ids: Shape (m,), in any order. The documents of ids that it has are the same as before.
            read: Called for some thousand documents at a time.
        """
        ids = np.unique(ids).astype(np.int64)
        if np.array_equal(ids, self.ids):
            return self
        stays = np.isin(self.ids, ids, assume_unique=True)
        new = np.setdiff1d(ids, self.ids, assume_unique=True)
        kept = stays[self.rows]
        positions = np.searchsorted(ids, self.ids)[self.rows[kept]]
        hashes = np.repeat(self.words, np.diff(self.starts))[kept]
        postings = [_Postings(hashes, positions.astype(np.int32), self.counts[kept])]
        lengths = [self.lengths[stays]]
        for start in range(0, len(new), _DOCUMENTS_A_BLOCK):
            some = new[start : start + _DOCUMENTS_A_BLOCK]
            counted, long = _counted(*read(some.tolist()), positions=np.searchsorted(ids, some))
            postings.append(counted)
            lengths.append(long)
        order = np.argsort(np.concatenate([self.ids[stays], new]))
        joined = _Postings(*map(np.concatenate, zip(*postings, strict=True)))
        return _index(joined, ids, np.concatenate(lengths)[order])

    def search(
        self, words: Sequence[str], n: int, keep: Callable[[int], bool] | None = None
    ) -> Ranked:
        """Return the n documents with the highest BM25, fewer where fewer have any of the words.

        A word that more than half of the documents have is left out, since it costs time and says
        nothing, unless all of the words are such. The score is Lucene's, with k1 = 1.2, b = 0.75
        and log(1 + (n - df + 0.5) / (df + 0.5)).

        Args:
            words: As `words_of` spells them; a repeat counts once.
            n: >= 1.
            keep: Called with ids, best first; only documents for which it is true are returned.
        """
        scores = self._scores(words)
        ids: list[int] = []
        found: list[float] = []
        n_seen, n_best = 0, n
        while True:
            rows = _best(scores, n_best)
            for row in rows[n_seen:].tolist():
                document = int(self.ids[row])
                if keep is None or keep(document):
                    ids.append(document)
                    found.append(float(scores[row]))
                    if len(ids) == n:
                        return Ranked(ids, found)
            if len(rows) < n_best:
                return Ranked(ids, found)
            n_seen, n_best = n_best, 4 * n_best

    def as_bytes(self) -> bytes:
        """Return what `from_bytes` makes the same index of."""
        file = BytesIO()
        np.savez(file, **{name: getattr(self, name) for name in _COLUMNS})
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> LexicalIndex:
        """Return the index that was written.

        Raises:
            ValueError: If the content is no such index.
        """
        try:
            with np.load(BytesIO(content), allow_pickle=False) as file:
                index = cls(**{name: file[name] for name in _COLUMNS})
        except Exception as error:  # whatever ZIP, NumPy's headers and lengths raise
            raise ValueError(f"no words of ours: {type(error).__name__}: {error}") from error
        if not index._is_sound():
            raise ValueError("no words of ours: its columns do not fit together")
        return index

    def _is_sound(self) -> bool:
        """Return whether the columns fit together, so that no search reads beyond them."""
        columns = [getattr(self, name) for name in _COLUMNS]
        return (
            [column.dtype for column in columns] == list(_COLUMNS.values())
            and all(column.ndim == 1 for column in columns)
            and len(self.lengths) == len(self.ids)
            and len(self.starts) == len(self.words) + 1
            and len(self.counts) == len(self.rows) == self.starts[-1]
            and self.starts[0] == 0
            and bool((self.starts[1:] > self.starts[:-1]).all())
            and bool((self.ids[1:] > self.ids[:-1]).all())
            and bool((self.lengths >= 0).all())
            and (not len(self.rows) or 0 <= self.rows.min() <= self.rows.max() < len(self.ids))
        )

    def _scores(self, words: Sequence[str]) -> FloatArray:
        """Return the BM25 of all documents, shape (n,); 0 for those without any of the words."""
        scores = np.zeros(len(self.ids))
        places = self._places(words)
        frequencies = self.starts[places + 1] - self.starts[places]
        tells = frequencies <= LARGEST_SHARE * len(self.ids)
        if tells.any():
            places, frequencies = places[tells], frequencies[tells]
        weights = np.log1p((len(self.ids) - frequencies + 0.5) / (frequencies + 0.5))
        for place, weight in zip(places.tolist(), weights.tolist(), strict=True):
            those = slice(self.starts[place], self.starts[place + 1])
            scores[self.rows[those]] += weight * self._saturated[those]  # a document comes once
        return scores

    def _places(self, words: Sequence[str]) -> IntArray:
        """Return positions in `words` of those that any document has, in their order."""
        keys = hashes_of(words)
        places = np.searchsorted(self.words, keys)
        is_there = places < len(self.words)
        is_there[is_there] = self.words[places[is_there]] == keys[is_there]
        return places[is_there]

    @cached_property
    def _saturated(self) -> FloatArray:
        """BM25's part of each count, tf · (k1 + 1) / (tf + k1 · (1 - b + b · |d| / mean)), (p,)."""
        norms = K1 * (1 - B + B * self.lengths / max(self.lengths.mean(), 1))
        counts = self.counts.astype(np.float32)
        parts: FloatArray = counts * (K1 + 1) / (counts + norms.astype(np.float32)[self.rows])
        return parts


_COLUMNS = {
    "ids": np.int64,
    "lengths": np.int64,
    "words": np.uint64,
    "starts": np.int64,
    "rows": np.int32,
    "counts": np.uint8,
}


class _Postings(NamedTuple):
    """Which word stands in which document and how often: three columns of one length."""

    hashes: IntArray
    rows: IntArray
    counts: IntArray


def counts_of(words: WordCounts) -> FloatArray:
    """Return how often a text has each of its words, shape (v,), from their logarithms."""
    counts: FloatArray = np.rint(np.expm1(words.log_counts))
    return counts


def _counted(
    texts: Sequence[str], headings: Sequence[str], *, positions: IntArray
) -> tuple[_Postings, IntArray]:
    """Return the words of documents and the documents' lengths."""
    counted = count_words(texts, headings)
    rows = np.repeat(np.arange(len(counted)), [len(each.hashes) for each in counted])
    counts = np.concatenate([counts_of(each) for each in counted])
    lengths = np.bincount(rows, counts, len(counted)).astype(np.int64)
    return (
        _Postings(
            np.concatenate([each.hashes for each in counted]),
            positions[rows].astype(np.int32),
            np.minimum(counts, _LARGEST_COUNT).astype(np.uint8),
        ),
        lengths,
    )


def _index(postings: _Postings, ids: IntArray, lengths: IntArray) -> LexicalIndex:
    """Return the index of words in any order."""
    order = np.argsort(postings.hashes, kind="stable")
    words, starts = np.unique(postings.hashes[order], return_index=True)
    return LexicalIndex(
        ids=ids,
        lengths=lengths,
        words=words,
        starts=np.append(starts, len(order)),
        rows=postings.rows[order],
        counts=postings.counts[order],
    )


def _best(scores: FloatArray, n: int) -> IntArray:
    """Return positions of the n highest scores above 0, the highest first, ties by position."""
    rows = np.flatnonzero(scores)
    if len(rows) > n:
        least = np.partition(scores[rows], len(rows) - n)[len(rows) - n]
        rows = rows[scores[rows] >= least]
    return rows[np.argsort(-scores[rows], kind="stable")][:n]
