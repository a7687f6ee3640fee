"""Years and versions that a question names, and which candidates have them.

A question that names a year or a version asks for that version of a text, neither for the newest
nor for the most relevant one. The rule reads no language:

- A number from 1900 to 2099 is a year, also in "FY2019" and "2019-05-01".
- Numbers with points, as in "2.3", are a version, and so is a number after "v" or "version".
- "2" names 2.3 too, though less than 2. "1.2" does not name 1.20.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from sift_core.dates import year_of
from sift_core.selection.preferences import Preferences
from sift_core.types import CandidatePool, FloatArray, Query

MOST_NAMED = 8  # years and versions of one question that are looked for
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

Patterns = Mapping[str, re.Pattern[str]]


def prefer_named(
    preferences: Preferences | None,
    pool: CandidatePool,
    query: Query,
    *,
    newest: str | None,
    document_key: str | None = None,
) -> Preferences | None:
    """Return preferences by which the version that a question names is chosen.

    Of near-duplicates the one with the year or version is preferred, whatever its date. Several
    names have a row of `prefer` each. A name in the id, path, title or headings of a chunk counts
    most, then the year of its date, then its text. `prior` takes no weight from a named version.

    Nothing changes if the question names none, or no candidate differs by it.

    Args:
        preferences: By dates. Default: none.
        pool: The n candidates.
        query: The question, perhaps with others in `also`.
        newest: Metadata key of a date. Default: "date".
        document_key: Metadata key that names a document. Default: as for `place_of`.
    """
    patterns = _named(query)
    if not patterns or not len(pool):
        return preferences
    points = _points(pool, patterns, newest or DATE_KEY, document_key)
    if (points == points[:, :1]).all():
        return preferences
    found = preferences or Preferences()
    before = np.zeros(len(pool)) if found.prefer is None else found.prefer
    order = np.unique(before, return_inverse=True)[1]
    total = points.sum(axis=0)
    prefer = (points * (total.max() + 1) + total) * len(pool) + order
    prior = found.prior
    if prior is not None:
        prior = np.where(total > 0, prior.max(), prior)
    return replace(found, prefer=prefer.astype(np.float64), prior=prior)


def _named(query: Query) -> Patterns:
    """Return each year and version that the texts of a query name, with what finds it.

    A joined follow-up contains the last question. It is read only if that question names nothing.
    """
    texts = [one.text for one in (query, *query.also)]
    named = [_names_in(text) for text in texts]
    found: dict[str, str] = {}
    for i, text in enumerate(texts):
        others = (j for j, other in enumerate(texts) if other != text and other in text)
        if not any(named[j] for j in others):
            found |= named[i]
    first = list(found.items())[:MOST_NAMED]
    return {name: re.compile(pattern, re.IGNORECASE) for name, pattern in first}


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
        document = pool.place(row, document_key).document or ""
        names = _ascii_digits(f"{pool.document_ids[row]} {document} {pool.heading(row)}")
        text = _ascii_digits(text)
        year = str(year_of(pool.metadata[row].get(date_key)))
        for i, (name, pattern) in enumerate(patterns.items()):
            points[i, row] = (
                _NAMES * _match(name, pattern, names)
                + _DATE * _EXACT * (name == year)
                + _TEXT * _match(name, pattern, text)
            )
    return points


def _match(name: str, pattern: re.Pattern[str], text: str) -> int:
    """Return the points of a name in a text."""
    if name not in text:
        return 0
    found = [_WITHIN if match["more"] else _EXACT for match in pattern.finditer(text)]
    return max(found, default=0)


def _ascii_digits(text: str) -> str:
    """Return a text with the digits of all scripts as 0 to 9."""
    return text if text.isascii() else _DIGIT.sub(lambda digit: str(int(digit[0])), text)
