"""Several prompts at once are continued as each is alone."""

from __future__ import annotations

import threading

import pytest
import torch
from transformers import StoppingCriteria

from sift_core.answering.model.fair_lock import FairLock
from sift_core.answering.model.generation import generate_batch
from sift_core.errors import InvalidInputError
from tests.answering.shapes import sharpened

PROMPTS = [[5, 80, 90], [0, 66, 67, 68, 69, 70, 71, 72], [9], [100, 101, 102, 103]]


def _batch(lm, prompts, **options):
    with torch.inference_mode():
        return generate_batch(
            lm.model, lm.tokenizer, prompts, **{"pad_id": 1, "lock": FairLock(), **options}
        )


def _alone(lm, **options):
    return [_batch(lm, [ids], **options)[0] for ids in PROMPTS]


def _written(lm, ids, n):
    """One prompt's new tokens without padding, in transformers' own words."""
    inputs = torch.tensor([ids])
    mask = torch.ones_like(inputs)
    options = {"do_sample": False, "pad_token_id": 1, "eos_token_id": None}
    output = lm.model.generate(inputs, attention_mask=mask, max_new_tokens=n, **options)
    return output[0, len(ids) :].tolist()


@pytest.mark.parametrize("pad_id", [1, "eos", 70], ids=["another", "eos", "a letter"])
def test_a_batch_writes_what_each_prompt_gets_alone_however_early_a_row_ends(random_lm, pad_id):
    lm = sharpened(random_lm)
    rows = [_written(lm, ids, 12) for ids in PROMPTS]
    end = rows[0][3]  # wherever else it occurs
    expected = [row[: row.index(end) + 1] if end in row else row for row in rows]
    together = _batch(
        lm,
        PROMPTS,
        max_new_tokens=12,
        pad_id=end if pad_id == "eos" else pad_id,
        eos_token_id=end,
    )
    texts = [lm.tokenizer.decode(row, skip_special_tokens=True) for row in expected]
    assert [generation.text for generation in together] == texts
    assert [generation.n_new_tokens for generation in together] == list(map(len, expected))
    assert [generation.n_prompt_tokens for generation in together] == [3, 8, 1, 4]
    ended = ["stop" if end in row else "length" for row in rows]
    assert [generation.finish_reason for generation in together] == ended
    assert together == _alone(lm, max_new_tokens=12, eos_token_id=end)


def test_each_row_ends_at_its_own_stop_string(random_lm):
    lm = sharpened(random_lm)
    texts = [lm.tokenizer.decode(_written(lm, ids, 12)) for ids in PROMPTS]
    options = {"max_new_tokens": 12, "stop": [texts[0][5:7], texts[1][2]], "eos_token_id": None}
    together = _batch(lm, PROMPTS, **options)
    assert together == _alone(lm, **options)
    assert together[0].finish_reason == "stop"
    assert together[0].n_new_tokens < 12
    assert not any(stop in g.text for stop in options["stop"] for g in together)


def test_others_have_the_lock_while_a_listener_runs(make_random_lm):
    lock, seen = FairLock(), []

    def listen(piece):
        def compute():
            with lock.held():
                seen.append(piece)

        other = threading.Thread(target=compute)
        other.start()
        other.join(60)

    with lock.held():
        [generation] = _batch(
            make_random_lm(), PROMPTS[:1], max_new_tokens=4, on_text=listen, lock=lock
        )
    assert "".join(seen) == generation.text != ""


def test_others_have_the_lock_between_tokens(make_random_lm):
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
                pass

    lm.model.register_forward_hook(count)
    with lock.held():
        _batch(lm, PROMPTS, max_new_tokens=6, eos_token_id=None, lock=lock)
        other.join()
    assert seen == [1]


class _AfterThree(StoppingCriteria):
    """Ends the second row after three new tokens."""

    def __call__(self, input_ids, scores, **_):
        is_over = torch.zeros(len(input_ids), dtype=torch.bool)
        is_over[1] = input_ids.shape[1] == max(map(len, PROMPTS)) + 3
        return is_over


def test_criteria_of_the_caller_end_their_row_alone(make_random_lm):
    options = {"eos_token_id": None, "stopping_criteria": [_AfterThree()]}
    together = _batch(make_random_lm(), PROMPTS, max_new_tokens=6, **options)
    assert [generation.n_new_tokens for generation in together] == [6, 3, 6, 6]
    assert [g.finish_reason for g in together] == ["length", "stop", "length", "length"]


def test_beams_count_the_tokens_of_their_row_too(make_random_lm):
    lm = sharpened(make_random_lm())
    ends = list(range(200, 257))
    options = {"max_new_tokens": 6, "num_beams": 2, "eos_token_id": ends, "length_penalty": -2.0}
    together = _batch(lm, PROMPTS, **options)
    assert together == _alone(lm, **options)
    assert len({generation.n_new_tokens for generation in together}) > 1


def test_no_prompt_is_no_answer(make_random_lm):
    assert _batch(make_random_lm(), [], max_new_tokens=4) == []


@pytest.mark.parametrize(
    ("prompts", "options", "said"),
    [
        ([[5], []], {}, "prompt 1 has no tokens"),
        ([[5]], {"num_return_sequences": 2}, "one text a prompt"),
        ([[5]], {"max_new_tokens": 0}, "max_new_tokens"),
    ],
    ids=["empty prompt", "several texts", "no tokens"],
)
def test_what_cannot_be_written_is_a_clear_error(make_random_lm, prompts, options, said):
    with pytest.raises(InvalidInputError, match=said):
        _batch(make_random_lm(), prompts, **{"max_new_tokens": 4, **options})
