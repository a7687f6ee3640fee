"""Answering from chosen documents: in the context, by fine-tuning, or by choice of both."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sift_core.answering.fine_tuning import FineTuningAnswerer, FineTuningSettings, fine_tuned
    from sift_core.answering.generation import Generation
    from sift_core.answering.in_context import InContextAnswerer
    from sift_core.answering.language_model import LanguageModel
    from sift_core.answering.policy import Decision, VariancePolicy
    from sift_core.pipeline import AnswerEngine
    from sift_core.prepared import Choice, PreparedModel
    from sift_core.streaming import AnswerStream, AsyncAnswerStream

__all__ = [
    "AnswerEngine",
    "AnswerStream",
    "AsyncAnswerStream",
    "Choice",
    "Decision",
    "FineTuningAnswerer",
    "FineTuningSettings",
    "Generation",
    "InContextAnswerer",
    "LanguageModel",
    "PreparedModel",
    "VariancePolicy",
    "fine_tuned",
]

_MODULES = {
    "AnswerEngine": "sift_core.pipeline",  # composes all stages, so it lives above them
    "AnswerStream": "sift_core.streaming",  # these four likewise
    "AsyncAnswerStream": "sift_core.streaming",
    "Choice": "sift_core.prepared",
    "PreparedModel": "sift_core.prepared",
    "Decision": "sift_core.answering.policy",
    "FineTuningAnswerer": "sift_core.answering.fine_tuning",
    "FineTuningSettings": "sift_core.answering.fine_tuning",
    "Generation": "sift_core.answering.generation",
    "InContextAnswerer": "sift_core.answering.in_context",
    "LanguageModel": "sift_core.answering.language_model",
    "VariancePolicy": "sift_core.answering.policy",
    "fine_tuned": "sift_core.answering.fine_tuning",
}


def __getattr__(name: str) -> Any:
    """Import torch and transformers only when something needs them (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
