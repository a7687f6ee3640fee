import numpy as np

from sift_core.evaluation.diagnosis import measure_pool
from sift_core.types import Query
from tests.evaluation.collections import noisy, orthogonal, sampled


def fetched(rows, query):
    source, _ = sampled(rows)
    asked = Query(text="?", embedding=query)
    return asked, source.fetch(asked, 200)


def test_redundant_are_chunks_close_to_an_earlier_one():
    rows = orthogonal(3)
    close, apart = noisy(rows[:1], 0.81), noisy(rows[1:2], 0.79)
    chosen = np.concatenate([close, rows[:2], apart, rows[2:]])  # rows[0] repeats the first
    assert measure_pool(*fetched(chosen, chosen.sum(axis=0))).nearest.n_redundant == 1


def test_sift_frees_the_places_of_copies():
    contents = orthogonal(40)
    rows = np.repeat(contents, 5, axis=0)
    query = contents.T @ np.linspace(1, 0.2, 40).astype(np.float32)
    measures = measure_pool(*fetched(rows, query))
    assert measures.nearest.n_redundant == 8  # ten places, two contents
    assert measures.nearest.n_versions == 8
    assert measures.sift.n_redundant == measures.sift.n_versions == 0
    assert measures.n_distinct == 40
    assert measures.sift.variance < measures.nearest.variance
    assert measures.variance_floor <= measures.sift.variance <= 1
    assert measures.n_shared == 2


def test_where_nothing_repeats_the_tens_are_nearly_the_same():
    rows = orthogonal(200)
    query = rows.T @ np.linspace(1, 0.2, 200).astype(np.float32)
    measures = measure_pool(*fetched(rows, query))
    assert measures.nearest.n_redundant == measures.sift.n_redundant == 0
    assert measures.n_shared >= 9
    assert measures.n_distinct == measures.n_candidates == 200
