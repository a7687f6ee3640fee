from __future__ import annotations

import threading
import time

import pytest
import torch
from transformers import StoppingCriteria

from sift_core.answering.model.batching import generate_batch
from sift_core.answering.model.fair_lock import FairLock
from sift_core.answering.model.generation import ListenerError, TextWatcher
from sift_core.errors import InvalidInputError

PROMPTS = [[5, 80, 90], [0, 66, 67, 68, 69, 70, 71, 72], [9], [100, 101, 102, 103]]


def _alone(lm, ids, *, max_new_tokens, stop=(), on_text=None, **options):
    """One prompt without padding, in transformers' own words."""
    watcher = TextWatcher(lm.tokenizer, n_prompt_tokens=len(ids), stop=stop, on_text=on_text)
    inputs = torch.tensor([ids])
    output = lm.model.generate(
        inputs,
        attention_mask=torch.ones_like(inputs),
        max_new_tokens=max_new_tokens,
        do_sample=False,
        pad_token_id=1,
        stopping_criteria=[watcher],
        **options,
    )
    ends = options.get("eos_token_id", lm.model.generation_config.eos_token_id)
    return watcher.finished(
        output[0, len(ids) :].tolist(), max_new_tokens=max_new_tokens, ends=ends
    )


def _batch(lm, prompts, **options):
    with torch.inference_mode():
        return generate_batch(lm.model, lm.tokenizer, prompts, **options)


def _sharpened(lm):
    """The same model with larger weights, so that it does not repeat one token."""
    with torch.no_grad():
        for weight in lm.model.parameters():
            if weight.ndim == 2:
                weight.mul_(8)
    return lm


def test_a_batch_writes_what_each_prompt_gets_alone(random_lm):
    lm = _sharpened(random_lm)

    together = _batch(lm, PROMPTS, max_new_tokens=12)

    assert together == [_alone(lm, ids, max_new_tokens=12) for ids in PROMPTS]
    assert len({generation.text for generation in together}) > 1
    assert [generation.n_prompt_tokens for generation in together] == [3, 8, 1, 4]


def _written(lm, ids, n):
    inputs = torch.tensor([ids])
    mask = torch.ones_like(inputs)
    options = {"do_sample": False, "pad_token_id": 1, "eos_token_id": None}
    output = lm.model.generate(inputs, attention_mask=mask, max_new_tokens=n, **options)
    return output[0, len(ids) :].tolist()


@pytest.mark.parametrize("pad_id", [None, "eos", 70], ids=["none", "eos", "a letter"])
def test_a_row_that_ends_early_counts_its_own_tokens(random_lm, pad_id):
    lm = _sharpened(random_lm)
    rows = [_written(lm, ids, 12) for ids in PROMPTS]
    end = rows[0][3]  # wherever else it occurs
    pad = end if pad_id == "eos" else pad_id

    together = _batch(lm, PROMPTS, max_new_tokens=12, pad_id=pad, eos_token_id=end)

    expected = [row.index(end) + 1 if end in row else 12 for row in rows]
    assert [generation.n_new_tokens for generation in together] == expected
    assert together == [_alone(lm, ids, max_new_tokens=12, eos_token_id=end) for ids in PROMPTS]
    assert [generation.finish_reason for generation in together] == [
        "stop" if end in row else "length" for row in rows
    ]
    assert "stop" in {generation.finish_reason for generation in together}


def test_each_row_ends_at_its_own_stop_string(random_lm):
    lm = _sharpened(random_lm)
    texts = [lm.tokenizer.decode(_written(lm, ids, 12)) for ids in PROMPTS]
    stop = [texts[0][5:7], texts[1][2]]

    together = _batch(lm, PROMPTS, max_new_tokens=12, stop=stop, eos_token_id=None)

    alone = [_alone(lm, ids, max_new_tokens=12, stop=stop, eos_token_id=None) for ids in PROMPTS]
    assert together == alone
    assert together[0].finish_reason == "stop"
    assert together[0].n_new_tokens < 12
    assert not any(text in generation.text for text in stop for generation in together)


def test_the_pieces_of_each_row_add_up_to_its_text(random_lm):
    lm = _sharpened(random_lm)
    end = _written(lm, PROMPTS[0], 4)[3]
    pieces = {row: "" for row in range(4)}

    def listen(row, piece):
        pieces[row] += piece

    together = _batch(
        lm, PROMPTS, max_new_tokens=10, on_text=listen, stop=["zzz"], eos_token_id=end, pad_id=70
    )

    assert [pieces[row] for row in range(4)] == [generation.text for generation in together]


def test_others_have_their_turn_while_a_listener_runs(make_random_lm):
    lock, seen = FairLock(), []

    def listen(row, piece):
        def compute():
            with lock.held():
                seen.append(row)

        other = threading.Thread(target=compute)
        other.start()
        other.join()

    with lock.held():
        _batch(make_random_lm(), PROMPTS, max_new_tokens=2, on_text=listen, lock=lock)

    assert set(seen) == {0, 1, 2, 3}


def test_others_have_their_turn_between_tokens(make_random_lm):
    lm, lock, seen = make_random_lm(), FairLock(), []

    def compute():
        with lock.held():
            seen.append(n_steps)

    n_steps = 0
    other = threading.Thread(target=compute)

    def count(*_):
        nonlocal n_steps
        n_steps += 1
        if n_steps == 1:
            other.start()
            while not lock._waiting:
                time.sleep(1e-3)

    lm.model.register_forward_hook(count)
    with lock.held():
        _batch(lm, PROMPTS, max_new_tokens=6, eos_token_id=None, lock=lock)
        other.join(timeout=30)

    assert seen == [1]


def test_what_a_listener_raises_ends_the_batch(make_random_lm):
    def listen(row, piece):
        raise KeyError(row)

    with pytest.raises(ListenerError) as caught:
        _batch(make_random_lm(), PROMPTS, max_new_tokens=4, on_text=listen)
    assert isinstance(caught.value.error, KeyError)


class _AfterThree(StoppingCriteria):
    """Ends the second row after three new tokens."""

    def __call__(self, input_ids, scores, **_):
        is_over = torch.zeros(len(input_ids), dtype=torch.bool)
        is_over[1] = input_ids.shape[1] == max(map(len, PROMPTS)) + 3
        return is_over


def test_criteria_of_the_caller_end_their_row_alone(make_random_lm):
    lm = make_random_lm()

    together = _batch(
        lm, PROMPTS, max_new_tokens=6, eos_token_id=None, stopping_criteria=[_AfterThree()]
    )

    assert [generation.n_new_tokens for generation in together] == [6, 3, 6, 6]
    assert [g.finish_reason for g in together] == ["length", "stop", "length", "length"]


def test_beams_count_the_tokens_of_their_row_too(make_random_lm):
    lm = _sharpened(make_random_lm())
    ends = list(range(200, 257))
    options = {"max_new_tokens": 6, "num_beams": 2, "eos_token_id": ends, "length_penalty": -2.0}

    together = _batch(lm, PROMPTS, pad_id=1, **options)

    assert together == [_alone(lm, ids, **options) for ids in PROMPTS]
    assert len({generation.n_new_tokens for generation in together}) > 1


def test_no_prompt_is_no_answer(make_random_lm):
    assert _batch(make_random_lm(), [], max_new_tokens=4) == []


@pytest.mark.parametrize(
    ("prompts", "options", "said"),
    [
        ([[5], []], {}, "prompt 1 has no tokens"),
        ([[5]], {"num_return_sequences": 2}, "one text a prompt"),
        ([[5]], {"max_new_tokens": 0}, "max_new_tokens"),
        ([[5]], {"stop": [""]}, "empty"),
    ],
    ids=["empty prompt", "several texts", "no tokens", "empty stop"],
)
def test_what_cannot_be_written_is_a_clear_error(make_random_lm, prompts, options, said):
    with pytest.raises(InvalidInputError, match=said):
        _batch(make_random_lm(), prompts, **{"max_new_tokens": 4, **options})
