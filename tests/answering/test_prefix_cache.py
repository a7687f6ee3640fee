from __future__ import annotations

import threading

import pytest
import torch
from transformers import (
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from sift_core.answering.model.prefix_cache import PrefixCache, generate_with_prefix
from sift_core.errors import InvalidInputError

CHUNKS = [0, *range(60, 90)]


def _filled(n_tokens, *, n_layers=2, value=1.0):
    """A cache of two heads of width four: 2 × 2 × 4 × 4 bytes a layer and token."""
    cache = DynamicCache()
    for layer in range(n_layers):
        states = torch.full((1, 2, n_tokens, 4), value + layer)
        cache.update(states + torch.arange(n_tokens)[:, None], states, layer)
    return cache


BYTES_A_TOKEN = 2 * (2 * 2 * 4 * 4) + 8  # both layers, and the token's own number


def _sharpened(lm):
    """The same model with larger weights, so that it does not repeat one token."""
    with torch.no_grad():
        for weight in lm.model.parameters():
            if weight.ndim == 2:
                weight.mul_(8)
    return lm


def _written(model, ids, cache, *, key=None, **options):
    inputs = torch.tensor([ids])
    settings = {"do_sample": False, "max_new_tokens": 12, "pad_token_id": 0, "eos_token_id": None}
    with torch.inference_mode():
        output = generate_with_prefix(
            model,
            inputs,
            cache,
            key,
            **{"attention_mask": torch.ones_like(inputs), **settings, **options},
        )
    return output[0].tolist()


class _ReadCounter:
    """Counts the tokens that a model's forward passes read."""

    def __init__(self, model):
        self.sizes = []
        model.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, module, args, options):
        self.sizes.append(options["input_ids"].shape[1])


def test_follow_ups_write_what_they_write_without_the_cache(random_lm):
    model, cache = _sharpened(random_lm).model, PrefixCache()
    questions = [[5, 6, 7], [5, 6, 8, 9], [5], [100]]
    alone = [_written(model, CHUNKS + question, None) for question in questions]
    reads = _ReadCounter(model)

    cached = [_written(model, CHUNKS + question, cache) for question in questions]

    assert cached == alone
    assert len({tuple(output[-12:]) for output in cached}) > 1
    firsts = reads.sizes[::12]
    # The question without what an earlier one begins with, but for one token at least.
    assert firsts == [34, 2, 1, 1]


def test_a_chat_goes_on_from_the_answer_itself(random_lm):
    model, cache = _sharpened(random_lm).model, PrefixCache()
    first = _written(model, CHUNKS, cache)
    follow_up = [*first, 3, 4, 5]
    alone = _written(model, follow_up, None)
    reads = _ReadCounter(model)

    assert _written(model, follow_up, cache) == alone
    assert reads.sizes[0] == 4  # the answer's last token was written, not read


def test_an_adapter_never_reads_what_another_read(random_lm):
    model, cache = _sharpened(random_lm).model, PrefixCache()
    question = [*CHUNKS, 5]
    base = _written(model, question, cache)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(-1.2)
    alone = _written(model, question, None)

    assert alone != base
    assert _written(model, question, cache, key="adapter") == alone
    assert _written(model, question, cache, key="adapter") == alone
    # Under the base model's key it would have gone wrong:
    assert _written(model, [*question, 7], cache)[: len(question)] == question
    assert cache.longest("adapter", question)[1] == len(question) - 1
    assert cache.longest("another", question) == (None, 0)


def test_the_cache_hands_out_the_states_of_the_common_beginning():
    cache = PrefixCache()
    cache.put(None, [1, 2, 3, 4, 5], _filled(5))

    past, n_tokens = cache.longest(None, [1, 2, 3, 9, 9])

    assert n_tokens == 3
    assert past.get_seq_length() == 3
    assert past.layers[1].keys[0, 0, :, 0].tolist() == [2, 3, 4]  # 1 + layer + position
    assert past.layers[1].values.unique().tolist() == [2]


@pytest.mark.parametrize(
    ("ids", "n_tokens"),
    [([1, 2, 3], 2), ([1, 2], 1), ([1], 0), ([], 0), ([2, 1], 0), ([1, 2, 3, 4], 3)],
)
def test_one_token_at_least_is_left_to_read(ids, n_tokens):
    cache = PrefixCache()
    cache.put(None, [1, 2, 3], _filled(3))
    assert cache.longest(None, ids)[1] == n_tokens


def test_what_is_handed_out_is_a_copy_and_what_is_kept_too():
    cache, source = PrefixCache(), _filled(3)
    cache.put(None, [1, 2, 3], source)
    source.layers[0].keys.zero_()
    past, _ = cache.longest(None, [1, 2, 3, 4])
    past.layers[0].keys.zero_()
    past.update(torch.zeros(1, 2, 1, 4), torch.zeros(1, 2, 1, 4), 0)

    again, n_tokens = cache.longest(None, [1, 2, 3, 4])

    assert n_tokens == 3
    assert again.layers[0].keys[0, 0, :, 0].tolist() == [1, 2, 3]


def test_only_the_tokens_named_are_kept():
    cache = PrefixCache()
    cache.put(None, [1, 2], _filled(5))
    assert cache.n_bytes == 2 * BYTES_A_TOKEN
    assert cache.longest(None, [1, 2, 3, 4])[1] == 2


def test_more_tokens_than_were_read_are_not_kept():
    cache = PrefixCache()
    cache.put(None, [1, 2, 3, 4], _filled(3))
    assert cache.longest(None, [1, 2, 3, 4, 5])[1] == 3


def test_a_longer_prompt_takes_the_place_of_its_beginning():
    cache = PrefixCache()
    cache.put(None, [1, 2], _filled(2))
    cache.put(None, [1, 2, 3], _filled(3))
    cache.put(None, [1], _filled(1))

    assert len(cache) == 1
    assert cache.n_bytes == 3 * BYTES_A_TOKEN


def test_the_least_recent_prompt_goes_first():
    cache = PrefixCache(max_bytes=7 * BYTES_A_TOKEN)
    cache.put(None, [1, 1, 1], _filled(3))
    cache.put("a", [2, 2, 2], _filled(3))
    cache.longest(None, [1, 1, 1, 1])
    cache.put("b", [3, 3, 3], _filled(3))

    assert cache.n_bytes == 6 * BYTES_A_TOKEN
    assert cache.longest(None, [1, 1, 1, 1])[1] == 3
    assert cache.longest("a", [2, 2, 2, 2])[1] == 0
    assert cache.longest("b", [3, 3, 3, 3])[1] == 3


def test_a_prompt_larger_than_the_cache_is_not_kept():
    cache = PrefixCache(max_bytes=2 * BYTES_A_TOKEN)
    cache.put(None, [1, 2], _filled(2))

    assert not cache.put(None, [3, 4, 5], _filled(3))
    assert cache.longest(None, [1, 2, 3])[1] == 2


def test_an_adapter_is_forgotten_alone():
    cache = PrefixCache()
    for key in (None, "a"):
        cache.put(key, [1, 2], _filled(2))
        cache.put(key, [3, 4], _filled(2))

    cache.forget("a")

    assert len(cache) == 2
    assert cache.n_bytes == 4 * BYTES_A_TOKEN
    assert cache.longest("a", [1, 2, 3])[1] == 0
    cache.clear()
    assert (len(cache), cache.n_bytes) == (0, 0)


def test_the_size_is_no_negative_number():
    with pytest.raises(InvalidInputError, match="max_bytes"):
        PrefixCache(max_bytes=-1)


TINY = {
    "vocab_size": 257,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
}


def _windowed():
    return MistralForCausalLM(MistralConfig(sliding_window=8, **TINY))


def _turned_by_length():
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    return LlamaForCausalLM(LlamaConfig(**TINY, rope_parameters=rope))


@pytest.mark.parametrize("make", [_windowed, _turned_by_length], ids=["window", "rope"])
def test_models_whose_states_cannot_be_cut_are_not_cached(make):
    torch.manual_seed(0)
    model, cache = make().eval(), PrefixCache()
    alone = _written(model, [*CHUNKS, 5], None)

    assert _written(model, [*CHUNKS, 5], cache) == alone
    assert len(cache) == 0


def test_grouped_queries_are_cached():
    torch.manual_seed(0)
    model, cache = LlamaForCausalLM(LlamaConfig(**TINY)).eval(), PrefixCache()
    alone = [_written(model, [*CHUNKS, last], None) for last in (5, 6)]

    assert [_written(model, [*CHUNKS, last], cache) for last in (5, 6)] == alone
    assert cache.longest(None, [*CHUNKS, 7])[1] == len(CHUNKS)


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 2},
        {"use_cache": False},
        {"cache_implementation": "static"},
        {"attention_mask": torch.tensor([[0, *[1] * len(CHUNKS)]])},
    ],
    ids=["beams", "no cache", "static cache", "masked"],
)
def test_what_is_not_one_plain_row_goes_past_the_cache(make_random_lm, options):
    model, cache = _sharpened(make_random_lm()).model, PrefixCache()
    prompt = [*CHUNKS, 5]
    _written(model, prompt, cache)
    kept = cache.n_bytes

    assert _written(model, prompt, cache, **options) == _written(model, prompt, None, **options)
    assert cache.n_bytes == kept


def test_a_cache_of_several_rows_is_not_kept():
    cache, rows = PrefixCache(), DynamicCache()
    rows.update(torch.ones(2, 2, 3, 4), torch.ones(2, 2, 3, 4), 0)
    assert not cache.put(None, [1, 2, 3], rows)
    assert not cache.put(None, [1, 2, 3], DynamicCache())


def test_threads_share_a_cache():
    cache = PrefixCache(max_bytes=40 * BYTES_A_TOKEN)
    wrong = []

    def use(value):
        ids = [value] * 6
        for _ in range(100):
            past, n_tokens = cache.longest(value % 2, [*ids, 0])
            if n_tokens and past.layers[0].values.unique().tolist() != [value]:
                wrong.append(value)
            cache.put(value % 2, ids, _filled(6, value=float(value)))

    threads = [threading.Thread(target=use, args=(value,)) for value in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert cache.n_bytes == 6 * BYTES_A_TOKEN * len(cache)
    assert len(cache) == 6
