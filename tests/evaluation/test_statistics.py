import math

import numpy as np
import pytest

from sift_core.errors import InvalidInputError
from sift_core.evaluation import statistics


def test_a_mean_by_hand():
    # Deviations -2, 0, 2: variance (4 + 0 + 4) / 2 = 4, so SE = 2 / sqrt(3).
    estimate = statistics.mean([1.0, 3.0, 5.0])
    assert estimate.value == 3.0
    assert estimate.standard_error == pytest.approx(2 / math.sqrt(3))
    assert estimate.n == 3
    assert 1.0 <= estimate.low < 3.0 < estimate.high <= 5.0


def test_the_interval_of_a_mean_is_that_of_scipys_bootstrap():
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(1).gamma(2.0, size=200)
    ours = statistics.mean(values, n_resamples=20_000)
    theirs = stats.bootstrap(
        (values,), np.mean, confidence_level=0.9, n_resamples=20_000, method="percentile", rng=2
    ).confidence_interval
    assert ours.low == pytest.approx(theirs.low, abs=0.01)
    assert ours.high == pytest.approx(theirs.high, abs=0.01)


def test_the_seed_repeats_an_interval():
    values = np.arange(20.0)
    assert statistics.mean(values) == statistics.mean(values)
    assert statistics.mean(values) != statistics.mean(values, seed=1)


def test_many_values_are_resampled_in_blocks_of_bounded_memory(monkeypatch):
    values = np.random.default_rng(0).normal(size=50)
    whole = statistics.mean(values)
    monkeypatch.setattr(statistics, "_BLOCK", 50 * 7)  # 7 resamples at once; 1,000 is no multiple
    assert statistics.mean(values) == whole


def test_one_value_has_no_error():
    estimate = statistics.mean([2.5])
    assert estimate.value == 2.5
    assert all(map(math.isnan, (estimate.standard_error, estimate.low, estimate.high)))


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [[1.0]]])
def test_what_has_no_mean_is_refused(values):
    with pytest.raises(InvalidInputError, match="`values` must be"):
        statistics.mean(values)


@pytest.mark.parametrize(
    ("value", "low", "options", "text"),
    [
        (48.06, 41.0, {}, "48.1 [41.0, 50.0]"),
        (0.481, 0.4, {"digits": 2}, "0.48 [0.40, 50.00]"),
        (-0.04, -1.0, {"sign": "+"}, "+0.0 [-1.0, +50.0]"),
        (2.5, math.nan, {}, "2.5 [–]"),
        (math.nan, math.nan, {}, "–"),
    ],
)
def test_an_estimate_is_written_with_its_interval(value, low, options, text):
    estimate = statistics.Estimate(value=value, standard_error=0.1, low=low, high=50.0, n=2)
    assert estimate.text(**options) == text
