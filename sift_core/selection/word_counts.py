"""Words of texts in all scripts, as 64-bit hashes with their counts, and a cache of them.

NumPy splits and hashes many texts at once, so that no Python object is made for a word.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat
from typing import NamedTuple

import numpy as np

from sift_core.checks import as_count
from sift_core.selection.word_splitting import split_words
from sift_core.types import FloatArray, IntArray

HEADING = 2  # how often a word of a heading counts in addition. From the prototype, measured there.
CACHE_BYTES = 64 * 2**20  # about 20,000 chunks of 256 tokens
BLOCK_LENGTH = 2**16  # characters split at once: arrays of them stay in the processor's cache

# The hash of a word c_0 c_1 … is Σ c_i · B^i modulo 2^64 for an odd B, with its bits mixed. Sums
# from the beginning of a block times a power of 1 / B give the sums of each word in it. The
# numbers are those of splitmix64 (Steele, Lea and Flood, 2014).
_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 2**64)
_MIXERS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], dtype=np.uint64)


class WordCounts(NamedTuple):
    """The v different words of one text.

    Both arrays are read-only. Words with equal hashes count as one. Among a million words two have
    equal hashes with probability 3e-8.
    """

    hashes: IntArray
    """The words, shape (v,), uint64, ascending."""
    log_counts: FloatArray
    """log(1 + count) of each word, shape (v,), float64, > 0."""


class WordCountCache:
    """Keeps the words of texts that were counted before, and drops the least recently used first.

    Keys are Python's 64-bit hashes of the texts, so that no text is kept. Two of 20,000 texts have
    the same hash with probability 1e-11, and then the same words. Any number of threads may use it
    at once. Two threads that ask for one new text at the same time may both count it.

    Args:
        max_bytes: How much all entries take together, >= 1. An entry has 16 bytes a word and
            about 600 more. Default: 64 MiB, or about 20,000 chunks of 256 tokens.

    Raises:
        InvalidInputError: If `max_bytes` is not an integer >= 1.
    """

    _ENTRY_BYTES = 600  # what an entry takes beside its numbers: key, arrays, places in the table

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self._max_bytes = as_count("max_bytes", max_bytes, minimum=1)
        self._n_bytes = 0
        self._entries: OrderedDict[int, WordCounts] = OrderedDict()
        self._mutex = threading.Lock()

    @property
    def n_bytes(self) -> int:
        """How many bytes the entries take."""
        return self._n_bytes

    def __len__(self) -> int:
        return len(self._entries)

    def count_words(
        self, texts: Sequence[str], headings: Sequence[str] | None = None
    ) -> list[WordCounts]:
        """Return the words of each text, counting only those of texts that are not kept.

        The arguments and the result are those of the function `count_words`. Takes 0.5 µs for a
        text of 1,200 characters whose words are kept.
        """
        pairs = zip(texts, repeat("") if headings is None else headings, strict=False)
        keys = [hash(pair) for pair in pairs]
        with self._mutex:
            found = {key: self._entries[key] for key in keys if key in self._entries}
            for key in found:
                self._entries.move_to_end(key)
        if len(found) < len(keys):
            missing = {key: row for row, key in enumerate(keys) if key not in found}
            rows = list(missing.values())
            counted = count_words(
                [texts[row] for row in rows],
                None if headings is None else [headings[row] for row in rows],
            )
            new = dict(zip(missing, counted, strict=True))
            self._keep(new)
            found |= new
        return [found[key] for key in keys]

    def _keep(self, new: dict[int, WordCounts]) -> None:
        with self._mutex:
            for key, counts in new.items():
                n_bytes = self._n_bytes_of(counts)
                if key not in self._entries and n_bytes <= self._max_bytes:
                    self._entries[key] = counts
                    self._n_bytes += n_bytes
            while self._n_bytes > self._max_bytes:
                _, oldest = self._entries.popitem(last=False)
                self._n_bytes -= self._n_bytes_of(oldest)

    def _n_bytes_of(self, counts: WordCounts) -> int:
        return counts.hashes.nbytes + counts.log_counts.nbytes + self._ENTRY_BYTES


def words_of(text: str) -> list[str]:
    """Return the words of a text in their order, with repeats.

    - A word is a run of letters, marks, digits and underscores, after NFKC normalisation and case
      folding: "ﬁle" and "FILE" are "file".
    - Words joined by one of `. - _ / :` count whole and in parts: "iso-8601" is "iso-8601" and
      "iso" and "8601". Parts of one character are left out. So are parts of less than four
      characters of a whole without a letter: "0.68.1" is one word.
    - Han, Hiragana, Katakana, Hangul, Bopomofo, Thai, Lao, Khmer and Myanmar count as overlapping
      pairs of characters: "東京都" is "東京" and "京都". A character alone counts by itself.
    - Invisible format characters, variation selectors, and the vowel points of Arabic and Hebrew
      are left out.

    No string raises: surrogates and emoji belong to no word. Takes linear time. More than 2^16
    characters without a space or line break are cut, so a word there may be two.
    """
    return [word for block in _blocks(text) for word in _spelled(block)]


def spellings(text: str, wanted: IntArray | None = None, n_dropped: int = 0) -> dict[int, str]:
    """Return how the words of a text are spelled, by their hashes.

    Args:
        text: The text.
        wanted: Return these hashes alone, which is quicker. Default: all.
        n_dropped: How many of the lowest bits the hashes lack, here and in `wanted`. Default: 0.
    """
    found: dict[int, str] = {}
    for block in _blocks(text):
        codes, starts, ends = split_words(f"\0{block}\0")
        hashes = _hashes(codes, starts, ends) >> n_dropped
        if wanted is not None:
            is_wanted = np.isin(hashes, wanted)
            hashes, starts, ends = hashes[is_wanted], starts[is_wanted], ends[is_wanted]
        spans = zip(hashes.tolist(), starts.tolist(), ends.tolist(), strict=True)
        found |= {key: _spelled_as(codes, start, end) for key, start, end in spans}
    return found


def hashes_of(words: Sequence[str]) -> IntArray:
    """Return the hashes of different words in their order, shape (w,), uint64.

    Args:
        words: As `words_of` spells them. What is no such word has no hash.
    """
    hashes = {spelling: key for key, spelling in spellings(" ".join(words)).items()}
    found = [hashes[word] for word in dict.fromkeys(words) if word in hashes]
    return np.array(found, dtype=np.uint64)


def _spelled_as(codes: IntArray, start: int, end: int) -> str:
    return codes[start:end].tobytes().decode("utf-32-le")


def _spelled(block: str) -> list[str]:
    """Return each word of a block in its order."""
    codes, starts, ends = split_words(f"\0{block}\0")
    order = np.lexsort((-ends, starts))
    pairs = zip(starts[order].tolist(), ends[order].tolist(), strict=True)
    return [_spelled_as(codes, start, end) for start, end in pairs]


def count_words(texts: Sequence[str], headings: Sequence[str] | None = None) -> list[WordCounts]:
    """Return the words of each text and how often it has them.

    Takes 15 to 30 µs for a text of 1,200 characters, and memory of about 4 MB beside the result.

    Args:
        texts: Any number. `words_of` says what their words are.
        headings: One for each text. Its words count `HEADING` = 2 times in addition to those of
            the text, whether or not the text repeats the heading. Default: no headings.
    """
    found: list[list[tuple[IntArray, IntArray]]] = [[] for _ in texts]
    for pieces in _batches(texts, headings):
        first = pieces[0].text_number
        for offset, counted in enumerate(_count_batch(pieces)):
            found[first + offset].append(counted)
    return [_merged(parts) for parts in found]


class _Piece(NamedTuple):
    """A block of a text or of its heading; each of its words counts `times`."""

    text_number: int
    times: int
    block: str


def _batches(texts: Sequence[str], headings: Sequence[str] | None) -> Iterator[list[_Piece]]:
    """Yield the blocks of all texts in their order, about `BLOCK_LENGTH` characters at a time."""
    batch: list[_Piece] = []
    length = 0
    for number, text in enumerate(texts):
        parts = [(1, text)] if headings is None else [(1, text), (HEADING, headings[number])]
        for times, part in parts:
            for block in _blocks(part):
                if batch and length + len(block) >= BLOCK_LENGTH:
                    yield batch
                    batch, length = [], 0
                batch.append(_Piece(number, times, block))
                length += len(block) + 1
    if batch:
        yield batch


def _blocks(text: str) -> Iterator[str]:
    """Yield a text in blocks of at most `BLOCK_LENGTH` characters, cut at spaces where it can be.

    NUL separates blocks, so that those of the text become spaces.
    """
    text = text.replace("\0", " ")
    start = 0
    while len(text) - start > BLOCK_LENGTH:
        last = start + BLOCK_LENGTH
        end = max(text.rfind(" ", start + 1, last), text.rfind("\n", start + 1, last))
        end = end if end > start else last
        yield text[start:end]
        start = end
    yield text[start:]


def _count_batch(pieces: list[_Piece]) -> list[tuple[IntArray, IntArray]]:
    """Return hashes (v,), ascending, and counts (v,) of each text from the first to the last."""
    first, last = pieces[0].text_number, pieces[-1].text_number
    codes, starts, ends = split_words("\0".join(["", *(piece.block for piece in pieces), ""]))
    hashes = _hashes(codes, starts, ends)
    piece = np.searchsorted(np.flatnonzero(codes == 0), starts) - 1
    # A batch has at most 2^16 pieces, and NumPy sorts 16 bits by radix.
    text = np.array([each.text_number - first for each in pieces], dtype=np.uint16)[piece]
    times = np.array([each.times for each in pieces])[piece]
    order = np.argsort(hashes)
    order = order[np.argsort(text[order], kind="stable")]
    hashes, text, times = hashes[order], text[order], times[order]
    is_new = np.ones(len(hashes), dtype=bool)
    is_new[1:] = (hashes[1:] != hashes[:-1]) | (text[1:] != text[:-1])
    at = np.flatnonzero(is_new)
    counts = np.add.reduceat(times, at) if len(at) else times
    hashes = hashes[at]
    cuts = np.searchsorted(text[at], np.arange(last - first + 2)).tolist()
    return [(hashes[a:b], counts[a:b]) for a, b in pairwise(cuts)]


def _merged(parts: list[tuple[IntArray, IntArray]]) -> WordCounts:
    """Return the words of one text whose blocks were counted apart."""
    hashes, counts = parts[0]
    if len(parts) > 1:
        hashes, where = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
        counts = np.bincount(where, weights=np.concatenate([part[1] for part in parts]))
    hashes = hashes.copy()  # a view would keep the whole batch
    log_counts: FloatArray = np.log1p(counts)
    hashes.flags.writeable = log_counts.flags.writeable = False  # others get the same
    return WordCounts(hashes, log_counts)


def _hashes(codes: IntArray, starts: IntArray, ends: IntArray) -> IntArray:
    """Return the hash of each word, shape (w,), uint64, wherever it stands."""
    powers, inverses = _powers(len(codes))
    total = np.cumsum(codes * powers, dtype=np.uint64)
    hashes: IntArray = (total[ends - 1] - total[starts - 1]) * inverses[starts]
    hashes = (hashes ^ (hashes >> 30)) * _MIXERS[0]
    hashes = (hashes ^ (hashes >> 27)) * _MIXERS[1]
    return hashes ^ (hashes >> 31)


def _powers(n: int) -> tuple[IntArray, IntArray]:
    """Return B^i and B^-i modulo 2^64 for i < n."""
    if n <= len(_POWERS[0]):
        return _POWERS[0][:n], _POWERS[1][:n]
    return _computed_powers(n)


def _computed_powers(n: int) -> tuple[IntArray, IntArray]:
    factors = np.full((2, n), [[_BASE], [_INVERSE]], dtype=np.uint64)
    factors[:, 0] = 1
    up, down = np.cumprod(factors, axis=1, dtype=np.uint64)
    return up, down


_POWERS = _computed_powers(BLOCK_LENGTH + 256)  # a block, and what folding may add to it
