"""Answering from chosen documents: in the context, by fine-tuning, or by choice of both."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sift_core.answering.calibrating import calibrate
    from sift_core.answering.calibration import Calibration
    from sift_core.answering.cost_model import CostModel
    from sift_core.answering.engine import AnswerEngine
    from sift_core.answering.in_context import InContextAnswerer, TextGenerator
    from sift_core.answering.learning.adapter_cache import AdapterCache
    from sift_core.answering.learning.clusters import ClusterAdapters, learn_clusters
    from sift_core.answering.learning.fine_tuning import FineTuned, fine_tune, fine_tuned
    from sift_core.answering.learning.settings import FineTuningSettings
    from sift_core.answering.model.adapters import Adapter
    from sift_core.answering.model.generation import Generation
    from sift_core.answering.model.language_model import LanguageModel
    from sift_core.answering.policy import (
        CalibratedPolicy,
        Decision,
        Policy,
        PolicyFeatures,
        VariancePolicy,
        Way,
    )
    from sift_core.answering.request import AnswerRequest, Choice
    from sift_core.answering.sessions import Session
    from sift_core.answering.streams import AnswerStream, AsyncAnswerStream
    from sift_core.answering.vllm import VllmGenerator, VllmServer

__all__ = [
    "Adapter",
    "AdapterCache",
    "AnswerEngine",
    "AnswerRequest",
    "AnswerStream",
    "AsyncAnswerStream",
    "CalibratedPolicy",
    "Calibration",
    "Choice",
    "ClusterAdapters",
    "CostModel",
    "Decision",
    "FineTuned",
    "FineTuningSettings",
    "Generation",
    "InContextAnswerer",
    "LanguageModel",
    "Policy",
    "PolicyFeatures",
    "Session",
    "TextGenerator",
    "VariancePolicy",
    "VllmGenerator",
    "VllmServer",
    "Way",
    "calibrate",
    "fine_tune",
    "fine_tuned",
    "learn_clusters",
]

_MODULES = {
    "AnswerEngine": "sift_core.answering.engine",
    "AnswerRequest": "sift_core.answering.request",
    "AnswerStream": "sift_core.answering.streams",
    "AsyncAnswerStream": "sift_core.answering.streams",
    "CalibratedPolicy": "sift_core.answering.policy",
    "calibrate": "sift_core.answering.calibrating",
    "Calibration": "sift_core.answering.calibration",
    "Choice": "sift_core.answering.request",
    "Session": "sift_core.answering.sessions",
    "Adapter": "sift_core.answering.model.adapters",
    "AdapterCache": "sift_core.answering.learning.adapter_cache",
    "ClusterAdapters": "sift_core.answering.learning.clusters",
    "CostModel": "sift_core.answering.cost_model",
    "Decision": "sift_core.answering.policy",
    "FineTuned": "sift_core.answering.learning.fine_tuning",
    "FineTuningSettings": "sift_core.answering.learning.settings",
    "Generation": "sift_core.answering.model.generation",
    "InContextAnswerer": "sift_core.answering.in_context",
    "LanguageModel": "sift_core.answering.model.language_model",
    "Policy": "sift_core.answering.policy",
    "PolicyFeatures": "sift_core.answering.policy",
    "TextGenerator": "sift_core.answering.in_context",
    "VariancePolicy": "sift_core.answering.policy",
    "VllmGenerator": "sift_core.answering.vllm",
    "VllmServer": "sift_core.answering.vllm",
    "Way": "sift_core.answering.policy",
    "fine_tune": "sift_core.answering.learning.fine_tuning",
    "fine_tuned": "sift_core.answering.learning.fine_tuning",
    "learn_clusters": "sift_core.answering.learning.clusters",
}


if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        """Import torch and transformers only when something needs them (PEP 562)."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)
