"""What our selection is timed against, each in the leanest form that is fair to it.

Every rival answers with positions in the pool. activeft, torch and pyversity are imported
where they are used, so that the oracle can be tested without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.selection_data import Problem

NOISE_VARIANCE = 0.01  # the paper's λ, and activeft's default
PYVERSITY_STRATEGIES = ("mmr", "msd", "dpp", "ssd", "cover")


def algorithm_1(
    query: np.ndarray,
    candidates: np.ndarray,
    n_select: int,
    noise_variance: float = NOISE_VARIANCE,
) -> list[int]:
    """Return the paper's Algorithm 1 as printed: the K × K matrix, updated at each step."""
    points = np.vstack([candidates, query]).astype(np.float64)
    covariance = points @ points.T
    chosen = []
    for _ in range(n_select):
        gains = covariance[-1, :-1] ** 2 / (covariance.diagonal()[:-1] + noise_variance)
        best = int(np.argmax(gains))
        column = covariance[:, best].copy()
        covariance -= np.outer(column, column) / (column[best] + noise_variance)
        chosen.append(best)
    return chosen


def retriever_timer(index: Any, n_select: int) -> Callable[[Problem], float]:
    """Return a timer of the SIFT part of `activeft.sift.Retriever.search`.

    The seconds are those that the Retriever itself reports as `RetrievalTime.sift`: from
    after Faiss has found and reconstructed the K candidates until the results are stacked.
    That covers, once a query: a thread pool of one; tensors of pool and query; one DataLoader
    worker process, forked to shuffle and collate the pool (`num_workers=1` is fixed in the
    Retriever and costs about half of the time at K = 200); the joint (K+1) × (K+1) covariance
    through a product with the d × d identity; and per choice the acquisition value of every
    candidate, the argmax, and a new covariance matrix. The Faiss search and its
    reconstruction are outside. Exact for K <= 1000; above, it chooses from random halves.
    """
    import torch
    from activeft.sift import Retriever

    torch.set_num_threads(1)
    retriever = Retriever(
        index,
        llambda=NOISE_VARIANCE,
        also_query_opposite=False,  # would only lengthen its Faiss part
        device=torch.device("cpu"),
    )

    def timer(problem: Problem) -> float:
        *_, seconds = retriever.search(problem.query[None], N=n_select, K=len(problem.pool))
        return float(seconds.sift)

    return timer


def bare_vtl(query: np.ndarray, candidates: np.ndarray, n_select: int) -> np.ndarray:
    """Return what activeft's arithmetic alone chooses.

    `VTL.select_from_minibatch` on tensors that share the arrays' memory: covariance, and per
    choice acquisition values, argmax and conditioning, all activeft's own code, float32,
    without Retriever, thread pool, DataLoader, worker process and shuffle. To be run under
    `without_wandb`; what remains of its logging are a maximum and a minimum a choice.
    """
    import torch
    from activeft.acquisition_functions.vtl import VTL

    vtl = VTL(
        target=torch.from_numpy(query[None]),
        noise_std=NOISE_VARIANCE**0.5,
        mini_batch_size=len(candidates) + n_select + 1,  # never approximate
        num_workers=0,
    )
    with torch.inference_mode():
        positions, _ = vtl.select_from_minibatch(
            n_select,
            None,  # type: ignore[arg-type]  # no model: the data are embeddings
            torch.from_numpy(candidates),
            torch.device("cpu"),
        )
    return positions.numpy()


@contextmanager
def without_wandb() -> Iterator[None]:
    """Silence activeft's logging hook.

    It tries `import wandb` at every choice; where wandb is absent each failed attempt searches
    the import path, which took a third of the time of its arithmetic at K = 200.
    """
    from activeft.acquisition_functions import vtl

    original = vtl.wandb_log
    vtl.wandb_log = lambda data: None
    try:
        yield
    finally:
        vtl.wandb_log = original


def pyversity(problem: Problem, n_select: int, strategy: str) -> np.ndarray:
    """Return the choice of one of pyversity's strategies, half relevance, half diversity."""
    from pyversity import diversify

    found = diversify(
        problem.pool, problem.similarities, n_select, strategy=strategy, diversity=0.5
    )
    return found.indices
