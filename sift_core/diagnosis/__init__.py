"""Whether a collection needs SIFT: how redundant it is, what SIFT and fine-tuning would change."""

from __future__ import annotations

from sift_core.diagnosis.figure import save_figure
from sift_core.diagnosis.measuring import Diagnosis, Duplicates, diagnose
from sift_core.diagnosis.pools import PoolMeasures, TopTen
from sift_core.diagnosis.questions import Question, QuestionSet, read_questions
from sift_core.diagnosis.verdict import Recommendation, Verdict, as_record, recommend

__all__ = [
    "Diagnosis",
    "Duplicates",
    "PoolMeasures",
    "Question",
    "QuestionSet",
    "Recommendation",
    "TopTen",
    "Verdict",
    "as_record",
    "diagnose",
    "read_questions",
    "recommend",
    "save_figure",
]
