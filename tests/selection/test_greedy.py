"""What the greedy selectors share: batches, threads, and the choice of a backend."""

import numpy as np
import pytest

from sift_core import ContextSelector, LinearKernel, RBFKernel, SIFTSelector
from sift_core.errors import InvalidInputError
from sift_core.installing import install_command
from tests.selection.oracle import assert_same
from tests.selection.oracle import random_pool as pool
from tests.selection.test_backend import run

SELECTORS = {
    "paper": SIFTSelector,
    "rbf": lambda **options: SIFTSelector(kernel=RBFKernel(), allow_repeats=True, **options),
    "kernel without compiled code": lambda **options: SIFTSelector(
        kernel=LinearKernel(normalize=False), **options
    ),
    "adaptive": lambda **options: SIFTSelector(alpha=0.6, **options),
    "context": ContextSelector,
}


@pytest.fixture(params=SELECTORS)
def selector(request, backend):
    """Each kind of selector with each backend."""
    return SELECTORS[request.param](backend=backend)


def assert_equal(ones, others):
    for one, other in zip(ones, others, strict=True):
        assert_same(one, other, atol=0)


@pytest.mark.parametrize("n_threads", [1, 8])
def test_a_batch_equals_one_query_after_another(selector, n_threads):
    pools = [pool(seed, n=n) for seed, n in enumerate([30, 1, 0, 31, 30, 2, 12, 60, 7])]
    queries, candidates = zip(*pools, strict=True)
    serial = [selector.select(*p, 10) for p in pools]
    for given in (queries, np.array(queries)):
        assert_equal(selector.select_batch(given, candidates, 10, n_threads=n_threads), serial)


@pytest.mark.parametrize("n_threads", [1, 8])
@pytest.mark.parametrize(("n_queries", "n_pools"), [(3, 2), (2, 3), (0, 1), (1, 0)])
def test_a_batch_needs_one_pool_a_query(selector, n_queries, n_pools, n_threads):
    queries = [pool(0)[0]] * n_queries
    candidates = [pool(0)[1]] * n_pools
    with pytest.raises(
        InvalidInputError, match=f"one pool a query: {n_queries} queries, {n_pools} pools"
    ):
        selector.select_batch(queries, candidates, 3, n_threads=n_threads)


ABSENT = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
from sift_core.selection import backend
assert not backend.is_on_disk()
"""
# As a release of Numba does with a NumPy that is newer than it knows.
BROKEN = """
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
class Refusing(MetaPathFinder, Loader):
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name == "numba" else None
    def exec_module(self, module):
        raise ImportError("Numba needs NumPy 1.26 or less. Got NumPy 2.4.")
sys.meta_path.insert(0, Refusing())
"""
PROGRAM = """
import numpy as np
from sift_core import ContextSelector, MissingDependencyError, SIFTSelector, load_compiled
assert load_compiled() is False
rng = np.random.default_rng(0)
query, candidates = rng.standard_normal(8), rng.standard_normal((20, 8))
for selector in (SIFTSelector, ContextSelector):
    expected = selector(backend="numpy").select(query, candidates, 5)
    chosen = selector().select(query, candidates, 5)
    assert chosen.positions.tolist() == expected.positions.tolist()
    assert chosen.variances.tolist() == expected.variances.tolist()
    try:
        selector(backend="numba").select(query, candidates, 5)
    except MissingDependencyError as error:
        print(error)
    else:
        raise AssertionError("no error")
"""


@pytest.mark.parametrize("blocker", [ABSENT, BROKEN], ids=["absent", "broken"])
def test_without_numba_auto_works_and_numba_names_the_extra(blocker):
    told = run(blocker + PROGRAM)
    message = f"`numba` could not be imported; install it with `{install_command('fast')}`"
    assert told.splitlines() == [message] * 2
