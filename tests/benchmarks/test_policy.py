import numpy as np
import pytest

from benchmarks.policy_arms import of_decision
from benchmarks.policy_scores import mixture, oracle
from sift_core import AnswerMode
from sift_core.answering.policy import Decision

# Two documents; learning takes 3 s, and pays for the first alone.
BITS = np.array([[2.0, 1.0], [2.0, 1.9]])
SECONDS = np.array([[1.0, 3.0], [1.0, 3.0]])


@pytest.mark.parametrize(
    ("mean_s", "expected"),
    [
        (1.0, [2.0, 2.0]),
        (2.0, [1.0, 2.0]),  # the document that gains more goes first
        (3.0, [1.0, 1.9]),
        (1.5, [1.5, 2.0]),  # half way between two prices
        (0.1, [2.0, 2.0]),
        (9.0, [1.0, 1.9]),
    ],
)
def test_the_oracle_spends_time_where_it_brings_most(mean_s, expected):
    np.testing.assert_allclose(oracle(BITS, SECONDS, mean_s), expected)


@pytest.mark.parametrize(
    ("mean_s", "expected"),
    [(1.0, [2.0, 2.0]), (2.0, [1.5, 1.95]), (3.0, [1.0, 1.9]), (0.1, [2.0, 2.0])],
)
def test_a_lot_spends_time_without_looking(mean_s, expected):
    np.testing.assert_allclose(mixture(BITS, SECONDS, mean_s), expected)


def test_a_lot_is_never_better_than_the_oracle_in_equal_time():
    generator = np.random.default_rng(0)
    bits, seconds = generator.random((2, 40, 4))
    for mean_s in np.linspace(seconds.mean(axis=0).min(), 1.0, 9):
        best = oracle(bits, seconds, mean_s).mean()
        assert best <= mixture(bits, seconds, mean_s).mean() + 1e-9


def arm(bits, seconds):
    return {"bits_per_byte": bits, "seconds": seconds}


ROW = {
    "features": {"learn_tokens": [9] * 8},
    "arms": {
        "base": arm(2.0, 0.5),
        "context": arm(1.5, 0.7),
        "fine_tune 2": arm(1.8, 1.0),
        "fine_tune 4": arm(1.7, 2.0),
        "fine_tune 8": arm(1.6, 4.0),
        "both": arm(1.4, 5.0),
    },
}


@pytest.mark.parametrize(
    ("mode", "n_steps", "bits", "seconds"),
    [
        (AnswerMode.BASE, None, 2.0, 0.5),
        (AnswerMode.CONTEXT, None, 1.5, 0.7),
        (AnswerMode.FINE_TUNE, None, 1.6, 4.0),
        (AnswerMode.BOTH, None, 1.4, 5.0),
        (AnswerMode.FINE_TUNE, 4, 1.7, 2.0),
        (AnswerMode.FINE_TUNE, 3, 1.75, 1.5),
        (AnswerMode.FINE_TUNE, 1, 1.9, 0.75),
    ],
)
def test_a_decision_costs_what_was_measured_or_what_lies_between(mode, n_steps, bits, seconds):
    outcome = of_decision(ROW, Decision(mode=mode, reasons=(), n_steps=n_steps))
    assert outcome.bits_per_byte == pytest.approx(bits)
    assert outcome.seconds == pytest.approx(seconds)
