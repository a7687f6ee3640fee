import logging
import re
from dataclasses import asdict
from functools import partial

import pytest

from sift_core import AnswerMode
from sift_core.answering import FineTuningSettings
from sift_core.answering.cost_model import CostModel, cached_cost_model, cost_key, seconds_at
from sift_core.answering.policy import MODES, PolicyFeatures
from sift_core.cache_folder import sealed
from tests.answering.plain_peft import lora

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


def known(**tokens):
    n = len(tokens["learn_tokens"])
    return PolicyFeatures(
        variance_before=1.0,
        variance_read=1.0,
        variances_learned=(1.0,) * n,
        context_tokens=tokens["read_tokens"],
        room=100,
        **tokens,
    )


def test_predictions_by_hand():
    features = known(
        question_tokens=15, read_tokens=15, learn_tokens=(10, 15, 10), max_new_tokens=4
    )
    answers = {mode: BY_HAND.answer_s(features, mode) for mode in MODES}
    assert answers == pytest.approx(
        {
            AnswerMode.BASE: 1.5 + 2.0,
            AnswerMode.CONTEXT: 4.0 + 2.0,
            AnswerMode.FINE_TUNE: 3.0 + 2.4,
            AnswerMode.BOTH: 6.0 + 2.4,
        }
    )
    seconds = partial(BY_HAND.seconds, features)
    assert seconds(AnswerMode.FINE_TUNE) == pytest.approx(5.4 + 0.25 + 3 + 4 + 3)
    assert seconds(AnswerMode.FINE_TUNE, 1) == pytest.approx(5.4 + 0.25 + 3)
    assert seconds(AnswerMode.CONTEXT) == 6.0
    assert seconds(AnswerMode.BOTH, n_questions=5) == pytest.approx(8.4 + 10.25 / 5)


def test_a_model_is_measured_and_left_as_it_was(random_lm):
    before = random_lm.bits_per_byte("what it was")
    settings = FineTuningSettings(max_seconds=1e-9, chunks_per_step=3, reuse_gradients=True)
    costs = CostModel.measure(random_lm, settings, aim_s=0)
    # 1/16, 1/4 and all of a window of 64; without time for the third
    assert [n for n, _ in costs.step] == [4, 16]
    assert costs.step[0][1] > 0
    assert costs.setup_s > 0
    assert costs.prefill[0][1] > 0
    assert random_lm.bits_per_byte("what it was") == before


def test_costs_are_measured_once(make_random_lm, tmp_path):
    folder = tmp_path / "not made yet"
    model = make_random_lm()
    first = cached_cost_model(model, folder=folder)
    again = cached_cost_model(model, folder=folder)  # read: two measurements never agree
    assert again == first
    (file,) = folder.iterdir()
    assert file.name == f"cost-{cost_key(model)}.json"


SPOILT = {
    "no JSON": lambda text: "no json",
    "another form": lambda text: '{"prefill": 3}',
    "a list": lambda text: "[]",
    "deep": lambda text: "[" * 10**5,
    "no text": lambda text: b"\xff\xfe",
    "cut": lambda text: text[:-1],
    "another number": lambda text: re.sub(r'(?<="setup_s": )\d', "9", text),
    "of another model": lambda text: text.replace("cost-", "cost-0"),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_spoilt_file_is_reported_and_rebuilt(make_random_lm, tmp_path, caplog, spoil):
    model = make_random_lm()
    path = tmp_path / f"cost-{cost_key(model)}.json"
    content = spoil(sealed(asdict(BY_HAND), path.name))
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with caplog.at_level(logging.WARNING):
        measured = cached_cost_model(model, folder=tmp_path)
    assert "of no use and is measured again" in caplog.text
    assert measured != BY_HAND
    assert cached_cost_model(model, folder=tmp_path) == measured


def test_a_folder_that_cannot_be_written_is_reported_and_does_no_harm(
    make_random_lm, tmp_path, caplog
):
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        measured = cached_cost_model(make_random_lm(), folder=tmp_path / "file" / "below")
    assert "could not be kept" in caplog.text
    assert measured.setup_s > 0


def test_the_key_is_that_of_the_models_shape_and_the_settings(make_random_lm):
    llama, gpt2 = make_random_lm(), make_random_lm("gpt2")
    assert cost_key(llama) == cost_key(make_random_lm())
    assert cost_key(llama) != cost_key(gpt2)
    assert cost_key(llama) != cost_key(llama, FineTuningSettings(lora=lora(8)))
    assert len(cost_key(llama)) == 64
