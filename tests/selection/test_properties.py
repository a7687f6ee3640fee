"""What holds for every pool, with each backend."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sift_core import LinearKernel, RBFKernel, posterior_variances
from tests.selection.oracle import under

settings.register_profile("selection", deadline=None, derandomize=True, max_examples=25)
quick = settings.get_profile("selection")

kernels = st.sampled_from([LinearKernel(), RBFKernel(), RBFKernel(length_scale=2.0)])
noises = st.floats(-12, 4).map(lambda exponent: 10.0**exponent)


@st.composite
def random_pools(draw, min_n=0, max_n=40, max_d=20):
    """Vectors in general position: no ties, no near-ties to speak of."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(min_n, max_n)), draw(st.integers(1, max_d))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return rng.standard_normal(d).astype(dtype), rng.standard_normal((n, d)).astype(dtype)


@st.composite
def odd_pools(draw):
    """Few distinct numbers of any magnitude: copies, opposites, subnormals, huge ones."""
    n, d = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    numbers = st.one_of(
        st.sampled_from([0.0, -0.0, 1.0, -1.0, 5e-324, 1e-310, 1e-200, 1e200, 1.7e308]),
        st.floats(allow_nan=False, allow_infinity=False),
    )
    rows = draw(hnp.arrays(np.float64, (n + 1, d), elements=numbers))
    assume((rows != 0).any(axis=1).all())
    return rows[0], rows[1:]


@st.composite
def repetitive_pools(draw):
    """Copies, near copies and the query itself."""
    query, candidates = draw(random_pools(min_n=1))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    candidates = candidates[rng.integers(0, len(candidates) // 2 + 1, len(candidates))]
    if draw(st.booleans()):
        noise = rng.standard_normal(candidates.shape).astype(candidates.dtype)
        candidates = candidates + noise * np.float32(0.01)
    if draw(st.booleans()):
        candidates[0] = query
    return query, candidates


def long_dense_variances(kernel, noise, query, chosen):
    """Return σ² before and after each look, in 80 bits, from the dense conditional covariance."""
    points = np.vstack([query, chosen]).astype(np.longdouble)
    points /= np.sqrt((points**2).sum(axis=1, keepdims=True))
    covariance = points @ points.T
    if isinstance(kernel, RBFKernel):
        covariance = np.exp((covariance - 1) / np.longdouble(kernel.length_scale) ** 2)
    variances = [covariance[0, 0]]
    for step in range(1, len(points)):
        column = covariance[:, step]
        covariance = covariance - np.outer(column, column) / (column[step] + noise)
        variances.append(covariance[0, 0])
    return np.array(variances)


@quick
@given(
    st.one_of(random_pools(), repetitive_pools()),
    kernels,
    st.floats(-6, 4),
    st.booleans(),
    st.integers(0, 45),
)
def test_the_variance_is_the_one_of_the_dense_posterior(
    choose, pool, kernel, exponent, allow_repeats, n_select
):
    query, candidates = pool
    noise = 10.0**exponent
    chosen = choose(
        query, candidates, n_select, kernel=kernel, noise=noise, allow_repeats=allow_repeats
    )
    observed = candidates[chosen.positions]
    expected = long_dense_variances(kernel, noise, query, observed).astype(float)
    # The prior variance is 1. Near 0 the difference of two such numbers has no more digits.
    np.testing.assert_allclose(chosen.variances, expected, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(
        posterior_variances(query, observed, **under(noise, kernel)),
        expected,
        rtol=1e-9,
        atol=1e-13,
    )


@quick
@given(
    st.one_of(random_pools(), odd_pools(), repetitive_pools()),
    kernels,
    noises,
    st.booleans(),
    st.integers(0, 45),
)
def test_the_variance_starts_at_one_and_never_rises_nor_leaves_its_range(
    choose, pool, kernel, noise, allow_repeats, n_select
):
    query, candidates = pool
    chosen = choose(
        query, candidates, n_select, kernel=kernel, noise=noise, allow_repeats=allow_repeats
    )
    n = len(candidates)
    expected = n_select if allow_repeats and n else min(n_select, n)
    assert chosen.positions.shape == (expected,)
    assert chosen.variances.shape == (expected + 1,)
    assert chosen.gains.shape == (expected,)
    assert abs(chosen.variances[0] - 1) < 1e-12
    assert (np.diff(chosen.variances) <= 0).all()
    assert (chosen.variances >= 0).all()
    assert (chosen.gains >= 0).all()
    assert ((chosen.positions >= 0) & (chosen.positions < n)).all()
    if not allow_repeats:
        assert len(set(chosen.positions.tolist())) == expected


@quick
@given(random_pools(min_n=1), kernels, noises)
def test_no_single_candidate_would_have_gained_more(choose, pool, kernel, noise):
    query, candidates = pool
    settings_ = {"kernel": kernel, "noise": noise}
    first = choose(query, candidates, 1, **settings_)
    alone = [
        choose(query, candidates[[i]], 1, **settings_).gains[0] for i in range(len(candidates))
    ]
    assert abs(first.gains[0] - max(alone)) < 1e-12


@quick
@given(random_pools(min_n=2), kernels, st.sampled_from([0.01, 0.1, 1.0]), st.data())
def test_permuting_the_pool_permutes_the_positions(choose, pool, kernel, noise, data):
    query, candidates = pool
    order = np.array(data.draw(st.permutations(range(len(candidates)))))
    settings_ = {"kernel": kernel, "noise": noise}
    chosen = choose(query, candidates, 3, **settings_)
    # In one or two dimensions directions nearly coincide; gains must be well apart.
    assume(_smallest_margin(query, candidates, chosen.positions, noise, kernel) > 1e-9)
    shuffled = choose(query, candidates[order], 3, **settings_)
    assert order[shuffled.positions].tolist() == chosen.positions.tolist()
    np.testing.assert_allclose(shuffled.variances, chosen.variances, rtol=0, atol=1e-12)


def _smallest_margin(query, candidates, positions, noise, kernel):
    """Return by how much each choice beat the runner-up, at least."""
    margin = np.inf
    for step in range(len(positions)):
        rest = np.setdiff1d(np.arange(len(candidates)), positions[:step])
        variances = sorted(
            posterior_variances(query, candidates[[*positions[:step], i]], **under(noise, kernel))[
                -1
            ]
            for i in rest
        )
        margin = min(margin, np.diff(variances[:2]).min(initial=np.inf))
    return margin


@quick
@given(random_pools(min_n=1), kernels, st.data())
def test_lengths_do_not_matter_to_a_kernel_on_unit_vectors(choose, pool, kernel, data):
    query, candidates = (a.astype(np.float64) for a in pool)
    exponents = st.integers(-200, 200)  # powers of two: scaling is exact
    scales = [2.0 ** data.draw(exponents) for _ in range(len(candidates) + 1)]
    plain = choose(query, candidates, 5, kernel=kernel)
    scaled = choose(query * scales[0], candidates * np.array(scales[1:])[:, None], 5, kernel=kernel)
    np.testing.assert_array_equal(scaled.positions, plain.positions)
    np.testing.assert_array_equal(scaled.variances, plain.variances)


@quick
@given(random_pools(min_n=1), kernels, noises)
def test_a_shorter_selection_is_the_beginning_of_a_longer_one(choose, pool, kernel, noise):
    query, candidates = pool
    settings_ = {"kernel": kernel, "noise": noise, "allow_repeats": True}
    long = choose(query, candidates, 12, **settings_)
    short = choose(query, candidates, 5, **settings_)
    np.testing.assert_array_equal(short.positions, long.positions[:5])
    np.testing.assert_array_equal(short.variances, long.variances[:6])
