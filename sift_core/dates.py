"""Dates as metadata has them, and the preferences of a choice that follow from them."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from numbers import Real

import numpy as np

from sift_core.checks import as_number
from sift_core.errors import UndatedWarning
from sift_core.selection.preferences import Preferences
from sift_core.types import FloatArray

DAY = 86_400.0  # seconds
FIRST, END = -62_135_596_800.0, 253_402_300_800.0  # seconds: the years 1 to 9999
SMALLEST_EXPONENT = -1000.0  # a weight stays above 0, however old
FIRST_YEAR, END_YEAR = 1000, 10_000  # numbers of years; as seconds all are on 1970-01-01
_SHORTENED = re.compile(r"\d{4}(-\d\d)?", re.ASCII)  # a year or a month, which Python does not read


def by_date(
    dates: Sequence[object],
    *,
    half_life_days: float | None = None,
    n_known: int = 0,
    document_ids: Sequence[str] | None = None,
) -> Preferences:
    """Return the preferences by which the newest of near-duplicates is chosen.

    A date is ISO 8601 text ("2024-05-01", "2024-05-01T12:00:00Z"), a `datetime` or `date`, or
    seconds since 1970; without a time zone it is UTC. A year alone (2024 or "2024") or a month
    ("2024-05") means its first day, so that no number from 1000 to 9999 means seconds. What is
    missing or cannot be read is older than all others, and one `UndatedWarning` names the first of
    these. It shows no value, which may be a text that is nobody else's business.

    Args:
        dates: Of each candidate, n values of any kind.
        half_life_days: > 0: a candidate so many days older than the newest of these n counts
            half as much. No clock is asked. What has no date counts as the oldest.
            None: age counts among near-duplicates alone.
        n_known: How many of the first candidates were warned of before. There is no warning if one
            of these is the first without a date. Default: 0.
        document_ids: n names for the warning. Default: positions.

    Returns:
        `prefer` has the seconds since 1970, shape (n,); with a half-life `prior` has
        2^(-age / half-life), shape (n,).

    Raises:
        InvalidInputError: If `half_life_days` is no number > 0.
    """
    if half_life_days is not None:
        half_life_days = as_number("half_life_days", half_life_days, above=0)
    seconds = np.array([_seconds(value) for value in dates], dtype=np.float64)
    is_missing = np.isnan(seconds)
    if is_missing.any() and (first := int(np.argmax(is_missing))) >= n_known:
        name = f"position {first}" if document_ids is None else repr(document_ids[first])
        # The same words for the same candidate: Python shows them once.
        warnings.warn(
            f"candidates without a date that can be read count as the oldest; the first is "
            f"{name:.80}, which has {_kind(dates[first])}; dates are ISO 8601 text, datetimes, "
            f"years, or seconds since 1970",
            UndatedWarning,
            stacklevel=2,
        )
    known = seconds[~is_missing]
    oldest, newest = (known.min(), known.max()) if len(known) else (0.0, 0.0)
    prior: FloatArray | None = None
    if half_life_days is not None:
        ages = (newest - np.where(is_missing, oldest, seconds)) / DAY
        with np.errstate(over="ignore"):  # a half-life of next to nothing
            prior = 2.0 ** np.maximum(-ages / half_life_days, SMALLEST_EXPONENT)
    return Preferences(prefer=np.where(is_missing, oldest - DAY, seconds), prior=prior)


def year_of(value: object) -> int | None:
    """Return the year of a date in UTC, from 1 to 9999, or None if the value is no date.

    Takes the same dates as `by_date`.
    """
    seconds = _seconds(value)
    if math.isnan(seconds):
        return None
    within = min(max(seconds, FIRST), END - 1)  # a time zone may lead out of the calendar
    return (datetime(1970, 1, 1) + timedelta(seconds=within)).year


def is_date(value: object) -> bool:
    """Return whether a value is a date that `by_date` can read."""
    return not math.isnan(_seconds(value))


def _kind(value: object) -> str:
    return "none" if value is None else f"another value of the type {type(value).__name__}"


def _seconds(value: object) -> float:
    """Return seconds since 1970; NaN for what is no date."""
    if isinstance(value, str):
        text = value.strip()
        if (shortened := _SHORTENED.fullmatch(text)) is not None:
            text += "-01" if shortened[1] else "-01-01"
        try:
            value = datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in "Zz" else text)
        except ValueError:
            return math.nan
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        try:
            return (zoned - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds()
        except (OverflowError, TypeError, ValueError):  # at the ends of the calendar; NaT
            return math.nan
    try:
        seconds = float(value) if isinstance(value, Real) else math.nan
    except OverflowError:  # an int beyond float64
        return math.nan
    if FIRST_YEAR <= seconds < END_YEAR and seconds.is_integer():
        return _seconds(f"{seconds:.0f}")
    return seconds if FIRST <= seconds < END and not isinstance(value, bool) else math.nan
