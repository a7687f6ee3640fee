"""A saved adapter is PEFT's: read by PEFT and vLLM, read back bit for bit, refused where wrong."""

from __future__ import annotations

import json

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from sift_core.answering.fine_tuning import fine_tune
from sift_core.answering.model.adapters import (
    CONFIG_NAME,
    WEIGHTS_NAME,
    Adapter,
)
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.settings import FineTuningSettings
from sift_core.errors import InvalidInputError
from tests.answering.plain_peft import (
    TEXTS,
    loaded_by_peft,
    logits_of,
    lora,
    pefts_own_warnings,
)
from tests.answering.shapes import ALL_SHAPES, SHAPES, byte_tokenizer

SETTINGS = FineTuningSettings(lora=lora(4), learning_rate=5e-3)


@pytest.fixture
def lm(make_random_lm):
    return make_random_lm()


@pytest.fixture
def folder(lm, tmp_path):
    """An adapter on disk, to be damaged."""
    fine_tune(lm, TEXTS, SETTINGS).adapter.save(tmp_path / "adapter")
    return tmp_path / "adapter"


def written_by_peft(model, folder, **options):
    """Save an adapter with a random update, as PEFT does; return PEFT's logits with it."""
    config = LoraConfig(r=3, lora_alpha=5, task_type="CAUSAL_LM", **options)
    with pefts_own_warnings():
        peft_model = get_peft_model(model, config)
        for name, parameter in peft_model.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, std=0.1)
        peft_model.save_pretrained(folder, save_embedding_layers=False)
    return logits_of(peft_model, range(1, 20))


@pytest.mark.parametrize(
    ("shape", "targets"),
    [
        ("gpt2", "all-linear"),
        ("phi3, fused projections", "all-linear"),
        ("opt, projected embeddings", "all-linear"),
        ("llama, own head", ["q_proj", "lm_head"]),
    ],
)
def test_an_adapter_of_pefts_computes_the_same_here(shape, targets, tmp_path):
    # No bit-equality: sums are taken in another order.
    expected = written_by_peft(
        ALL_SHAPES[shape](), tmp_path, target_modules=targets, fan_in_fan_out=shape == "gpt2"
    )
    lm = LanguageModel(ALL_SHAPES[shape](), byte_tokenizer())
    with lm.adapted(Adapter.load(tmp_path)):
        ours = logits_of(lm.model, range(1, 20))
    assert torch.allclose(ours, expected, rtol=0, atol=1e-5)
    assert not torch.allclose(ours, logits_of(lm.model, range(1, 20)), rtol=0, atol=1e-2)


CONFIG_CHANGES = {
    "DoRA": ({"use_dora": True}, "without dropout, got one with use_dora"),
    "another rank": ({"r": 5}, "incomplete"),
    "a rank of text": ({"r": "4"}, "rank"),
    "an endless scaling": ({"lora_alpha": 10**400}, "lora_alpha"),
    "no scaling": ({"lora_alpha": None}, "lora_alpha"),
}


@pytest.mark.parametrize("change", CONFIG_CHANGES)
def test_an_adapter_of_another_kind_is_refused(change, folder):
    changed, message = CONFIG_CHANGES[change]
    config = json.loads((folder / CONFIG_NAME).read_text(encoding="utf-8"))
    (folder / CONFIG_NAME).write_text(json.dumps({**config, **changed}), encoding="utf-8")
    with pytest.raises(InvalidInputError, match=message):
        Adapter.load(folder)


def cut_in_half(folder):
    weights = (folder / WEIGHTS_NAME).read_bytes()
    (folder / WEIGHTS_NAME).write_bytes(weights[: len(weights) // 2])


DAMAGES = {
    "no weights": lambda folder: (folder / WEIGHTS_NAME).unlink(),
    "no configuration": lambda folder: (folder / CONFIG_NAME).unlink(),
    "half the weights": cut_in_half,
    "a pickle": lambda folder: torch.save({}, folder / WEIGHTS_NAME),
    "no JSON": lambda folder: (folder / CONFIG_NAME).write_text("{", encoding="utf-8"),
    "nested too deep": lambda folder: (folder / CONFIG_NAME).write_bytes(b'{"r":' * 100_000),
    "a list": lambda folder: (folder / CONFIG_NAME).write_text("[]", encoding="utf-8"),
    "a file for a folder": lambda folder: (
        [path.unlink() for path in folder.iterdir()],
        folder.rmdir(),
        folder.write_text("", encoding="utf-8"),
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused(damage, folder):
    DAMAGES[damage](folder)
    with pytest.raises(InvalidInputError, match="adapter"):
        Adapter.load(folder)


Q = "base_model.model.model.layers.0.self_attn.q_proj"


def without(tensors, name):
    return {key: value for key, value in tensors.items() if key != name}


TENSOR_CHANGES = {
    "no B": lambda t: without(t, f"{Q}.lora_B.weight"),
    "no A": lambda t: without(t, f"{Q}.lora_A.weight"),
    "a bias": lambda t: {**t, f"{Q}.lora_B.bias": torch.zeros(32)},
    "a magnitude": lambda t: {**t, f"{Q}.lora_magnitude_vector": torch.ones(32)},
    "another rank": lambda t: {**t, f"{Q}.lora_A.weight": torch.zeros(3, 32)},
    "a vector": lambda t: {**t, f"{Q}.lora_B.weight": torch.zeros(32)},
    "nothing": lambda t: {},
    "other names": lambda t: {name.replace("lora", "ia3"): value for name, value in t.items()},
    "eight bits": lambda t: {name: value.to(torch.float8_e4m3fn) for name, value in t.items()},
    "whole numbers": lambda t: {name: value.long() for name, value in t.items()},
    "no numbers": lambda t: {**t, f"{Q}.lora_B.weight": torch.full((32, 4), torch.nan)},
}


@pytest.mark.parametrize("change", TENSOR_CHANGES)
def test_incomplete_weights_are_refused(change, folder):
    tensors = TENSOR_CHANGES[change](load_file(folder / WEIGHTS_NAME))
    save_file(tensors, folder / WEIGHTS_NAME)
    with pytest.raises(InvalidInputError, match="adapter"):
        Adapter.load(folder)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("gpt2", "a layer 'model.layers.0.* that the model does not have"),
        ("qwen2", r"'model.layers.0.self_attn.k_proj' is 32 → 32, the model's 32 → 16"),
    ],
)
def test_an_adapter_of_another_model_is_refused(shape, message, folder, make_random_lm):
    other = make_random_lm(shape)
    before = other.bits_per_byte(TEXTS[0])
    with pytest.raises(InvalidInputError, match=message), other.adapted(Adapter.load(folder)):
        pytest.fail("must not be reached")
    assert other.bits_per_byte(TEXTS[0]) == before


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["4 bits", "8 bits"])
def test_a_quantised_base_learns_and_its_adapter_loads_in_peft(kind, tmp_path):
    pytest.importorskip("bitsandbytes", reason="quantised bases need bitsandbytes")
    pytest.importorskip("accelerate", reason="transformers quantises by accelerate")
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    wide = SHAPES["llama, own head"]()
    wide.save_pretrained(tmp_path / "base")
    byte_tokenizer().save_pretrained(tmp_path / "base")
    options = {"load_in_4bit": True} if kind == "4 bits" else {"load_in_8bit": True}
    lm = LanguageModel.from_pretrained(
        tmp_path / "base", device="cuda", quantization_config=BitsAndBytesConfig(**options)
    )
    base = lm.bits_per_byte(TEXTS[0])
    tuned = fine_tune(lm, [TEXTS[0]] * 6, FineTuningSettings(lora=lora(4), learning_rate=1e-2))
    assert tuned.losses[-1] < tuned.losses[0] - 0.05
    assert tuned.adapter.values.dtype is torch.float32
    with lm.adapted(tuned.adapter):
        assert lm.bits_per_byte(TEXTS[0]) < base - 0.05
    assert lm.bits_per_byte(TEXTS[0]) == base
    tuned.adapter.save(tmp_path / "adapter")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    text_ids = lm.token_ids(TEXTS[0])
    shift = logits_of(loaded_by_peft(plain, tmp_path / "adapter"), text_ids) - logits_of(
        plain, text_ids
    )
    assert shift.abs().max() > 0.01
