import numpy as np
import pytest

from benchmarks import agreement
from benchmarks.agreement import (
    cause,
    exact_gain,
    gap_at_first_difference,
)
from benchmarks.agreement_pools import Pool

E1, E2 = np.eye(2, dtype=np.float32)
DIAGONAL = (E1 + E2) / np.float32(2**0.5)


def pool(*rows, query=E1):
    return Pool(kind="by hand", query=query, rows=np.array(rows), n_select=2, noise_variance=0.01)


def never(*_, **__):
    raise AssertionError("activeft need not be asked")


def answers(positions):
    return lambda pool, *, in_halves, in_float64: positions


def test_exact_gain_by_hand():
    # k(q,x)² / (k(x,x) + λ) = 1 / 1.01 at first. After one look at x itself k(q,x) and k(x,x)
    # are both 1 - 1/1.01 = 0.01/1.01.
    assert exact_gain(pool(E1, E2), [], 0) == pytest.approx(1 / 1.01)
    left = 0.01 / 1.01
    assert exact_gain(pool(E1, E2), [0], 0) == pytest.approx(left**2 / (left + 0.01))


def test_equal_lists_and_choices_among_copies_need_no_second_run():
    assert cause(pool(E1, E2), [0, 1], [0, 1], never) == agreement.SAME
    assert cause(pool(E1, E2, E1), [0, 1], [2, 1], never) == agreement.COPIES


def test_a_list_that_float64_makes_equal_was_rounding():
    found = cause(pool(E1, DIAGONAL), [0, 1], [1, 0], answers([0, 1]))
    assert found == agreement.FLOAT32


def test_what_remains_is_decided_by_the_exact_gains():
    near_first = pool(E1, DIAGONAL)
    assert gap_at_first_difference(near_first, [0], [1]) == pytest.approx(0.5)
    assert cause(near_first, [0], [1], answers([1])) == agreement.THEIRS
    assert cause(near_first, [1], [0], answers([0])) == agreement.OURS
    mirrored = pool(DIAGONAL, DIAGONAL * np.float32([1, -1]))
    assert cause(mirrored, [0], [1], answers([1])) == agreement.TIED
