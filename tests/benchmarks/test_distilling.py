"""Which questions the benchmark of learned answers asks, and how it compares what was measured."""

import sys

import pytest

from benchmarks import distilling
from sift_core.evaluation.data import Passage


def _rows(arm, n_chunks, bits):
    about = {"set": "squad", "n_passages": 2, "arm": arm, "n_chunks": n_chunks}
    return [
        {**about, "question": str(i), "bits": own, "holds": i % 2, "learn_cpu_s": 3.0}
        for i, own in enumerate(bits)
    ]


def test_each_arm_is_compared_with_the_base_model_that_reads_as_much_and_with_each_other():
    rows = [
        *_rows("base", 0, [10.0, 30.0]),
        *_rows("base", 2, [5.0, 15.0]),
        *_rows("base", 10, [2.0, 6.0]),
        *_rows("distill", 2, [4.0, 12.0]),
    ]
    found = {(one["arm"], one["n_chunks"]): one for one in distilling.summaries(rows)}
    own = found["distill", 2]
    assert own["bits"] == 8
    assert own["holds"] == 50
    assert own["share_of_base"]["2"] == pytest.approx([0.8, 0.8, 0.8])
    shares = {n: values[0] for n, values in own["share_of_base"].items()}
    assert shares == {"0": pytest.approx(0.4), "2": pytest.approx(0.8), "10": pytest.approx(2.0)}
    assert found["base", 10]["share_of_base"]["10"] == [1, 1, 1]


def test_an_arm_that_is_still_measured_is_left_out():
    rows = [*_rows("base", 0, [10.0, 30.0]), *_rows("distill", 0, [5.0])]
    rows += [*_rows("base", 2, [10.0, 30.0]), *_rows("base", 10, [10.0, 30.0])]
    assert {one["arm"] for one in distilling.summaries(rows)} == {"base"}


def test_arms_without_the_base_model_are_refused():
    with pytest.raises(SystemExit, match="measure it with --arms base"):
        list(distilling.summaries(_rows("distill", 0, [1.0])))


def test_a_collection_in_a_prompt_and_in_learning_has_the_same_texts():
    passages = [Passage(passage_id="a", title="Kenya", text="It is high.")]
    contexts = {0: [[]], 2: [[0]], 10: [[0]]}
    one = distilling.Collection(name="x", passages=passages, questions=[], contexts=contexts)
    assert list(one.chunks([0]).texts) == list(one.sample().texts)
    assert one.sample().metadata[0] == {"title": "Kenya"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sets", "squat"], "no squat; there are squad, hotpotqa"),
        (["--arms", "distil"], "no distil; there are base, distill, next-token"),
        (["--passes", "0"], "must be a whole number of at least 1"),
        (["--sets", "squad"], "measuring needs --data"),
    ],
)
def test_options_that_cannot_be_are_refused(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["distilling", *arguments])
    with pytest.raises(SystemExit):
        distilling.parse()
    assert message in capsys.readouterr().err
