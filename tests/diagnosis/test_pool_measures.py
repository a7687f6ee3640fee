import numpy as np
import pytest

from sift_core.diagnosis.pool_measures import effective_number, measure_pool, redundant_rows
from sift_core.types import Query
from tests.diagnosis.collections import noisy, orthogonal, sampled


def fetched(rows, query):
    source, _ = sampled(rows)
    asked = Query(text="?", embedding=query)
    return asked, source.fetch(asked, 200)


def test_chunks_without_anything_in_common_count_about_as_many_as_they_are():
    rows = orthogonal(201)
    assert effective_number(rows[0], rows[1:]) == pytest.approx(200, rel=0.02)


def test_copies_of_one_chunk_count_one():
    rows = orthogonal(2)
    query = rows[0] + rows[1]
    assert effective_number(query, np.repeat(rows[1:], 200, axis=0)) == pytest.approx(1)


def test_pairs_of_copies_count_half():
    rows = orthogonal(101)
    pairs = np.repeat(rows[1:], 2, axis=0)
    assert effective_number(rows[0], pairs) == pytest.approx(100, rel=0.02)


def test_two_chunks_by_hand():
    # Orthogonal to each other and to the query: u = 1, k = exp(-4), the eigenvalues of K / 2 are
    # (1 ± e⁻⁴) / 2 = .50916 and .49084; the entropy is .69298 and its exponential 1.9997.
    rows = orthogonal(3)
    assert effective_number(rows[2], rows[:2]) == pytest.approx(1.99966, abs=1e-4)


def test_a_common_direction_of_all_embeddings_does_not_make_them_fewer():
    rows = orthogonal(201)
    common = rows + 1.7 * rows[:1].mean(axis=0)  # mean cosine about .74
    assert effective_number(common[0], common[1:]) > 150


def test_redundant_are_chunks_close_to_an_earlier_one():
    rows = orthogonal(3)
    close = noisy(rows[:1], 0.81)
    apart = noisy(rows[1:2], 0.79)
    chosen = np.concatenate([close, rows[:2], apart, rows[2:]])
    assert redundant_rows(chosen.astype(np.float64)) == [False, True, False, False, False]


def test_sift_frees_the_places_of_copies():
    contents = orthogonal(40)
    rows = np.repeat(contents, 5, axis=0)
    query = contents.T @ np.linspace(1, 0.2, 40).astype(np.float32)
    measures = measure_pool(*fetched(rows, query))
    assert measures.nearest.n_redundant == 8  # ten places, two contents
    assert measures.nearest.n_versions == 8
    assert measures.sift.n_redundant == measures.sift.n_versions == 0
    assert measures.n_contents == 40
    assert measures.sift.variance < measures.nearest.variance
    assert measures.floor <= measures.sift.variance <= measures.variance_before
    assert measures.n_shared == 2


def test_where_nothing_repeats_the_tens_are_nearly_the_same():
    rows = orthogonal(200)
    query = rows.T @ np.linspace(1, 0.2, 200).astype(np.float32)
    measures = measure_pool(*fetched(rows, query))
    assert measures.nearest.n_redundant == measures.sift.n_redundant == 0
    assert measures.n_shared >= 9
    assert measures.n_contents == measures.n_candidates == 200
