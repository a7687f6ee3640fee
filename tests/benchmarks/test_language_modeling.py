"""The paper's tables by hand, and its selectors against computing everything anew."""

import numpy as np
import pytest

from benchmarks.language_modeling.arms import BASE, MainSettings
from benchmarks.language_modeling.results import results_of
from benchmarks.language_modeling.selectors import (
    HullReconstructionSelector,
    RepeatedNeighborSelector,
    UncertaintySamplingSelector,
)
from benchmarks.language_modeling.tables import main_table
from sift_core.evaluation.statistics import Estimate

MAIN = MainSettings()
SIFT, NN = MAIN.learning("SIFT"), MAIN.learning("NN")


def row(prompt, arm, domain, bits, steps):
    return {
        "kind": "result",
        "experiment": "e1",
        "prompt": {"id": prompt, "domain": domain, "n_bytes": 100, "near_duplicate": None},
        "arm": arm.as_record(),
        "steps": steps,
        "bits_per_byte": bits,
        "chosen": [],
        "variances": [],
        "report": None,
    }


def results_of_percents(columns, domains):
    """Return results in which the base model has 2 bits per byte."""
    rows = [row(f"p{i}", BASE, one, [2.0], [0]) for i, one in enumerate(domains)]
    rows += [
        row(f"p{i}", arm, domains[i], [2.0, percent / 50], [0, 2])
        for arm, percents in columns.items()
        for i, percent in enumerate(percents)
        if percent is not None
    ]
    return results_of(rows)


def cell(table, line, head):
    (cells,) = [cells for cells in table.rows if cells[0].text == line]
    return cells[table.heads.index(head)]


def value(table, line, head):
    found = cell(table, line, head).value
    return found.value if isinstance(found, Estimate) else found


def test_the_main_table_by_hand():
    far = {MAIN.learning("NN-F"): [99, 99, None, 99]}
    columns = {SIFT: [80, 84, 90, 92], NN: [84, 88, 95, 91], **far}
    table = main_table(results_of_percents(columns, "aabb"))
    assert table.heads == ("", "n", "base", "NN", "NN-F", "SIFT(0.1)", "Δ")
    # Domain a: SIFT (80 + 84) / 2 = 82 with deviations ±2, so SE = √8 / √2 = 2; NN 86.
    assert cell(table, "a", "SIFT(0.1)").text == "82.0 (2.0)"
    assert value(table, "a", "Δ") == pytest.approx(82 - 86)
    assert cell(table, "a", "SIFT(0.1)").is_bold
    assert not cell(table, "a", "NN-F").is_bold
    # p2 lacks NN-F, so that domain b and the last line leave it out: (80 + 84 + 92) / 3.
    assert [value(table, line, "n") for line in ("a", "b", "All")] == [2, 1, 3]
    assert value(table, "All", "SIFT(0.1)") == pytest.approx(256 / 3)
    assert cell(table, "b", "Δ").text == "+1.0 [–]"


def test_hullft_chooses_by_the_weights_of_the_nearest_point_of_the_hull():
    # q = (2, 1) / √5: on the segment from e_1 to e_2, w_1 - w_2 = q_1 - q_2 = 1 / √5, so that ten
    # choices are 7 and 3.
    exact = HullReconstructionSelector(tolerance=1e-12, max_iterations=100_000)
    chosen = exact.select([2, 1], [[0, 3], [5, 0]], 10)
    assert chosen.positions.tolist() == [1] * 7 + [0] * 3
    rng = np.random.default_rng(0)
    units = rng.standard_normal((40, 8)) + 1
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    weights = exact.weights(units[0], units[1:], 39)
    assert weights.sum() == pytest.approx(1)
    # No vertex lies further along the residual than those that have weight.
    scores = units[1:] @ (units[0] - weights @ units[1:])
    assert 2 * weights @ (scores.max() - scores) < 1e-11


def test_uncertainty_sampling_and_the_failure_mode_by_hand():
    # Linear, λ = 1: after x_0 = e_1, σ² = 1/2 for both copies of e_1 and 1 for e_2; then all
    # have 1/2 left. The query e_1 learns from looks at e_1 alone: 1, 1/2, 1/2, 1/3.
    candidates = [[1.0, 0], [3, 0], [0, 2]]
    chosen = UncertaintySamplingSelector(noise_variance=1.0).select([1, 0], candidates, 5)
    assert chosen.positions.tolist() == [0, 2, 1]
    assert chosen.variances == pytest.approx([1, 1 / 2, 1 / 2, 1 / 3])
    again = RepeatedNeighborSelector().select([0, 1], candidates, 4)
    assert again.positions.tolist() == [2, 2, 2, 2]
