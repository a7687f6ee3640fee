from __future__ import annotations

import math

import numpy as np
import pytest

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis import bootstrap, statistics


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


def test_a_wider_confidence_gives_a_wider_interval_and_the_seed_repeats_it():
    values = np.arange(20.0)
    narrow, wide = (statistics.mean(values, confidence=c) for c in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high
    assert statistics.mean(values) == statistics.mean(values)
    assert statistics.mean(values) != statistics.mean(values, seed=1)


def test_many_values_are_resampled_in_blocks_of_bounded_memory(monkeypatch):
    values = np.random.default_rng(0).normal(size=50)
    whole = statistics.mean(values)
    monkeypatch.setattr(bootstrap, "_BLOCK", 50 * 7)  # 7 resamples at once; 1,000 is no multiple
    assert statistics.mean(values) == whole


def test_one_value_has_no_error():
    estimate = statistics.mean([2.5])
    assert estimate.value == 2.5
    assert math.isnan(estimate.standard_error)
    assert math.isnan(estimate.low)
    assert math.isnan(estimate.high)


def test_a_paired_difference_is_over_the_common_prompts():
    # a: 5 - 3 = 2, b: 1 - 5 = -4; c and d stand on one side alone.
    estimate = statistics.paired_difference(
        {"a": 5.0, "b": 1.0, "c": 99.0}, {"d": 7.0, "b": 5.0, "a": 3.0}
    )
    assert estimate.value == -1.0
    assert estimate.standard_error == pytest.approx(3.0)
    assert estimate.n == 2


def test_pairing_narrows_the_interval():
    first = {str(i): 10.0 * i for i in range(30)}
    second = {key: value + 1 + (int(key) % 2) for key, value in first.items()}
    estimate = statistics.paired_difference(first, second)
    assert estimate.value == pytest.approx(-1.5)
    assert estimate.high - estimate.low < 0.5
    assert statistics.mean(list(first.values())).standard_error > 10


def test_a_grouped_mean_resamples_whole_groups():
    values = np.repeat([0.0, 10.0, 20.0, 30.0], 25)
    groups = np.repeat(np.arange(4), 25).tolist()
    grouped = statistics.grouped_mean(values, groups)
    alone = statistics.mean([0.0, 10.0, 20.0, 30.0])
    assert grouped.value == 15.0
    assert grouped.n == 4
    # 4 groups of one value each: the bootstrap's deviation is std(ddof=0) / 2 = 5.59.
    assert grouped.standard_error == pytest.approx(11.18 / 2, rel=0.1)
    assert grouped.high - grouped.low == pytest.approx(alone.high - alone.low, rel=0.2)


def test_a_grouped_mean_weighs_points_not_groups():
    assert statistics.grouped_mean([0.0, 0.0, 0.0, 8.0], ["a", "a", "a", "b"]).value == 2.0
    assert math.isnan(statistics.grouped_mean([1.0, 2.0], ["a", "a"]).standard_error)


def test_ranks_of_ties_are_averages():
    assert statistics.average_ranks([10.0, 20.0, 10.0, 5.0]).tolist() == [2.5, 4.0, 2.5, 1.0]


def test_spearman_by_hand():
    # Ranks 1 2 3 4 and 1 3 2 4: 1 - 6 (0 + 1 + 1 + 0) / (4 · 15) = 0.8.
    assert statistics.spearman([1, 2, 3, 4], [10, 30, 20, 1000]).value == pytest.approx(0.8)


@pytest.mark.parametrize("kind", ["smooth", "tied"])
def test_correlations_equal_scipys(kind):
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(3)
    x = generator.normal(size=60)
    y = x + generator.normal(size=60)
    if kind == "tied":
        x, y = np.round(x), np.round(y)
    assert statistics.spearman(x, y).value == pytest.approx(stats.spearmanr(x, y).statistic)
    assert statistics.pearson(x, y).value == pytest.approx(stats.pearsonr(x, y).statistic)


def test_a_resample_of_spearman_is_ranked_anew():
    """The interval equals that of scipy's spearmanr on the drawn points themselves."""
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(4)
    x = generator.normal(size=40)
    y = x + generator.normal(size=40)
    ours = statistics.spearman(x, y, n_resamples=300, seed=5)
    counts = np.random.default_rng(5).multinomial(40, np.full(40, 1 / 40), size=300)
    theirs = [
        stats.spearmanr(np.repeat(x, count), np.repeat(y, count)).statistic for count in counts
    ]
    assert [ours.low, ours.high] == pytest.approx(np.quantile(theirs, [0.05, 0.95]))


def test_points_of_one_prompt_do_not_count_as_many():
    generator = np.random.default_rng(6)
    x = generator.normal(size=12)
    y = x + generator.normal(size=12)
    many_x, many_y = np.repeat(x, 20), np.repeat(y, 20)
    prompts = np.repeat(np.arange(12), 20).tolist()
    for correlate in (statistics.spearman, statistics.pearson):
        naive = correlate(many_x, many_y)
        right = correlate(many_x, many_y, prompts=prompts)
        assert right.value == pytest.approx(naive.value)
        assert (right.n, right.n_prompts) == (240, 12)
        assert right.high - right.low > 2 * (naive.high - naive.low)


def test_pearson_leaves_out_the_ends_of_the_first_argument():
    x = np.arange(400.0)
    y = x.copy()
    y[0], y[-1] = 1e6, -1e6
    assert statistics.pearson(x, y).value < 0.1
    cut = statistics.pearson(x, y, leave_out=statistics.OUTLIER_SHARE)
    assert cut.value == pytest.approx(1.0)
    assert (cut.n, cut.n_prompts) == (398, 398)
    few = statistics.pearson(x[:399], y[:399], leave_out=statistics.OUTLIER_SHARE)
    assert few.n == 399  # 0.25 % of 399 is less than one point


@pytest.mark.parametrize("correlate", [statistics.spearman, statistics.pearson])
def test_a_correlation_that_does_not_exist_is_nan(correlate):
    for x, y in ([], []), ([1.0], [2.0]), ([1.0, 1.0], [2.0, 3.0]), ([1.0, 2.0], [0.1, 0.1]):
        assert math.isnan(correlate(x, y).value)
    assert math.isnan(correlate([1.0, 2.0, 3.0], [1.0, 2.0, 4.0], n_resamples=0).low)


def test_a_tiny_scale_is_not_taken_for_constant():
    x = np.array([1.0, 2.0, 3.0]) * 1e-20
    assert statistics.pearson(x, x).value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: statistics.mean([]), "at least 1"),
        (lambda: statistics.mean([1.0, math.nan]), "finite"),
        (lambda: statistics.mean([1.0], confidence=1.0), "confidence"),
        (lambda: statistics.mean([1.0], n_resamples=0), "n_resamples"),
        (lambda: statistics.grouped_mean([1.0], ["a", "b"]), "got 2"),
        (lambda: statistics.paired_difference({"a": 1.0}, {"b": 1.0}), "no prompt in common"),
        (lambda: statistics.spearman([1.0], [1.0, 2.0]), "one length"),
        (lambda: statistics.spearman([1.0], [1.0], prompts=[]), "got 0"),
        (lambda: statistics.pearson([1.0], [1.0], leave_out=0.5), "leave_out"),
        (lambda: statistics.pearson([1.0], [1.0], n_resamples=-1), "n_resamples"),
    ],
)
def test_bad_input_says_what_is_wrong(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
