"""Whether a collection needs SIFT: how redundant it is, what SIFT and fine-tuning would change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sift_core.diagnosis.duplicates import Duplicates, Pair
from sift_core.diagnosis.measuring import Diagnosis, diagnose
from sift_core.diagnosis.pool_measures import ChosenChunk, PoolMeasures, TopTen
from sift_core.diagnosis.questions import Question, QuestionSet, read_questions
from sift_core.diagnosis.recommendation import Recommendation, recommend
from sift_core.diagnosis.tables import as_record, tables_of
from sift_core.diagnosis.trial import Passage, Trial
from sift_core.diagnosis.verdict import Verdict

if TYPE_CHECKING:
    from sift_core.diagnosis.html_page import html_report

__all__ = [
    "ChosenChunk",
    "Diagnosis",
    "Duplicates",
    "Pair",
    "Passage",
    "PoolMeasures",
    "Question",
    "QuestionSet",
    "Recommendation",
    "TopTen",
    "Trial",
    "Verdict",
    "as_record",
    "diagnose",
    "html_report",
    "read_questions",
    "recommend",
    "tables_of",
]


def __getattr__(name: str) -> Any:
    """Import the page's function with matplotlib only when it is asked for (PEP 562)."""
    if name == "html_report":
        from sift_core.diagnosis.html_page import html_report

        return html_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
