"""SIFT: retrieval that picks what is informative.

Names are imported when they are first asked for, so that importing this costs next to nothing;
they need NumPy alone.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from typing import Any

    from sift_core.answering.answer import Answer, Citation
    from sift_core.choice import achoose, asearch, choose, search
    from sift_core.dates import by_date
    from sift_core.errors import (
        AdapterCacheWarning,
        AdapterServerError,
        AnswerError,
        BusyError,
        CandidateSourceError,
        ExperimentError,
        InvalidInputError,
        LossyVectorsWarning,
        MissingDependencyError,
        NumericalError,
        SiftError,
        UndatedWarning,
    )
    from sift_core.explanation import Chosen, Pick
    from sift_core.options import ChoiceOptions
    from sift_core.pacing import paced, turn_of_ones_own
    from sift_core.places import Place
    from sift_core.protocols import (
        BatchCandidateSource,
        CandidateSource,
        DocumentIndex,
        Embedder,
        SamplableSource,
        Selector,
    )
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
    )
    from sift_core.selection.hull_reconstruction import HullReconstructionSelector, Reconstruction
    from sift_core.selection.kernels import Kernel, LinearKernel, RBFKernel
    from sift_core.selection.lazy import LazySIFTSelector
    from sift_core.selection.posterior import posterior_variances
    from sift_core.selection.scores import relevance_of_scores
    from sift_core.selection.select import select
    from sift_core.selection.sift import SIFTSelector
    from sift_core.sources.in_memory import InMemorySource
    from sift_core.sources.oversampling import OversamplingSource
    from sift_core.types import (
        AnswerMode,
        CandidatePool,
        Document,
        DocumentSample,
        FineTuningReport,
        Query,
        Selection,
        StopReason,
    )
    from sift_core.vector_cache import KeptVectors
    from sift_core.vector_lookup import vectors_by_id

__all__ = [
    "AdapterCacheWarning",
    "AdapterServerError",
    "Answer",
    "AnswerError",
    "AnswerMode",
    "BatchCandidateSource",
    "BusyError",
    "CandidatePool",
    "CandidateSource",
    "CandidateSourceError",
    "ChoiceOptions",
    "Chosen",
    "Citation",
    "ContextSelector",
    "Document",
    "DocumentIndex",
    "DocumentSample",
    "Embedder",
    "ExperimentError",
    "Explanation",
    "FineTuningReport",
    "HullReconstructionSelector",
    "InMemorySource",
    "InvalidInputError",
    "KeptVectors",
    "Kernel",
    "LazySIFTSelector",
    "LinearKernel",
    "LossyVectorsWarning",
    "MMRSelector",
    "MissingDependencyError",
    "NearestNeighborSelector",
    "NumericalError",
    "OversamplingSource",
    "Pick",
    "Place",
    "Query",
    "RBFKernel",
    "Reconstruction",
    "RepeatedNeighborSelector",
    "SIFTSelector",
    "SamplableSource",
    "Selection",
    "Selector",
    "SiftError",
    "StopReason",
    "UncertaintySamplingSelector",
    "UndatedWarning",
    "achoose",
    "asearch",
    "by_date",
    "choose",
    "cosine_similarities",
    "explain",
    "irreducible_variance",
    "load_compiled",
    "paced",
    "posterior_variances",
    "relevance_of_scores",
    "search",
    "select",
    "turn_of_ones_own",
    "vectors_by_id",
]

_NAMES_OF_MODULE = {
    "sources.in_memory": ("InMemorySource",),
    "errors": (
        "AdapterCacheWarning",
        "AdapterServerError",
        "AnswerError",
        "BusyError",
        "CandidateSourceError",
        "ExperimentError",
        "InvalidInputError",
        "LossyVectorsWarning",
        "MissingDependencyError",
        "NumericalError",
        "SiftError",
        "UndatedWarning",
    ),
    "answering.answer": ("Answer", "Citation"),
    "choice": ("achoose", "asearch", "choose", "search"),
    "explanation": ("Chosen", "Pick"),
    "options": ("ChoiceOptions",),
    "places": ("Place",),
    "dates": ("by_date",),
    "vector_cache": ("KeptVectors",),
    "vector_lookup": ("vectors_by_id",),
    "sources.oversampling": ("OversamplingSource",),
    "pacing": ("paced", "turn_of_ones_own"),
    "protocols": (
        "BatchCandidateSource",
        "CandidateSource",
        "DocumentIndex",
        "Embedder",
        "SamplableSource",
        "Selector",
    ),
    "selection.backend": ("load_compiled",),
    "selection.baselines": (
        "MMRSelector",
        "NearestNeighborSelector",
        "RepeatedNeighborSelector",
        "UncertaintySamplingSelector",
    ),
    "selection.context": ("ContextSelector",),
    "selection.cosines": ("cosine_similarities",),
    "selection.explain": (
        "Explanation",
        "explain",
        "irreducible_variance",
    ),
    "selection.hull_reconstruction": (
        "HullReconstructionSelector",
        "Reconstruction",
    ),
    "selection.kernels": (
        "Kernel",
        "LinearKernel",
        "RBFKernel",
    ),
    "selection.lazy": ("LazySIFTSelector",),
    "selection.posterior": ("posterior_variances",),
    "selection.scores": ("relevance_of_scores",),
    "selection.select": ("select",),
    "selection.sift": ("SIFTSelector",),
    "types": (
        "AnswerMode",
        "CandidatePool",
        "Document",
        "DocumentSample",
        "FineTuningReport",
        "Query",
        "Selection",
        "StopReason",
    ),
}
_MODULE_OF_NAME = {name: module for module, names in _NAMES_OF_MODULE.items() for name in names}
_SUBMODULES = {module.partition(".")[0] for module in _NAMES_OF_MODULE}

if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        """Import a public name, or the module that has it, when it is asked for (PEP 562)."""
        if name in _SUBMODULES:
            return import_module(f"sift_core.{name}")
        if name not in _MODULE_OF_NAME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"sift_core.{_MODULE_OF_NAME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Return the public names, whether they are imported already or not."""
    return sorted({*globals(), *__all__})
