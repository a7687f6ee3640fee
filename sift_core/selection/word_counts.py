"""Words of texts in all scripts, as 64-bit hashes with their counts, and a cache of them.

NumPy splits and hashes many texts at once, so that no Python object is made for a word.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat
from typing import NamedTuple

import numpy as np

from sift_core.checks import as_count
from sift_core.types import BoolArray, FloatArray, IntArray

HEADING = 2  # how often a word of a heading counts in addition. From the prototype, measured there.
CACHE_BYTES = 64 * 2**20  # about 20,000 chunks of 256 tokens
LEAST_DIGITS = 4  # of a part of a number that counts by itself, as a year in a date does
BLOCK_LENGTH = 2**16  # characters split at once: arrays of them stay in the processor's cache

# What a character is to a word. 0 stands for characters that were not looked up yet.
_OTHER, _IGNORED, _CONNECTOR, _UNSPACED, _UNDERSCORE, _DIGIT, _LETTER = range(1, 8)
_CONNECTORS = (".", "-", "/", ":")
_KIND = 0b001111
_COMPATIBLE = 0b010000  # NFKC may make other words of it, alone or with its neighbours
_MARK = 0b100000  # a combining mark

_UNSPACED_SCRIPTS = (
    *("CJK ", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"),
    *("THAI", "LAO", "KHMER", "MYANMAR"),
)
_JAMO = ("HANGUL CHOSEONG", "HANGUL JUNGSEONG", "HANGUL JONGSEONG")
_VOWEL_POINTS = ("ARABIC", "HEBREW")  # marks of these scripts, which most texts leave out

# NFKC sorts runs of marks in quadratic time: 32,000 of them take 0.8 s. Unicode's Stream-Safe
# Text Format (UAX 15) ends them after 30.
_LONGEST_MARKS = 30
_TOO_MANY_MARKS = bytes([_MARK]) * (_LONGEST_MARKS + 1)
_MARKS = re.compile(rf"([^\w\s]{{{_LONGEST_MARKS}}})[^\w\s]+")

# The hash of a word c_0 c_1 … is Σ c_i · B^i modulo 2^64 for an odd B, with its bits mixed. Sums
# from the beginning of a block times a power of 1 / B give the sums of each word in it. The
# numbers are those of splitmix64 (Steele, Lea and Flood, 2014).
_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 2**64)
_MIXERS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], dtype=np.uint64)

_PAGE = 256  # characters looked up together
_kinds = np.zeros(0x110000, dtype=np.uint8)  # filled page by page, each time with the same values


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
        codes, starts, ends = _split(f"\0{block}\0")
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
    codes, starts, ends = _split(f"\0{block}\0")
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
    codes, starts, ends = _split("\0".join(["", *(piece.block for piece in pieces), ""]))
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


def _split(block: str) -> tuple[IntArray, IntArray, IntArray]:
    """Return the characters of a block, folded, and where each word starts and ends.

    Args:
        block: Begins and ends with NUL.

    Returns:
        Code points (c,), uint32, and positions of each word (w,), in no order.
    """
    codes, kinds = _folded(block)
    is_word = kinds >= _UNDERSCORE
    is_joint = kinds == _CONNECTOR
    is_joint[1:-1] &= is_word[:-2] & is_word[2:]
    found = [_runs(is_word | is_joint)]
    is_joint |= kinds == _UNDERSCORE
    if is_joint.any():
        starts, ends = _runs(kinds >= _DIGIT)
        is_part = (ends - starts > 1) & (is_joint[starts - 1] | is_joint[ends])
        starts, ends = starts[is_part], ends[is_part]
        n_letters = np.cumsum(kinds == _LETTER)
        whole_starts, whole_ends = found[0]
        whole = np.searchsorted(whole_starts, starts, side="right") - 1
        # "2.13.0" is one thing, and "TRF-636699" is asked for by its number alone.
        counts = n_letters[whole_ends[whole] - 1] > n_letters[whole_starts[whole] - 1]
        counts |= ends - starts >= LEAST_DIGITS
        found.append((starts[counts], ends[counts]))
    is_unspaced = kinds == _UNSPACED
    if is_unspaced.any():
        pairs = np.flatnonzero(is_unspaced[:-1] & is_unspaced[1:])
        alone = np.flatnonzero(is_unspaced[1:-1] & ~is_unspaced[:-2] & ~is_unspaced[2:]) + 1
        found += [(pairs, pairs + 2), (alone, alone + 1)]
    starts, ends = (np.concatenate(positions) for positions in zip(*found, strict=True))
    return codes, starts, ends


def _runs(is_in: BoolArray) -> tuple[IntArray, IntArray]:
    """Return where runs of True start and end; the first and the last are False."""
    edges = np.flatnonzero(is_in[1:] != is_in[:-1]) + 1
    return edges[::2], edges[1::2]


def _folded(block: str) -> tuple[IntArray, IntArray]:
    """Return the characters that count and their kinds, shapes (c,), in one spelling of many."""
    if not block.isascii():
        block = _normalised(block)
    codes = _codes(block.casefold())
    kinds = _kinds_of(codes) & _KIND
    is_kept = kinds != _IGNORED
    return (codes, kinds) if is_kept.all() else (codes[is_kept], kinds[is_kept])


def _normalised(block: str) -> str:
    """Return a block in normal form NFKC where that matters to words.

    Only texts with characters that need it are normalised, which takes half as long as the rest.
    """
    codes = _codes(block)
    kinds = _kinds_of(codes)
    changed = np.flatnonzero(kinds & _COMPATIBLE)
    if len(changed):
        texts = block.split("\0")
        has_runs = _TOO_MANY_MARKS in (kinds & _MARK).tobytes()
        for number in np.unique(np.searchsorted(np.flatnonzero(codes == 0), changed)).tolist():
            text = _MARKS.sub(r"\1", texts[number]) if has_runs else texts[number]
            # NFKC makes "tm" of "™", which would become the end of a name.
            texts[number] = unicodedata.normalize("NFKC", text.replace("™", " "))
        block = "\0".join(texts)
    return block.replace("\N{HYPHEN}", "-").replace("\N{NON-BREAKING HYPHEN}", "-")


def _codes(text: str) -> IntArray:
    """Return the code points of a text."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _kinds_of(codes: IntArray) -> IntArray:
    """Return what each character is, with its flags, shape (c,), uint8."""
    kinds = _kinds[codes]
    if not kinds.all():
        for page in np.unique(codes[kinds == 0] // _PAGE).tolist():
            start = page * _PAGE
            _kinds[start : start + _PAGE] = [
                _kind_of(chr(code)) for code in range(start, start + _PAGE)
            ]
        kinds = _kinds[codes]
    return kinds


def _kind_of(character: str) -> int:
    """Return what a character is by Python's Unicode tables, with its flags."""
    category = unicodedata.category(character)
    name = unicodedata.name(character, "")
    is_mark = category[0] == "M"
    flags = _COMPATIBLE if is_mark or name.startswith(_JAMO) or _is_changed(character) else 0
    flags |= _MARK if is_mark else 0
    if character == "_":
        return _UNDERSCORE | flags
    if character in _CONNECTORS:
        return _CONNECTOR | flags
    if _is_ignored(character, category, name):
        return _IGNORED | flags
    if (is_mark or category in ("Lo", "Lm", "Nl")) and name.startswith(_UNSPACED_SCRIPTS):
        return _UNSPACED | flags
    if character.isdigit():
        return _DIGIT | flags
    return (_LETTER if is_mark or character.isalnum() else _OTHER) | flags


def _is_changed(character: str) -> bool:
    """Return whether NFKC turns a character into others that belong to words or join them."""
    normal = unicodedata.normalize("NFKC", character)
    return normal != character and (
        normal in _CONNECTORS
        or any(c == "_" or c.isalnum() or unicodedata.category(c)[0] == "M" for c in normal)
    )


def _is_ignored(character: str, category: str, name: str) -> bool:
    """Return whether words are the same without a character."""
    if category == "Cf":
        return character != "\N{ZERO WIDTH SPACE}"  # separates words of scripts without spaces
    return (
        category == "Me"
        or character == "\N{ARABIC TATWEEL}"
        or (category == "Mn" and name.startswith((*_VOWEL_POINTS, "VARIATION SELECTOR")))
    )


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
