"""Years, versions and names in a question, and which candidates have them.

A question that names a year or a version asks for that version of a text, neither for the newest
nor for the most relevant one. A question that names a berth does not ask for the newest notice of
another berth, though such pages of one template are near-duplicates. The rule reads no language:

- A number from 1900 to 2099 is a year, also in "FY2019" and "2019-05-01".
- Numbers with points, as in "2.3", are a version, and so is a number after "v" or "version".
- "2" names 2.3 too, though less than 2. "1.2" does not name 1.20.
- Words with a digit are names ("L9", "INV-2031"). A number of up to three digits is one with the
  word before it ("Berth 5"), or with the one after it if that before is short ("an 80 m ship").
- Words with a capital letter are names, unless a sentence begins there or the question is all in
  capitals or title case. German nouns are names too. Most near-duplicates share these, so that
  they change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from sift_core.dates import year_of
from sift_core.selection.preferences import Preferences
from sift_core.types import CandidatePool, FloatArray, Query

MOST_NAMED = 8  # years and versions of one question that are looked for
MOST_NAMES = 16  # other names of one question that are looked for
DATE_KEY = "date"  # where `sift index` writes dates
_EXACT, _WITHIN = 2, 1  # points of a candidate with version 2, and with 2.3, if 2 is named
_NAMES, _DATE, _TEXT = 9, 3, 1  # weights of these points by where it has the version

# Endings are short, since the search takes time quadratic in their length.
_ENDING = r"\w{0,9}"
_WORD = rf"v|ver|vers{_ENDING}|wersj{_ENDING}|верси{_ENDING}|版本|バージョン|버전"
_MARK = rf"(?<![^\W\d_])(?:{_WORD})[.\s_-]*"
_MORE = r"(?P<more>(?:\.\d+)*)(?!\.?\d)"
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_POINTS = re.compile(r"(?<![\d.])\d+(?:\.\d+)+(?!\d)")
_MARKED = re.compile(rf"{_MARK}(\d+)(?!\.?\d)", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_OTHER_DIGIT = re.compile(r"[^\D0-9]")

_WORDS = re.compile(r"[^\W_]+(?:[._/:-][^\W_]+)*")
_JOINTS = re.compile(r"[\s._/:-]+")
_SHORT_NUMBER = re.compile(r"\d{1,3}")  # too common to be a name by itself
# What stands before the first word of a sentence; the last three are Chinese and Japanese.
_SENTENCE_ENDS = frozenset(".!?:\n\u3002\uff01\uff1f")
_LONGEST = 64  # characters of a name
_SHORT = 3  # letters of words that title case may leave small: "of", "the", "von"
_TITLE = 4  # longer words that are title case if all have capitals; "Who is Ada Hart?" has two

Patterns = Mapping[str, re.Pattern[str]]
Name = TypeVar("Name")
Found = TypeVar("Found")


def prefer_named(
    preferences: Preferences | None,
    pool: CandidatePool,
    query: Query,
    *,
    newest: str | None,
    document_key: str | None = None,
    with_names: bool = True,
) -> Preferences | None:
    """Return preferences by which the version that a question names is chosen.

    Of near-duplicates the one with the year or version is preferred, whatever its date. Several
    of these have a row of `prefer` each. One in the id, path, title or headings of a chunk counts
    most, then the year of its date, then its text. `prior` takes no weight from a named version.

    With `newest`, candidates that tie are ordered by how many other names of the question stand in
    their id, path, title or headings, and only then by date. So a newer revision whose title lacks
    a name ("Captain Quillon") loses to an older one whose title has it. Texts are not searched:
    of two versions the newer one may have dropped the sentence with the name. Without `newest` the
    most relevant one stands, in which words count already.

    Nothing changes if the question names none, or no candidate differs by it. Costs a search
    for up to 8 years and versions and 16 names.

    Args:
        preferences: By dates. Default: none.
        pool: The n candidates.
        query: The question, perhaps with others in `also`.
        newest: Metadata key of a date, by which the newest is preferred. Default: years are read
            under "date", and other names count nothing.
        document_key: Metadata key that names a document. Default: as for `place_of`.
        with_names: Whether to look for other names than years and versions. Default: True.
    """
    if not len(pool):
        return preferences
    if newest is not None and with_names:
        preferences = _prefer_names(preferences, pool, query, document_key)
    patterns = _named(query)
    if not patterns:
        return preferences
    points = _points(pool, patterns, newest or DATE_KEY, document_key)
    if (points == points[:, :1]).all():
        return preferences
    found = preferences or Preferences()
    total = points.sum(axis=0)
    prefer = (points * (total.max() + 1) + total) * len(pool) + _order(found, len(pool))
    prior = found.prior
    if prior is not None:
        prior = np.where(total > 0, prior.max(), prior)
    return replace(found, prefer=prefer.astype(np.float64), prior=prior)


def _prefer_names(
    preferences: Preferences | None, pool: CandidatePool, query: Query, document_key: str | None
) -> Preferences | None:
    """Return preferences by which those whose labels have most names of a question come first."""
    names = list(_of_texts(query, _words_in).items())[:MOST_NAMES]
    patterns = [(max(parts, key=len), pattern) for parts, pattern in names]
    if not patterns:
        return preferences
    counts = np.zeros(len(pool))
    for row in range(len(pool)):
        text = _ascii_digits(_labels(pool, row, document_key)).casefold()
        counts[row] = sum(part in text and bool(pattern.search(text)) for part, pattern in patterns)
    if (counts == counts[0]).all():
        return preferences
    found = preferences or Preferences()
    return replace(found, prefer=counts * len(pool) + _order(found, len(pool)))


def _order(preferences: Preferences, n: int) -> FloatArray:
    """Return the rank of each candidate by `prefer`, shape (n,), from 0 and below n."""
    if preferences.prefer is None:
        return np.zeros(n)
    return np.unique(preferences.prefer, return_inverse=True)[1].astype(np.float64)


def _words_in(text: str) -> dict[tuple[str, ...], re.Pattern[str]]:
    """Return what finds each name in a text that is no year or version, by its parts.

    The parts are in small letters.
    """
    text = _ascii_digits(text)
    versions = _names_in(text)
    words = list(_WORDS.finditer(text))
    by_capitals = not _is_title([word[0] for word in words])
    found: dict[tuple[str, ...], re.Pattern[str]] = {}
    for i, word in enumerate(words):
        token = word[0]
        if token in versions:
            continue
        if _SHORT_NUMBER.fullmatch(token):
            token = _with_neighbor(text, words, i)
        elif not _DIGIT.search(token):
            start = words[i - 1].end() if i else 0
            is_first = i == 0 or not _SENTENCE_ENDS.isdisjoint(text[start : word.start()])
            is_capital = len(token) > 1 and any(letter.isupper() for letter in token)
            token = token if by_capitals and is_capital and not is_first else ""
        if token and len(token) <= _LONGEST and len(found) < MOST_NAMES:
            parts = tuple(_JOINTS.split(token.casefold()))
            found[parts] = _whole(parts)
    return found


def _with_neighbor(text: str, words: Sequence[re.Match[str]], i: int) -> str:
    """Return a short number with the word beside it that says of what it is; empty without one."""
    before = words[i - 1] if i else None
    if before and text[before.end() : words[i].start()].isspace():
        if len(before[0]) > _SHORT or before[0][0].isupper():
            return f"{before[0]} {words[i][0]}"
    after = words[i + 1] if i + 1 < len(words) else None
    if after and text[words[i].end() : after.start()].isspace():
        return f"{words[i][0]} {after[0]}"
    return ""


def _is_title(words: Sequence[str]) -> bool:
    """Return whether words are all in capitals or in title case, so that capitals name nothing."""
    cased = [word for word in words if word[0].isupper() or word[0].islower()]
    long = [word for word in cased if len(word) > _SHORT]
    checked = long if len(long) >= _TITLE else cased
    return all(word[0].isupper() for word in checked)


def _whole(parts: tuple[str, ...]) -> re.Pattern[str]:
    """Return what finds the parts of a name one after another, as whole words."""
    first, *others = map(re.escape, parts)
    rest = "".join(rf"[\W_]{{1,3}}{part}" for part in others)
    # A pattern that begins with letters, not with a condition, is found ten times as fast.
    return re.compile(rf"{first}(?<![^\W_]{first}){rest}(?![^\W_])")


def _named(query: Query) -> Patterns:
    """Return each year and version that the texts of a query name, with what finds it."""
    first = list(_of_texts(query, _names_in).items())[:MOST_NAMED]
    return {name: re.compile(pattern, re.IGNORECASE) for name, pattern in first}


def _of_texts(query: Query, names_in: Callable[[str], dict[Name, Found]]) -> dict[Name, Found]:
    """Return what the texts of a query name, by a reading of each text.

    A joined follow-up contains the last question. It is read only if that question names nothing.
    """
    texts = [one.text for one in (query, *query.also)]
    named = [names_in(text) for text in texts]
    found: dict[Name, Found] = {}
    for i, text in enumerate(texts):
        others = (j for j, other in enumerate(texts) if other != text and other in text)
        if not any(named[j] for j in others):
            found |= named[i]
    return found


def _names_in(text: str) -> dict[str, str]:
    """Return the pattern of each year and version in a text."""
    text = _ascii_digits(text)
    found = {number: rf"{_MARK}{number}{_MORE}" for number in _MARKED.findall(text)}
    for version in _POINTS.findall(text):
        found[version] = rf"(?<![\d.]){re.escape(version)}{_MORE}"
    for year in _YEAR.findall(text):
        found[year] = rf"(?<!\d){year}(?P<more>)(?:[01]\d[0-3]\d)?(?!\d)"
    return found


def _points(
    pool: CandidatePool, patterns: Patterns, date_key: str, document_key: str | None
) -> FloatArray:
    """Return how much each candidate has of each name, shape (t, n), from 0."""
    points = np.zeros((len(patterns), len(pool)))
    for row, text in enumerate(pool.texts):
        names = _ascii_digits(_labels(pool, row, document_key))
        text = _ascii_digits(text)
        year = str(year_of(pool.metadata[row].get(date_key)))
        for i, (name, pattern) in enumerate(patterns.items()):
            points[i, row] = (
                _NAMES * _match(name, pattern, names)
                + _DATE * _EXACT * (name == year)
                + _TEXT * _match(name, pattern, text)
            )
    return points


def _labels(pool: CandidatePool, row: int, document_key: str | None) -> str:
    """Return the id, path, title and headings of a candidate."""
    document = pool.place(row, document_key).document or ""
    return f"{pool.document_ids[row]} {document} {pool.heading(row)}"


def _match(name: str, pattern: re.Pattern[str], text: str) -> int:
    """Return the points of a name in a text."""
    if name not in text:
        return 0
    found = [_WITHIN if match["more"] else _EXACT for match in pattern.finditer(text)]
    return max(found, default=0)


def _ascii_digits(text: str) -> str:
    """Return a text with the digits of all scripts as 0 to 9."""
    return text if text.isascii() else _OTHER_DIGIT.sub(lambda digit: str(int(digit[0])), text)
