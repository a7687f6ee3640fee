import numpy as np
import pytest

from sift_core import MMRSelector, NearestNeighborSelector
from sift_core.errors import InvalidInputError
from sift_core.types import StopReason
from tests.selection.oracle import random_pool, unit


def test_orders_by_cosine_whatever_the_lengths():
    # Cosines with (1, 0): 0.6, 1, -1, 0.8
    candidates = [[60.0, 80.0], [0.1, 0.0], [-5.0, 0.0], [4.0, 3.0]]
    chosen = NearestNeighborSelector().select([2.0, 0.0], candidates, 4)
    assert chosen.positions.tolist() == [1, 3, 0, 2]
    assert chosen.stop_reason is StopReason.N_SELECT


def test_nearest_neighbors_go_by_the_relevance_that_is_given():
    candidates = np.eye(3)
    relevance = np.array([0.1, 3.0, 2.0])
    query = np.array([1.0, 0.5, 0.1])
    chosen = NearestNeighborSelector().select(query, candidates, 2, relevance=relevance)
    assert chosen.positions.tolist() == [1, 2]


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.7, 1.0])
def test_mmr_equals_its_definition(weight):
    query, candidates = random_pool(3, n=25, d=6)
    rows = unit(candidates)
    nearness = rows @ unit(query)
    expected = [int(np.argmax(nearness))]
    while len(expected) < 10:
        rest = [i for i in range(25) if i not in expected]
        worth = [
            weight * nearness[i] - (1 - weight) * max(rows[i] @ rows[j] for j in expected)
            for i in rest
        ]
        expected.append(rest[int(np.argmax(worth))])
    found = MMRSelector(relevance_weight=weight).select(query, candidates, 10)
    assert found.positions.tolist() == expected


def test_mmr_goes_by_the_relevance_that_is_given_and_leaves_copies_out():
    candidates = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.1, 1.0]])
    selector = MMRSelector(relevance_weight=0.5)
    assert selector.select(candidates[0], candidates, 2).positions[0] == 0
    given = np.array([0.0, 0.1, 5.0, 0.2])
    chosen = selector.select(candidates[0], candidates, 9, relevance=given)
    assert chosen.positions[0] == 2
    assert chosen.stop_reason is StopReason.POOL_EXHAUSTED
    assert len(selector.select(candidates[0], candidates[:0], 3)) == 0


@pytest.mark.parametrize("weight", [-0.1, 1.1, np.nan])
def test_mmr_refuses_a_weight_out_of_range(weight):
    with pytest.raises(InvalidInputError, match="relevance_weight"):
        MMRSelector(relevance_weight=weight)
