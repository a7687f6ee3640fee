"""Dates of any kind as seconds, the missing ones as the oldest, and halves by age."""

from datetime import date, datetime, timedelta, timezone

import numpy as np
import pytest

from sift_core import InvalidInputError
from sift_core.dates import by_date
from sift_core.errors import UndatedWarning

MAY = 1_714_521_600  # 2024-05-01, midnight UTC


@pytest.mark.parametrize(
    "same_day",
    [
        "2024-05-01",
        "2024-05-01T00:00:00Z",
        "2024-05-01T02:00:00+02:00",
        date(2024, 5, 1),
        datetime(2024, 5, 1),
        datetime(2024, 5, 1, 2, tzinfo=timezone(timedelta(hours=2))),
        MAY,
        np.int64(MAY),
    ],
    ids=repr,
)
def test_dates_of_every_kind_are_seconds(same_day):
    found = by_date([same_day])
    assert (found.prefer.tolist(), found.prior) == ([MAY], None)


@pytest.mark.parametrize(
    "unreadable",
    [
        None,
        "yesterday",
        "2024-13-01",
        True,
        np.nan,
        10**400,
        MAY * 1000,
        {"year": 2024},
    ],
    ids=repr,
)
def test_what_cannot_be_read_is_the_oldest_and_counted_once(unreadable):
    dates = [unreadable, "1999-01-01", "0001-01-01", unreadable, "2024-05-01"]
    with pytest.warns(UndatedWarning, match="2 of 5 candidates have no date") as warned:
        told = by_date(dates, half_life_days=1e5)
    assert len(warned) == 1
    assert told.prefer.argsort(kind="stable").tolist() == [0, 3, 2, 1, 4]
    assert told.prior[0] == told.prior[3] == told.prior[2]  # as old as the oldest


def test_the_weight_halves_with_age_from_the_newest_by_hand():
    told = by_date(["2024-05-01", "2024-04-01", "2024-03-02"], half_life_days=30)
    assert told.prior == pytest.approx([1, 0.5, 0.25])
    assert by_date(["0001-01-01", "9999-12-31"], half_life_days=1e-3).prior.min() > 0


def test_without_any_date_all_are_alike():
    with pytest.warns(UndatedWarning, match="2 of 2"):
        told = by_date([None, ""], half_life_days=3)
    assert told.prefer[0] == told.prefer[1]
    assert told.prior.tolist() == [1, 1]


@pytest.mark.parametrize("days", [0, -1, np.nan, "3"])
def test_a_half_life_that_cannot_be_is_refused(days):
    with pytest.raises(InvalidInputError, match="`half_life_days` must be"):
        by_date([MAY], half_life_days=days)
