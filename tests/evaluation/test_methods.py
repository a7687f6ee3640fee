import numpy as np
import pytest

from sift_core import InvalidInputError, NearestNeighborSelector
from sift_core.evaluation.retrieval import choose, default_methods, short
from sift_core.evaluation.search import pools


def pool(seed=0, n=60, d=16, common=0.0):
    rows = np.random.default_rng(seed).standard_normal((n + 1, d), dtype=np.float32) + common
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return next(pools(rows[:1], rows[1:]))


@pytest.mark.parametrize("weight", [0.5, 0.7, 0.9])
def test_mmr_equals_that_of_pyversity(weight):
    pyversity = pytest.importorskip("pyversity")
    one = pool(d=64, common=1.0)  # theirs takes a negative cosine for 0
    theirs = pyversity.diversify(
        one.embeddings,
        one.similarities,
        20,
        strategy=pyversity.Strategy.MMR,
        diversity=1.0 - weight,
    )
    name = f"mmr {short(weight)}"
    ours = choose(name, default_methods()[name], one, 20)
    assert ours.tolist() == theirs.indices.tolist()


@pytest.mark.parametrize(
    "positions", [[0, 60], [-1], [0.5], [[1, 2]], list(range(6)), [True, False]]
)
def test_what_is_no_choice_is_refused(positions):
    with pytest.raises(InvalidInputError, match="method 'own'"):
        choose("own", lambda one, n: positions, pool(), 5)


@pytest.mark.parametrize(
    ("method", "chosen"),
    [
        (NearestNeighborSelector(), [0, 1, 2, 3, 4]),
        (lambda one, n: [0, 3, 0, 3, 0], [0, 3]),  # a position counts once
        (lambda one, n: [], []),
    ],
    ids=["selector", "repeats", "nothing"],
)
def test_what_a_method_may_choose(method, chosen):
    assert choose("own", method, pool(), 5).tolist() == chosen
