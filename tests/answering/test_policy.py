from dataclasses import replace

import pytest

from sift_core import AnswerMode, InvalidInputError
from sift_core.answering import FineTuningSettings
from sift_core.answering.cost_model import CostModel, PolicyFeatures, Strategy, seconds_at
from sift_core.answering.policy import CalibratedPolicy, Decision, VariancePolicy

BASE, CONTEXT, LEARN, BOTH = (AnswerMode(m) for m in ("base", "context", "fine_tune", "both"))


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


def decide(policy=None, *, cost_model=None, **changes):
    policy = replace(policy or VariancePolicy(), cost_model=cost_model)
    return policy.decide(features(**changes))


TOO_LONG = {"context_tokens": 901, "read_tokens": 300, "variance_read": 0.7}
NO_LESSONS = {"variances_learned": (), "learn_tokens": ()}
NO_ROOM = {"read_tokens": 0, "room": -5, "variance_read": 1.0}


@pytest.mark.parametrize(
    ("changes", "mode", "reason"),
    [
        ({}, CONTEXT, "100 tokens fit into the 900"),
        ({"context_tokens": 900, "read_tokens": 900}, CONTEXT, "900 tokens fit into the 900"),
        (TOO_LONG, LEARN, "901 tokens exceed the 900"),
        ({**TOO_LONG, **NO_LESSONS}, CONTEXT, "901 tokens exceed the 900"),
        (NO_ROOM, LEARN, "100 tokens exceed the 0"),
        ({"variance_read": 0.8}, CONTEXT, "what is read explains 20%"),
        # 20 %, less than 25 %
        ({"variance_read": 0.8, "variances_learned": (0.8,) * 4}, BASE, "off the topic"),
        ({**NO_LESSONS, **NO_ROOM, "context_tokens": 0}, BASE, "off the topic"),
        ({"variance_before": 0.0, "variance_read": 0.0}, BASE, "explain 0%"),
    ],
)
def test_documents_are_read_where_they_fit_and_learned_where_not(changes, mode, reason):
    decision = decide(**changes)
    assert (decision.mode, decision.n_steps) == (mode, None)
    assert reason in "; ".join(decision.reasons)


def test_where_nothing_learns_what_fits_is_read_and_the_topic_is_told_alike():
    for policy in (VariancePolicy(), calibrated()):
        assert decide(policy, can_learn=False, has_adapter=True, **TOO_LONG).mode is CONTEXT
        assert decide(policy, can_learn=False, **NO_ROOM).mode is BASE
        # What is read explains 20 %, and the lessons 60 %: on the topic all the same.
        assert decide(policy, can_learn=False, variance_read=0.8).mode is CONTEXT
        off = decide(policy, can_learn=False, variance_read=0.8, variances_learned=(0.8,) * 4)
        assert off.is_off_topic


def test_many_lessons_about_something_else_do_not_make_a_topic():
    lessons = tuple(1 - 0.17 - 0.0035 * n for n in range(50))  # as of a question about bread
    changes = {**TOO_LONG, "variance_read": 0.9, "learn_tokens": (50,) * 50}
    decision = decide(variances_learned=lessons, **changes)
    assert decision.mode is BASE
    assert "explain 20% of the variance at the query, less than 25%" in decision.reasons[0]
    on_topic = tuple(1 - 0.5 - 0.005 * n for n in range(50))
    assert decide(variances_learned=on_topic, **changes).mode is LEARN


@pytest.mark.parametrize(
    ("changes", "mode", "n_steps", "reason"),
    [
        # .1 + 2 · .2 = .5
        ({**TOO_LONG, "latency_s": 0.55}, LEARN, 2, "4 steps would take 0.9 s, more than the 0.55"),
        ({**TOO_LONG, "latency_s": 0.91}, LEARN, None, "901 tokens exceed"),
        (
            {**TOO_LONG, "cost_model": costs(context=0.2, step=0.5), "latency_s": 0.3},
            CONTEXT,
            None,
            "would take 2.1 s, more than the 0.3 s",
        ),
        (
            {**TOO_LONG, "cost_model": costs(context=0.2, setup=1.0), "latency_s": 1.0},
            CONTEXT,
            None,
            "would take 1.9 s, more than the 1 s",
        ),
        ({"latency_s": 0.15}, BASE, None, "context would take 0.3 s, more than the 0.15 s"),
        ({"latency_s": 0.05}, BASE, None, "nothing is quick enough for the 0.05 s"),
        ({"latency_s": 0.01, "cost_model": None}, CONTEXT, None, "no cost model"),
    ],
)
def test_the_latency_budget_takes_steps_away_first_and_modes_then(changes, mode, n_steps, reason):
    decision = decide(**{"cost_model": costs(), **changes})
    assert (decision.mode, decision.n_steps) == (mode, n_steps)
    assert reason in "; ".join(decision.reasons)


QUICK, WHOLE, LEARNED = Strategy(LEARN, 2), Strategy(LEARN, 4), Strategy(AnswerMode.LEARNED)
SAVED = {
    LEARNED: 0.35,
    Strategy(BOTH, 4): 0.3,
    QUICK: 0.249,
    WHOLE: 0.25,  # behind QUICK, which is quicker
    Strategy(CONTEXT): 0.2,
    Strategy(BASE): 0.0,
}


def calibrated(**options):
    return CalibratedPolicy(saved=SAVED, n_examples=40, **options)


@pytest.mark.parametrize(
    ("changes", "strategy", "reason"),
    [
        (
            {},
            Strategy(BOTH, 4),
            "both, 4 steps saved 30.0% of the base model's bits on 40 examples",
        ),
        ({"has_adapter": True}, LEARNED, "learned saved 35.0%"),
        # without candidates that fit there is nothing to read
        (NO_ROOM, QUICK, "fine_tune, 2 steps saved 24.9%"),
        (
            {**NO_ROOM, "variances_learned": (0.6,), "learn_tokens": (50,)},
            Strategy(BASE),
            "base saved 0.0%",
        ),
        (
            {**NO_ROOM, "variances_learned": (0.6, 0.5), "learn_tokens": (50, 50)},
            QUICK,
            "what is learned explains 50%",
        ),
        ({"latency_s": 0.55}, QUICK, "both, 4 steps would take 0.9 s, more than the 0.55 s"),
        ({"latency_s": 0.35}, Strategy(CONTEXT), "context saved 20.0%"),
        ({"latency_s": 0.01}, Strategy(BASE), "nothing is quick enough"),
        (
            {"variance_read": 0.8, "variances_learned": (0.8,) * 4, "has_adapter": True},
            Strategy(BASE),
            "off the topic",
        ),
    ],
)
def test_a_calibrated_policy_takes_the_first_strategy_that_there_is(changes, strategy, reason):
    decision = decide(calibrated(), **{"cost_model": costs(), **changes})
    n_learned = decision.n_steps or (features(**changes).n_steps if strategy.n_steps else 0)
    assert (decision.mode, n_learned) == (strategy.mode, strategy.n_steps)
    assert decision.answer_s == (0.0 if decision.is_off_topic else pytest.approx(0.2, abs=0.1))
    assert reason in "; ".join(decision.reasons)


def test_a_question_that_is_shorter_than_all_that_were_measured_is_read_for():
    """Passages that were held back say nothing of questions: both were measured to differ."""
    decision = decide(calibrated(shortest=21))
    assert (decision.mode, decision.is_off_topic) == (CONTEXT, False)
    assert "no question as short as this one of 20 tokens" in decision.reasons[-1]
    assert decide(calibrated(shortest=20)).mode is BOTH


@pytest.mark.parametrize(
    ("make", "wrong", "message"),
    [
        (VariancePolicy, {"min_explained": -0.1}, "min_explained"),
        (VariancePolicy, {"min_explained": float("nan")}, "min_explained"),
        (VariancePolicy, {"on_off_topic": "ignore"}, "on_off_topic"),
        (Decision, {"mode": AnswerMode.AUTO, "reasons": ()}, "other than AUTO"),
        (Decision, {"mode": LEARN, "reasons": (), "n_steps": 0}, "n_steps"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(make, wrong, message):
    with pytest.raises(InvalidInputError, match=message):
        make(**wrong)


BY_HAND = CostModel(
    prefill=((10, 1.0), (20, 2.0), (40, 6.0)),
    adapted_prefill=((10, 2.0), (20, 4.0)),
    step=((10, 3.0), (20, 5.0)),
    new_token_s=0.5,
    adapted_new_token_s=0.6,
    setup_s=0.25,
)


@pytest.mark.parametrize(
    ("n_tokens", "expected"),
    [(10, 1.0), (15, 1.5), (20, 2.0), (30, 4.0), (40, 6.0), (50, 8.0), (5, 0.5), (0, 0.0)],
)
def test_seconds_lie_on_the_broken_line(n_tokens, expected):
    assert seconds_at(BY_HAND.prefill, n_tokens) == pytest.approx(expected)
    assert seconds_at(((10, 1.0), (11, 2.0)), 0) == 0  # never negative


def test_predictions_by_hand():
    tokens = {"question_tokens": 15, "read_tokens": 15, "max_new_tokens": 4}
    known = features(learn_tokens=(10, 15, 10), variances_learned=(1.0,) * 3, **tokens)
    answers = {mode: BY_HAND.answer_s(known, mode) for mode in (BASE, CONTEXT, LEARN, BOTH)}
    expected = {BASE: 1.5 + 2.0, CONTEXT: 4.0 + 2.0, LEARN: 3.0 + 2.4, BOTH: 6.0 + 2.4}
    assert answers == pytest.approx(expected)
    for mode, n_steps, seconds in (
        (LEARN, 3, 5.4 + 0.25 + 3 + 4 + 3),
        (LEARN, 1, 5.4 + 0.25 + 3),
        (CONTEXT, 0, 6.0),
        (BOTH, 3, 8.4 + 10.25),
        (AnswerMode.LEARNED, 0, 5.4),
    ):
        assert BY_HAND.seconds(known, Strategy(mode, n_steps)) == pytest.approx(seconds)


def test_a_model_is_measured_and_left_as_it_was(random_lm):
    before = random_lm.bits_per_byte("what it was")
    settings = FineTuningSettings(max_seconds=1e-9)
    costs = CostModel.measure(random_lm, settings, aim_s=0)
    # 1/16, 1/4 and all of a window of 64; without time for the third
    assert [n for n, _ in costs.step] == [4, 16]
    assert costs.step[0][1] > 0
    assert costs.setup_s > 0
    assert costs.prefill[0][1] > 0
    assert random_lm.bits_per_byte("what it was") == before
