from __future__ import annotations

import math

import numpy as np
import pytest

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis import adaptive, uncertainty
from sift_core.evaluation.analysis.rows import Results
from sift_core.evaluation.language_modeling.arms import BASE, learning
from tests.evaluation.synthetic import cell, prompt, results_of_percents, row, shown

SIFT = learning("SIFT", 0.1)


def sift_rows(of, bits, variances, *, steps=None, base=None, arm=SIFT):
    chosen = [f"d{i}" for i in range(len(variances) - 1)]
    made = row(of, arm, bits, steps=steps, chosen=chosen, variances=variances)
    return [row(of, BASE, bits[0] if base is None else base), made]


def noisy_results(n=60, *, seed=0):
    """Two domains at different levels of bits per byte, whose σ differ in level as well."""
    generator = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        level = (1.0, 4.0)[i % 2]
        variances = [1.0, *(np.array([0.6, 0.4, 0.3]) * generator.uniform(0.5, 1.5) * level / 4)]
        base = level * generator.uniform(0.8, 1.2)
        bits = [base, base * 0.9, base * 0.85, base * generator.uniform(0.6, 0.95)]
        rows += sift_rows(prompt(f"p{i}", f"level {level:g}"), bits, variances)
    return Results.from_rows(rows)


def test_points_by_hand():
    rows = sift_rows(prompt("a"), [2.0, 1.0], [1.0, 0.64, 0.25], steps=[0, 2])
    rows += sift_rows(prompt("b", "code"), [3.0, 2.4, 1.5], [1.0, 0.81, 0.49])
    points = uncertainty.uncertainty_points(Results.from_rows(rows))
    assert points.prompt_ids == ("a", "a", "b", "b", "b")
    assert points.domains == ("books", "books", "code", "code", "code")
    assert points.steps.tolist() == [0, 2, 0, 1, 2]
    np.testing.assert_allclose(points.deviations, [1, 0.5, 1, 0.9, 0.7])
    np.testing.assert_allclose(points.scaled_deviations, [2, 1, 3, 2.7, 2.1])
    np.testing.assert_allclose(points.percent, [100, 50, 100, 80, 50])
    assert points.last().prompt_ids == ("a", "b")
    np.testing.assert_allclose(points.last().bits_per_byte, [1.0, 1.5])


def test_the_table_of_correlations_equals_scipys():
    stats = pytest.importorskip("scipy.stats")
    results = noisy_results()
    points = uncertainty.uncertainty_points(results)
    last = points.last()
    table = uncertainty.correlation_table(results, n_resamples=20)
    found = {tuple(r[0].text.split(", ")): r[1:] for r in table.rows}
    for name, side in (("σ_n", "deviations"), ("σ̂_n", "scaled_deviations")):
        for when, those in (("all", points), ("last", last)):
            x, y = getattr(those, side), those.bits_per_byte
            spearman, pearson = (found[name, when][i].value for i in (1, 2))
            assert spearman == pytest.approx(stats.spearmanr(x, y).statistic)
            assert pearson == pytest.approx(stats.pearsonr(x, y).statistic)
            logs = found[f"log {name}", when]
            assert logs[1].value == pytest.approx(spearman)
            assert logs[2].value == pytest.approx(stats.pearsonr(np.log(x), y).statistic)
            gain = stats.spearmanr(x, those.percent).statistic
            assert found[name, when][4].value == pytest.approx(gain)
    assert found["σ_n", "all"][0].text == "240"
    assert found["bpb_0", "last"][1].value > 0.8


def test_what_the_domain_alone_explains_is_not_left_within_domains():
    """σ goes with the domain's level and, inside a domain, with nothing."""
    table = uncertainty.correlation_table(noisy_results(400), n_resamples=50)
    spearman, within = (cell(table, "σ_n, last", head) for head in ("Spearman", "within domain"))
    assert spearman.value > 0.6
    assert abs(within.value) < 0.12
    share = int(table.note.split("The domain alone explains ")[1].split("%")[0])
    assert 85 <= share <= 100


def test_domains_that_do_not_matter_explain_nothing():
    """Pairs of prompts: without their number counted, 20 domains of 2 explain half of chance."""
    generator = np.random.default_rng(3)
    rows = []
    for i in range(40):
        of = prompt(f"p{i}", f"domain {i // 2}")
        bits = 2 + generator.random()
        rows.append(row(of, BASE, bits))
        rows.append(row(of, SIFT, [bits, bits - 0.1], chosen=["x"], variances=[1.0, 0.5 + i / 100]))
    note = uncertainty.correlation_table(Results.from_rows(rows), n_resamples=0).note
    assert int(note.split("The domain alone explains ")[1].split("%")[0]) < 25


def test_correlation_inside_a_domain_by_hand():
    rows = []
    # books: σ and bpb rise together; code: lower σ, higher bpb, and they rise together as well.
    for name, domain, variance, bits in (
        ("a", "books", 0.5, 1.0),
        ("b", "books", 0.6, 1.1),
        ("c", "code", 0.1, 3.0),
        ("d", "code", 0.2, 3.1),
    ):
        rows += sift_rows(prompt(name, domain), [4.0, bits], [1.0, variance])
    table = uncertainty.correlation_table(Results.from_rows(rows), n_resamples=0)
    spearman, within = (cell(table, "σ_n, last", head) for head in ("Spearman", "within domain"))
    # Ranks 3 4 1 2 against 1 2 3 4: 1 - 6 (4 + 4 + 4 + 4) / (4 · 15) = -0.6.
    assert spearman.value == pytest.approx(-0.6)
    assert within.value == pytest.approx(1.0)


def test_domains_of_other_sizes_are_centred_on_their_own():
    of = {
        "books": [(0.5, 1.0), (0.6, 1.1)],
        "code": [(0.1, 3.1), (0.2, 3.3), (0.3, 3.0), (0.4, 3.2)],
    }
    rows = []
    for domain, pairs in of.items():
        for i, (variance, bits) in enumerate(pairs):
            rows += sift_rows(prompt(f"{domain} {i}", domain), [4.0, bits], [1.0, variance])
    table = uncertainty.correlation_table(Results.from_rows(rows), n_resamples=0)
    # Centred ranks / n: books ±1/4 on both sides; code ±3/8, ±1/8, and there no correlation.
    # Products 1/8 + 0; squares 1/8 + 5/16 on either side.
    within = cell(table, "σ_n, last", "within domain")
    assert within.value == pytest.approx((1 / 8) / (1 / 8 + 5 / 16))


def test_intervals_are_over_prompts():
    table = uncertainty.correlation_table(noisy_results(), n_resamples=100)
    every, last = (cell(table, f"σ_n, {when}", "Spearman") for when in ("all", "last"))
    assert last.low < last.value < last.high
    # Four points a prompt are not four times the prompts: the interval is not half as wide.
    assert (every.high - every.low) > 0.25 * (last.high - last.low)


def test_reliability_bins_by_hand():
    bins = uncertainty.reliability_bins(
        np.array([0.1, 0.4, 0.2, 0.3]),
        np.array([1.0, 4.0, 2.0, 3.0]),
        ["a", "a", "b", "b"],
        n_bins=2,
    )
    assert [(b.low, b.high, b.n_points) for b in bins] == [(0.1, 0.2, 2), (0.3, 0.4, 2)]
    assert [b.bits_per_byte.value for b in bins] == [1.5, 3.5]
    assert [b.uncertainty for b in bins] == pytest.approx([0.15, 0.35])
    assert [b.bits_per_byte.n for b in bins] == [2, 2]


def test_reliability_leaves_out_the_ends_and_empty_bins():
    x = np.arange(400.0)
    bins = uncertainty.reliability_bins(x, x, list(range(400)), n_bins=4)
    assert sum(b.n_points for b in bins) == 398
    assert (bins[0].low, bins[-1].high) == (1.0, 398.0)
    few = uncertainty.reliability_bins(x[:3], x[:3], list(range(3)), n_bins=10)
    assert len(few) == 3
    assert math.isnan(few[0].bits_per_byte.standard_error)


def test_the_reliability_table_rises_with_uncertainty():
    table = uncertainty.reliability_table(noisy_results(), n_bins=5)
    means = [r[4].value for r in table.rows]
    assert len(means) == 5
    assert means[0] < means[-1]


@pytest.mark.parametrize(
    ("alpha", "steps"),
    [
        # σ = 1, 0.5, 0.5, 0.25, 0.25: α n σ_n is 0.5α, 1α, 0.75α, 1α for n = 1 … 4.
        (0.9, 4),  # never above 1
        (1.0, 4),  # 1 is not above 1
        (1.1, 1),  # first above before step 2
        (2.1, 0),  # before step 1
    ],
)
def test_the_stop_by_hand(alpha, steps):
    variances = np.array([1.0, 0.25, 0.25, 0.0625, 0.0625])
    assert adaptive.stop_step(variances, alpha) == steps


def two_prompts():
    rows = sift_rows(prompt("slow"), [4.0, 2.0], [1.0] + [0.81] * 10, steps=[0, 10])
    rows += sift_rows(prompt("quick"), [2.0, 1.0], [1.0] + [0.01] * 10, steps=[0, 10])
    return Results.from_rows(rows)


def test_bits_per_byte_at_the_stop_lie_on_the_straight_line():
    # slow: 0.9 · 0.25 n > 1 from n = 5, so 4 steps; quick: 0.1 · 0.25 n > 1 never, so 10.
    (run,) = adaptive.adaptive_runs(two_prompts(), alphas=[0.25])
    assert run.prompt_ids == ("slow", "quick")
    assert run.stops.tolist() == [4, 10]
    np.testing.assert_allclose(run.bits_per_byte, [4 - 2 * 0.4, 1.0])
    np.testing.assert_allclose(run.percent, [80, 50])
    assert run.mean_steps.value == 7
    np.testing.assert_allclose(run.fixed_percent, [65, 65])
    assert run.n_forced == 1
    assert adaptive.stop_histogram(run, [0, 5, 10]).tolist() == [1, 1]


def test_the_adaptive_table_compares_with_as_many_steps_for_all():
    table = adaptive.adaptive_table(two_prompts(), alphas=[0.25, 100.0])
    assert table.rows[0][1].value == 7
    assert cell(table, "0.250", "% of base").value == pytest.approx(65)
    assert cell(table, "0.250", "Δ").value == pytest.approx(0)
    assert shown(table, "0.250", "forced") == "1"
    assert shown(table, "100.000", "at once") == "2"
    assert cell(table, "100.000", "% of base").value == pytest.approx(100)
    for line in table.as_text().splitlines():
        assert len(line) <= 110


def test_a_small_alpha_takes_every_step_and_compute_falls_with_alpha():
    runs = adaptive.adaptive_runs(noisy_results(), alphas=[1e-6, 0.6, 0.9, 2.0, 50.0])
    steps = [run.mean_steps.value for run in runs]
    assert steps[0] == 3
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] == 0
    assert runs[0].n_forced == 60
    np.testing.assert_allclose(runs[0].percent, runs[0].fixed_percent)


@pytest.mark.parametrize("edges", [None, [0, 1, 5, 10]])
def test_every_prompt_is_in_the_table_of_stops(edges):
    table = adaptive.stop_table(two_prompts(), alphas=[0.1, 0.25, 100.0], edges=edges)
    for line in table.rows:
        assert sum(c.value for c in line[1:]) == 2
    assert shown(table, "100.000", "0") == "2"
    assert table.rows[1][-1].value == 1


def test_stops_of_runs_without_a_step_have_a_table():
    table = adaptive.stop_table(two_prompts(), alphas=[100.0])
    assert [c.value for c in table.rows[0][1:]] == [2]


def test_a_run_that_was_scored_before_its_last_choice_counts_its_scored_steps():
    rows = sift_rows(prompt("a"), [2.0, 1.0], [1.0] + [0.01] * 5, steps=[0, 3])
    (run,) = adaptive.adaptive_runs(Results.from_rows(rows), alphas=[0.01])
    assert run.stops.tolist() == [3]
    assert run.n_forced == 1
    assert uncertainty.uncertainty_points(Results.from_rows(rows)).steps.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: uncertainty.correlation_table(r), "at least 3, got 2"),
        (lambda r: uncertainty.uncertainty_points(r, learning("SIFT", 7.0)), "no row of the arm"),
        (
            lambda r: uncertainty.uncertainty_points(r, learning("SIFT", 0.1, order="reversed")),
            "order 'reversed'",
        ),
        (lambda r: uncertainty.uncertainty_points(r, BASE), "mode 'base'"),
        (lambda r: adaptive.adaptive_runs(r, alphas=[0.0]), "`alpha`"),
        (lambda r: adaptive.stop_table(r, edges=[3]), "`edges`"),
        (lambda r: adaptive.stop_table(r, edges=[3, 3]), "`edges`"),
        (lambda r: uncertainty.reliability_table(r, n_bins=0), "`n_bins`"),
        (lambda r: adaptive.stop_step(np.array([]), 1.0), "`variances`"),
    ],
)
def test_bad_input_says_what_is_wrong(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call(two_prompts())


def test_without_sift_the_part_is_named():
    results = results_of_percents([prompt("a")], {learning("NN"): [90.0]})
    with pytest.raises(InvalidInputError, match=r"no fine-tuned SIFT arm.*base, NN.*'main'"):
        uncertainty.uncertainty_points(results)


def test_rows_without_variances_are_an_error():
    results = results_of_percents([prompt("a")], {SIFT: [90.0]})
    for make in (uncertainty.uncertainty_points, adaptive.adaptive_runs):
        with pytest.raises(InvalidInputError, match="`variances`"):
            make(results)
