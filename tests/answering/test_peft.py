"""PEFT's configurations are honoured as PEFT does, and its adapters are a base to begin from."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
import torch
from peft import IA3Config, LoraConfig, PromptTuningConfig, get_peft_model

from sift_core.answering.collection import load_learned
from sift_core.answering.fine_tuning import fine_tune
from sift_core.answering.model.adapters import Adapter
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.settings import FineTuningSettings
from sift_core.errors import InvalidInputError
from tests.answering.plain_peft import (
    TEXTS,
    assert_same_state,
    logits_of,
    lora,
    losses_of_peft,
    pefts_own_warnings,
    state_of,
)
from tests.answering.shapes import ALL_SHAPES, SHAPES, byte_tokenizer

STEPS = [*TEXTS, TEXTS[0]]
NAMED = {
    "two kinds of layers": {"target_modules": ["q_proj", "down_proj"]},
    "a pattern": {"target_modules": r".*\.1\.mlp\.(up|gate)_proj"},
    "PEFT's own choice": {"target_modules": None},
    "all but some": {"target_modules": "all-linear", "exclude_modules": ["q_proj", "o_proj"]},
    "layers by number": {"target_modules": ["q_proj", "up_proj"], "layers_to_transform": [1]},
    "the head as well": {"target_modules": ["q_proj", "lm_head"]},
    "rank-stabilised": {"target_modules": "all-linear", "use_rslora": True},
}


@pytest.mark.parametrize("named", NAMED)
def test_a_configuration_learns_as_under_peft(make_random_lm, named):
    lm = make_random_lm("llama, own head")
    config = LoraConfig(r=4, lora_alpha=8, **NAMED[named])
    settings = FineTuningSettings(lora=config, learning_rate=5e-3)
    tuned = fine_tune(lm, STEPS, settings)
    assert tuned.losses == pytest.approx(losses_of_peft(lm, STEPS, settings, **NAMED[named]), 1e-5)
    assert tuned.losses[3] < tuned.losses[0] - 1e-3


def test_without_a_configuration_rank_and_scaling_are_the_papers(make_random_lm):
    lm = make_random_lm()
    default = fine_tune(lm, TEXTS)
    assert (default.adapter.rank, default.adapter.scale) == (64, 0.25)
    named = fine_tune(lm, TEXTS, FineTuningSettings(lora=lora(64)))
    assert torch.equal(named.adapter.values, default.adapter.values)


@pytest.mark.parametrize("targets", [["embed_tokens"], ["mlp"], ["nowhere"]])
def test_what_is_no_linear_layer_of_the_model_is_refused(make_random_lm, targets):
    with pytest.raises(InvalidInputError, match="target_modules"):
        fine_tune(make_random_lm(), TEXTS, FineTuningSettings(lora=lora(2, targets=targets)))


REFUSED = {
    "lora_dropout": {"lora_dropout": 0.1},
    "bias": {"bias": "lora_only"},
    "use_dora": {"use_dora": True},
    "init_lora_weights": {"init_lora_weights": "pissa"},
    "rank_pattern": {"rank_pattern": {"q_proj": 2}},
    "modules_to_save": {"modules_to_save": ["lm_head"]},
    "target_parameters": {"target_parameters": ["mlp.experts.up"]},
    "lora_alpha": {"lora_alpha": 0},
}


@pytest.mark.parametrize("field", REFUSED)
def test_what_is_not_done_here_is_refused_by_name(field):
    with pytest.raises(InvalidInputError, match=field):
        FineTuningSettings(lora=LoraConfig(r=4, **REFUSED[field]))


@pytest.mark.parametrize("other", [IA3Config(), {"r": 4}, 8])
def test_another_configuration_is_refused(other):
    with pytest.raises(InvalidInputError, match="LoraConfig"):
        FineTuningSettings(lora=other)


def test_a_configuration_that_is_changed_afterwards_changes_nothing():
    config = lora(4)
    settings = FineTuningSettings(lora=config)
    config.r = 8
    assert settings.rank == 4
    assert settings == replace(settings)


def peft_model_of(model, **options):
    """A PeftModel with a random update of every linear layer."""
    config = LoraConfig(r=3, lora_alpha=5, task_type="CAUSAL_LM", target_modules="all-linear")
    torch.manual_seed(1)
    with pefts_own_warnings():
        made = get_peft_model(model, config, **options)
        for name, parameter in made.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, std=0.1)
    return made.eval()


@pytest.mark.parametrize("shape", ["llama, tied head", "gpt2"])
@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False:UserWarning")
def test_a_peft_model_is_a_base_of_its_own_and_stays_as_it_is(shape):
    peft_model = peft_model_of(SHAPES[shape]())
    before = {name: value.clone() for name, value in peft_model.state_dict().items()}
    expected = logits_of(peft_model, range(1, 20))
    learns = [parameter.requires_grad for parameter in peft_model.parameters()]
    lm = LanguageModel(peft_model, byte_tokenizer())
    assert torch.allclose(logits_of(lm.model, range(1, 20)), expected, rtol=0, atol=1e-5)
    plain = logits_of(SHAPES[shape](), range(1, 20))
    assert not torch.allclose(expected, plain, rtol=0, atol=1e-2)
    merged = state_of(lm)
    settings = FineTuningSettings(lora=lora(4), learning_rate=5e-3)
    tuned = fine_tune(lm, STEPS, settings)
    assert tuned.losses == pytest.approx(losses_of_peft(lm, STEPS, settings), rel=1e-5)
    with lm.adapted(tuned.adapter):
        lm.generate("the cat", max_new_tokens=3)
    assert_same_state(lm, merged)
    # Nothing of it is in the caller's model: no weight, no hook, no flag.
    after = peft_model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert torch.equal(logits_of(peft_model, range(1, 20)), expected)
    assert not any(module._forward_hooks for module in peft_model.modules())
    assert [parameter.requires_grad for parameter in peft_model.parameters()] == learns


def test_a_peft_model_without_weights_to_merge_is_refused():
    config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    with pefts_own_warnings():
        peft_model = get_peft_model(SHAPES["gpt2"](), config)
    with pytest.raises(InvalidInputError, match="cannot be merged"):
        LanguageModel(peft_model, byte_tokenizer())


@pytest.fixture
def saved(tmp_path):
    """A base in one folder, and an adapter of it that PEFT saved in another."""
    model = ALL_SHAPES["llama, own head"]()
    model.save_pretrained(tmp_path / "base")
    byte_tokenizer().save_pretrained(tmp_path / "base")
    model.config._name_or_path = model.name_or_path = str(tmp_path / "base")
    peft_model = peft_model_of(copy.deepcopy(model))
    with pefts_own_warnings():
        peft_model.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter", logits_of(peft_model, range(1, 20))


def test_a_model_starts_from_an_adapter_that_peft_saved(saved):
    folder, expected = saved
    with pefts_own_warnings():
        lm = LanguageModel.from_pretrained(folder, device="cpu", dtype="float32")
    assert torch.allclose(logits_of(lm.model, range(1, 20)), expected, rtol=0, atol=1e-5)
    assert lm.name == str(folder)  # so that nobody takes what it learns for the base's
    before = lm.fingerprint
    tuned = fine_tune(lm, TEXTS, FineTuningSettings(lora=lora(4), learning_rate=5e-3))
    assert tuned.adapter.base_name == str(folder)
    assert lm.fingerprint == before


@pytest.mark.parametrize("content", [b"[]", {"alpha_pattern": True}, {"r": "4"}], ids=str)
def test_a_damaged_configuration_of_an_adapter_is_refused(saved, content):
    config = saved[0] / "adapter_config.json"
    if isinstance(content, dict):
        content = json.dumps({**json.loads(config.read_bytes()), **content}).encode()
    config.write_bytes(content)
    with pytest.raises(InvalidInputError, match="no causal language model"):
        LanguageModel.from_pretrained(saved[0], device="cpu", dtype="float32")


def test_an_adapter_without_weights_in_safetensors_is_refused(saved):
    folder, _ = saved
    weights = folder / "adapter_model.safetensors"
    torch.save({}, folder / "adapter_model.bin")
    weights.unlink()
    with pytest.raises(InvalidInputError, match=r"adapter_model.safetensors is missing"):
        LanguageModel.from_pretrained(folder, device="cpu", dtype="float32")


ADDED_TOKENS = {
    "saved by PEFT itself": ("llama, tied head", {}),
    "saved with an own head": ("llama, own head", {}),
    "saved for GPT-2": ("gpt2", {"target_modules": ["c_attn"], "fan_in_fan_out": True}),
    "learned whole": ("llama, own head", {"modules_to_save": ["embed_tokens", "lm_head"]}),
    "learned alone": ("llama, own head", {"trainable_token_indices": [256, 257, 258]}),
    "a LoRA of embeddings": ("llama, tied head", {"target_modules": ["q_proj", "embed_tokens"]}),
    "a LoRA of a tied head": ("llama, tied head", {"target_modules": ["q_proj", "lm_head"]}),
    "a LoRA of both": ("llama, own head", {"target_modules": ["embed_tokens", "lm_head"]}),
}


def adapter_with_added_tokens(place, shape, **options):
    """Save an adapter with three tokens more than its base; return it, their first id, its rows."""
    model, tokenizer = ALL_SHAPES[shape](), byte_tokenizer()
    base = place / "base"
    for each in (model, tokenizer):
        each.save_pretrained(base)
    first = len(tokenizer)
    tokenizer.add_tokens(["<one>", "<two>", "<three>"])
    n_rows = -(-len(tokenizer) // 8) * 8  # a multiple of 8, as trainers make it
    model.resize_token_embeddings(n_rows, mean_resizing=False)
    if "trainable_token_indices" in options:
        options = {"trainable_token_indices": list(range(first, first + 3))}
    torch.manual_seed(1)
    with pefts_own_warnings():
        model.name_or_path = str(base)
        config = {"r": 3, "task_type": "CAUSAL_LM", "target_modules": ["q_proj"], **options}
        made = get_peft_model(model, LoraConfig(**config)).eval()
        for parameter in made.parameters():
            if parameter.requires_grad:
                torch.nn.init.normal_(parameter, std=0.1)
        made.save_pretrained(place)
        tokenizer.save_pretrained(place)
    return made, first, n_rows


@pytest.mark.parametrize("kind", ADDED_TOKENS)
@pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers`:UserWarning")
def test_an_adapter_whose_training_added_tokens_is_loaded_with_them(kind, tmp_path):
    shape, options = ADDED_TOKENS[kind]
    made, first, n_rows = adapter_with_added_tokens(tmp_path, shape, **options)
    with pefts_own_warnings():
        ids = [*range(1, 9), first, first + 1, first + 2]
        expected = logits_of(made, ids)
        lm = LanguageModel.from_pretrained(str(tmp_path), device="cpu", dtype="float32")
    assert lm.model.get_input_embeddings().num_embeddings == n_rows
    assert lm.token_ids("<two>") == [first + 1]
    assert torch.allclose(logits_of(lm.model, ids), expected, rtol=0, atol=1e-5)


def test_what_to_do_with_an_adapter_of_added_tokens_is_said(llama, tmp_path):
    model, tokenizer = SHAPES["llama, tied head"](), byte_tokenizer()
    n_rows = len(tokenizer)
    tokenizer.add_tokens(["<one>"])
    with pytest.raises(InvalidInputError, match=f"knows {n_rows + 1} tokens, the model {n_rows}; "):
        LanguageModel(model, tokenizer)
    model.resize_token_embeddings(n_rows + 1, mean_resizing=False)
    peft_model_of(model).save_pretrained(tmp_path, save_embedding_layers=True)
    advice = "pass its folder as the model"
    with pytest.raises(InvalidInputError, match=rf"of shape \({n_rows + 1}, .* for one; {advice}"):
        Adapter.load(tmp_path)
    with pytest.raises(InvalidInputError, match=f"nothing was learned at .*; .*{advice}"):
        load_learned(tmp_path, llama)


@pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers`:UserWarning")
def test_an_adapter_without_the_head_of_its_added_tokens_is_refused(tmp_path):
    """PEFT saves the embeddings alone when they have a LoRA, though the head is another matrix."""
    adapter_with_added_tokens(tmp_path, "llama, own head", target_modules=["embed_tokens"])
    # 257 tokens of bytes; with three more, the next multiple of 8 is 264.
    message = "has learned with 264 tokens, its base has 257, .* lacks the other rows of 'lm_head'"
    with pytest.raises(InvalidInputError, match=message), pefts_own_warnings():
        LanguageModel.from_pretrained(str(tmp_path), device="cpu", dtype="float32")
