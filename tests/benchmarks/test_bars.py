import math

import pytest

from benchmarks.bars import bar, in_words


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


def test_a_bar_that_is_missed_says_by_how_much():
    assert in_words(bar("speed", 150.0, 200, "higher")) == (
        "speed: 150 (bar >= 200)  falls short by 50 (25%)"
    )
