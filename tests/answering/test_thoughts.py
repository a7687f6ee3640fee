"""Thinking is off unless it is asked for, and thoughts are no part of an answer."""

import json

import numpy as np
import pytest
import transformers
from transformers import AddedToken

from sift_core import CandidatePool, InMemorySource, InvalidInputError, Query
from sift_core.answering import AnswerEngine, LanguageModel
from sift_core.answering.in_context import InContextAnswerer, PromptOptions
from sift_core.answering.model.thoughts import split_thoughts
from sift_core.testing import HashingEmbedder
from tests.answering import shapes
from tests.answering.test_generation import Writes

# Qwen3's switch: a thought that is closed already stands for none.
SWITCHED = """
{%- for m in messages -%}<|{{ m.role }}|>{{ m.content }}<|end|>{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>
{%- if enable_thinking is defined and enable_thinking is false -%}<think></think>{%- endif -%}
{%- if effort is defined -%}({{ effort }}){%- endif -%}
{%- endif -%}"""
# As DeepSeek-R1's: the prompt begins the thought.
OPENED = SWITCHED.replace("<|assistant|>", "<|assistant|><think>").replace("enable_", "x_")
CHAT = [{"role": "user", "content": "a"}]


def model(template, *, tokens=(), is_special=False):
    tokenizer = shapes.byte_tokenizer(chat_template=template)
    tokenizer.add_tokens([AddedToken(one, special=is_special) for one in tokens])
    built = shapes.ALL_SHAPES["llama, tied head"]()
    built.resize_token_embeddings(len(tokenizer))
    built.config.max_position_embeddings = 512
    return LanguageModel(built, tokenizer)


def writing(lm, text):
    """Return the settings with which a model writes a text and then its EOS token."""
    ids = lm.tokenizer(text, add_special_tokens=False)["input_ids"]
    processors = transformers.LogitsProcessorList([Writes([*ids, 0])])
    return {"logits_processor": processors, "max_new_tokens": len(ids) + 1}


@pytest.mark.parametrize(
    ("settings", "end"),
    [
        (None, "<|assistant|><think></think>"),
        ({}, "<|assistant|><think></think>"),
        ({"enable_thinking": False}, "<|assistant|><think></think>"),
        ({"enable_thinking": True}, "<|assistant|>"),
        ({"enable_thinking": True, "effort": "low"}, "<|assistant|>(low)"),
        ({"no_such_variable": 1}, "<|assistant|><think></think>"),
    ],
)
@pytest.mark.parametrize("content", ["a", "<s>"])  # the second spells a control token
def test_the_template_gets_the_settings_and_thinking_is_off(settings, end, content):
    lm = model(SWITCHED)
    ids = lm.prompt_ids([{"role": "user", "content": content}], settings)
    assert lm.tokenizer.decode(ids) == f"<|user|>{content}<|end|>{end}"
    options = {} if settings is None else {"chat_template_kwargs": settings}
    written = lm.generate([{"role": "user", "content": content}], max_new_tokens=2, **options)
    assert written.n_prompt_tokens == len(ids)


def test_a_template_without_the_switch_gets_nothing():
    lm = model("{% for m in messages %}{{ m.content }}{% endfor %}")
    assert lm.tokenizer.decode(lm.prompt_ids(CHAT)) == "a"
    assert model(None).prompt_ids(CHAT, {"enable_thinking": True}) == model(None).prompt_ids(CHAT)


@pytest.mark.parametrize(
    "settings",
    [
        *("enable_thinking", ["enable_thinking"], {1: 2}, {"a-b": 1}, {"messages": "x"}),
        *({"chat_template": "x"}, {"tokenize": False}, {"add_generation_prompt": False}),
        *({"effort": one} for one in ("<|end|>", "x" * 65, {"a": 1}, "a\nb")),
    ],
)
def test_settings_that_are_none_of_a_template_are_refused(settings):
    lm = model(SWITCHED)
    with pytest.raises(InvalidInputError, match="chat_template_kwargs"):
        lm.generate(CHAT, chat_template_kwargs=settings)
    with pytest.raises(InvalidInputError, match="chat_template_kwargs"):
        AnswerEngine(language_model=lm, generation={"chat_template_kwargs": settings})


@pytest.mark.parametrize(
    ("text", "is_open", "expected"),
    [
        ("Yes.", False, ("", "Yes.")),
        ("<think>Hm [1].</think>\n\nYes.", False, ("Hm [1].", "Yes.")),
        ("\n<think>\n</think>\nYes.", False, ("", "Yes.")),
        ("Hm.</think>Yes.", True, ("Hm.", "Yes.")),
        ("<think>a</think><think>b</think>Yes.", False, ("a\n\nb", "Yes.")),
        ("<think>without end", False, ("without end", "")),
        ("Write <think>x</think>.", False, ("", "Write <think>x</think>.")),
    ],
)
@pytest.mark.parametrize("kind", ["text", "token", "special token"])
def test_thoughts_are_apart_from_the_text(text, is_open, expected, kind):
    assert split_thoughts(text, is_open=is_open) == expected
    tokens = () if kind == "text" else ("<think>", "</think>")
    lm = model(OPENED if is_open else SWITCHED, tokens=tokens, is_special="special" in kind)
    pieces = []
    switch = {"chat_template_kwargs": {"enable_thinking": True}}
    options = {**writing(lm, text), **switch, "stop": ["Hm"], "on_text": pieces.append}
    found = lm.generate(CHAT, **options)
    assert (found.thoughts, found.text, "".join(pieces)) == (*expected, expected[1])
    assert found.finish_reason == "stop"


def test_thoughts_are_not_cited():
    lm = model(SWITCHED)
    pool = CandidatePool(
        document_ids=["a", "b"],
        texts=["first", "second"],
        embeddings=np.eye(2),
        similarities=np.full(2, 0.5**0.5),
    )
    answerer = InContextAnswerer(language_model=lm, prompt=PromptOptions(cite=True))
    answerer = answerer.with_generation(**writing(lm, "<think>[1] no, [9]</think>It is so [2]."))
    answer = answerer.answer(Query(text="What?", embedding=np.ones(2)), pool)
    assert answer.text == "It is so [2]."
    assert [one.mark for one in answer.citations] == [2]
    assert answer.unknown_marks == ()
    assert answer.thoughts == "[1] no, [9]"


def test_the_service_passes_the_switch_on_and_keeps_thoughts_apart():
    testing = pytest.importorskip("fastapi.testclient")
    from sift_core.service import create_app

    lm, embedder = model(SWITCHED), HashingEmbedder(8)
    source = InMemorySource(embedder.embed_documents(["cats purr"]), ["cats purr"])
    generation = writing(lm, "<think>Hm [1].</think>Yes.")
    engine = AnswerEngine(
        language_model=lm, source=source, embedder=embedder, generation=generation
    )
    with testing.TestClient(create_app(engine), base_url="http://127.0.0.1") as client:

        def ask(**fields):
            body = {"model": "sift:base", "messages": CHAT, **fields}
            return client.post("/v1/chat/completions", json=body)

        models = client.get("/v1/models").json()["data"]
        name = next(one["id"] for one in models if one["id"].endswith(":base"))
        on = {"model": name, "chat_template_kwargs": {"enable_thinking": True}}
        off, thinking = ask(model=name).json(), ask(**on).json()
        message = thinking["choices"][0]["message"]
        assert (message["content"], message["reasoning_content"]) == ("Yes.", "Hm [1].")
        # "<think></think>", a token a byte, stands in the prompt where thinking is off.
        assert off["usage"]["prompt_tokens"] - thinking["usage"]["prompt_tokens"] == 15
        lines = [one[6:] for one in ask(**on, stream=True).text.splitlines() if one[:6] == "data: "]
        deltas = [json.loads(one)["choices"][0]["delta"] for one in lines if one != "[DONE]"]
        assert "".join(one.get("content", "") for one in deltas) == "Yes."
        assert deltas[-1]["reasoning_content"] == "Hm [1]."
        refused = ask(model=name, chat_template_kwargs={"chat_template": "x"})
        assert refused.status_code == 400
        assert "chat_template_kwargs" in refused.json()["error"]["message"]
