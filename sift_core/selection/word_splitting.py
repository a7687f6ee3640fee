"""Where the words of a text begin and end, in all scripts, by the Unicode tables of Python.

`word_counts.words_of` says what a word is. NumPy splits many texts at once.
"""

from __future__ import annotations

import re
import unicodedata

import numpy as np

from sift_core.types import BoolArray, IntArray

LEAST_DIGITS = 4  # of a part of a number that counts by itself, as a year in a date does

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

_PAGE = 256  # characters looked up together
_kinds = np.zeros(0x110000, dtype=np.uint8)  # filled page by page, each time with the same values


def split_words(block: str) -> tuple[IntArray, IntArray, IntArray]:
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
