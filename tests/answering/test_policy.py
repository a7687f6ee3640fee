import pytest

from sift_core import AnswerMode, InvalidInputError
from sift_core.answering.cost_model import CostModel
from sift_core.answering.policy import (
    MODES,
    Decision,
    PolicyFeatures,
    VariancePolicy,
)

BASE, CONTEXT, LEARN, BOTH = MODES


def costs(*, base=0.1, context=0.3, fine_tune=0.1, setup=0.0, step=0.2):
    # 20 tokens without chunks, at least 21 with them
    return CostModel(
        prefill=((20, base), (21, context), (999, context)),
        adapted_prefill=((20, fine_tune), (999, fine_tune)),
        step=((1, step), (999, step)),
        new_token_s=0.0,
        adapted_new_token_s=0.0,
        setup_s=setup,
    )


def features(**changes):
    arguments = {
        "variance_before": 1.0,
        "variance_read": 0.5,
        "variances_learned": (0.6, 0.5, 0.45, 0.4),
        "question_tokens": 20,
        "context_tokens": 100,
        "read_tokens": 100,
        "room": 900,
        "learn_tokens": (50,) * 4,
        "max_new_tokens": 64,
    }
    return PolicyFeatures(**{**arguments, **changes})


def decide(policy=None, **changes):
    return (policy or VariancePolicy()).decide(features(**changes))


TOO_LONG = {"context_tokens": 901, "read_tokens": 300, "variance_read": 0.7}
HALF_READ = {"context_tokens": 901, "read_tokens": 450, "variance_read": 0.45}
NO_LESSONS = {"variances_learned": (), "learn_tokens": ()}
NO_ROOM = {"read_tokens": 0, "room": -5, "variance_read": 1.0}


@pytest.mark.parametrize(
    ("changes", "mode", "reason"),
    [
        ({}, CONTEXT, "100 tokens fit into the 900"),
        ({"context_tokens": 900, "read_tokens": 900}, CONTEXT, "900 tokens fit into the 900"),
        (TOO_LONG, LEARN, "explain 30% of the variance, not 90% of the 60%"),
        # 55 % of 60 %: more than nine tenths
        (HALF_READ, CONTEXT, "explain 55% of the variance, at least 90%"),
        ({**TOO_LONG, **NO_LESSONS}, CONTEXT, "901 tokens exceed the 900"),
        (NO_ROOM, LEARN, "100 tokens exceed the 0"),
        ({"variance_read": 0.8}, LEARN, "what would be read explains 20% alone"),
        # 20 %, less than 25 %
        ({"variance_read": 0.8, "variances_learned": (0.8,) * 4}, BASE, "off the topic"),
        ({**NO_LESSONS, **NO_ROOM, "context_tokens": 0}, BASE, "off the topic"),
        ({"variance_before": 0.0, "variance_read": 0.0}, BASE, "explain 0%"),
    ],
)
def test_documents_are_read_learned_or_left_alone(changes, mode, reason):
    decision = decide(**changes)
    assert (decision.mode, decision.n_steps) == (mode, None)
    assert reason in "; ".join(decision.reasons)


def test_many_lessons_about_something_else_do_not_make_a_topic():
    lessons = tuple(1 - 0.17 - 0.0035 * n for n in range(50))  # as of a question about bread
    changes = {**TOO_LONG, "variance_read": 0.9, "learn_tokens": (50,) * 50}
    decision = decide(variances_learned=lessons, **changes)
    assert decision.mode is BASE
    assert "explain 20% of the variance at the query, less than 25%" in decision.reasons[0]
    on_topic = tuple(1 - 0.5 - 0.005 * n for n in range(50))
    assert decide(variances_learned=on_topic, **changes).mode is LEARN


def test_many_questions_to_one_fine_tuning_make_it_the_cheaper_way():
    # four steps of .25 s: over 4 questions .25 + 1 / 4 = .5 s, no less than reading; over 5 .45 s
    model = costs(context=0.5, fine_tune=0.25, step=0.25)
    assert decide(cost_model=model, n_questions=4).mode is CONTEXT
    decision = decide(cost_model=model, n_questions=5)
    assert decision.mode is LEARN
    assert "over 5 questions fine-tuning takes 0.45 s an answer, reading 0.5 s" in decision.reasons


@pytest.mark.parametrize(
    ("changes", "mode", "n_steps", "reason"),
    [
        # .1 + 2 · .2 = .5
        ({**TOO_LONG, "latency_s": 0.55}, LEARN, 2, "0.5 s with 2 of 4 training steps, within"),
        ({**TOO_LONG, "latency_s": 0.91}, LEARN, None, "takes 0.9 s, within"),
        (
            {**TOO_LONG, "cost_model": costs(context=0.2, step=0.5), "latency_s": 0.3},
            CONTEXT,
            None,
            "'fine_tune' would take 0.6 s at least",
        ),
        (
            {**TOO_LONG, "cost_model": costs(context=0.2, setup=1.0), "latency_s": 1.0},
            CONTEXT,
            None,
            "'fine_tune' would take 1.3 s at least",
        ),
        ({"latency_s": 0.15}, BASE, None, "'context' would take 0.3 s at least"),
        ({"latency_s": 0.05}, BASE, None, "nothing is quick enough; 'base' is the quickest"),
        ({"latency_s": 0.01, "cost_model": None}, CONTEXT, None, "no cost model"),
    ],
)
def test_the_latency_budget_takes_steps_away_first_and_modes_then(changes, mode, n_steps, reason):
    decision = decide(**{"cost_model": costs(), **changes})
    assert (decision.mode, decision.n_steps) == (mode, n_steps)
    assert reason in "; ".join(decision.reasons)


def test_fine_tuning_stops_where_steps_no_longer_pay():
    # α = 0.5: σ_1 = .775 <= 1 / .5 = 2, σ_2 = .707 <= 1, σ_3 = .671 > 1 / 1.5 = .667: two steps
    decision = decide(VariancePolicy(alpha=0.5), **TOO_LONG)
    assert (decision.mode, decision.n_steps) == (LEARN, 2)
    assert decide(VariancePolicy(alpha=0.1), **TOO_LONG).n_steps is None  # all four
    scaled = {"variance_before": 4.0, "variances_learned": (2.4, 2.0, 1.8, 1.6)}
    decision = decide(VariancePolicy(alpha=0.5), **{**TOO_LONG, "variance_read": 2.8, **scaled})
    assert decision.n_steps == 2  # whatever the scale of embeddings
    assert "2 of 4 training steps pay for their compute" in decision.reasons[-1]
    hasty = decide(VariancePolicy(alpha=0.5), **TOO_LONG, cost_model=costs(), latency_s=0.35)
    assert hasty.n_steps == 1  # the smaller of the two
    assert decide(VariancePolicy(alpha=2.0), **TOO_LONG).mode is CONTEXT  # no step pays


@pytest.mark.parametrize(
    ("make", "wrong", "message"),
    [
        (VariancePolicy, {"min_explained": -0.1}, "min_explained"),
        (VariancePolicy, {"min_explained": float("nan")}, "min_explained"),
        (VariancePolicy, {"enough_read": 2}, "enough_read"),
        (VariancePolicy, {"alpha": 0}, "alpha"),
        (Decision, {"mode": AnswerMode.AUTO, "reasons": ()}, "other than AUTO"),
        (Decision, {"mode": LEARN, "reasons": (), "n_steps": 0}, "n_steps"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(make, wrong, message):
    with pytest.raises(InvalidInputError, match=message):
        make(**wrong)
