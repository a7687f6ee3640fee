import numpy as np
import pytest

from sift_core import SIFTSelector


@pytest.fixture(scope="session", params=["numpy", "numba"])
def backend(request):
    """Each backend in turn."""
    if request.param == "numba":
        pytest.importorskip("numba", reason="needs the extra fast")
    return request.param


@pytest.fixture(scope="session")
def choose(backend):
    """A function like `select` for `SIFTSelector`, with each backend in turn.

    Lists become arrays, which are all that compiled code reads. `noise` is λ.
    """

    def run(
        query, candidates, n_select, *, noise=None, weights=None, conditioned_on=None, **settings
    ):
        query, candidates = (
            np.array(a, dtype=np.float64) if isinstance(a, list) else a for a in (query, candidates)
        )
        return SIFTSelector(backend=backend, noise_variance=noise, **settings).select(
            query, candidates, n_select, weights=weights, conditioned_on=conditioned_on
        )

    return run
