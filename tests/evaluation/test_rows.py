from __future__ import annotations

import json

import numpy as np
import pytest

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.rows import Results, arm_label
from sift_core.evaluation.language_modeling.arms import BASE, learning, reading
from tests.evaluation.synthetic import prompt, results_of_percents, row, rows_of_percents

SIFT = learning("SIFT", 0.1)
NN = learning("NN")
BOOK, CODE = prompt("b"), prompt("c", "code", near_duplicate=0.4)


def test_percent_of_base_is_of_the_last_step_and_the_own_prompt():
    rows = [row(BOOK, BASE, 2.0), row(CODE, BASE, 1.0)]
    rows += [row(BOOK, SIFT, [2.0, 1.8, 1.5]), row(CODE, SIFT, [1.0, 1.1])]
    assert Results.from_rows(rows).percent_of_base(SIFT) == pytest.approx({"b": 75.0, "c": 110.0})


def test_rows_read_from_json_belong_to_the_arm_they_were_written_for():
    rows = json.loads(json.dumps(rows_of_percents([BOOK], {SIFT: [90.0], NN: [95.0]})))
    results = Results.from_rows(rows)
    assert [arm_label(arm) for arm in results.arms] == ["base", "SIFT(0.1)", "NN"]
    assert results.percent_of_base(NN) == {"b": 95.0}
    assert results.percent_of_base(NN.as_record()) == {"b": 95.0}
    assert results.arms_where(selector="NN") == (NN.as_record(),)
    assert results.arms_where(selector="US") == ()


def test_labels():
    assert arm_label(reading("SIFT", 0.01)) == "context SIFT(0.01)"
    assert arm_label(learning("other prompt", 0.1)) == "other prompt"


def test_the_last_of_equal_rows_counts():
    rows = [row(BOOK, BASE, 2.0), row(BOOK, NN, [2.0, 1.0]), row(BOOK, NN, [2.0, 1.5])]
    assert Results.from_rows(rows).percent_of_base(NN) == {"b": 75.0}


def test_rows_are_in_the_order_of_the_prompts():
    rows = [row(BOOK, BASE, 2.0), row(CODE, BASE, 1.0)]
    rows += [row(CODE, NN, [1.0, 1.0]), row(BOOK, NN, [2.0, 1.0])]
    assert list(Results.from_rows(rows).rows_of(NN)) == ["b", "c"]


def test_a_prompt_without_a_base_row_has_no_percent():
    rows = [row(BOOK, BASE, 2.0), row(BOOK, NN, [2.0, 1.0]), row(CODE, NN, [1.0, 1.0])]
    results = Results.from_rows(rows)
    assert list(results.rows_of(NN)) == ["b", "c"]
    assert list(results.percent_of_base(NN)) == ["b"]


def test_a_curve_carries_on_what_ended_early_and_bridges_what_was_not_scored():
    rows = [row(BOOK, BASE, 2.0), row(CODE, BASE, 1.0)]
    rows.append(row(BOOK, SIFT, [2.0, 1.8, 1.6, 1.0], steps=[0, 1, 2, 10]))
    rows.append(row(CODE, SIFT, [1.0, 0.7], steps=[0, 3]))
    curve = Results.from_rows(rows).curve(SIFT)
    assert curve.steps.tolist() == [0, 1, 2, 10]
    assert curve.prompt_ids == ("b", "c")
    np.testing.assert_allclose(curve.bits_per_byte, [[2, 1.8, 1.6, 1], [1, 0.9, 0.8, 0.7]])
    np.testing.assert_allclose(curve.percent, [[100, 90, 80, 50], [100, 90, 80, 70]])


def test_a_curve_has_the_steps_that_all_long_rows_have():
    rows = [row(BOOK, BASE, 2.0), row(CODE, BASE, 2.0)]
    rows.append(row(BOOK, NN, [2.0, 1.5, 1.0], steps=[0, 5, 10]))
    rows.append(row(CODE, NN, [2.0, 1.6, 1.0], steps=[0, 4, 10]))
    assert Results.from_rows(rows).curve(NN).steps.tolist() == [0, 10]


def test_filters_keep_the_arms_and_prompts_that_are_left():
    results = results_of_percents([BOOK, CODE], {NN: [90.0, 80.0], SIFT: [70.0, None]})
    code = results.of_domains(["code"])
    assert list(code.prompts) == ["c"]
    assert [arm_label(arm) for arm in code.arms] == ["base", "NN"]
    assert list(results.with_near_duplicates(0.4).prompts) == ["c"]
    assert results.domains == ("books", "code")


def test_a_share_that_nobody_measured_is_on_neither_side():
    clean = prompt("d", near_duplicate=0.0)
    results = results_of_percents([BOOK, CODE, clean], {NN: [90.0, 80.0, 70.0]})
    assert list(results.without_near_duplicates(0.3).prompts) == ["d"]
    assert list(results.with_near_duplicates(0.3).prompts) == ["c"]
    with pytest.raises(InvalidInputError, match="measured for 2 of 3 prompts"):
        results.with_near_duplicates(0.9)


def test_a_share_that_a_later_run_names_counts_for_the_prompt():
    rows = rows_of_percents([prompt("b")], {NN: [90.0]})
    rows.append(row(prompt("b", near_duplicate=0.5), SIFT, [2.0, 1.0]))
    results = Results.from_rows(rows)
    assert results.prompts["b"].near_duplicate == 0.5
    assert Results.from_rows(rows[::-1]).prompts["b"].near_duplicate == 0.5
    assert results.with_near_duplicates().percent_of_base(NN) == {"b": 90.0}


def test_one_experiment_at_a_time():
    rows = [
        {"kind": "experiment", "experiment": "e2", "configuration": {"chunk_tokens": 256}},
        row(BOOK, BASE, 2.0),
        row(BOOK, BASE, 3.0, experiment="e2"),
    ]
    with pytest.raises(InvalidInputError, match=r"name one of: e1 \(1 rows\), e2 \(1 rows\)"):
        Results.from_rows(rows)
    second = Results.from_rows(rows, "e2")
    assert second.base()["b"].last_bits_per_byte == 3.0
    assert second.configuration["configuration"] == {"chunk_tokens": 256}
    with pytest.raises(InvalidInputError, match="'e3'"):
        Results.from_rows(rows, "e3")


def test_unique_documents_are_counted_once():
    made = row(BOOK, SIFT, [2.0, 1.0], chosen=["x#1", "x#2", "x#1"], variances=[1, 0.5, 0.4, 0.3])
    assert Results.from_rows([made]).rows_of(SIFT)["b"].n_unique == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": [0]}, "of one length"),
        ({"steps": [1, 0]}, "must increase"),
        ({"bits_per_byte": [2.0, float("nan")]}, "finite"),
        ({"bits_per_byte": [2.0, None]}, "finite"),
        ({"bits_per_byte": [2.0, -1.0]}, ">= 0"),
        ({"variances": [1.0, 0.5]}, "one more than `chosen`"),
        ({"prompt": {"id": "b"}}, "cannot be read.*domain"),
        ({"prompt": prompt("b", n_bytes=0)}, "n_bytes"),
        ({"arm": None}, "cannot be read"),
        ({"arm": {**NN.as_record(), "n_steps": [50]}}, "'n_steps' must be a text or a number"),
        ({"arm": {**NN.as_record(), "scope": {"a": 1}}}, "'scope' must be a text or a number"),
        ({"arm": {**NN.as_record(), "selector": 3}}, "mode and selector must be texts"),
        ({"arm": {"mode": "fine_tune", "selector": "NN"}}, "lacks .*another version"),
        ({"steps": [0, 0.5]}, "must be whole numbers"),
        ({"steps": [0, 1e300]}, "must be whole numbers"),
        ({"chosen": ["a"], "variances": [1.0, float("inf")]}, "`variances` .*finite"),
        ({"similarities": [float("inf")]}, "`similarities` .*finite"),
        ({"prompt": prompt("b", near_duplicate=1.5)}, "`near_duplicate`"),
        ({"prompt": {**prompt("b"), "n_bytes": float("inf")}}, "cannot be read"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(change, message):
    good = row(BOOK, BASE, 2.0)
    bad = {**row(BOOK, NN, [2.0, 1.0]), **change}
    with pytest.raises(InvalidInputError, match=f"result row 1.*{message}"):
        Results.from_rows([good, bad])


def test_what_is_missing_is_said_with_what_is_there():
    with pytest.raises(InvalidInputError, match="sift eval"):
        Results.from_rows([])
    without_base = Results.from_rows([row(BOOK, NN, [2.0, 1.0])])
    with pytest.raises(InvalidInputError, match=r"no base row.*fine_tune.*sift eval"):
        without_base.percent_of_base(NN)
    results = results_of_percents([BOOK], {NN: [90.0]})
    with pytest.raises(InvalidInputError, match=r"SIFT.*measured were: base, NN\..*sift eval"):
        results.rows_of(SIFT)
    with pytest.raises(InvalidInputError, match=r"\['news'\]; there are \['books'\]"):
        results.of_domains(["news"])
    elsewhere = Results.from_rows([row(CODE, BASE, 1.0), row(BOOK, NN, [2.0, 1.0])])
    with pytest.raises(InvalidInputError, match="none of the 1 prompts of NN has a base row"):
        elsewhere.percent_of_base(NN)
    silent = Results.from_rows([row(BOOK, BASE, 0.0), row(BOOK, NN, [0.0, 0.0])])
    with pytest.raises(InvalidInputError, match=r"0 bits per byte.*\['b'\]"):
        silent.percent_of_base(NN)
