"""SIFT: retrieval that picks what is informative. Importing this needs NumPy alone."""

from sift_core.candidates.in_memory import InMemorySource
from sift_core.errors import (
    AnswerError,
    CandidateSourceError,
    InvalidInputError,
    MissingDependencyError,
    NumericalError,
    SiftError,
)
from sift_core.protocols import Answerer, CandidateSource, Embedder, Selector
from sift_core.selection import (
    Kernel,
    LinearKernel,
    NearestNeighborSelector,
    RBFKernel,
    SIFTSelector,
    posterior_variances,
    select,
)
from sift_core.types import (
    Answer,
    AnswerMode,
    CandidatePool,
    Document,
    Query,
    Selection,
    StopReason,
)

__all__ = [
    "Answer",
    "AnswerError",
    "AnswerMode",
    "Answerer",
    "CandidatePool",
    "CandidateSource",
    "CandidateSourceError",
    "Document",
    "Embedder",
    "InMemorySource",
    "InvalidInputError",
    "Kernel",
    "LinearKernel",
    "MissingDependencyError",
    "NearestNeighborSelector",
    "NumericalError",
    "Query",
    "RBFKernel",
    "SIFTSelector",
    "Selection",
    "Selector",
    "SiftError",
    "StopReason",
    "posterior_variances",
    "select",
]
