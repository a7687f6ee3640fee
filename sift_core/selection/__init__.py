"""Choosing documents: arrays in, arrays out. NumPy alone."""

from sift_core.selection.backend import load_compiled
from sift_core.selection.baselines import (
    MMRSelector,
    NearestNeighborSelector,
    RepeatedNeighborSelector,
    UncertaintySamplingSelector,
)
from sift_core.selection.context import ContextSelector
from sift_core.selection.cosines import cosine_similarities
from sift_core.selection.explain import (
    Explanation,
    explain,
    irreducible_variance,
    pick_metadata,
)
from sift_core.selection.hull_reconstruction import HullReconstructionSelector, Reconstruction
from sift_core.selection.kernels import Kernel, LinearKernel, RBFKernel
from sift_core.selection.lazy import LazySIFTSelector
from sift_core.selection.posterior import posterior_variances
from sift_core.selection.scores import check_score, pick_scores, relevance_of_scores
from sift_core.selection.select import select, selector_from_settings
from sift_core.selection.sift import SIFTSelector

__all__ = [
    "ContextSelector",
    "Explanation",
    "HullReconstructionSelector",
    "Kernel",
    "LazySIFTSelector",
    "LinearKernel",
    "MMRSelector",
    "NearestNeighborSelector",
    "RBFKernel",
    "Reconstruction",
    "RepeatedNeighborSelector",
    "SIFTSelector",
    "UncertaintySamplingSelector",
    "check_score",
    "cosine_similarities",
    "explain",
    "irreducible_variance",
    "load_compiled",
    "pick_metadata",
    "pick_scores",
    "posterior_variances",
    "relevance_of_scores",
    "select",
    "selector_from_settings",
]
