"""Whether a collection needs SIFT: how redundant it is, what SIFT and fine-tuning would change."""

from __future__ import annotations

from sift_core.evaluation.diagnosis import Diagnosis, diagnose
from sift_core.evaluation.figure import save_figure
from sift_core.evaluation.questions import Question, QuestionSet, read_questions
from sift_core.evaluation.verdict import as_record, recommend

__all__ = [
    "Diagnosis",
    "Question",
    "QuestionSet",
    "as_record",
    "diagnose",
    "read_questions",
    "recommend",
    "save_figure",
]
