import pytest

from sift_core import AnswerMode, InvalidInputError
from sift_core.answering.policy import VariancePolicy, compute_proportional_steps
from sift_core.answering.situation import PredictedSeconds, Situation

MODES = (AnswerMode.BASE, AnswerMode.CONTEXT, AnswerMode.FINE_TUNE, AnswerMode.BOTH)


def seconds(*, base=0.1, context=0.3, fine_tune=0.1, both=0.3, setup=0.0, steps=(0.2,) * 4):
    answer = dict(zip(MODES, (base, context, fine_tune, both), strict=True))
    return PredictedSeconds(answer=answer, setup=setup, steps=steps)


def situation(**changes):
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
    return Situation(**{**arguments, **changes})


def decide(policy=None, **changes):
    return (policy or VariancePolicy()).decide(situation(**changes))


TOO_LONG = {"context_tokens": 901, "read_tokens": 300, "variance_read": 0.7}
HALF_READ = {"context_tokens": 901, "read_tokens": 450, "variance_read": 0.45}


def test_documents_that_fit_are_read():
    decision = decide()
    assert decision.mode is AnswerMode.CONTEXT
    assert decision.n_steps is None
    assert "60% of the variance" in decision.reasons[0]
    assert "100 tokens fit into the 900" in decision.reasons[1]


def test_many_lessons_about_something_else_do_not_make_a_topic():
    lessons = tuple(1 - 0.17 - 0.0035 * n for n in range(50))  # as of a question about bread
    changes = {**TOO_LONG, "variance_read": 0.9, "learn_tokens": (50,) * 50}
    decision = decide(variances_learned=lessons, **changes)
    assert decision.mode is AnswerMode.BASE
    assert "explain 20% of the variance at the query, less than 25%" in decision.reasons[0]
    on_topic = tuple(1 - 0.5 - 0.005 * n for n in range(50))
    assert decide(variances_learned=on_topic, **changes).mode is AnswerMode.FINE_TUNE


def test_exactly_full_still_fits():
    assert decide(context_tokens=900, read_tokens=900).mode is AnswerMode.CONTEXT


def test_documents_that_do_not_fit_are_learned():
    decision = decide(**TOO_LONG)
    assert decision.mode is AnswerMode.FINE_TUNE
    assert "901 tokens exceed the 900" in decision.reasons[1]
    assert "explain 30% of the variance, not 90% of the 60%" in decision.reasons[2]


def test_what_fits_is_read_where_it_explains_nearly_as_much_as_learning():
    decision = decide(**HALF_READ)  # 55 % of 60 %: more than nine tenths
    assert decision.mode is AnswerMode.CONTEXT
    assert "explain 55% of the variance, at least 90%" in decision.reasons[2]


def test_documents_off_the_topic_are_left_alone():
    decision = decide(variance_read=0.8, variances_learned=(0.8,) * 4)  # 20 %, less than 25 %
    assert decision.mode is AnswerMode.BASE
    assert "20%" in decision.reasons[0]
    assert "off the topic" in decision.reasons[0]


def test_a_question_without_prior_variance_is_base():
    nothing = {"variance_before": 0.0, "variance_read": 0.0, "variances_learned": (0.0,) * 4}
    assert decide(**nothing).mode is AnswerMode.BASE


def test_no_documents_at_all_means_base():
    nothing = {"variances_learned": (), "learn_tokens": (), "context_tokens": 0, "read_tokens": 0}
    assert decide(variance_read=1.0, **nothing).mode is AnswerMode.BASE


def test_nothing_to_learn_from_leaves_reading():
    nothing = {"variances_learned": (), "learn_tokens": ()}
    assert decide(**{**TOO_LONG, **nothing}).mode is AnswerMode.CONTEXT


def test_no_room_leaves_learning():
    decision = decide(read_tokens=0, room=-5, variance_read=1.0)
    assert decision.mode is AnswerMode.FINE_TUNE
    assert "exceed the 0" in decision.reasons[1]


def test_many_questions_to_one_fine_tuning_make_it_the_cheaper_way():
    # four steps of .25 s: over 4 questions .25 + 1 / 4 = .5 s, no less than reading; over 5 .45 s
    costs = seconds(context=0.5, fine_tune=0.25, steps=(0.25,) * 4)
    assert decide(seconds=costs, n_questions=4).mode is AnswerMode.CONTEXT
    decision = decide(seconds=costs, n_questions=5)
    assert decision.mode is AnswerMode.FINE_TUNE
    assert "over 5 questions fine-tuning takes 0.45 s an answer, reading 0.5 s" in decision.reasons


def test_chunks_that_fit_but_explain_too_little_are_not_read():
    decision = decide(variance_read=0.8)
    assert decision.mode is AnswerMode.FINE_TUNE
    assert "what would be read explains 20% alone" in decision.reasons


def test_the_latency_budget_takes_steps_away_first():
    decision = decide(**TOO_LONG, seconds=seconds(), latency_s=0.55)  # .1 + 2 · .2 = .5
    assert decision.mode is AnswerMode.FINE_TUNE
    assert decision.n_steps == 2
    assert "takes 0.5 s with 2 of 4 training steps, within the 0.55 s" in decision.reasons[-1]


def test_a_budget_that_all_steps_keep_takes_none_away():
    decision = decide(**TOO_LONG, seconds=seconds(), latency_s=0.91)
    assert (decision.mode, decision.n_steps) == (AnswerMode.FINE_TUNE, None)


def test_a_budget_too_short_for_one_step_means_the_next_way():
    slow = seconds(context=0.2, steps=(0.5,) * 4)
    decision = decide(**TOO_LONG, seconds=slow, latency_s=0.3)
    assert decision.mode is AnswerMode.CONTEXT
    assert any("'fine_tune' would take 0.6 s at least" in reason for reason in decision.reasons)


def test_the_time_to_set_an_adapter_up_counts():
    slow = seconds(context=0.2, setup=1.0)
    assert decide(**TOO_LONG, seconds=slow, latency_s=1.0).mode is AnswerMode.CONTEXT


def test_a_budget_too_short_for_documents_means_base():
    assert decide(seconds=seconds(), latency_s=0.15).mode is AnswerMode.BASE


def test_a_budget_too_short_for_anything_means_the_quickest_and_says_so():
    decision = decide(seconds=seconds(), latency_s=0.05)
    assert decision.mode is AnswerMode.BASE
    assert "nothing is quick enough; 'base' is the quickest" in decision.reasons


def test_a_budget_without_a_cost_model_changes_nothing_and_says_so():
    decision = decide(latency_s=0.01)
    assert decision.mode is AnswerMode.CONTEXT
    assert "no cost model" in decision.reasons[-1]


def test_compute_proportional_steps_by_hand():
    # α = 0.5: σ_1 = .775 <= 1 / .5 = 2, σ_2 = .707 <= 1, σ_3 = .671 > 1 / 1.5 = .667: two steps
    assert compute_proportional_steps(situation(), 0.5) == 2
    assert compute_proportional_steps(situation(), 0.1) == 4
    assert compute_proportional_steps(situation(), 2.0) == 0


def test_compute_proportional_steps_do_not_depend_on_the_scale_of_embeddings():
    scaled = situation(variance_before=4.0, variances_learned=(2.4, 2.0, 1.8, 1.6))
    assert compute_proportional_steps(scaled, 0.5) == 2


def test_fine_tuning_stops_where_steps_no_longer_pay():
    decision = decide(VariancePolicy(alpha=0.5), **TOO_LONG)
    assert (decision.mode, decision.n_steps) == (AnswerMode.FINE_TUNE, 2)
    assert "2 of 4 training steps pay for their compute" in decision.reasons[-1]


def test_the_smaller_of_budget_and_paying_steps_is_taken():
    decision = decide(VariancePolicy(alpha=0.5), **TOO_LONG, seconds=seconds(), latency_s=0.35)
    assert decision.n_steps == 1


def test_fine_tuning_of_which_no_step_pays_is_not_chosen():
    assert decide(VariancePolicy(alpha=2.0), **TOO_LONG).mode is AnswerMode.CONTEXT


@pytest.mark.parametrize(
    "options",
    [
        {"min_explained": -0.1},
        {"min_explained": 1.1},
        {"min_explained": float("nan")},
        {"enough_read": 2},
        {"alpha": 0},
        {"alpha": float("nan")},
    ],
    ids=str,
)
def test_an_option_out_of_range_is_refused(options):
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        VariancePolicy(**options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variance_before": float("nan")}, "variances must be finite"),
        ({"variances_learned": (-1.0,) * 4}, "variances must be finite"),
        ({"learn_tokens": (50,)}, "one number a step"),
        ({"read_tokens": 101}, "at most `context_tokens`"),
        ({"seconds": seconds(steps=())}, "0 for 4 steps"),
        ({"latency_s": 0}, "latency_s"),
        ({"n_questions": 0}, "n_questions"),
    ],
    ids=str,
)
def test_a_situation_that_cannot_be_is_refused(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        situation(**changes)


def test_seconds_must_be_there_for_every_mode():
    with pytest.raises(InvalidInputError, match="both"):
        PredictedSeconds(answer=dict.fromkeys(MODES[:3], 1.0))
