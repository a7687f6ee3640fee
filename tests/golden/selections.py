"""Seeded pools and what every selector chooses from them, for `selections.json`.

All that is imported from the library and from benchmarks is imported here once, so that a rename is
mended in one line. The batch on tensors alone is imported where it is used, since it needs torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from zlib import crc32

import numpy as np

from benchmarks.language_modeling.selectors import (
    HullReconstructionSelector,
    RepeatedNeighborSelector,
    UncertaintySamplingSelector,
)
from sift_core import (
    ContextSelector,
    LazySIFTSelector,
    LinearKernel,
    NearestNeighborSelector,
    RBFKernel,
    SIFTSelector,
    explain,
    irreducible_variance,
    posterior_variances,
    select,
)
from sift_core.selection.context import distinct
from sift_core.types import Selection, StopReason

N_POOLS = 200
WIDE_POOLS = range(N_POOLS, N_POOLS + 4)  # more candidates than the region of `ContextSelector`
N_WIDE = 620
SIZES = (1, 2, 3, 5, 8, 13, 20, 35, 60, 100, 150, 200, 300)
DIMENSIONS = (4, 8, 16, 32, 64, 128, 256, 384)
N_SELECT = (1, 3, 5, 8, 10, 12, 20)
MANY = 50  # the paper's number of training steps, in every 25th pool
KINDS = ("random", "clusters", "copies", "near", "asked", "sorted", "lengths", "versions")


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    """A query and its candidates, with all else that a selector may be given."""

    number: int
    query: np.ndarray  # (d,)
    candidates: np.ndarray  # (n, d)
    n_select: int
    targets: np.ndarray  # (3, d)
    weights: np.ndarray  # (3,)
    shown: np.ndarray  # (m, d), seen before
    relevance: np.ndarray  # (n,), what another ranker says


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of the table of selectors.

    Args:
        choose: From a pool and a backend to a selection.
        every: The row counts for pools whose number is divisible by this.
        has_backends: Whether a compiled form exists.
    """

    choose: Callable
    every: int = 1
    has_backends: bool = True


def make_pool(number):
    """Return the pool of this number, which is its seed, too."""
    generator = np.random.default_rng(number)
    kind = KINDS[number % len(KINDS)]
    n = N_WIDE if number in WIDE_POOLS else int(generator.choice(SIZES))
    d = 8 if number in WIDE_POOLS else int(generator.choice(DIMENSIONS))
    query = _directions(generator, 1, d)[0]
    rows = _candidates(generator, kind, query, n)
    dtype = np.float64 if generator.random() < 0.5 else np.float32
    query, rows = query.astype(dtype), rows.astype(dtype)
    if kind == "asked":
        query = rows[int(generator.integers(n))].copy()
    other = _directions(generator, 1, d)[0].astype(dtype)
    shown = rows[generator.integers(n, size=min(n, 3))]
    return Pool(
        number=number,
        query=query,
        candidates=rows,
        n_select=MANY if number % 25 == 7 else int(generator.choice(N_SELECT)),
        targets=np.stack([query, rows[-1], other]),
        weights=np.array([3.0, 2.0, 0.5]),
        shown=np.concatenate([shown, other[np.newaxis]]),
        relevance=_relevance(generator, number, query, rows),
    )


def _directions(generator, n, d):
    rows = generator.standard_normal((n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _candidates(generator, kind, query, n):
    """Return n float64 rows of one of `KINDS`, all but "random" and "copies" nearer to the query.

    Noise of .3 is .3 times a random direction beside a vector of length 1.
    """
    d = len(query)
    random = _directions(generator, n, d)
    if kind == "random":
        return random
    if kind == "copies":
        return random[generator.integers(max(n // 2, 1), size=n)]
    if kind in ("clusters", "near", "versions"):
        n_centers = max(n // (20 if kind == "versions" else 6), 1)
        centers = query + 1.2 * _directions(generator, n_centers, d)
        centers /= np.linalg.norm(centers, axis=1, keepdims=True)
        noise = {"clusters": 0.6, "near": 0.3, "versions": 0.05}[kind]
        return centers[generator.integers(n_centers, size=n)] + noise * random
    rows = query + 1.5 * random
    if kind == "lengths":
        return rows * np.exp(2 * generator.standard_normal((n, 1)))
    if kind == "sorted":  # as stores answer
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows[np.argsort(-(rows @ query), kind="stable")]
    return rows


def _relevance(generator, number, query, rows):
    """Return a ranker's scores: near the product, with ties, against it, or of no use.

    Summed row by row: a matrix product may round copies of a row differently, so that which
    of them is the more relevant would depend on the processor.
    """
    scores = (rows.astype(np.float64) * query).sum(axis=1).round(9)
    noise = generator.standard_normal(len(scores))
    return (
        scores + 0.1 * noise,
        np.round(2 * noise),
        -scores,
        np.ones(len(scores)),
    )[number % 4]


def _compiled_too(make, every=1, *, given=(), target="query", **settings):
    """Return a row for a selector with two backends; `given` names what else it takes."""

    def choose(pool, backend):
        return make(backend=backend, **settings).select(
            getattr(pool, target),
            pool.candidates,
            pool.n_select,
            **{_ARGUMENTS[name]: getattr(pool, name) for name in given},
        )

    return Case(choose=choose, every=every)


_sift = partial(_compiled_too, SIFTSelector)
_context = partial(_compiled_too, ContextSelector)
_ARGUMENTS = {"weights": "weights", "shown": "conditioned_on", "relevance": "relevance"}


def _other(selector, every=1, target="query"):
    def choose(pool, backend):
        return selector.select(getattr(pool, target), pool.candidates, pool.n_select)

    return Case(choose=choose, every=every, has_backends=False)


def _function(selector=None):
    def choose(pool, backend):
        return select(pool.query, pool.candidates, pool.n_select, selector=selector)

    return Case(choose=choose, every=4, has_backends=False)


LONG = RBFKernel(length_scale=1.0)
CASES = {
    "sift": _sift(noise_variance=0.01, allow_repeats=True),  # the paper's setting
    "sift, noise .1": _sift(noise_variance=0.1),
    "sift, targets": _sift(target="targets"),
    "sift, weighted": _sift(4, target="targets", given=["weights"], allow_repeats=True),
    "sift, shown": _sift(4, given=["shown"]),
    "sift, default": _sift(4),
    "sift, noise 1": _sift(4, noise_variance=1.0, allow_repeats=True),
    "sift, noise 1e-6": _sift(4, noise_variance=1e-6),
    "sift, rbf": _sift(4, kernel=RBFKernel(), noise_variance=0.1),
    "sift, rbf 1": _sift(4, kernel=LONG, noise_variance=0.01, allow_repeats=True),
    "sift, rbf targets": _sift(
        4, target="targets", given=["weights"], kernel=RBFKernel(), noise_variance=0.1
    ),
    "sift, rbf shown": _sift(
        4, target="targets", given=["weights", "shown"], kernel=LONG, noise_variance=0.1
    ),
    "sift, raw": _sift(4, kernel=LinearKernel(normalize=False)),
    "sift, alpha": _sift(4, noise_variance=0.1, alpha=0.6),
    "sift, max_variance": _sift(4, noise_variance=0.1, max_variance=0.5),
    "sift, min_gain": _sift(4, noise_variance=0.1, min_gain=0.01),
    "context": _context(),
    "context, relevance": _context(given=["relevance"]),
    "context, shown": _context(4, given=["shown"]),
    "context, both": _context(4, given=["shown", "relevance"]),
    "context, noise .01": _context(4, noise_variance=0.01),
    "context, alpha": _context(4, alpha=0.3),
    "context, max_variance": _context(4, max_variance=0.5),
    "context, min_gain": _context(4, min_gain=0.02),
    "select": _function(),
    "select, rbf": _function(
        SIFTSelector(kernel=RBFKernel(), noise_variance=0.01, allow_repeats=True)
    ),
    "lazy": _other(LazySIFTSelector()),
    "lazy, rbf": _other(LazySIFTSelector(kernel=LONG, noise_variance=0.1), 4),
    "lazy, repeats": _other(LazySIFTSelector(noise_variance=0.1, allow_repeats=True), 4),
    "lazy, targets": _other(LazySIFTSelector(), 4, "targets"),
    "hull": _other(HullReconstructionSelector()),
    "hull, tight": _other(HullReconstructionSelector(tolerance=1e-6), 4),
    "neighbors": _other(NearestNeighborSelector()),
    "neighbor again": _other(RepeatedNeighborSelector()),
    "uncertainty": _other(UncertaintySamplingSelector()),
    "uncertainty, rbf": _other(
        UncertaintySamplingSelector(kernel=LONG, noise_variance=0.1, allow_repeats=True), 4
    ),
}


def batch(pools, *, name="sift", n_threads=1):
    """Return what `select_batch` chooses from pools that ask for one `n_select`."""
    selector = {
        "sift": SIFTSelector.for_fine_tuning(),
        "context": ContextSelector(),
    }[name]
    return selector.select_batch(
        [pool.query for pool in pools],
        [pool.candidates for pool in pools],
        pools[0].n_select,
        n_threads=n_threads,
    )


def torch_batch(pools):
    """Return what the batch on torch tensors chooses, pool by pool; needs torch."""
    import torch

    from sift_core.selection.torch_batch import select_batch as select_on_tensors

    found = []
    for pool in pools:
        query, candidates = torch.from_numpy(pool.query), torch.from_numpy(pool.candidates)
        positions, variances = select_on_tensors(query[None], candidates[None], pool.n_select)
        is_complete = len(positions[0]) == pool.n_select
        reason = StopReason.N_SELECT if is_complete else StopReason.POOL_EXHAUSTED
        positions, variances = positions[0].numpy(), variances[0].numpy()
        found.append(Selection(positions=positions, variances=variances, stop_reason=reason))
    return found


def recorded(selection, *, in_full=True):
    """Return a selection ready for JSON: positions, why it ended, variances, violations if any.

    Args:
        selection: What a selector chose.
        in_full: Whether all variances are kept, or the last one alone.
    """
    variances = selection.variances.tolist()
    record = [
        selection.positions.tolist(),
        selection.stop_reason.value,
        variances if in_full else variances[-1:],
    ]
    return [*record, selection.bound_violations] if selection.bound_violations else record


def is_in_full(number, name):
    """Tell whether all variances of a case are recorded: every sixth pool, another for each."""
    return (number // CASES[name].every + crc32(name.encode())) % 6 == 0


def measured(pool):
    """Return what the pool's own functions tell of it, ready for JSON."""
    positions = [i % len(pool.candidates) for i in (0, 3, 1, 0)]
    told = explain(pool.query, pool.candidates, positions)
    chosen = pool.candidates[positions]
    return {
        "contents": distinct(pool.query, pool.candidates).tolist(),
        "by relevance": distinct(pool.query, pool.candidates, relevance=pool.relevance).tolist()[
            :10
        ],
        "posterior": posterior_variances(pool.query, chosen).tolist(),
        "rbf posterior": posterior_variances(
            pool.targets, chosen, kernel=LONG, noise_variance=0.1
        ).tolist(),
        "gains": told.information_gains.tolist(),
        "relevances": told.information_alone.tolist(),
        "irreducible": [irreducible_variance(pool.query, pool.candidates)],
    }


def fingerprint(pool):
    """Return a number that other pools hardly share: it tells whether NumPy draws as it did."""
    return float(
        pool.candidates.sum(dtype=np.float64)
        + pool.query.sum(dtype=np.float64)
        + pool.relevance.sum(dtype=np.float64)
    )


def pools():
    """Return all pools in order of number."""
    return [make_pool(number) for number in (*range(N_POOLS), *WIDE_POOLS)]


def record(backend="numpy"):
    """Return all lines of `selections.json`: a key for each pool's case, and one for each pool."""
    lines = {}
    for pool in pools():
        lines[f"{pool.number} pool"] = [*pool.candidates.shape, pool.n_select, fingerprint(pool)]
        if pool.number % 4 == 0:
            lines[f"{pool.number} measured"] = measured(pool)
        for name, case in CASES.items():
            if pool.number % case.every == 0:
                in_full = is_in_full(pool.number, name)
                lines[f"{pool.number} {name}"] = recorded(
                    case.choose(pool, backend), in_full=in_full
                )
    return lines
