"""Odd calls: each gives a valid selection, or an error of ours that says what is wrong."""

import dataclasses
import inspect
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sift_core
from sift_core import (
    ContextSelector,
    LazySIFTSelector,
    Limits,
    LinearKernel,
    Preferences,
    RBFKernel,
    SIFTSelector,
    select,
)
from sift_core.errors import InvalidInputError, NumericalError, SiftError
from sift_core.sources import InMemorySource
from sift_core.testing import HashingEmbedder
from sift_core.types import Query, StopReason
from tests.selection.oracle import under
from tests.selection.test_every_selector import SELECTORS

ODD = [
    *(None, True, object(), print, type, "", "x", "abcd", "\ud800", "a\0b", b"x", {}, {"a": 1.0}),
    *([], (), [[]], {1.0}, [None], ["a"], [1.0], [1j], range(3)),
    *(-1, 0, 3.5, 2**63, 10**400, -(10**400), 10**5000, [10**400, 1], 1 + 2j, 1e-320, 1e308),
    *(math.nan, math.inf, -math.inf, np.float32("nan"), np.float16(3), np.int8(-1), [math.nan]),
    *(np.array(0.5), np.array([0.5, 0.5]), np.array(["x"]), np.array(None), np.array([1j, 2])),
    *(np.empty(0), np.empty((0, 3)), np.empty((3, 0)), np.empty((0, 3, 4)), np.ones((2, 2, 2))),
    *(np.zeros(3, dtype=[("a", float)]), np.array(["2020-01-01"], dtype="datetime64[D]")),
]
QUERY, ROWS = np.array([1.0, 0.5, 0.0]), np.eye(3)[[0, 0, 1, 2]]
SOURCE = InMemorySource(ROWS, list("abcd"))


def tensors():
    """Return tensors that NumPy cannot read, where there is torch."""
    torch = pytest.importorskip("torch")
    rows = torch.tensor(ROWS)
    return [rows.clone().requires_grad_(), rows.bfloat16(), rows.to_sparse(), rows.to("meta")]


# What is public, with a sound value for each argument that has no default.
SOUND = {"query": QUERY, "candidates": ROWS, "n_select": 2, "positions": [0, 1], "chosen": ROWS}
SOUND |= {"embeddings": ROWS, "queries": [QUERY], "n_candidates": 2}
SOUND_LIMITS = {"costs": [1] * 4, "budget": 2, "groups": "abcd", "max_per_group": 1}
KINDS = [
    kind
    for name in sift_core.__all__
    if dataclasses.is_dataclass(kind := getattr(sift_core, name))
    and (hasattr(kind, "select") or hasattr(kind, "features"))
]
FUNCTIONS = [
    *(select, sift_core.posterior_variances, sift_core.explain, sift_core.irreducible_variance),
    *(sift_core.cosine_similarities, HashingEmbedder, SOURCE.fetch),
    lambda embedding: Query(text="?", embedding=embedding),
    lambda embeddings: InMemorySource(embeddings, list("abcd")),
]
METHODS = [
    getattr(kind(), name)
    for kind in KINDS
    for name in ("select", "select_batch")
    if hasattr(kind, name)
]


def used(made):
    """Let a selector, a kernel, limits or preferences do their work."""
    if isinstance(made, Limits | Preferences):
        name = "limits" if isinstance(made, Limits) else "preferences"
        return ContextSelector().select(QUERY, ROWS, 2, **{name: made})
    selector = made if hasattr(made, "select") else SIFTSelector(kernel=made)
    return selector.select(QUERY, ROWS, 2)


def cases():
    """Return (name, function of an odd value) of every argument of what is public."""
    for kind in (*KINDS, Limits, Preferences):
        sound = SOUND_LIMITS if kind is Limits else {}
        for field in dataclasses.fields(kind):
            make = lambda odd, k=kind, n=field.name, s=sound: used(k(**{**s, n: odd}))  # noqa: E731
            yield f"{kind.__name__}-{field.name}", make
    for call in (*FUNCTIONS, *METHODS):
        names = inspect.signature(call).parameters
        sound = {name: value for name, value in SOUND.items() if name in names}
        if "queries" in names:
            sound["candidates"] = [ROWS]
        if call == SOURCE.fetch:
            sound["query"] = Query(text="?", embedding=QUERY)
        for name in names:
            label = f"{getattr(call, '__qualname__', call)}-{name}"
            yield label, lambda odd, c=call, n=name, s=sound: c(**{**s, n: odd})


@pytest.mark.parametrize("use", [pytest.param(use, id=name) for name, use in cases()])
def test_an_odd_value_of_any_argument_works_or_is_an_error_of_ours(use):
    said = [""]
    for odd in [*ODD, *tensors()]:
        try:
            use(odd)
        except SiftError as error:
            said.append(str(error))
    assert max(map(len, said)) < 600


SPECIAL = [np.nan, np.inf, 5e-324, 1.7e308, -0.0]
POSITIVE = [1e-320, 1e-100, 1e-12, 1e-6, 0.01, 1, 100.0, 1e100, 1e300]
KERNELS = [LinearKernel(), RBFKernel(), RBFKernel(length_scale=0.01)]


@st.composite
def matrices(draw, n, d):
    """Return rows of which most are sound: else copies, of odd size, or with an odd number."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = rng.standard_normal((n, d))
    change = draw(st.sampled_from(["", "", "", "copies", "whole", "apart", "special"]))
    if change == "copies" and n:
        rows = rows[rng.integers(0, n // 2 + 1, n)]
    elif change == "whole":  # ties, and zero rows among them
        rows = np.rint(2 * rows)
    elif change == "apart":
        rows *= 10.0 ** rng.uniform(-300, 290, (n, 1))
    elif change == "special" and rows.size:
        rows[rng.integers(n), rng.integers(d)] = draw(st.sampled_from(SPECIAL))
    with np.errstate(all="ignore"):
        return draw(st.sampled_from([np.asarray, np.float32]))(rows)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.data(),
    st.sampled_from([0, 1, 2, 5, 13]),
    st.sampled_from([1, 2, 5]),
    st.sampled_from([ContextSelector, SIFTSelector, LazySIFTSelector]),
)
def test_an_odd_pool_gives_a_valid_selection_or_an_error_of_ours(backend, data, n, d, kind):
    positive = st.sampled_from(POSITIVE)
    stops = dict.fromkeys(("alpha", "max_variance", "min_gain"), positive)
    options = data.draw(st.fixed_dictionaries({"noise_variance": positive}, optional=stops))
    optional = {} if kind is LazySIFTSelector else {"conditioned_on": matrices(2, d)}
    arguments = data.draw(st.fixed_dictionaries({}, optional=optional))
    if kind is ContextSelector:
        given_ranks = st.fixed_dictionaries(
            {}, optional={"relevance": matrices(1, n).map(np.ravel)}
        )
        arguments |= data.draw(given_ranks)
    else:
        options |= {"kernel": data.draw(st.sampled_from(KERNELS))}
        options |= {"allow_repeats": data.draw(st.booleans())}
    if kind is not LazySIFTSelector and data.draw(st.booleans()):
        limits = {"costs": np.linspace(0.1, 9, n), "budget": data.draw(positive)}
        limits |= {"groups": [f"{i % 3}" for i in range(n)], "max_per_group": 1}
        arguments["limits"] = Limits(**limits)
    query, candidates = data.draw(matrices(data.draw(st.sampled_from([1, 3])), d)), matrices(n, d)
    candidates, n_select = data.draw(candidates), data.draw(st.integers(0, 30))
    if kind is not LazySIFTSelector:
        options |= {"backend": backend}
    try:
        chosen = kind(**options).select(query, candidates, n_select, **arguments)
    except (InvalidInputError, NumericalError):
        return
    assert (chosen.positions.dtype, chosen.variances.dtype) == (np.intp, np.float64)
    assert len(chosen.variances) == len(chosen) + 1 <= n_select + 1
    assert np.isfinite(chosen.variances).all()
    assert (chosen.variances >= 0).all()
    assert (np.diff(chosen.variances) <= 0).all()
    assert ((chosen.positions >= 0) & (chosen.positions < n)).all()
    assert options.get("allow_repeats") or len(set(chosen.positions.tolist())) == len(chosen)
    assert (len(chosen) == n_select) or chosen.stop_reason is not StopReason.N_SELECT


GOOD = np.ones((3, 4))
WAYS = {name: selector.select for name, selector in SELECTORS.items()} | {"function": select}


@pytest.fixture(params=WAYS)
def choose_by(request):
    """Each way to choose from embeddings, as a function."""
    if "numba" in request.param:
        pytest.importorskip("numba", reason="needs the extra fast")
    return WAYS[request.param]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_select": -1}, "`n_select` must be >= 0"),
        ({"n_select": 3.0}, "`n_select` must be"),
        ({"n_select": None}, "`n_select` must be"),
        ({"query": [1, 2, np.nan, 4]}, r"`query` must be finite, got nan at \[2\]"),
        ({"query": [1, 2, 3]}, "3 columns like the query, got 4; were both made by one"),
        ({"query": [0, 0, 0, 0]}, "must not be all zero"),
        ({"query": []}, "at least 1 number"),
        ({"query": [1j, 0, 0, 0]}, "`query` must hold real numbers"),
        ({"query": 1.0}, r"`query` must have 1 dimension\(s\), got shape \(\)"),
        ({"query": [1, [2, 3], 4, 5]}, "`query` must be an array of numbers"),
        ({"candidates": [[1, 2, 3, -np.inf]]}, r"`candidates` must be finite.*-inf at \[0, 3\]"),
        ({"candidates": [[1, 2, 3]]}, "`candidates` must have 4 columns like the query, got 3"),
        ({"candidates": [[1, 2, 3, 4], [0] * 4]}, "all zero, got such a vector in row 1"),
        ({"candidates": GOOD[0]}, r"`candidates` must have 2 dimension\(s\), got shape \(4,\)"),
        ({"candidates": [[10**400, 1, 1, 1]]}, "`candidates` must be an array of numbers"),
        ({"candidates": np.full((2, 4), np.longdouble("1e400"))}, "must fit into float64"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name_whatever_chooses(choose_by, changes, message):
    call = {"query": GOOD[0], "candidates": GOOD, "n_select": 2, **changes}
    with pytest.raises(InvalidInputError, match=message):
        choose_by(**call)
    # Compiled code reads arrays of floats alone: as such, too, where they are ones.
    try:
        with np.errstate(over="ignore"):
            call |= {name: np.array(call[name], dtype=float) for name in ("query", "candidates")}
    except (TypeError, ValueError, OverflowError):
        return
    with pytest.raises(InvalidInputError):
        choose_by(**call)


@pytest.mark.parametrize(
    ("selector", "options", "message"),
    [
        (SIFTSelector, {"weights": [1.0]}, "`weights` must have one number a target: 2 target"),
        (SIFTSelector, {"weights": [1.0, -1.0]}, "`weights` must be >= 0"),
        (SIFTSelector, {"weights": [0.0, 0.0]}, "`weights` must be >= 0"),
        (SIFTSelector, {"weights": [1e308, 1e308]}, "with a finite sum"),
        (SIFTSelector, {"conditioned_on": np.ones((2, 3))}, "`conditioned_on` must have 4 columns"),
        (SIFTSelector, {"conditioned_on": [[1, 1, 1, np.nan]]}, "`conditioned_on` must be finite"),
        (SIFTSelector, {"conditioned_on": np.zeros((1, 4))}, "must not be all zero"),
        (SIFTSelector, {"query": np.array([GOOD[0], [0.0] * 4])}, "all zero"),
        (SIFTSelector, {"limits": {"budget": 1}}, "`limits` must be of the class Limits"),
        (ContextSelector, {"preferences": 1}, "`preferences` must be of the class Preferences"),
        (ContextSelector, {"relevance": np.ones(4)}, r"one number a candidate: 3 cand.*\), 4 num"),
        (ContextSelector, {"relevance": [1, 2, np.nan]}, "`relevance` must be finite"),
    ],
)
def test_what_else_does_not_fit_is_refused_by_name(backend, selector, options, message):
    call = {"query": GOOD[:2], "candidates": GOOD, "n_select": 2, **options}
    with pytest.raises(InvalidInputError, match=message):
        selector(backend=backend).select(**call)


def test_a_tensor_that_numpy_cannot_read_is_an_error_that_says_how():
    for odd in tensors()[:2]:
        with pytest.raises(InvalidInputError, match=r"candidates.detach\(\).float\(\).cpu\(\)"):
            ContextSelector().select(QUERY, odd, 2)


@pytest.mark.parametrize("value", [1e100, 1e200])
def test_raw_vectors_that_leave_the_range_of_float64_are_told(choose, value):
    # k(q, x)² must be representable: without scaling to unit length that ends near 1e77.
    with pytest.raises(NumericalError, match="normalize"):
        choose([value, 1], [[value, 2], [1, value]], 1, kernel=LinearKernel(normalize=False))


@pytest.mark.parametrize("n_targets", [1, 3])
def test_a_noise_that_is_too_small_is_told(choose, n_targets):
    # After six looks nothing but rounding is left, which division by λ may take beyond float64.
    messages = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        query, originals = rng.standard_normal((n_targets, 4)), rng.standard_normal((6, 4))
        settings_ = {"kernel": RBFKernel(length_scale=3.0), "noise": 1e-310}
        try:
            chosen = choose(query, np.repeat(originals, 2, axis=0), 12, **settings_)
        except NumericalError as error:
            messages.append(str(error))
        else:
            assert sorted(chosen.positions.tolist()) == list(range(12))
    assert messages
    assert all("`noise_variance`" in message for message in messages)


def test_the_lazy_selector_tells_numbers_out_of_range_too():
    rng = np.random.default_rng(0)
    with pytest.raises(NumericalError, match="too small"):
        LazySIFTSelector(**under(1e-300)).select(
            rng.standard_normal(3), rng.standard_normal((9, 3)), 9
        )
    with pytest.raises(NumericalError, match="too large"):
        LazySIFTSelector(kernel=LinearKernel(normalize=False)).select([1e200], [[1e200]], 1)
