"""What learns: all layers, the top ones, the head, every weight of a copy. The model never does."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from sift_core.answering.learning.fine_tuning import fine_tune, fine_tuned
from sift_core.answering.learning.settings import FineTuningSettings
from sift_core.answering.model import passes
from sift_core.answering.model.language_model import LanguageModel
from sift_core.errors import InvalidInputError
from tests.answering.plain_peft import (
    TEXTS,
    assert_same_state,
    lora,
    losses_of_loop,
    state_of,
)
from tests.answering.shapes import byte_tokenizer

SCOPES = ["all", "top:1", "head", "full"]
SETTINGS = FineTuningSettings(lora=lora(4), learning_rate=5e-3)
STEPS = [*TEXTS, TEXTS[0]]


@pytest.fixture
def lm(make_random_lm):
    return make_random_lm("llama, own head")


def learned_weights(tuned):
    """All numbers that were learned, in one tensor."""
    if hasattr(tuned.adapter, "values"):
        return tuned.adapter.values
    return torch.cat([p.flatten() for p in tuned.adapter.model.parameters()])


def test_full_fine_tuning_equals_a_plain_loop(random_lm):
    settings = replace(SETTINGS, scope="full", learning_rate=1e-3)
    plain = copy.deepcopy(random_lm.model).requires_grad_(True)
    expected = losses_of_loop(random_lm, plain, list(plain.parameters()), STEPS, settings)
    tuned = fine_tune(random_lm, STEPS, settings)
    assert tuned.losses == pytest.approx(expected, rel=1e-5)
    assert tuned.losses[3] < tuned.losses[0] - 0.05
    for ours, theirs in zip(tuned.adapter.model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-4)


def test_full_fine_tuning_of_a_bfloat16_model_learns_in_float32(make_random_lm):
    lm = make_random_lm()
    lm.model.to(torch.bfloat16)
    wide = LanguageModel(copy.deepcopy(lm.model).float(), lm.tokenizer)
    settings = replace(SETTINGS, scope="full", learning_rate=1e-3)
    tuned = fine_tune(lm, STEPS, settings)
    assert {p.dtype for p in tuned.adapter.model.parameters()} == {torch.float32}
    assert tuned.losses == fine_tune(wide, STEPS, settings).losses
    assert lm.model.dtype is torch.bfloat16


def test_more_layers_than_there_are_is_refused(lm):
    with pytest.raises(InvalidInputError, match=r'at most "top:2".*got "top:3"'):
        fine_tune(lm, TEXTS, replace(SETTINGS, scope="top:3"))


@pytest.mark.parametrize("scope", ["top:1", "head"])
def test_what_is_kept_is_the_base_models(lm, make_random_lm, scope):
    # Learned first while another adapter is in force: what is kept must not be that adapter's.
    settings = replace(SETTINGS, scope=scope)
    expected = fine_tune(make_random_lm("llama, own head"), STEPS, settings)
    with lm.adapted(fine_tune(lm, STEPS, SETTINGS).adapter):
        first = fine_tune(lm, STEPS, settings)
    again = fine_tune(lm, STEPS, settings)
    for tuned in (first, again):
        assert tuned.losses == expected.losses
        assert torch.equal(tuned.adapter.values, expected.adapter.values)


def test_scopes_do_not_share_what_is_kept(lm, make_random_lm):
    for scope in ("head", "top:1", "top:2", "head"):  # each begins at another depth
        settings = replace(SETTINGS, scope=scope)
        fresh = fine_tune(make_random_lm("llama, own head"), STEPS, settings)
        tuned = fine_tune(lm, STEPS, settings)
        assert tuned.losses == fresh.losses
        assert torch.equal(tuned.adapter.values, fresh.adapter.values)


@pytest.mark.parametrize("scope", ["top:1", "head"])
def test_what_is_kept_is_dropped_when_there_is_no_room(lm, make_random_lm, scope):
    settings = replace(SETTINGS, scope=scope)
    expected = fine_tune(make_random_lm("llama, own head"), STEPS, settings)
    # Room for one text: 22 tokens x 32 x 4 bytes, and as much again.
    kept = passes._caches[lm.model] = passes.ActivationCache(max_bytes=8000)
    for _ in range(2):
        assert fine_tune(lm, STEPS, settings).losses == expected.losses
        assert 0 < kept._kept.currsize <= 8000


@pytest.mark.parametrize("scope", ["top:1", "head"])
def test_a_model_moved_to_another_precision_forgets_what_was_kept(lm, make_random_lm, scope):
    settings = replace(SETTINGS, scope=scope)
    fine_tune(lm, STEPS, settings)
    lm.model.to(torch.bfloat16)
    fresh = make_random_lm("llama, own head")
    fresh.model.to(torch.bfloat16)
    assert fine_tune(lm, STEPS, settings).losses == fine_tune(fresh, STEPS, settings).losses


@pytest.mark.parametrize("scope", SCOPES)
def test_checkpointing_learns_the_same(random_lm, scope):
    settings = replace(SETTINGS, scope=scope, learning_rate=1e-3)
    plain = fine_tune(random_lm, STEPS, settings)
    expected = learned_weights(plain).clone()
    tuned = fine_tune(random_lm, STEPS, replace(settings, checkpointing=True))
    assert tuned.losses == pytest.approx(plain.losses, rel=1e-5)
    assert torch.allclose(learned_weights(tuned), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("scope", SCOPES)
def test_the_same_is_learned_again_and_the_model_stays_as_it_is(random_lm, scope):
    settings = replace(SETTINGS, scope=scope)
    before = state_of(random_lm)
    base = random_lm.bits_per_byte(TEXTS[0])
    losses = []
    for _ in range(3):
        other = LanguageModel(random_lm.model, byte_tokenizer())  # puts no second hook
        with fine_tuned(other, STEPS, settings) as tuned:
            losses.append(tuned.losses)
            assert random_lm.bits_per_byte(TEXTS[0]) < base - 0.01
        assert random_lm.bits_per_byte(TEXTS[0]) == base
        assert_same_state(random_lm, before)
    assert losses[0] == losses[1] == losses[2]
    assert max(max(counts) for counts in before[5]) <= 1


@pytest.mark.parametrize(
    ("outer", "inner"),
    [("all", "full"), ("full", "all"), ("full", "full"), ("head", "top:1"), ("top:1", None)],
)
def test_of_nested_blocks_the_innermost_counts(lm, outer, inner):
    def learned(scope, texts):
        return scope and fine_tune(lm, texts, replace(SETTINGS, scope=scope)).adapter

    first, second = learned(outer, STEPS), learned(inner, TEXTS[::-1])
    with lm.adapted(first):
        outside = lm.bits_per_byte(TEXTS[0])
    with lm.adapted(second):
        alone = lm.bits_per_byte(TEXTS[0])
    with lm.adapted(first):
        with lm.adapted(second):
            assert lm.bits_per_byte(TEXTS[0]) == alone
        assert lm.bits_per_byte(TEXTS[0]) == outside
    assert outside != alone


@pytest.mark.parametrize(
    ("outer", "inner"), [("all", "top:1"), ("full", "all"), ("all", "full"), ("top:1", "head")]
)
def test_learning_begins_from_the_base_also_where_something_is_active(lm, outer, inner):
    settings = replace(SETTINGS, scope=inner)
    expected = fine_tune(lm, STEPS, settings).losses
    with lm.adapted(fine_tune(lm, TEXTS[::-1], replace(SETTINGS, scope=outer)).adapter):
        assert fine_tune(lm, STEPS, settings).losses == expected


def test_a_copy_of_another_model_is_refused(lm, make_random_lm):
    other = make_random_lm("gpt2")
    tuned = fine_tune(other, TEXTS, replace(SETTINGS, scope="full"))
    before = lm.bits_per_byte(TEXTS[0])
    with pytest.raises(InvalidInputError, match="made for"), lm.adapted(tuned.adapter):
        pytest.fail("must not be reached")
    assert lm.bits_per_byte(TEXTS[0]) == before


@pytest.mark.parametrize("scope", SCOPES)
def test_generation_uses_what_was_learned_in_every_scope(lm, scope):
    text = "aaaaaaaaaaaaaaaaaaaaaaaa"
    settings = replace(SETTINGS, scope=scope, learning_rate=3e-2)
    before = lm.generate("aaaa", max_new_tokens=4).text
    with fine_tuned(lm, [text] * 12, settings):
        assert lm.generate("aaaa", max_new_tokens=4).text == "aaaa"
    assert lm.generate("aaaa", max_new_tokens=4).text == before != "aaaa"


@pytest.mark.parametrize("scope", SCOPES)
def test_chunks_as_turns_of_a_chat_are_learned_too(make_random_lm, scope):
    lm = LanguageModel(make_random_lm().model, byte_tokenizer())
    lm.tokenizer.chat_template = (
        "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}<s>{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    settings = replace(SETTINGS, scope=scope, chunk_format="chat", chat_request="Go on.")
    as_chat = fine_tune(lm, [TEXTS[0]] * 4, settings)
    assert as_chat.losses[-1] < as_chat.losses[0] - 0.02
    as_text = fine_tune(lm, [TEXTS[0]] * 4, replace(settings, chunk_format="text"))
    assert as_chat.losses[0] != pytest.approx(as_text.losses[0], rel=1e-4)
