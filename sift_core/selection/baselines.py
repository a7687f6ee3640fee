"""Selectors to compare with, behind the same protocol."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sift_core.selection.kernels import Kernel, LinearKernel, RBFKernel
from sift_core.selection.posterior import Posterior, posterior_variances
from sift_core.types import FloatArray, Selection, StopReason, as_count


@dataclass(frozen=True, kw_only=True)
class NearestNeighborSelector:
    """Chooses the candidates with the largest cosine, as plain retrieval does.

    `kernel` and `noise_variance` play no part in the choice. They say how certain the
    chosen candidates make the answer, so that the variances can be laid beside those of
    a `SIFTSelector` with the same two settings.
    """

    kernel: Kernel = field(default_factory=RBFKernel)
    noise_variance: float = 0.1

    def select(self, query: FloatArray, candidates: FloatArray, n_select: int) -> Selection:
        """Return the `n_select` nearest of `candidates` (n, d) to `query` (d,), nearest first.

        Ties go to the lowest position; none is chosen twice.

        Raises:
            InvalidInputError: As `SIFTSelector.select`.
        """
        n_select = as_count("n_select", n_select, minimum=0)
        # On unit rows a linear query row holds the cosines; the check of arguments comes free.
        cosines = Posterior.prior(LinearKernel(), 1.0, query, candidates).query_row
        nearest = np.argsort(-cosines, kind="stable")[:n_select]
        variances = posterior_variances(
            query,
            np.asarray(candidates)[nearest],
            kernel=self.kernel,
            noise_variance=self.noise_variance,
        )
        complete = len(nearest) == n_select
        return Selection(
            positions=nearest,
            variances=variances,
            stop_reason=StopReason.N_SELECT if complete else StopReason.POOL_EXHAUSTED,
        )
