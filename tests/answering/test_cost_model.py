import pytest

from sift_core import AnswerMode
from sift_core.answering import FineTuningSettings
from sift_core.answering.policy import CostModel, Strategy, seconds_at
from tests.answering.test_policy import BASE, BOTH, CONTEXT, LEARN, features

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


def test_seconds_are_never_negative():
    assert seconds_at(((10, 1.0), (11, 2.0)), 0) == 0


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
        (AnswerMode.MERGED, 0, 5.4),
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
