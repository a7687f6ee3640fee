"""Every weight learns in a copy, as in a plain loop, and the model stays as it is."""

import copy

import pytest

from benchmarks.language_modeling.scopes import SCOPES, learned
from sift_core.answering import FineTuningSettings, LanguageModel
from tests.answering.plain_peft import TEXTS, assert_same_state, lora, losses_of_loop, state_of
from tests.answering.shapes import SHAPES, byte_tokenizer

SETTINGS = FineTuningSettings(lora=lora(4), learning_rate=1e-3)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_model_learns_in_each_scope_and_stays_as_it_is(scope):
    lm = LanguageModel(SHAPES["llama, own head"](), byte_tokenizer())
    before, seen = state_of(lm), []

    def score(model, n):
        seen.append(model.bits_per_byte(TEXTS[0]))

    with learned(lm, TEXTS, SETTINGS, scope=scope, on_state=score) as (model, how):
        assert model.bits_per_byte(TEXTS[0]) == seen[3] < seen[0] - 1e-3
    assert (how.learned, how.stop_reason) == ((0, 1, 2), "done")
    assert lm.bits_per_byte(TEXTS[0]) == pytest.approx(seen[0], abs=1e-6)
    assert_same_state(lm, before)
    if scope == "full":
        plain = copy.deepcopy(lm.model).requires_grad_(True)
        expected = losses_of_loop(lm, plain, list(plain.parameters()), TEXTS, SETTINGS)
        assert how.losses == pytest.approx(expected, rel=1e-5)
