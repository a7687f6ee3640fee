"""What prompts begin with is read once, and never by another adapter's keys and values."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from sift_core.answering.fine_tuning import fine_tune
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.settings import FineTuningSettings
from tests.answering.plain_peft import TEXTS, lora
from tests.answering.shapes import sharpened

BEGINNING = "chunks that many questions share: "
TINY = {
    "vocab_size": 257,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
}


class _ReadCounter:
    """Counts the tokens that a model's forward passes read."""

    def __init__(self, lm):
        self.sizes = []
        lm.model.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, module, args, options):
        self.sizes.append(options["input_ids"].shape[1])


def _ids(lm, text=BEGINNING):
    return lm.prompt_ids(text)


def _written(lm, question, prefix=None, **options):
    options = {"max_new_tokens": 8, "eos_token_id": None, **options}
    return lm.generate(BEGINNING + question, prefix=prefix, **options)


def test_follow_ups_write_what_they_write_without_the_prefix_and_read_less(random_lm):
    lm = sharpened(random_lm)
    questions = ["who", "why not", ""]
    alone = [_written(lm, question) for question in questions]
    prefix = lm.read(_ids(lm))
    reads = _ReadCounter(lm)
    assert [_written(lm, question, prefix) for question in questions] == alone
    assert len({generation.text for generation in alone}) > 1
    assert reads.sizes[::8] == [3, 7, 1]  # one token at least is left to read


def test_a_prompt_that_begins_so_in_part_reads_the_rest(make_random_lm):
    lm = sharpened(make_random_lm())
    prefix = lm.read(_ids(lm))
    prompt = BEGINNING[:10] + "other words"
    alone = lm.generate(prompt, max_new_tokens=4, eos_token_id=None)
    reads = _ReadCounter(lm)
    assert lm.generate(prompt, max_new_tokens=4, eos_token_id=None, prefix=prefix) == alone
    assert reads.sizes[0] == len("other words")


def test_an_adapter_never_reads_what_another_read(make_random_lm):
    lm = sharpened(make_random_lm())
    settings = FineTuningSettings(lora=lora(4), learning_rate=5e-2)
    adapter = fine_tune(lm, TEXTS, settings).adapter
    base, prefix = _written(lm, "who"), lm.read(_ids(lm))
    with lm.adapted(adapter):
        alone, own = _written(lm, "who"), lm.read(_ids(lm))
        assert _written(lm, "who", prefix) == alone != base
        assert _written(lm, "who", own) == alone
    assert _written(lm, "who", own) == base


def test_what_is_kept_is_never_written_to(make_random_lm):
    lm = sharpened(make_random_lm())
    prefix = lm.read(_ids(lm))
    before = [(keys.clone(), values.clone()) for keys, values in prefix.layers]
    first = _written(lm, "who", prefix)
    _written(lm, "why not", prefix)
    assert _written(lm, "who", prefix) == first
    for (keys, values), (old_keys, old_values) in zip(prefix.layers, before, strict=True):
        assert torch.equal(keys, old_keys)
        assert torch.equal(values, old_values)


@pytest.mark.parametrize(
    "options",
    [{"num_beams": 2}, {"use_cache": False}, {"cache_implementation": "static"}],
    ids=["beams", "no cache", "static cache"],
)
def test_what_is_not_one_plain_row_goes_past_the_prefix(make_random_lm, options):
    lm = sharpened(make_random_lm())
    alone, prefix = _written(lm, "who", **options), lm.read(_ids(lm))
    reads = _ReadCounter(lm)
    assert _written(lm, "who", prefix, **options) == alone
    assert reads.sizes[0] == len(_ids(lm)) + 3


def test_models_whose_states_cannot_be_cut_have_no_prefix(byte_tokenizer):
    torch.manual_seed(0)
    windowed = MistralForCausalLM(MistralConfig(sliding_window=8, **TINY))
    lm = LanguageModel(windowed, byte_tokenizer)
    assert lm.read(_ids(lm)) is None


def test_models_that_turn_tokens_by_the_prompts_length_read_it_whole(byte_tokenizer):
    torch.manual_seed(0)
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    lm = LanguageModel(LlamaForCausalLM(LlamaConfig(**TINY, rope_parameters=rope)), byte_tokenizer)
    alone, prefix = _written(lm, "who"), lm.read(_ids(lm))
    reads = _ReadCounter(lm)
    assert _written(lm, "who", prefix) == alone
    assert reads.sizes[0] == len(_ids(lm)) + 3
