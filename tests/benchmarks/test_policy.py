import numpy as np
import pytest

from benchmarks.policy_arms import of_decision, step_counts
from benchmarks.policy_data import Document, is_calibration, some
from benchmarks.policy_scores import interval, mixture, oracle
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


def test_a_lot_never_takes_a_slower_and_worse_way():
    np.testing.assert_allclose(mixture(BITS[:, ::-1], SECONDS, 3.0), [1.0, 1.9])


def test_a_lot_is_never_better_than_the_oracle_in_equal_time():
    generator = np.random.default_rng(0)
    bits, seconds = generator.random((2, 40, 4))
    for mean_s in np.linspace(seconds.mean(axis=0).min(), 1.0, 9):
        best = oracle(bits, seconds, mean_s).mean()
        assert best <= mixture(bits, seconds, mean_s).mean() + 1e-9


def test_an_interval_holds_the_mean_and_is_a_point_where_nothing_varies():
    mean, low, high = interval(np.random.default_rng(0).normal(1.0, 0.5, size=400))
    assert low < mean < high
    assert high - low == pytest.approx(2 * 1.96 * 0.5 / 20, rel=0.15)
    assert interval(np.full(5, 2.0)) == (2.0, 2.0, 2.0)


DOCUMENTS = [
    Document(document_id=f"{domain}{i}", domain=domain, text="x", source=domain)
    for domain, n in (("a", 10), ("b", 4), ("c", 1))
    for i in range(n)
]


def test_half_of_every_domain_calibrates():
    halves = is_calibration(DOCUMENTS)
    counts = {d: sum(halves[o.document_id] for o in DOCUMENTS if o.domain == d) for d in "abc"}
    assert counts == {"a": 5, "b": 2, "c": 1}
    assert is_calibration(DOCUMENTS[::-1]) == halves


def test_some_documents_are_spread_over_the_domains():
    assert sorted(one.domain for one in some(DOCUMENTS, 7)) == ["a", "a", "a", "b", "b", "b", "c"]
    assert some(DOCUMENTS[::-1], 7) == some(DOCUMENTS, 7)


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


def test_what_was_not_measured_is_refused():
    with pytest.raises(ValueError, match="all steps alone"):
        of_decision(ROW, Decision(mode=AnswerMode.BOTH, reasons=(), n_steps=3))


def test_steps_are_measured_after_a_quarter_a_half_and_all():
    assert step_counts(20) == [5, 10, 20]
    assert step_counts(1) == [1]
