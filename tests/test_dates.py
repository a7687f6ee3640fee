"""Dates of any kind as seconds, the missing ones as the oldest, and halves by age."""

from datetime import date, datetime, timedelta, timezone

import numpy as np
import pytest

from sift_core import InvalidInputError
from sift_core.dates import by_date, year_of
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
        "2024-05",
    ],
    ids=repr,
)
def test_dates_of_every_kind_are_seconds(same_day):
    found = by_date([same_day])
    assert (found.prefer.tolist(), found.prior) == ([MAY], None)


@pytest.mark.parametrize("year", [2024, 2024.0, np.int64(2024), "2024", " 2024 "], ids=repr)
def test_a_year_alone_is_its_first_day_and_not_seconds_of_1970(year):
    assert by_date([year]).prefer.tolist() == by_date(["2024-01-01"]).prefer.tolist()
    assert year_of(year) == 2024
    assert by_date([year, 2023], half_life_days=365).prior == pytest.approx([1, 0.5])


def test_numbers_that_are_no_years_are_seconds():
    assert by_date([999, 10_000, 2024.5]).prefer.tolist() == [999, 10_000, 2024.5]


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
    with pytest.warns(UndatedWarning, match="the first is position 0, which has") as warned:
        told = by_date(dates, half_life_days=1e5)
    assert len(warned) == 1
    assert told.prefer.argsort(kind="stable").tolist() == [0, 3, 2, 1, 4]
    assert told.prior[0] == told.prior[3] == told.prior[2]  # as old as the oldest


def test_the_weight_halves_with_age_from_the_newest_by_hand():
    told = by_date(["2024-05-01", "2024-04-01", "2024-03-02"], half_life_days=30)
    assert told.prior == pytest.approx([1, 0.5, 0.25])
    assert by_date(["0001-01-01", "9999-12-31"], half_life_days=1e-3).prior.min() > 0


def test_without_any_date_all_are_alike():
    with pytest.warns(UndatedWarning, match="position 0, which has none"):
        told = by_date([None, ""], half_life_days=3)
    assert told.prefer[0] == told.prefer[1]
    assert told.prior.tolist() == [1, 1]


@pytest.mark.parametrize("days", [0, -1, np.nan, "3"])
def test_a_half_life_that_cannot_be_is_refused(days):
    with pytest.raises(InvalidInputError, match="`half_life_days` must be"):
        by_date([MAY], half_life_days=days)


def test_the_warning_names_the_candidate_and_shows_no_text_of_it():
    dates = ["2024-05-01", "a secret of the client", "another"]
    with pytest.warns(UndatedWarning) as warned:
        by_date(dates, document_ids=["a", "b", "c"])
    with pytest.warns(UndatedWarning) as again:
        by_date([*dates, "a third"], document_ids=["a", "b", "c", "d"])
    said = {str(one.message) for one in (*warned, *again)}
    assert len(said) == 1  # the same words, which Python shows once
    assert "the first is 'b', which has another value of the type str;" in (said := said.pop())
    assert "secret" not in said


@pytest.mark.filterwarnings("error")
def test_the_shortest_half_life_leaves_the_newest_alone():
    # Ages of 0 and 30 days over 5e-324 days: 0, and beyond float64, where the weight is the least.
    told = by_date(["2024-05-01", "2024-04-01"], half_life_days=5e-324)
    assert told.prior.tolist() == [1, 2.0**-1000]
