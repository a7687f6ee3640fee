"""Every shape of causal LM learns as under PEFT, whole or in parts, and stays as it is."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from peft import LoraConfig

from sift_core.answering.fine_tuning import fine_tune
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.settings import FineTuningSettings
from tests.answering.plain_peft import (
    TEXTS,
    head_name,
    leaf_names,
    loaded_by_peft,
    logits_of,
    lora,
    losses_of_peft,
)
from tests.answering.shapes import (
    ALL_SHAPES,
    SHAPES,
    byte_tokenizer,
    params,
    with_eyes,
)

# Steep, so that a wrong gradient shows in the next loss.
SETTINGS = FineTuningSettings(lora=lora(4), learning_rate=5e-3)
STEPS = [*TEXTS, TEXTS[0]]


@cache
def model_of(shape):
    return LanguageModel(ALL_SHAPES[shape](), byte_tokenizer())


@cache
def tuned_of(shape):
    return fine_tune(model_of(shape), STEPS, SETTINGS)


@pytest.fixture(params=params(ALL_SHAPES))
def shape(request):
    return request.param


def test_learning_equals_a_plain_peft_loop(shape):
    lm, losses = model_of(shape), tuned_of(shape).losses
    # PEFT takes "all-linear" of Mixtral to mean its experts too, which are no linear layers.
    options = {"target_modules": leaf_names(lm.model)} if shape.startswith("mixtral") else {}
    assert losses == pytest.approx(losses_of_peft(lm, STEPS, SETTINGS, **options), rel=1e-5)
    assert losses[3] < losses[0] - 1e-2  # the first text again


@pytest.mark.parametrize("part", ["top layer", "head"])
def test_a_part_of_a_model_learns_as_under_peft(shape, part):
    lm = model_of(shape)
    top = {"target_modules": leaf_names(lm.model), "layers_to_transform": [1]}
    options = top if part == "top layer" else {"target_modules": [head_name(lm.model)]}
    settings = replace(SETTINGS, lora=LoraConfig(r=4, lora_alpha=16, **options))
    tuned = fine_tune(lm, STEPS, settings)
    assert tuned.losses == pytest.approx(losses_of_peft(lm, STEPS, settings, **options), rel=1e-5)
    assert tuned.losses[3] < tuned.losses[0] - 1e-3


def test_a_saved_adapter_computes_the_same_in_peft(shape, tmp_path):
    lm, adapter = model_of(shape), tuned_of(shape).adapter
    adapter.save(tmp_path)
    ids = lm.token_ids(TEXTS[0])
    with lm.adapted(adapter):
        ours = logits_of(lm.model, ids)
    assert torch.allclose(
        ours, logits_of(loaded_by_peft(lm.model, tmp_path), ids), rtol=0, atol=1e-5
    )
    assert not torch.allclose(ours, logits_of(lm.model, ids), rtol=0, atol=1e-3)


def test_checkpointing_changes_no_loss_and_no_weight(shape):
    lm = model_of(shape)
    assert lm.layers.decoder_layers
    tuned = fine_tune(lm, STEPS, replace(SETTINGS, checkpointing=True))
    assert tuned.losses == pytest.approx(tuned_of(shape).losses, rel=1e-5)
    moved = (tuned.adapter.values - tuned_of(shape).adapter.values).norm()
    assert moved <= 1e-3 * tuned_of(shape).adapter.values.norm()


def test_the_window_is_the_models_own(shape):
    assert model_of(shape).window == (2048 if shape.startswith("bloom") else 64)  # it has none


def test_a_model_that_sees_learns_in_its_text_layers():
    lm = LanguageModel(with_eyes(), byte_tokenizer())
    assert (lm.window, len(lm.layers.decoder_layers)) == (64, 2)
    top = LoraConfig(r=4, target_modules=leaf_names(lm.model), layers_to_transform=[1])
    top.exclude_modules = ".*vision.*"
    tuned = fine_tune(lm, STEPS, replace(SETTINGS, lora=top))
    assert {layer.name.partition("layers.1.")[0] for layer in tuned.adapter.layout.layers} == {
        "model.language_model."
    }
    assert tuned.losses[3] < tuned.losses[0] - 1e-2


def test_bits_per_byte_are_those_of_the_whole_models_logits(shape):
    lm = model_of(shape)
    ids = lm.token_ids(TEXTS[0])
    logits = logits_of(lm.model, ids)[:-1]
    nats = torch.nn.functional.cross_entropy(logits, torch.tensor(ids), reduction="sum")
    bits = float(nats) / torch.log(torch.tensor(2.0)).item() / len(ids)
    assert lm.bits_per_byte(TEXTS[0]) == pytest.approx(bits, rel=1e-5)


def assert_learns_in(dtype, shape):
    lm = LanguageModel(ALL_SHAPES[shape]().to(dtype), byte_tokenizer())
    base = lm.bits_per_byte(TEXTS[0])
    tuned = fine_tune(lm, [TEXTS[0]] * 6, replace(SETTINGS, learning_rate=1e-2))
    assert tuned.report.n_refused == 0
    assert tuned.adapter.values.dtype is torch.float32
    assert tuned.losses[-1] < tuned.losses[0] - 0.05
    with lm.adapted(tuned.adapter):
        assert lm.bits_per_byte(TEXTS[0]) < base - 0.05
    assert lm.bits_per_byte(TEXTS[0]) == base


def test_a_bfloat16_model_learns_a_float32_adapter(shape):
    assert_learns_in(torch.bfloat16, shape)


@pytest.mark.parametrize("shape", params(SHAPES))  # Gemma's gradients overflow float16, as is known
def test_a_float16_model_learns_a_float32_adapter(shape):
    assert_learns_in(torch.float16, shape)
