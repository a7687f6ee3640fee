import numpy as np
import pytest

from benchmarks.selection_data import LEVELS, fetch_all, indexed
from benchmarks.selection_rivals import algorithm_1
from sift_core import SIFTSelector


@pytest.mark.parametrize("kind", LEVELS)
def test_the_oracle_chooses_what_the_selector_chooses(kind):
    index, points = indexed(kind, 500, 32, 3)
    for problem in fetch_all(index, points, 60):
        ours = SIFTSelector.for_fine_tuning().select(problem.query, problem.pool, 20)
        assert ours.positions.tolist() == algorithm_1(problem.query, problem.pool, 20)


def test_the_oracle_by_hand():
    # Looks at e1 leave its variance at 1/101, 1/201, ...; none informs about e2, where the
    # query has its smaller part: .8²·(1/101)²/(1/101 + .01) = .0032 < .36/1.01.
    basis = np.eye(2)
    assert algorithm_1(np.array([0.8, 0.6]), basis, 2) == [0, 1]
    assert algorithm_1(np.array([1.0, 0.0]), basis, 3) == [0, 0, 0]
