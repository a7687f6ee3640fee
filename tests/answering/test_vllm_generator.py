"""An engine that learns here has a server write that behaves as vLLM does."""

from __future__ import annotations

import json
import time

import pytest

from sift_core import ChoiceOptions, InvalidInputError
from sift_core.answering import FineTuningSettings, VllmGenerator, VllmServer
from sift_core.answering.model.generation_options import seeded
from sift_core.errors import AdapterServerError
from tests.answering.plain_peft import TEXTS, lora
from tests.answering.vllm_double import BASE, entries
from tests.engines import engine_of

QUESTION = "where is the cat?"


@pytest.fixture
def server(vllm, tmp_path):
    with VllmServer(vllm.url, base_model=BASE, folder=tmp_path / "adapters") as server:
        yield server


@pytest.fixture
def engine(server, llama):
    return engine_of(
        llama,
        TEXTS,
        options=ChoiceOptions(n_select=2),
        n_steps=2,
        max_new_tokens=8,
        settings=FineTuningSettings(lora=lora(4)),
        generator=VllmGenerator(server, llama),
    )


def sent(vllm):
    """Return the bodies of the texts that were asked for."""
    return [body for route, body in vllm.calls if route == "completions"]


@pytest.mark.parametrize("mode", ["base", "context", "fine_tune", "both"])
def test_a_text_begins_with_the_tokens_that_it_would_begin_with_here(engine, vllm, mode, tmp_path):
    answer = engine.answer(QUESTION, mode=mode)
    (body,) = sent(vllm)
    choice = engine.choose(QUESTION, mode=mode)
    answerer = engine.prepare(choice).answerer
    prompt = answerer.prompt_for(
        choice.query, answerer.used(choice.query, choice.chunks(choice.read))
    )
    assert body["prompt"] == engine.language_model.prompt_ids(prompt)
    assert (body["max_tokens"], body["temperature"], body["stop"]) == (8, 0.0, [])
    assert answer.mode == mode
    assert answer.text == f"written by {body['model'][:8]}, after {len(body['prompt'])} tokens"
    assert (answer.n_prompt_tokens, answer.n_new_tokens) == (len(body["prompt"]), 6)
    assert answer.finish_reason == "stop"
    learns = mode in ("fine_tune", "both")
    assert (body["model"] == BASE) is not learns
    loaded = ["models", "load_lora_adapter", "completions", "unload_lora_adapter"]
    assert vllm.routes() == (loaded if learns else ["completions"])
    assert entries(tmp_path) == []


def test_a_session_learns_once_and_loads_for_each_text(engine, vllm, tmp_path):
    session = engine.session(QUESTION, mode="fine_tune")
    texts = [session.answer(question).text for question in (QUESTION, "and the dog?")]
    texts += [answer.text for answer in session.answers([QUESTION, "and the dog?"])]
    assert texts[:2] == texts[2:]
    assert len({body["model"] for body in sent(vllm)}) == 1
    assert vllm.routes().count("load_lora_adapter") == 4
    assert (vllm.loaded, entries(tmp_path)) == ({}, [])


def test_a_stream_has_the_pieces_as_they_come(engine, vllm):
    with engine.stream(QUESTION, mode="fine_tune") as stream:
        pieces = list(stream)
    assert pieces[0] == "written"
    assert len(pieces) == 6
    assert stream.answer().text == "".join(pieces)


def test_a_text_may_hold_separators_of_lines(engine, vllm):
    text = "a\u2028b\u2029c\x85d"
    choice = {"text": text, "finish_reason": "stop"}
    event = json.dumps({"choices": [choice]}, ensure_ascii=False)
    vllm.failures["completions"] = [(200, f"data: {event}\r\n\r\ndata: [DONE]\n\n".encode())]
    assert engine.answer(QUESTION, mode="base").text == text


def test_a_stream_that_is_closed_ends_the_writing(engine, vllm, tmp_path):
    vllm.n_more, vllm.word_s = 10_000, 0.02  # minutes
    with engine.stream(QUESTION, mode="fine_tune") as stream:
        next(stream)
    assert (vllm.loaded, entries(tmp_path)) == ({}, [])
    end = time.monotonic() + 300
    while not vllm.n_left:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_what_a_listener_raises_passes_and_nothing_stays_loaded(engine, vllm, tmp_path):
    def listen(_):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        engine.answer(QUESTION, mode="fine_tune", on_text=listen)
    assert (vllm.loaded, entries(tmp_path)) == ({}, [])


def test_length_and_settings_are_the_servers(engine, vllm):
    answer = engine.answer(QUESTION, mode="base", max_new_tokens=3, stop=["dog"])
    assert (answer.text.split()[:2], answer.finish_reason) == (["written", "by"], "length")
    engine.answer(QUESTION, mode="base", do_sample=True, temperature=0.5, repetition_penalty=1.1)
    engine.answer(QUESTION, mode="base", **seeded(temperature=0.7, top_p=0.9, seed=5))
    stopped, sampled, drawn = sent(vllm)
    assert (stopped["max_tokens"], stopped["stop"]) == (3, ["dog"])
    assert (sampled["temperature"], sampled["repetition_penalty"]) == (0.5, 1.1)
    assert "top_p" not in sampled
    asked = [drawn[name] for name in ("temperature", "top_p", "seed", "top_k", "min_p")]
    assert asked == [0.7, 0.9, 5, -1, 0.0]
    with pytest.raises(InvalidInputError, match="num_beams"):
        engine.answer(QUESTION, mode="base", num_beams=2)


@pytest.mark.parametrize(
    ("break_it", "words", "status"),
    [
        (lambda vllm: setattr(vllm, "breaks_after", 1), ["broke off", "engine dead"], None),
        (
            lambda vllm: vllm.failures.update(completions=[(404, {"error": {"message": "gone"}})]),
            ["404 gone"],
            404,
        ),
        (
            lambda vllm: vllm.failures.update(completions=[(200, b"data: 7\n\n")]),
            ["no event"],
            None,
        ),
        (lambda vllm: vllm.failures.update(completions=[(200, b"")]), ["broke off"], None),
    ],
    ids=["an engine that dies", "unloaded", "no vLLM", "broken off"],
)
def test_a_failure_leaves_nothing_behind(engine, vllm, tmp_path, break_it, words, status):
    break_it(vllm)
    with pytest.raises(AdapterServerError) as caught:
        engine.answer(QUESTION, mode="fine_tune")
    for word in words:
        assert word in str(caught.value)
    assert caught.value.status == status
    assert (vllm.loaded, entries(tmp_path)) == ({}, [])


def test_a_text_is_not_lost_for_a_failed_unloading(engine, vllm, caplog, tmp_path):
    vllm.failures["unload_lora_adapter"] = [(500, {"error": {"message": "not now"}})]
    assert engine.answer(QUESTION, mode="fine_tune").text.startswith("written by")
    assert "not now" in caplog.text
    assert len(vllm.loaded) == len(entries(tmp_path)) == 1
    engine.answer("and where is the black dog?", mode="fine_tune", max_new_tokens=4)
    assert (vllm.loaded, entries(tmp_path)) == ({}, [])
