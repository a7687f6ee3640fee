import math
from dataclasses import replace

import pytest
import torch

from sift_core import AnswerError, InvalidInputError
from sift_core.answering import Adapter, FineTuningSettings, LanguageModel
from sift_core.answering.fine_tuning import fine_tune, fine_tuned
from sift_core.answering.model.training import LoraLearner
from sift_core.progress import checked
from tests.answering.plain_peft import TEXTS, assert_same_state, lora, state_of
from tests.answering.shapes import byte_tokenizer

FAST = FineTuningSettings(learning_rate=1e-2)  # a random model learns little at 5e-4


def test_the_model_computes_along_the_way_with_what_is_learned_by_then(make_random_lm):
    lm = make_random_lm()
    before = state_of(lm)
    seen = {}
    fine_tune(lm, TEXTS, FAST, on_state=lambda n: seen.update({n: lm.bits_per_byte(TEXTS[0])}))
    assert list(seen) == [0, 1, 2, 3]
    assert seen[0] == pytest.approx(lm.bits_per_byte(TEXTS[0]), abs=1e-6)
    for n in list(seen)[1:]:
        with fine_tuned(lm, TEXTS[:n], FAST):
            assert seen[n] == pytest.approx(lm.bits_per_byte(TEXTS[0]), abs=1e-6)
    assert seen[3] < seen[0] - 0.01
    assert_same_state(lm, before)


def test_the_same_is_learned_again_and_the_model_stays_as_it_is(random_lm):
    before = state_of(random_lm)
    base = random_lm.bits_per_byte(TEXTS[0])
    losses = []
    for checkpointing in (False, False, True):
        other = LanguageModel(random_lm.model, byte_tokenizer())  # puts no second hook
        settings = replace(FAST, checkpointing=checkpointing)
        with fine_tuned(other, [*TEXTS, TEXTS[0]], settings) as tuned:
            losses.append(tuned.losses)
            assert random_lm.bits_per_byte(TEXTS[0]) < base - 0.01
        assert other.lock is random_lm.lock
        assert random_lm.bits_per_byte(TEXTS[0]) == base
        assert_same_state(random_lm, before)
    assert losses[0] == losses[1] == pytest.approx(losses[2], rel=1e-5)
    assert max(max(counts) for counts in before[5]) <= 1


@pytest.mark.parametrize("has_inner", [True, False])
def test_of_nested_blocks_the_innermost_counts(make_random_lm, has_inner):
    lm = make_random_lm()
    first = fine_tune(lm, TEXTS, FAST).adapter
    second = fine_tune(lm, TEXTS[::-1], FAST).adapter if has_inner else None
    with lm.adapted(first):
        outside = lm.bits_per_byte(TEXTS[0])
    with lm.adapted(second):
        alone = lm.bits_per_byte(TEXTS[0])
    with lm.adapted(first):
        with lm.adapted(second):
            assert lm.bits_per_byte(TEXTS[0]) == alone
        assert lm.bits_per_byte(TEXTS[0]) == outside
    assert outside != alone


def test_learning_begins_from_the_base_also_where_something_is_active(make_random_lm):
    lm = make_random_lm()
    head = replace(FAST, lora=lora(4, targets=["lm_head"]))
    for settings in (FAST, head):
        expected = fine_tune(lm, TEXTS, settings).losses
        with lm.adapted(fine_tune(lm, TEXTS[::-1], FAST).adapter):
            assert fine_tune(lm, TEXTS, settings).losses == expected


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

        def backward(learner, window, weight, *, checkpointing):
            self.n_calls += 1
            self.asked.append(checkpointing)
            loss = original(learner, window, weight, checkpointing=checkpointing)
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


def test_running_out_of_memory_computes_activations_again(make_random_lm, monkeypatch):
    lm = make_random_lm()
    with fine_tuned(lm, TEXTS, FAST) as expected:
        pass
    failing = Failing(monkeypatch, torch.OutOfMemoryError("out of memory"), calls={2})
    with fine_tuned(lm, TEXTS, FAST) as tuned:
        pass
    assert failing.asked == [False, False, True, True]
    assert tuned.report.checkpointing
    assert tuned.losses == pytest.approx(expected.losses, rel=1e-5)


@pytest.mark.parametrize("is_forward_own", [False, True])
def test_layers_have_their_forward_back_after_memory_ran_out_in_one(
    make_random_lm, monkeypatch, is_forward_own
):
    lm = make_random_lm()
    first, last = lm.model.model.layers
    own = last.forward
    if is_forward_own:  # as Accelerate leaves it
        last.forward = own

    def fail(*_, **__):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(first, "forward", fail)
    with pytest.raises(AnswerError, match="pass shorter chunks"), fine_tuned(lm, TEXTS, FAST):
        pytest.fail("must not be reached")
    assert first.forward is fail
    assert last.forward == own
    assert ("forward" in vars(last)) == is_forward_own


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


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_learning_works_inside_a_servers_no_grad(make_random_lm, mode):
    lm = make_random_lm()
    with fine_tuned(lm, TEXTS, FAST) as expected:
        pass
    with mode(), fine_tuned(lm, TEXTS, FAST) as tuned:
        assert tuned.losses == expected.losses


@pytest.mark.parametrize("targets", ["all-linear", ["lm_head"]])
def test_learning_goes_on_from_an_adapter_which_stays_as_it_is(make_random_lm, targets, tmp_path):
    lm = make_random_lm()
    settings = replace(FAST, lora=lora(8, targets=targets))
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
    some = fine_tune(lm, TEXTS[:1], replace(FAST, lora=lora(8, targets=["q_proj"]))).adapter
    with pytest.raises(InvalidInputError):
        fine_tune(lm, TEXTS, FAST, start_from=some)


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": -1},
        {"seed": 2**70},
        {"learning_rate": 0.0},
        {"learning_rate": math.nan},
        {"max_seconds": 0},
        {"schedule": "cosine"},
    ],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        FineTuningSettings(**wrong)


class _LeftError(Exception):
    """Raised by a check: nobody waits any more."""


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_step_ends_between_two_layers_once_nobody_waits(random_lm, checkpointing):
    """Ctrl-C and the end of a client waited for a step, which may take half a minute."""
    before = state_of(random_lm)
    settings = replace(FAST, checkpointing=checkpointing)
    n_calls, last = 0, 10**9

    def check(_):
        nonlocal n_calls
        n_calls += 1
        if n_calls >= last:
            raise _LeftError

    with checked(check):
        tuned = fine_tune(random_lm, TEXTS[:1], settings)
    n_layers = len(random_lm.layers.linears)
    assert n_calls > 2 * n_layers  # forwards and backwards
    for last in (1, n_layers // 2, 2 * n_layers - 1):
        n_calls = 0
        with checked(check), pytest.raises(_LeftError):
            fine_tune(random_lm, TEXTS[:1], settings)
        assert n_calls == last
        assert_same_state(random_lm, before)
    last = 10**9
    assert fine_tune(random_lm, TEXTS[:1], settings).losses == tuned.losses
    n_calls, last = 0, 2
    with checked(check), pytest.raises(_LeftError):
        random_lm.generate(TEXTS[0][:20], max_new_tokens=1)
    assert n_calls == 2
