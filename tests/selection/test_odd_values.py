"""Odd values for every public number of the selectors: an error of ours, or an answer."""

import dataclasses
import inspect
import math
from itertools import chain

import numpy as np
import pytest

import sift_core
from sift_core.errors import InvalidInputError, SiftError

ODD = [
    *("x", b"x", None, True, object(), [], [1.0], {}, 1 + 2j, -1, 0, 3.5, 10**400, -(10**400)),
    *(10**5000, math.nan, math.inf, -math.inf, 1e-320, 1e308, np.float32("nan"), np.float16(3)),
    *(np.array(0.5), np.array([0.5, 0.5]), np.array(["x"])),
]
QUERY = np.array([1.0, 0.5, 0.0])
ROWS = np.eye(3)[[0, 0, 1, 2]]
ARGUMENTS = {"query": QUERY, "candidates": ROWS, "n_select": 2, "positions": [0, 1]}
ARGUMENTS |= {"embeddings": ROWS, "chosen": ROWS}
KINDS = [
    kind
    for name in sift_core.__all__
    if dataclasses.is_dataclass(kind := getattr(sift_core, name))
    and (hasattr(kind, "select") or hasattr(kind, "features"))
]
FUNCTIONS = [
    *(sift_core.select, sift_core.selector_from_settings, sift_core.posterior_variances),
    *(sift_core.explain, sift_core.irreducible_variance, sift_core.cosine_similarities),
]
METHODS = [
    getattr(kind(), name)
    for kind in KINDS
    for name in ("select", "select_batch")
    if hasattr(kind, name)
]


def _used(value):
    """Let a selector, or a kernel, do its work."""
    selector = value if hasattr(value, "select") else sift_core.SIFTSelector(kernel=value)
    return selector.select(QUERY, ROWS, 2)


def _cases():
    for kind in KINDS:
        for field in dataclasses.fields(kind):
            yield kind.__name__, field.name, lambda odd, k=kind, n=field.name: _used(k(**{n: odd}))
    for call in chain(FUNCTIONS, METHODS):
        parameters = inspect.signature(call).parameters
        given = {n: a for n, a in ARGUMENTS.items() if n in parameters}
        if "queries" in parameters:
            given |= {"queries": [QUERY], "candidates": [ROWS]}
        for name in parameters:
            label = getattr(call, "__qualname__", str(call))
            yield label, name, lambda odd, c=call, n=name, g=given: c(**{**g, n: odd})


CASES = list(_cases())


@pytest.mark.parametrize("case", CASES, ids=[f"{of}-{name}" for of, name, _ in CASES])
def test_an_odd_value_is_an_error_of_ours_or_works(case):
    _, _, use = case
    said = [""]
    for odd in ODD:
        try:
            use(odd)
        except SiftError as error:
            said.append(str(error))
    assert max(map(len, said)) < 600


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (sift_core.RBFKernel, "length_scale", "x"),
        (sift_core.MMRSelector, "relevance_weight", None),
        (sift_core.SIFTSelector, "noise_variance", 10**400),
        (sift_core.SIFTSelector, "alpha", 10**400),
        (sift_core.MMRSelector, "relevance_weight", "x"),
    ],
)
def test_what_is_no_number_is_refused_by_name(kind, name, value):
    with pytest.raises(InvalidInputError, match=f"`{name}` must be a"):
        kind(**{name: value})


@pytest.mark.parametrize("backend", ["numpy", "auto"])
def test_a_tensor_that_numpy_cannot_read_is_an_error_that_says_how(backend):
    torch = pytest.importorskip("torch")
    selector = sift_core.SIFTSelector(backend=backend)
    rows = torch.tensor(ROWS, dtype=torch.float32)
    assert len(selector.select(rows[0], rows, 2)) == 2
    for odd in (rows.clone().requires_grad_(), rows.bfloat16()):
        for query, candidates in ((QUERY, odd), (odd[0], ROWS), (odd, ROWS), ([odd[0]], ROWS)):
            with pytest.raises(InvalidInputError, match=r"`(query|candidates)` must"):
                selector.select(query, candidates, 2)
        with pytest.raises(InvalidInputError, match=r"candidates.detach\(\).float\(\).cpu\(\)"):
            sift_core.ContextSelector().select(QUERY, odd, 2)
