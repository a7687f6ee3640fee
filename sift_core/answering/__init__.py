"""Answering from chosen documents: in the context, by fine-tuning, or by choice of both."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sift_core.answering.fine_tuning import FineTuningAnswerer, FineTuningSettings, fine_tuned
    from sift_core.answering.in_context import InContextAnswerer
    from sift_core.answering.language_model import LanguageModel
    from sift_core.answering.policy import Decision, VariancePolicy
    from sift_core.pipeline import AnswerEngine

__all__ = [
    "AnswerEngine",
    "Decision",
    "FineTuningAnswerer",
    "FineTuningSettings",
    "InContextAnswerer",
    "LanguageModel",
    "VariancePolicy",
    "fine_tuned",
]

_MODULES = {
    "AnswerEngine": "sift_core.pipeline",  # composes all stages, so it lives above them
    "Decision": "sift_core.answering.policy",
    "FineTuningAnswerer": "sift_core.answering.fine_tuning",
    "FineTuningSettings": "sift_core.answering.fine_tuning",
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
