import pytest

from sift_core import AnswerMode, InvalidInputError
from sift_core.answering import VariancePolicy


def decide(**changes):
    arguments = {"variance_before": 1.0, "variance_after": 0.5, "context_tokens": 100, "room": 900}
    return VariancePolicy().decide(**{**arguments, **changes})


def test_documents_that_fit_are_read():
    decision = decide()
    assert decision.mode is AnswerMode.CONTEXT
    assert "50% of the variance" in decision.reasons[0]
    assert "100 tokens fit into the 900" in decision.reasons[1]


def test_documents_that_do_not_fit_are_learned():
    decision = decide(context_tokens=901)
    assert decision.mode is AnswerMode.FINE_TUNE
    assert "901 tokens exceed the 900" in decision.reasons[1]


def test_exactly_full_still_fits():
    assert decide(context_tokens=900).mode is AnswerMode.CONTEXT


def test_documents_off_the_topic_are_left_alone():
    decision = decide(variance_after=0.8)  # they explain 20 %, less than 25 %
    assert decision.mode is AnswerMode.BASE
    assert "off the topic" in decision.reasons[0]


def test_no_documents_at_all_means_base():
    assert decide(variance_after=1.0, context_tokens=0).mode is AnswerMode.BASE


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(InvalidInputError, match="min_explained"):
        VariancePolicy(min_explained=share)
