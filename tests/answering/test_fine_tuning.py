import asyncio
import math
from dataclasses import replace

import pytest
import torch

from sift_core import AnswerError, InvalidInputError
from sift_core.answering import Adapter, FineTuningSettings, LanguageModel, fine_tuned
from sift_core.answering.learning.fine_tuning import fine_tune
from sift_core.answering.learning.learners import LoraLearner
from tests.answering.plain_peft import TEXTS, assert_same_state, state_of

FAST = FineTuningSettings(learning_rate=1e-2)  # a random model learns little at 5e-4


@pytest.mark.parametrize("scope", ["all", "top:1", "head", "full"])
@pytest.mark.parametrize("chunks_per_step", [1, 2])
def test_the_model_computes_along_the_way_with_what_is_learned_by_then(
    make_random_lm, scope, chunks_per_step
):
    lm = make_random_lm()
    before = state_of(lm)
    settings = replace(FAST, scope=scope, chunks_per_step=chunks_per_step)
    seen = {}
    fine_tune(lm, TEXTS, settings, on_state=lambda n: seen.update({n: lm.bits_per_byte(TEXTS[0])}))
    assert list(seen) == ([0, 1, 2, 3] if chunks_per_step == 1 else [0, 2, 3])
    assert seen[0] == pytest.approx(lm.bits_per_byte(TEXTS[0]), abs=1e-6)
    for n in list(seen)[1:]:
        with fine_tuned(lm, TEXTS[:n], settings):
            assert seen[n] == pytest.approx(lm.bits_per_byte(TEXTS[0]), abs=1e-6)
    assert seen[3] < seen[0] - 0.01
    assert_same_state(lm, before)


def test_the_base_is_bit_identical_after_an_exception_in_the_block(random_lm):
    before = state_of(random_lm)
    with pytest.raises(KeyError), fine_tuned(random_lm, TEXTS):
        raise KeyError("the user's own")
    assert_same_state(random_lm, before)


@pytest.mark.parametrize(("n_times", "n_refused"), [(4, 2), (0, 0)])
def test_learning_that_diverges_falls_back_and_says_so(random_lm, n_times, n_refused):
    before = state_of(random_lm)
    base = random_lm.bits_per_byte(TEXTS[0])
    texts = TEXTS * n_times or TEXTS[:1]  # also where the last step leaves it unable to compute
    with fine_tuned(random_lm, texts, FineTuningSettings(learning_rate=1e30)) as tuned:
        assert random_lm.bits_per_byte(TEXTS[0]) == base  # one step was taken, and undone
    assert (tuned.report.n_steps, tuned.report.n_refused) == (1, n_refused)
    assert tuned.report.stop_reason == "diverged"
    assert "fell back to the base model" in tuned.report.warnings[0]
    assert_same_state(random_lm, before)


class Failing:
    """Lets chosen backward passes of a learner fail, or give what is not a number."""

    def __init__(self, monkeypatch, outcome, *, calls):
        self.n_calls, self.asked = 0, []
        original = LoraLearner.backward

        def backward(learner, rows, *, checkpointing):
            self.n_calls += 1
            self.asked.append((len(rows), checkpointing))
            loss = original(learner, rows, checkpointing=checkpointing)
            if self.n_calls not in calls:
                return loss
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        monkeypatch.setattr(LoraLearner, "backward", backward)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_one_step_that_is_not_finite_is_refused_and_the_others_are_taken(
    make_random_lm, monkeypatch, loss
):
    lm = make_random_lm()
    with fine_tuned(lm, [TEXTS[0], TEXTS[2]], FAST) as expected:
        pass
    Failing(monkeypatch, loss, calls={2})
    with fine_tuned(lm, TEXTS, FAST) as tuned:
        pass
    assert tuned.losses == expected.losses  # neither weights nor Adam's moments know of it
    assert torch.equal(tuned.adapter.values, expected.adapter.values)
    assert (tuned.report.n_refused, tuned.report.stop_reason) == (1, "done")
    assert "1 steps were refused" in tuned.report.warnings[0]


def test_two_steps_in_a_row_that_are_not_finite_lead_back_to_the_last_good_adapter(
    make_random_lm, monkeypatch
):
    lm = make_random_lm()
    with fine_tuned(lm, TEXTS[:1], FAST) as expected:
        pass
    Failing(monkeypatch, math.nan, calls={3, 4})
    with fine_tuned(lm, TEXTS * 3, FAST) as tuned:
        pass
    assert torch.equal(tuned.adapter.values, expected.adapter.values)
    assert "the last good adapter" in tuned.report.warnings[0]


def test_running_out_of_memory_halves_the_rows_then_computes_activations_again(
    make_random_lm, monkeypatch
):
    lm = make_random_lm()
    settings = FineTuningSettings(chunks_per_step=3, rows_per_pass=3, learning_rate=1e-2)
    with fine_tuned(lm, TEXTS, settings) as expected:
        pass
    failing = Failing(monkeypatch, torch.OutOfMemoryError("out of memory"), calls={1, 2})
    with fine_tuned(lm, TEXTS, settings) as tuned:
        pass
    assert failing.asked[:5] == [(3, False), (1, False), (1, True), (1, True), (1, True)]
    assert (tuned.report.rows_per_pass, tuned.report.checkpointing) == (1, True)
    assert tuned.losses == pytest.approx(expected.losses, rel=1e-5)


def test_running_out_of_memory_with_one_row_and_checkpointing_is_an_error(
    make_random_lm, monkeypatch
):
    lm = make_random_lm()
    before = state_of(lm)
    Failing(monkeypatch, torch.OutOfMemoryError("out of memory"), calls=set(range(99)))
    with pytest.raises(AnswerError, match="pass shorter chunks"), fine_tuned(lm, TEXTS):
        pytest.fail("must not be reached")
    assert_same_state(lm, before)


def test_global_random_state_is_left_alone(make_random_lm):
    lm = make_random_lm()
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    with fine_tuned(lm, TEXTS):
        pass
    assert torch.equal(torch.rand(3), expected)


def test_a_text_longer_than_the_window_is_learned_whole_in_one_step(make_random_lm):
    lm = make_random_lm()
    long_text = "abcdefgh" * 25  # 200 tokens, a window has 64
    with fine_tuned(lm, [long_text]) as tuned:
        losses = tuned.losses
    assert len(losses) == 1
    nats_per_byte = lm.bits_per_byte(long_text) * math.log(2)
    assert losses[0] == pytest.approx(nats_per_byte, rel=1e-5)  # one token a byte


@pytest.mark.parametrize("texts", [[], [""]])
def test_a_text_without_a_token_takes_no_step(make_random_lm, texts):
    lm = make_random_lm()
    base = lm.bits_per_byte(TEXTS[0])
    with fine_tuned(lm, texts) as tuned:
        assert (tuned.report.n_steps, tuned.report.n_skipped) == (0, len(texts))
        assert lm.bits_per_byte(TEXTS[0]) == base


def test_blocks_of_two_models_hold_inside_each_other(make_random_lm):
    one, other = make_random_lm("gpt2"), make_random_lm()
    with fine_tuned(one, TEXTS, FAST):
        expected = one.bits_per_byte(TEXTS[0])
        with fine_tuned(other, TEXTS, FAST):
            assert one.bits_per_byte(TEXTS[0]) == expected


async def test_asyncio_tasks_have_an_adapter_each(make_random_lm):
    lm = make_random_lm()
    base = lm.bits_per_byte(TEXTS[0])
    everyone_adapted = asyncio.Barrier(4) if hasattr(asyncio, "Barrier") else None
    topics = [[letter * 20] * 4 for letter in "abc"]

    async def score(topic):
        with fine_tuned(lm, topic, FAST):
            await (everyone_adapted.wait() if everyone_adapted else asyncio.sleep(0.1))
            return lm.bits_per_byte(TEXTS[0])

    async def read():
        await (everyone_adapted.wait() if everyone_adapted else asyncio.sleep(0.1))
        return lm.bits_per_byte(TEXTS[0])

    *together, seen = await asyncio.gather(*(score(topic) for topic in topics), read())
    assert seen == base
    for topic, bits in zip(topics, together, strict=True):
        with fine_tuned(lm, topic, FAST):
            assert lm.bits_per_byte(TEXTS[0]) == bits


def test_two_wrappers_of_one_model_share_what_is_active(make_random_lm, byte_tokenizer):
    lm = make_random_lm()
    other = LanguageModel(lm.model, byte_tokenizer)
    with fine_tuned(lm, TEXTS, FAST):
        assert other.bits_per_byte(TEXTS[0]) == lm.bits_per_byte(TEXTS[0])
    assert other.lock is lm.lock


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_learning_works_inside_a_servers_no_grad(make_random_lm, mode):
    lm = make_random_lm()
    with fine_tuned(lm, TEXTS, FAST) as expected:
        pass
    with mode(), fine_tuned(lm, TEXTS, FAST) as tuned:
        assert tuned.losses == expected.losses


def test_a_time_budget_ends_the_learning_after_the_first_step_beyond_it(make_random_lm):
    lm = make_random_lm()
    with fine_tuned(lm, TEXTS * 50, FineTuningSettings(max_seconds=1e-9)) as tuned:
        pass
    assert (tuned.report.n_steps, tuned.report.stop_reason) == (1, "time")


def test_a_chunk_chosen_again_may_follow_its_first_gradient(make_random_lm):
    lm = make_random_lm()
    chunks = [TEXTS[0], TEXTS[1], TEXTS[0], TEXTS[0]]
    settings = FineTuningSettings(reuse_gradients=True, learning_rate=1e-2)
    with fine_tuned(lm, chunks, settings) as tuned:
        reused = lm.bits_per_byte(TEXTS[0])
    assert tuned.report.n_steps == 4
    assert tuned.losses[0] == tuned.losses[1] == tuned.losses[2] != tuned.losses[3]
    with fine_tuned(lm, chunks[:2], FAST):
        assert reused < lm.bits_per_byte(TEXTS[0])  # the repeats did teach it more


def test_several_chunks_a_step_follow_their_mean_gradient(make_random_lm):
    lm = make_random_lm()
    settings = FineTuningSettings(chunks_per_step=2, learning_rate=1e-2)
    with fine_tuned(lm, TEXTS, settings) as tuned:
        pass
    assert tuned.report.n_steps == 2
    nats = [lm.bits_per_byte(text) * math.log(2) for text in TEXTS[:2]]  # a token a byte
    assert tuned.losses[0] == pytest.approx(sum(nats) / 2, rel=1e-5)


@pytest.mark.parametrize("scope", ["all", "top:1", "head"])
def test_learning_goes_on_from_an_adapter_which_stays_as_it_is(make_random_lm, scope, tmp_path):
    lm = make_random_lm()
    settings = replace(FAST, scope=scope)
    first = fine_tune(lm, TEXTS[:2], settings).adapter
    kept = first.values.clone()
    with lm.adapted(first):
        started = lm.bits_per_byte(TEXTS[2])
    seen = []
    second = fine_tune(
        lm,
        TEXTS[2:],
        settings,
        start_from=first,
        on_state=lambda n: seen.append(lm.bits_per_byte(TEXTS[2])),
    )
    assert seen[0] == started
    assert seen[1] < started
    assert torch.equal(first.values, kept)
    assert second.adapter.layout == first.layout
    first.save(tmp_path)  # a file has the layers in another order
    loaded = Adapter.load(tmp_path)
    again = fine_tune(lm, TEXTS[2:], settings, start_from=loaded).adapter
    assert torch.equal(again.values, second.adapter.values)


def test_learning_starts_from_no_adapter_of_other_layers(make_random_lm):
    lm = make_random_lm()
    top = fine_tune(lm, TEXTS[:1], replace(FAST, scope="top:1")).adapter
    for scope in ("all", "full"):
        with pytest.raises(InvalidInputError):
            fine_tune(lm, TEXTS, replace(FAST, scope=scope), start_from=top)


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": -1},
        {"seed": 2**70},
        {"learning_rate": 0.0},
        {"learning_rate": math.nan},
        {"scope": "top:0"},
        {"scope": "middle"},
        {"chunks_per_step": 0},
        {"rows_per_pass": 0},
        {"max_seconds": 0},
        {"chunk_format": "html"},
        {"schedule": "cosine"},
    ],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        FineTuningSettings(**wrong)
