"""Against an oracle that follows the docstring: all distances in loops, all variances by solves."""

import numpy as np
import pytest

from sift_core import ContextSelector, NearestNeighborSelector
from sift_core.selection import context
from sift_core.selection.near_duplicates import near_duplicate_radius
from tests.selection.oracle import assert_same, under, unit

# The rule's numbers, as its docstring and decision 0006 have them.
REGION, KERNEL_DECAY, RELEVANCE_DECAY, NOISE = 500, 4.0, 2.0, 0.2
SMALLEST_WEIGHT = 1e-6


def text_like(seed, n, *, d=32, mean=0.5):
    """Return a query and n rows as a search finds them: all a little like the query."""
    rng = np.random.default_rng(seed)
    scales = np.arange(1, d + 1) ** -0.4
    scales /= np.linalg.norm(scales)
    query = unit(rng.standard_normal(d) * scales + mean / d**0.5)
    rows = unit(rng.standard_normal((n, d)) * scales + mean / d**0.5)
    return query, unit(rows + rng.uniform(0, 0.6, (n, 1)) * query)


def with_near_duplicates(seed, n_distinct, n_copies, *, noise=0.15, d=32):
    """Return a query, rows in random order, and which distinct chunk each row is of."""
    query, chunks = text_like(seed, n_distinct, d=d)
    rng = np.random.default_rng(seed + 1000)
    chunk_of = rng.permutation(np.repeat(np.arange(n_distinct), n_copies))
    rows = chunks[chunk_of] + noise * unit(rng.standard_normal((len(chunk_of), d)))
    return query, unit(rows), chunk_of


def dealt_cosines(relevance, cosines):
    """Return the i-th largest cosine for the i-th largest relevance, shared where it is equal."""
    sorted_relevance, sorted_cosines = np.sort(relevance), np.sort(cosines)
    return np.array([sorted_cosines[sorted_relevance == own].mean() for own in relevance])


def region_of(query, candidates, relevance=None, shown=(), n_region=REGION):
    """Return order, tiers (n,), weights (n,) and distances u (n, n), most relevant first."""
    rows = unit(np.asarray(candidates, dtype=np.float64))
    near = rows @ unit(np.asarray(query, dtype=np.float64))
    if relevance is not None:
        near = dealt_cosines(relevance, near)
    order = sorted(range(len(rows)), key=lambda i: (-round(near[i], 12), i))
    rows, near = rows[order], near[order]
    cosines = rows[:n_region] @ rows[:n_region].T
    n = len(cosines)
    typical = 1 - cosines[~np.eye(n, dtype=bool)].mean() if n > 1 else 1.0
    typical = typical if typical > 1e-9 else 1.0
    novelty = []
    for i in range(n):
        earlier = [*cosines[i, :i], *(float(rows[i] @ row) for row in unit(np.array(shown)))]
        novelty.append(min((1 - cosine) / typical for cosine in earlier) if earlier else np.inf)
    is_new = np.array(novelty) > near_duplicate_radius(np.array(novelty))
    if not is_new.any():
        is_new[:] = True
    relevance_of_new = [near[i] for i in range(n) if is_new[i]]
    deviation = np.mean((np.array(relevance_of_new) - np.mean(relevance_of_new)) ** 2) ** 0.5
    weights = np.zeros(len(rows))
    for i in range(n):
        if is_new[i]:
            fall = relevance_of_new[0] - near[i]
            z = fall / deviation if deviation >= 1e-9 else 0.0
            weight = np.exp(-RELEVANCE_DECAY * z)
            weights[i] = weight if weight >= SMALLEST_WEIGHT else 0.0
    tiers = np.ones(len(rows), dtype=int)
    tiers[:n][is_new] = 0
    return order, rows, tiers, weights / weights.sum(), typical


def dense_context(
    query,
    candidates,
    n_select,
    *,
    noise=NOISE,
    relevance=None,
    shown=(),
    n_region=REGION,
):
    """Return positions and variances by exact greedy selection, one solve a candidate."""
    order, rows, tiers, weights, typical = region_of(
        query, candidates, relevance, shown, n_region=n_region
    )
    everything = np.concatenate([rows, unit(np.array(shown).reshape(-1, rows.shape[1]))])
    kernel = np.exp(-KERNEL_DECAY * (1 - everything @ everything.T) / typical)
    targets = np.flatnonzero(weights)
    before = list(range(len(rows), len(everything)))

    def variance_after(chosen):
        """Return Σ w (k(t, t) - k_X(t)ᵀ (K_X + λI)⁻¹ k_X(t))."""
        if not chosen:
            return 1.0
        gram = kernel[np.ix_(chosen, chosen)] + noise * np.eye(len(chosen))
        with_targets = kernel[np.ix_(chosen, targets)]
        explained = (with_targets * np.linalg.solve(gram, with_targets)).sum(axis=0)
        return float(weights[targets] @ (kernel[targets, targets] - explained))

    chosen, variances = [], [variance_after(before)]
    for _ in range(min(n_select, len(rows))):
        left = [i for i in range(len(rows)) if i not in chosen]
        first_tier = min(tiers[i] for i in left)
        after = {i: variance_after([*before, *chosen, i]) for i in left if tiers[i] == first_tier}
        least = min(after.values())
        chosen.append(next(i for i in after if after[i] <= least + 1e-12))
        variances.append(after[chosen[-1]])
    return [order[i] for i in chosen], variances


def check_oracle(backend, query, candidates, n_select, *, noise=NOISE, **others):
    shown = others.get("shown", ())
    chosen = ContextSelector(**under(noise, backend=backend)).select(
        query,
        candidates,
        n_select,
        relevance=others.get("relevance"),
        conditioned_on=shown if len(shown) else None,
    )
    positions, variances = dense_context(query, candidates, n_select, noise=noise, **others)
    assert_same(chosen, (positions, variances), atol=1e-9)
    return chosen


def choice(backend, query, candidates, n_select=8, **others):
    return ContextSelector(backend=backend).select(query, candidates, n_select, **others)


@pytest.mark.parametrize("noise", [0.01, 0.2, 3.0])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 20, 60])
def test_equals_the_dense_oracle(backend, n, noise):
    for seed in range(2):
        query, candidates = text_like(seed, n)
        check_oracle(backend, query, candidates, 10, noise=noise)


@pytest.mark.parametrize("n_region", [1, 20, 49, 500])
def test_equals_the_dense_oracle_for_more_candidates_than_the_region(
    backend, monkeypatch, n_region
):
    monkeypatch.setattr(context, "MAX_REGION", n_region)
    pool = text_like(5, 600) if n_region == 500 else with_near_duplicates(4, 25, 2)[:2]
    check_oracle(backend, *pool, 8, n_region=n_region)


@pytest.mark.parametrize("noise", [0.1, 0.25])
@pytest.mark.parametrize("n_copies", [2, 4])
def test_equals_the_dense_oracle_where_distinct_chunks_run_out(backend, n_copies, noise):
    query, candidates, chunk_of = with_near_duplicates(1, 48 // n_copies, n_copies, noise=noise)
    chosen = check_oracle(backend, query, candidates, 48 // n_copies + 8)
    assert len(set(chunk_of[chosen.positions[: 48 // n_copies]])) == 48 // n_copies


def one_far_more_relevant():
    """80 equal ones but for the best: it is √79 standard deviations above, others weigh 2e-8."""
    query, candidates = text_like(0, 80)
    candidates -= (candidates @ query)[:, np.newaxis] * query
    candidates[7] = query
    return query, candidates, {}


def after_some_were_shown(n_shown):
    query, candidates, _ = with_near_duplicates(6, 15, 3)
    nearest = np.argsort(-(candidates @ query))
    return query, candidates, {"shown": candidates[nearest[: 2 * n_shown : 2]]}


def by_another_relevance(n_levels):
    """Some or most tie."""
    query, candidates, _ = with_near_duplicates(7, 15, 3)
    relevance = np.random.default_rng(7).integers(0, n_levels, 45)
    return query, candidates, {"relevance": relevance}


def all_shown():
    query, candidates = text_like(30, 12)
    return query, candidates, {"shown": candidates}


ODD_POOLS = {
    "one far more relevant": one_far_more_relevant(),
    "one shown": after_some_were_shown(1),
    "five shown": after_some_were_shown(5),
    "all shown": all_shown(),
    "relevance of four levels": by_another_relevance(4),
    "relevance of 45 levels": by_another_relevance(45),
    "equal relevance": (*text_like(24, 10), {"relevance": np.ones(10)}),
    "copies alone": (np.array([1.0, 0.3]), np.tile([[0.6, 0.8]], (6, 1)), {}),
}


@pytest.mark.parametrize("name", ODD_POOLS)
def test_equals_the_dense_oracle_for_an_odd_pool(backend, name):
    query, candidates, others = ODD_POOLS[name]
    chosen = check_oracle(backend, query, candidates, 12, **others)
    assert (chosen.variances[0] < 0.3) == (name == "all shown")


def test_the_first_choice_by_hand(backend):
    # Cosines with the query 1, .8 and 0, so the chunks' relevance has mean .6 and standard
    # deviation √(.56 / 3) = .432: z = 0, .463, 2.315 and weights 1, .396, .00976 before they are
    # made to sum to 1. Distances 1 - cos: .2, 1 and .4, so u = those / (1.6 / 3), and the
    # first two share exp(-4 · .375) = .223. After the first choice, with λ = .2,
    # Σ w (1 - k² / 1.2) is left.
    candidates = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    weights = np.exp(-2 * np.array([0.0, 0.2, 1.0]) / (0.56 / 3) ** 0.5)
    weights /= weights.sum()
    kernel = np.exp(-4 * np.array([0.0, 0.2, 1.0]) / (1.6 / 3))
    chosen = choice(backend, [1.0, 0.0], candidates, 1)
    assert chosen.positions.tolist() == [0]
    assert chosen.variances == pytest.approx([1, 1 - weights @ kernel**2 / 1.2], abs=1e-12)


def test_a_tie_goes_to_the_lowest_position(backend):
    # Mirror images in the query's axis.
    candidates = [[0.6, -0.8, 0.0], [0.6, 0.8, 0.0], [0.6, 0.0, 0.8], [0.6, 0.0, -0.8]]
    chosen = choice(backend, [1.0, 0.0, 0.0], candidates, 4)
    assert chosen.positions.tolist()[0] == 0
    backwards = choice(backend, [1.0, 0.0, 0.0], candidates[::-1], 4)
    assert backwards.positions.tolist() == chosen.positions.tolist()


@pytest.mark.parametrize("empty", [[], np.empty((0, 32)), np.empty((0, 5))])
def test_nothing_shown_is_no_condition(backend, empty):
    query, candidates, _ = with_near_duplicates(29, 15, 3)
    chosen = choice(backend, query, candidates, conditioned_on=empty)
    plain = choice(backend, query, candidates)
    assert_same(chosen, plain, atol=1e-12)


def test_what_was_shown_may_be_far_more_relevant_than_the_rest(backend):
    # The two that are left differ in relevance by 1e-5, the shown one lies .4 above them.
    candidates = [[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.6 - 1e-5, 0.0, 0.8]]
    chosen = choice(backend, [1.0, 0.0, 0.0], candidates, 2, conditioned_on=candidates[:1])
    assert sorted(chosen.positions.tolist()) == [1, 2]


def test_takes_each_distinct_chunk_once_where_the_nearest_repeat():
    query, candidates, chunk_of = with_near_duplicates(31, 40, 4, d=64)
    nearest = NearestNeighborSelector().select(query, candidates, 10)
    chosen = ContextSelector().select(query, candidates, 10)
    assert len(set(chunk_of[chosen.positions])) == 10
    assert len(set(chunk_of[nearest.positions])) <= 5
