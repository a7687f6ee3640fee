import asyncio
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers.pytorch_utils import Conv1D

from sift_core import AnswerError, AnswerMode, CandidatePool, InvalidInputError, Query
from sift_core.answering import FineTuningAnswerer, FineTuningSettings, LanguageModel, fine_tuned

FAST = FineTuningSettings(learning_rate=1e-2)  # a random model learns little at 5e-4
TEXTS = ["the cat sat on the mat", "the dog sat on the log", "a cow ate the hay"]


def state_of(lm):
    """Everything that must be the same afterwards: weights, modules, flags, attributes."""
    model = lm.model
    return (
        {name: value.clone() for name, value in model.state_dict().items()},
        [(name, id(module)) for name, module in model.named_modules()],
        [p.requires_grad for p in model.parameters()],
        set(vars(model)),
        model.training,
    )


def assert_same_state(lm, before):
    weights, *rest = state_of(lm)
    assert weights.keys() == before[0].keys()
    assert all(torch.equal(weights[name], before[0][name]) for name in weights)
    assert rest == list(before[1:])


def test_the_base_is_bit_identical_after_learning(random_lm):
    before = state_of(random_lm)
    base_loss = random_lm.bits_per_byte(TEXTS[0])
    with fine_tuned(random_lm, TEXTS * 5, FAST):
        assert random_lm.bits_per_byte(TEXTS[0]) < base_loss - 0.1  # it did learn
    assert_same_state(random_lm, before)
    assert random_lm.bits_per_byte(TEXTS[0]) == base_loss


def test_the_base_is_bit_identical_after_an_exception_in_the_block(random_lm):
    before = state_of(random_lm)
    with pytest.raises(KeyError), fine_tuned(random_lm, TEXTS):
        raise KeyError("the user's own")
    assert_same_state(random_lm, before)


def test_the_base_is_bit_identical_after_learning_diverged(random_lm):
    before = state_of(random_lm)
    settings = FineTuningSettings(learning_rate=1e30)
    with pytest.raises(AnswerError, match="not finite; lower the learning rate"):
        with fine_tuned(random_lm, TEXTS * 4, settings):
            pytest.fail("a diverged model must not be handed out")
    assert_same_state(random_lm, before)


def test_the_base_is_bit_identical_after_running_out_of_memory(make_random_lm, monkeypatch):
    lm = make_random_lm()
    before = state_of(lm)
    steps = iter(range(10))

    def fail_on_third(self, window):
        if next(steps) == 2:
            raise torch.OutOfMemoryError("out of memory")
        return original(self, window)

    original = LanguageModel.loss_sum
    monkeypatch.setattr(LanguageModel, "loss_sum", fail_on_third)
    with pytest.raises(AnswerError, match="out of memory"), fine_tuned(lm, TEXTS):
        pytest.fail("must not be reached")
    assert_same_state(lm, before)


def test_learning_equals_a_plain_peft_loop(random_lm):
    # The oracle: PEFT's own wrapper, the HF loss, one Adam step a text, paper's settings.
    with fine_tuned(random_lm, TEXTS) as losses:
        pass
    model = random_lm.model
    config = LoraConfig(
        r=64,
        lora_alpha=16,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
        fan_in_fan_out=any(isinstance(m, Conv1D) for m in model.modules()),
    )
    with pytest.warns(FutureWarning, match="is_gradient_checkpointing"):  # PEFT 0.21's own
        peft_model = get_peft_model(model, config)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in peft_model.named_parameters():
        if "lora_A" in name:
            torch.nn.init.kaiming_uniform_(parameter, a=math.sqrt(5), generator=generator)
    optimizer = torch.optim.Adam([p for p in peft_model.parameters() if p.requires_grad], lr=5e-4)
    expected = []
    for text in TEXTS:
        ids = torch.tensor([[0, *random_lm.token_ids(text)]])
        loss = peft_model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(float(loss.detach()))
    assert losses == pytest.approx(expected, rel=1e-5)
    assert losses[1] != pytest.approx(losses[0], rel=1e-3)


def test_one_step_a_text_in_order_and_repeats_count(make_random_lm):
    with fine_tuned(make_random_lm(), [TEXTS[0]] * 4, FAST) as losses:
        assert len(losses) == 4
        assert losses == sorted(losses, reverse=True)  # the same text gets easier every time


def test_the_first_loss_is_the_base_models_own(tiny_lm):
    text = "Return the sum of all numbers in the list."
    nats_per_byte = tiny_lm.bits_per_byte(text) * math.log(2)
    with fine_tuned(tiny_lm, [text]) as losses:
        n_bytes, n_tokens = len(text.encode()), tiny_lm.n_tokens(text)
        assert losses[0] == pytest.approx(nats_per_byte * n_bytes / n_tokens, rel=1e-4)


def test_the_same_seed_gives_the_same_losses_and_another_one_others(make_random_lm):
    def losses_with(seed):
        with fine_tuned(make_random_lm(), TEXTS, FineTuningSettings(seed=seed)) as losses:
            return list(losses)

    assert losses_with(1) == losses_with(1)
    assert losses_with(1)[-1] != losses_with(2)[-1]


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
    with fine_tuned(lm, [long_text]) as losses:
        assert len(losses) == 1
    nats_per_byte = lm.bits_per_byte(long_text) * math.log(2)
    assert losses[0] == pytest.approx(nats_per_byte, rel=1e-5)  # one token a byte


def test_each_step_is_reported_as_it_is_taken(make_random_lm):
    reported = []
    with fine_tuned(make_random_lm(), TEXTS, on_step=reported.append) as losses:
        assert reported == losses


def test_a_report_that_raises_ends_the_learning_and_restores_the_base(make_random_lm):
    lm = make_random_lm()
    before = state_of(lm)

    def cancel(loss):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), fine_tuned(lm, TEXTS, on_step=cancel):
        pytest.fail("must not be reached")
    assert_same_state(lm, before)


def test_a_text_without_a_token_takes_no_step(make_random_lm):
    with fine_tuned(make_random_lm(), ["", TEXTS[0]]) as losses:
        assert len(losses) == 1


def test_a_bfloat16_model_learns_too(make_random_lm):
    lm = make_random_lm()
    lm.model.to(torch.bfloat16)
    with fine_tuned(lm, [TEXTS[0]] * 5, FAST) as losses:
        trainable = {p.dtype for p in lm.model.parameters() if p.requires_grad}
    assert trainable == {torch.float32}
    assert losses[-1] < losses[0] - 0.05


def test_concurrent_answers_equal_serial_ones(make_random_lm):
    lm = make_random_lm()
    settings = FAST
    topics = [[letter * 20] * 4 for letter in "abcdef"]

    def score(topic):
        with fine_tuned(lm, topic, settings):
            return lm.bits_per_byte("abcdef")

    serial = [score(topic) for topic in topics]
    concurrent: dict[int, float] = {}
    threads = [
        threading.Thread(target=lambda i=i: concurrent.update({i: score(topics[i])}))
        for i in range(len(topics))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [concurrent[i] for i in range(len(topics))] == serial


def test_models_in_several_threads_do_not_share_random_numbers(make_random_lm):
    models = [make_random_lm() for _ in range(4)]

    def losses_of(lm):
        with fine_tuned(lm, TEXTS, FAST) as losses:
            return tuple(losses)

    expected = losses_of(models[0])
    with ThreadPoolExecutor(4) as pool:
        seen = {losses for _ in range(6) for losses in pool.map(losses_of, models)}
    assert seen == {expected}


def test_a_second_fine_tuning_inside_the_first_is_refused(make_random_lm):
    lm = make_random_lm()
    before = state_of(lm)
    with fine_tuned(lm, TEXTS, FAST):
        inside = lm.bits_per_byte(TEXTS[0])
        with pytest.raises(InvalidInputError, match="fine-tuned already"), fine_tuned(lm, TEXTS):
            pytest.fail("must not be reached")
        assert lm.bits_per_byte(TEXTS[0]) == inside
    assert_same_state(lm, before)


async def test_another_asyncio_task_never_sees_the_adapter(make_random_lm):
    lm = make_random_lm()
    before = state_of(lm)
    adapted, done = asyncio.Event(), asyncio.Event()

    async def learn():
        with fine_tuned(lm, TEXTS, FAST):
            adapted.set()
            await done.wait()
            return lm.bits_per_byte(TEXTS[0])  # its own calls go on

    async def read():
        await adapted.wait()
        try:
            with pytest.raises(AnswerError, match="another task"):
                lm.bits_per_byte(TEXTS[0])
            with pytest.raises(InvalidInputError, match="already"), fine_tuned(lm, TEXTS):
                pytest.fail("must not be reached")
        finally:
            done.set()

    tuned, _ = await asyncio.gather(learn(), read())
    assert_same_state(lm, before)
    assert tuned < lm.bits_per_byte(TEXTS[0])


def test_two_wrappers_of_one_model_share_its_guard(make_random_lm, byte_tokenizer):
    lm = make_random_lm()
    other = LanguageModel(lm.model, byte_tokenizer)
    with fine_tuned(lm, TEXTS), pytest.raises(InvalidInputError, match="already"):
        with fine_tuned(other, TEXTS):
            pytest.fail("must not be reached")


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_learning_works_inside_a_servers_no_grad(make_random_lm, mode):
    lm = make_random_lm()
    with fine_tuned(lm, TEXTS, FAST) as expected:
        pass
    with mode(), fine_tuned(lm, TEXTS, FAST) as losses:
        assert losses == expected


def test_a_report_may_raise_its_own_runtime_error(make_random_lm):
    class Cancelled(RuntimeError):
        pass

    def cancel(loss):
        raise Cancelled

    with pytest.raises(Cancelled), fine_tuned(make_random_lm(), TEXTS, on_step=cancel):
        pytest.fail("must not be reached")


def test_a_reader_in_another_thread_never_sees_the_adapter(make_random_lm):
    lm = make_random_lm()
    base = lm.bits_per_byte(TEXTS[0])
    seen = []
    with fine_tuned(lm, TEXTS * 5, FAST):
        reader = threading.Thread(target=lambda: seen.append(lm.bits_per_byte(TEXTS[0])))
        reader.start()
        reader.join(timeout=0.2)
        assert seen == []  # it waits
    reader.join()
    assert seen == [base]


@pytest.mark.parametrize(
    "wrong",
    [
        {"rank": 0},
        {"rank": 2.5},
        {"seed": -1},
        {"seed": 2**70},
        {"learning_rate": 0.0},
        {"learning_rate": math.nan},
        {"alpha": -1.0},
    ],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        FineTuningSettings(**wrong)


def test_the_answerer_learns_from_the_chunks_and_forgets_them(make_random_lm):
    lm = make_random_lm()
    before = state_of(lm)
    answerer = FineTuningAnswerer(language_model=lm, settings=FAST, max_new_tokens=4)
    chunks = CandidatePool(
        document_ids=["a", "b", "a"],
        texts=[TEXTS[0], TEXTS[1], TEXTS[0]],
        embeddings=np.eye(3),
        similarities=np.zeros(3),
    )
    answer = answerer.answer(Query(text="the cat", embedding=np.ones(3)), chunks)
    assert answer.mode is AnswerMode.FINE_TUNE
    assert answer.chunks.document_ids == ("a", "b", "a")
    assert set(answer.timings) == {"fine_tune", "generate"}
    assert answerer.bits_per_byte(TEXTS[0], chunks) < lm.bits_per_byte(TEXTS[0])
    assert_same_state(lm, before)
