import math

import pytest

from benchmarks.bars import bar, in_words, load_bars


@pytest.mark.parametrize(
    ("value", "better", "passes"),
    [
        (200.0, "higher", True),
        (199.9, "higher", False),
        (200.0, "lower", True),
        (200.1, "lower", False),
        (math.nan, "higher", False),
        (math.nan, "lower", False),
    ],
)
def test_a_value_that_equals_its_bar_passes_and_a_worse_one_does_not(value, better, passes):
    assert bar("speed", value, 200, better)["pass"] is passes


def test_a_record_has_the_keys_of_the_design():
    assert bar("speed", 250.0, 200, "higher") == {
        "name": "speed",
        "value": 250.0,
        "bar": 200,
        "better": "higher",
        "pass": True,
    }


def test_an_unknown_direction_is_an_error():
    with pytest.raises(ValueError, match="better"):
        bar("speed", 1.0, 1.0, "more")


def test_a_bar_that_is_missed_says_by_how_much():
    assert in_words(bar("speed", 150.0, 200, "higher")) == (
        "speed: 150 (bar >= 200)  falls short by 50 (25%)"
    )
    assert in_words(bar("time", 1.0, 1.5, "lower")) == "time: 1 (bar <= 1.5)  pass"
    assert in_words(bar("faults", 2, 0, "lower")) == "faults: 2 (bar <= 0)  falls short by 2"


def test_every_bar_of_selection_is_a_number():
    bars = load_bars("selection")
    assert bars
    assert all(isinstance(number, int | float) for number in bars.values())


def test_an_unknown_section_is_an_error():
    with pytest.raises(KeyError):
        load_bars("no such benchmark")
