import json
from dataclasses import replace

import numpy as np
import pytest

from sift_core import InvalidInputError
from sift_core.answering.learned_policy import (
    INPUTS,
    MIN_EXAMPLES,
    PENALTIES,
    CalibrationExample,
    LearnedPolicy,
    Ridge,
    inputs_of,
)
from sift_core.answering.policy import MODES, PolicyFeatures, PredictedSeconds

BASE, CONTEXT, LEARN, BOTH = MODES
SECONDS = PredictedSeconds(
    answer={BASE: 0.1, CONTEXT: 0.2, LEARN: 0.1, BOTH: 0.2}, setup=0.1, steps=(0.4, 0.4)
)


def features(read=0.5, learned=0.5, **changes):
    """Return what is known where reading and learning explain these shares."""
    arguments = {
        "variance_before": 1.0,
        "variance_read": 1 - read,
        "variances_learned": (1 - learned / 2, 1 - learned),
        "question_tokens": 100,
        "context_tokens": 300,
        "read_tokens": 300,
        "room": 500,
        "learn_tokens": (200, 200),
        "max_new_tokens": 0,
    }
    return PolicyFeatures(**{**arguments, **changes})


@pytest.fixture(scope="module")
def examples():
    """Reading gains half of what it explains, learning .3 of what it explains."""
    generator = np.random.default_rng(0)
    made = []
    for read, learned in generator.random((60, 2)):
        noise = generator.normal(scale=0.01, size=2)
        gained = {CONTEXT: -0.5 * read + noise[0], LEARN: -0.3 * learned + noise[1]}
        made.append(
            CalibrationExample(
                features=features(read, learned),
                bits_per_byte={BASE: 2.0, **{mode: 2.0 + g for mode, g in gained.items()}},
            )
        )
    return made


@pytest.fixture(scope="module")
def policy(examples):
    return LearnedPolicy.fit(examples)


def test_the_rule_behind_the_examples_is_found_and_decided_by(policy):
    predicted = policy.predict(features(0.8, 0.4))
    assert predicted == pytest.approx({BASE: 0, CONTEXT: -0.4, LEARN: -0.12}, abs=0.02)
    decision = policy.decide(features(0.8, 0.4))
    assert decision.mode is CONTEXT
    assert decision.reasons[0].startswith("'context' is predicted to take -0.4")
    assert decision.reasons[1].startswith("'fine_tune' is predicted to take -0.1")
    assert decision.reasons[2].startswith("'base'")
    assert policy.decide(features(0.1, 0.9)).mode is LEARN


def test_documents_that_harm_are_left_alone(examples):
    harmful = [
        replace(e, bits_per_byte={m: 4.0 - b for m, b in e.bits_per_byte.items()}) for e in examples
    ]
    assert LearnedPolicy.fit(harmful).decide(features(0.8, 0.9)).mode is BASE


def test_a_price_on_time_makes_the_quicker_mode_pay(policy):
    dear = replace(policy, price_per_second=0.3)
    timed = features(0.1, 0.9, seconds=SECONDS)
    # learning: -.27 + .3 · 1 s > 0 = base's before its own .03
    decision = dear.decide(timed)
    assert decision.mode in (BASE, CONTEXT)
    assert "1 s cost 0.300 at 0.3 a second" in " ".join(decision.reasons)
    assert policy.decide(timed).mode is LEARN
    assert dear.decide(replace(timed, n_questions=20)).mode is LEARN  # they share the price
    unknown = dear.decide(features(0.1, 0.9))
    assert unknown.mode is LEARN
    assert "time has no price" in unknown.reasons[-1]


def test_the_latency_budget_takes_steps_away_and_the_prediction_follows(policy):
    # .1 + .1 + .4 = .6 s: one step, which explains .45
    decision = policy.decide(features(0.05, 0.9, seconds=SECONDS, latency_s=0.7))
    assert (decision.mode, decision.n_steps) == (LEARN, 1)
    (words,) = (reason for reason in decision.reasons if "'fine_tune' is predicted" in reason)
    assert float(words.split()[5]) > policy.predict(features(0.05, 0.9))[LEARN] + 0.05
    shorter = policy.decide(features(0.1, 0.9, seconds=SECONDS, latency_s=0.5))
    assert shorter.mode is CONTEXT
    assert any("'fine_tune' would take 0.6 s at least" in reason for reason in shorter.reasons)


def test_a_mode_without_chunks_is_never_chosen(policy):
    assert policy.decide(features(0.9, 0.1, read_tokens=0)).mode is LEARN
    nothing_learned = features(0.1, 0.0, variances_learned=(), learn_tokens=())
    assert policy.decide(nothing_learned).mode is CONTEXT


def test_a_mode_of_too_few_examples_is_not_learned(examples):
    only_some = [
        replace(e, bits_per_byte={BASE: 2.0, CONTEXT: 1.9, **({LEARN: 0.1} if i < 5 else {})})
        for i, e in enumerate(examples)
    ]
    assert set(LearnedPolicy.fit(only_some).gains) == {CONTEXT}
    with pytest.raises(InvalidInputError, match=f"at least {MIN_EXAMPLES} examples, got 3"):
        LearnedPolicy.fit(examples[:3])


@pytest.mark.parametrize("bits", [{CONTEXT: 1.0}, {BASE: float("nan")}], ids=str)
def test_examples_need_base_and_finite_numbers(bits):
    with pytest.raises(InvalidInputError, match="bits_per_byte"):
        CalibrationExample(features=features(), bits_per_byte=bits)


def test_a_prediction_stays_within_what_was_seen(policy):
    ridge = policy.gains[CONTEXT]
    far = features(1.0, 1.0, question_tokens=10**9, read_tokens=0, context_tokens=0)
    assert ridge.low <= ridge.predict(inputs_of(far)) <= ridge.high
    assert ridge.predict(np.full(len(INPUTS), -1e9)) in (ridge.low, ridge.high)


def test_a_saved_policy_decides_as_before(policy, tmp_path):
    priced = replace(policy, price_per_second=0.02)
    priced.save(tmp_path / "policy.json")
    assert LearnedPolicy.load(tmp_path / "policy.json") == priced


@pytest.mark.parametrize(
    "spoil",
    [
        lambda record: record.pop("gains"),
        lambda record: record.update(format=99),
        lambda record: record.update(features=["other"]),
        lambda record: record.update(gains={"auto": record["gains"]["context"]}),
        lambda record: record["gains"]["context"].update(weights=[1.0]),
        lambda record: record["gains"]["context"].update(intercept="nan"),
        lambda record: record["gains"]["context"].update(error=None),
        lambda record: record.update(price_per_second=-1),
        lambda record: record.update(gains=3),
    ],
)
def test_a_spoilt_file_is_refused(policy, tmp_path, spoil):
    path = tmp_path / "policy.json"
    with pytest.raises(InvalidInputError, match=r"policy\.json holds no policy"):
        LearnedPolicy.load(path)  # not there yet
    policy.save(path)
    record = json.loads(path.read_text())
    spoil(record)
    path.write_text(json.dumps(record))
    with pytest.raises(InvalidInputError, match="no policy that this version can read"):
        LearnedPolicy.load(path)


def ridge_by_normal_equations(inputs, values, penalty):
    """Return intercept and weights of the scaled problem, the mean unpenalised."""
    n, d = inputs.shape
    design = np.column_stack([np.ones(n), inputs])
    return np.linalg.solve(
        design.T @ design + penalty * np.diag([0.0] + [1.0] * d), design.T @ values
    )


def test_leaving_one_out_equals_fitting_without_it():
    generator = np.random.default_rng(1)
    inputs = generator.standard_normal((25, 3))
    inputs = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    values = inputs @ [1.0, -0.5, 0.0] + generator.normal(scale=2.0, size=25)
    errors = {}
    for penalty in PENALTIES:
        residuals = []
        for i in range(25):
            kept = np.arange(25) != i
            solved = ridge_by_normal_equations(inputs[kept], values[kept], 25 * penalty)
            residuals.append(values[i] - solved[0] - inputs[i] @ solved[1:])
        errors[penalty] = float(np.sqrt(np.mean(np.square(residuals))))
    ridge = Ridge.fit(inputs, values)
    assert ridge.error == pytest.approx(min(errors.values()), rel=1e-9)
    solved = ridge_by_normal_equations(inputs, values, 25 * min(errors, key=errors.get))
    np.testing.assert_allclose([ridge.intercept, *ridge.weights], solved, rtol=1e-8)


def test_noise_alone_teaches_the_mean_and_constants_get_no_weight():
    generator = np.random.default_rng(2)
    inputs = np.column_stack([generator.standard_normal(200), np.full(200, 7.0)])
    values = generator.normal(loc=3.0, size=200)
    ridge = Ridge.fit(inputs, values)
    assert ridge.weights[1] == 0
    assert ridge.predict(np.array([0.5, 7.0])) == pytest.approx(values.mean(), abs=0.05)
