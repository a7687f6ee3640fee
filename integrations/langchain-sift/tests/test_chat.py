"""ChatSIFT: what the standard suite does not ask."""

from functools import reduce
from operator import add

import pytest

pytest.importorskip("torch", reason="needs sift-rerank's extra fine-tune")

import torch
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    trim_messages,
)

from langchain_sift import ChatSIFT, SIFTAnswer
from sift_core import ChoiceOptions, InvalidInputError
from sift_core.answering import AnswerEngine, LearningOptions


@pytest.fixture
def bare(language_model):
    return ChatSIFT(engine=AnswerEngine(language_model=language_model), max_tokens=6)


@pytest.fixture
def engine(language_model, make_in_memory, documents):
    store = make_in_memory(documents)
    return SIFTAnswer.from_vectorstore(
        store,
        language_model,
        options=ChoiceOptions(n_select=3),
        learning=LearningOptions(n_steps=2),
    ).engine


@pytest.fixture
def chat(engine):
    return ChatSIFT(engine=engine, max_tokens=6)


def test_a_model_without_source_writes_what_its_language_model_does(bare, language_model):
    expected = language_model.generate("plants make", max_new_tokens=6).text
    assert bare.invoke("plants make").content == expected
    assert bare.invoke("plants make").response_metadata["mode"] == "base"


@pytest.mark.parametrize("mode", ["base", "context", "fine_tune"])
def test_the_mode_is_a_setting_and_an_option_of_a_call(chat, engine, question, mode):
    set_once = ChatSIFT(engine=engine, max_tokens=6, mode=mode).invoke(question)
    for_a_call = chat.invoke(question, mode=mode)
    expected = engine.answer(question, mode=mode, max_new_tokens=6)
    for message in (set_once, for_a_call):
        assert message.content == expected.text
        assert message.response_metadata["mode"] == mode
        assert len(message.response_metadata["document_ids"]) == len(
            set(expected.chunks.document_ids)
        )


def test_the_last_message_is_the_question_and_the_others_are_read(chat, engine, question):
    messages = [SystemMessage("Be brief."), HumanMessage("Hi"), AIMessage("Hello")]
    message = chat.invoke([*messages, HumanMessage(question)], mode="context")
    history = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
    ]
    expected = engine.answer(question, mode="context", history=history, max_new_tokens=6)
    assert message.content == expected.text
    assert message.usage_metadata["input_tokens"] == expected.n_prompt_tokens


async def test_whole_and_in_pieces_called_and_awaited_it_is_the_same(chat, question):
    whole = chat.invoke(question, mode="context")
    streamed = reduce(add, chat.stream(question, mode="context"))
    pieces = [piece async for piece in chat.astream(question, mode="context")]
    assert len(pieces) > 3
    for other in (streamed, reduce(add, pieces), await chat.ainvoke(question, mode="context")):
        assert (other.content, other.usage_metadata) == (whole.content, whole.usage_metadata)
        told = other.response_metadata | {"timings": whole.response_metadata["timings"]}
        assert told == whole.response_metadata


def test_a_stop_string_ends_the_text(bare, engine):
    text = bare.invoke("plants make").content
    end = text[2:4]
    stopping = ChatSIFT(engine=bare.engine, max_tokens=6, stop=[end])
    for message in (bare.invoke("plants make", stop=[end]), stopping.invoke("plants make")):
        assert message.content == text[: text.index(end)]
        assert message.response_metadata["finish_reason"] == "stop"
    assert stopping.invoke("plants make", stop=[]).content == text


@pytest.mark.parametrize("name", ["max_tokens", "max_new_tokens"])
def test_the_length_can_be_set_for_one_call_and_tokens_are_counted(bare, language_model, name):
    n_read = len(language_model.prompt_ids("plants make"))
    usage = bare.invoke("plants make", **{name: 2}).usage_metadata
    assert usage == {"input_tokens": n_read, "output_tokens": 2, "total_tokens": n_read + 2}


def test_temperature_zero_is_greedy_whatever_the_engine_says(language_model):
    greedy = AnswerEngine(language_model=language_model, generation={"max_new_tokens": 12})
    hot = {"do_sample": True, "temperature": 5.0, "top_k": 50, "max_new_tokens": 12}
    sampling = AnswerEngine(language_model=language_model, generation=hot)
    expected = ChatSIFT(engine=greedy).invoke("plants make").content
    assert ChatSIFT(engine=sampling, temperature=0).invoke("plants make").content == expected
    torch.manual_seed(0)
    sampled = {ChatSIFT(engine=sampling).invoke("plants make").content for _ in range(3)}
    assert sampled != {expected}


@pytest.mark.parametrize(
    ("messages", "options", "complaint"),
    [
        ([AIMessage("hi")], {}, "last message must be the user's, got 'assistant'"),
        ([], {}, "last message must be the user's, got 'none'"),
        ([HumanMessage(" ")], {}, "the question is empty"),
        ([ToolMessage("b", tool_call_id="1")], {}, "last message must be the user's, got 'none'"),
        ([HumanMessage([{"type": "image", "url": "x"}])], {}, "got a part of type 'image'"),
        ([HumanMessage("a")], {"tools": [{"name": "add"}]}, r"no use for \['tools'\]"),
        ([HumanMessage("a")], {"model": "gpt"}, r"no option `model`"),
        ([HumanMessage("a")], {"temperature": -1}, "`temperature` must be >= 0, got -1"),
        ([HumanMessage("a")], {"mode": "rag"}, "`mode` must be one of .* got 'rag'"),
    ],
)
def test_what_it_cannot_do_is_refused(bare, messages, options, complaint):
    with pytest.raises(InvalidInputError, match=complaint):
        bare.invoke(messages, **options)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"engine": "gpt2"}, "AnswerEngine, got str"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"mode": "rag"}, "mode"),
        ({"temprature": 1}, "temprature"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused(bare, settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        ChatSIFT(**{"engine": bare.engine, **settings})


def test_tracing_names_model_and_settings(bare, random_model):
    chat = ChatSIFT(engine=bare.engine, temperature=0, max_tokens=7, stop=["x"])
    assert chat._get_ls_params() == {
        "ls_provider": "sift",
        "ls_model_type": "chat",
        "ls_model_name": str(random_model),
        "ls_temperature": 0.0,
        "ls_max_tokens": 7,
        "ls_stop": ["x"],
    }
    assert chat.model_name == str(random_model)


def test_a_cache_is_used_only_where_no_documents_are_chosen_unless_asked_for(bare, chat, question):
    asked_for = ChatSIFT(engine=chat.engine, max_tokens=6, cache=True)
    set_llm_cache(InMemoryCache())
    try:
        for model, is_cached in ((bare, True), (chat, False), (asked_for, True)):
            assert (model.invoke(question).id == model.invoke(question).id) == is_cached
    finally:
        set_llm_cache(None)


def test_a_cache_tells_engines_and_modes_apart(bare, chat, engine):
    models = (bare, chat, ChatSIFT(engine=engine, max_tokens=6, mode="context"))
    assert len({each._get_llm_string() for each in models}) == 3


def test_tokens_are_counted_as_the_model_does_where_messages_are_trimmed(bare, language_model):
    assert bare.get_num_tokens("plants make") == language_model.n_tokens("plants make")
    messages = [HumanMessage("plants " * 50), AIMessage("sugar"), HumanMessage("light")]
    kept = trim_messages(messages, max_tokens=20, token_counter=bare, start_on="human")
    assert kept == messages[2:]


def test_tools_and_schemas_are_refused_with_what_to_do(bare):
    with pytest.raises(NotImplementedError, match="create_retriever_tool"):
        bare.bind_tools([])
    with pytest.raises(NotImplementedError, match="no structured output"):
        bare.with_structured_output(dict)
