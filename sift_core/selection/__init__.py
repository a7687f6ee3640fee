"""Choosing documents: arrays in, arrays out. NumPy alone."""

from sift_core.selection.baselines import NearestNeighborSelector
from sift_core.selection.kernels import Kernel, LinearKernel, RBFKernel
from sift_core.selection.posterior import posterior_variances
from sift_core.selection.sift import SIFTSelector, select

__all__ = [
    "Kernel",
    "LinearKernel",
    "NearestNeighborSelector",
    "RBFKernel",
    "SIFTSelector",
    "posterior_variances",
    "select",
]
