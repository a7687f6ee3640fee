"""OpenAI's own client against the service."""

import json
from dataclasses import replace

import httpx
import numpy as np
import pytest

from sift_core.answering import learn_collection
from sift_core.service import create_app
from sift_core.token_estimate import estimated_tokens
from tests.engines import changed
from tests.service.servers import CHAT, PATIENCE_S, SETTINGS, serving

openai = pytest.importorskip("openai", reason="a client of the service")

QUESTION = "How do I fold a boat?"


@pytest.fixture
def client(url):
    options = {"api_key": "none", "max_retries": 0, "timeout": PATIENCE_S}
    with openai.OpenAI(base_url=f"{url}/v1", **options) as client:
        yield client


@pytest.fixture
def ask(client):
    def call(question=QUESTION, model="tiny:context", **options):
        messages = [{"role": "user", "content": question}]
        return client.chat.completions.create(model=model, messages=messages, **options)

    return call


def test_a_model_is_a_way_to_answer(client):
    names = [model.id for model in client.models.list()]
    ways = ["tiny", "tiny:context", "tiny:fine_tune", "tiny:both", "tiny:base"]
    assert names == [*ways, "hashing-64"]
    assert client.models.retrieve("tiny:both").owned_by == "sift"


@pytest.mark.parametrize("mode", ["auto", "context", "fine_tune", "both", "base"])
def test_an_answer_equals_the_engines(ask, engine, mode):
    answer = ask(model="tiny" if mode == "auto" else f"tiny:{mode}")
    expected = engine.answer(QUESTION, mode=mode)
    choice = answer.choices[0]
    assert choice.message.content == expected.text
    assert choice.message.role == "assistant"
    assert choice.finish_reason == expected.finish_reason
    assert answer.usage.prompt_tokens == expected.n_prompt_tokens
    assert answer.usage.completion_tokens == expected.n_new_tokens
    assert answer.usage.total_tokens == expected.n_prompt_tokens + expected.n_new_tokens
    assert answer.sift["mode"] == expected.mode.value
    assert answer.sift["reasons"] == list(expected.reasons)
    assert answer.sift["timings"].keys() == expected.timings.keys()
    ids = [] if expected.chunks is None else list(dict.fromkeys(expected.chunks.document_ids))
    assert [source["id"] for source in answer.sift["sources"]] == ids


def test_adapters_learned_beforehand_are_one_more_way(ask, engine, tmp_path):
    sample = engine.source.sample(100, np.random.default_rng(0))
    adapter = learn_collection(
        engine.language_model, sample, tmp_path, settings=engine.learning.settings
    )
    merging = changed(engine, adapter=adapter)
    options = {"api_key": "none", "max_retries": 0, "timeout": PATIENCE_S}
    with (
        serving(create_app(merging, settings=SETTINGS)) as url,
        openai.OpenAI(base_url=f"{url}/v1", **options) as client,
    ):
        assert {"tiny:learned", "tiny:learned_context"} <= {
            model.id for model in client.models.list()
        }
        messages = [{"role": "user", "content": QUESTION}]
        answer = client.chat.completions.create(model="tiny:learned", messages=messages)
    expected = merging.answer(QUESTION, mode="learned")
    assert answer.choices[0].message.content == expected.text
    assert answer.sift["mode"] == "learned"
    assert answer.sift["sources"] == []
    with pytest.raises(openai.BadRequestError, match="needs an adapter"):
        ask(model="tiny", extra_body={"sift": {"mode": "learned"}})


def test_sources_say_where_they_are_and_what_they_told(ask, engine):
    answer = ask()
    sources = answer.sift["sources"]
    assert len(sources) == 3
    for source in sources:
        number = source["id"].removeprefix("doc-")
        assert source["url"] == f"guide/{number}.md"
        assert source["title"] == f"{number}.md"
        assert -1 <= source["similarity"] <= 1
        assert source["gain"] == pytest.approx(
            source["variance_before"] - source["variance_after"], abs=1e-9
        )
    variance = answer.sift["variance"]
    expected = engine.answer(QUESTION, mode="context").standard_deviation ** 2
    assert variance == {"before": 1.0, "after": pytest.approx(expected)}
    notes = answer.choices[0].message.annotations
    assert [note.url_citation.url for note in notes] == [source["url"] for source in sources]
    assert {note.type for note in notes} == {"url_citation"}
    assert notes[0].url_citation.end_index == len(answer.choices[0].message.content)


@pytest.mark.parametrize("mode", ["context", "fine_tune"])
def test_a_stream_has_the_pieces_of_the_same_answer(ask, mode):
    whole = ask(model=f"tiny:{mode}")
    stream = ask(model=f"tiny:{mode}", stream=True, stream_options={"include_usage": True})
    pieces = list(stream)
    assert len({piece.id for piece in pieces}) == 1
    assert len({piece.created for piece in pieces}) == 1
    texts = [piece.choices[0].delta.content or "" for piece in pieces if piece.choices]
    assert "".join(texts) == whole.choices[0].message.content
    assert pieces[0].choices[0].delta.role == "assistant"
    ended = [piece for piece in pieces if piece.choices and piece.choices[0].finish_reason]
    assert [piece.choices[0].finish_reason for piece in ended] == [whole.choices[0].finish_reason]
    assert ended[0].sift["sources"] == whole.sift["sources"]
    assert pieces[-1].choices == []
    assert pieces[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(piece.usage is None for piece in pieces[:-1])


def test_learning_shows_as_it_goes_on(ask):
    options = {"model": "tiny:fine_tune", "extra_body": {"sift": {"filter": {"topic": "tea"}}}}
    told = [
        piece.model_extra["sift"]
        for piece in ask("Which tea is black?", stream=True, **options)
        if piece.model_extra.get("sift")
    ]
    assert [one["event"] for one in told[:-1]] == ["chosen", *["learning"] * 4]
    assert told[0]["n_learned"] == 4
    assert [one["step"] for one in told[1:-1]] == [1, 2, 3, 4]
    assert told[-1]["fine_tuning"]["losses"] == [one["loss"] for one in told[1:-1]]
    again = ask("Which tea is black?", **options)
    assert again.sift["fine_tuning"]["source"] == "memory"


def test_stop_and_length_end_an_answer(ask, engine):
    text = ask(max_tokens=12).choices[0].message.content
    assert ask(max_tokens=3).usage.completion_tokens == 3
    assert ask(max_completion_tokens=3).usage.completion_tokens == 3
    assert ask(extra_body={"sift": {"max_tokens": 3}}).usage.completion_tokens == 3
    stop = text.strip()[2:5]
    for stops in (stop, [stop, "never there"]):
        stopped = ask(max_tokens=12, stop=stops)
        assert stopped.choices[0].message.content == text.partition(stop)[0]
        assert stopped.choices[0].finish_reason == "stop"


def test_a_seed_draws_the_same_text_and_none_draws_another(ask):
    def text(**options):
        return ask(temperature=1.5, **options).choices[0].message.content

    assert text(seed=7) == text(seed=7)
    assert len({text(seed=seed) for seed in range(4)}) > 1
    assert len({text() for _ in range(4)}) > 1
    greedy = ask().choices[0].message.content
    assert ask(temperature=0, seed=7).choices[0].message.content == greedy
    assert ask(temperature=1.5, top_p=1e-6, seed=7).choices[0].message.content == greedy


def test_what_was_said_before_is_read(client, engine):
    history = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is a boat?"},
        {"role": "assistant", "content": "A box that floats."},
    ]
    answer = client.chat.completions.create(
        model="tiny:context", messages=[*history, {"role": "user", "content": QUESTION}]
    )
    expected = engine.answer(QUESTION, mode="context", history=history)
    assert answer.choices[0].message.content == expected.text
    parts = [{"type": "text", "text": "How do I "}, {"type": "text", "text": "fold a boat?"}]
    history[0]["role"] = "developer"
    answer = client.chat.completions.create(
        model="tiny:context", messages=[*history, {"role": "user", "content": parts}]
    )
    assert answer.choices[0].message.content == expected.text


def test_extra_fields_restrict_and_steer(ask):
    sift = {"n_context": 2, "filter": {"topic": "tea"}, "latency_s": 30}
    answer = ask(extra_body={"sift": sift})
    assert {source["id"] for source in answer.sift["sources"]} == {"doc-4", "doc-5"}
    one = ask(extra_body={"sift": {"n_context": 1}}).sift["sources"]
    assert ask(extra_body={"sift": {"n_select": 1}}).sift["sources"] == one
    assert len(one) == 1
    answer = ask(model="tiny", extra_body={"sift": {"mode": "base"}})
    assert answer.sift["sources"] == []
    parts = {"n_context": 1, "queries": ["How warm is water for tea?"]}
    by_part = ask(extra_body={"sift": parts}).sift["sources"]
    assert (
        by_part
        == ask("How warm is water for tea?", extra_body={"sift": {"n_context": 1}}).sift["sources"]
    )
    assert by_part != one
    several = ask(extra_body={"sift": {"n_context": 8, "filter": {"topic": ["tea", "boats"]}}})
    assert len(several.sift["sources"]) == 8


def test_a_follow_up_is_searched_for_with_the_question_before_it(client):
    history = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": "Fold it in half."},
    ]
    messages = [*history, {"role": "user", "content": "And then?"}]
    expected = [f"And then? {QUESTION}", "And then?"]
    create = client.chat.completions.create
    answer = create(model="tiny:context", messages=messages)
    assert answer.sift["searched_for"] == expected
    pieces = list(create(model="tiny:context", messages=messages, stream=True))
    told = [piece.model_extra["sift"] for piece in pieces if piece.model_extra.get("sift")]
    assert [one["searched_for"] for one in told] == [expected] * 2  # "chosen" and the end
    own = create(
        model="tiny:context", messages=messages, extra_body={"sift": {"queries": ["boats"]}}
    )
    assert own.sift["searched_for"] == ["boats"]
    assert create(model="tiny:base", messages=messages).sift["searched_for"] == []


def test_a_conversation_learns_once(ask):
    extra = {"extra_body": {"sift": {"session": "about tea"}}}
    first = ask("How warm is water for tea?", "tiny:fine_tune", **extra)
    pieces = list(ask("And for black tea?", "tiny:fine_tune", stream=True, **extra))
    told = [piece.model_extra["sift"] for piece in pieces if piece.model_extra.get("sift")]
    assert told[0]["event"] == "chosen"
    assert told[0]["is_known"]
    assert "learning" not in {one.get("event") for one in told}
    assert told[-1]["sources"] == first.sift["sources"]
    other = ask("And for black tea?", "tiny:context", **extra)
    assert other.sift["mode"] == "context"  # another way is another session


def test_a_question_off_the_topic_is_refused_and_opens_no_session(ask):
    extra = {"extra_body": {"sift": {"session": "odd"}}}
    refused = ask("Quinoa vxzq?", "tiny", **extra)
    assert refused.choices[0].message.content == "The documents say nothing about that."
    assert refused.sift["is_refusal"]
    pieces = ask("Quinoa vxzq?", "tiny", stream=True)
    text = "".join(one.choices[0].delta.content or "" for one in pieces if one.choices)
    assert text == refused.choices[0].message.content
    assert not ask("to fold a paper boat, fold the sheet in half", "tiny", **extra).sift[
        "is_refusal"
    ]


def test_what_clients_send_by_habit_changes_nothing(ask):
    habits = {"frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "user": "me"}
    assert ask(**habits, n=1, logprobs=False).choices == ask().choices


@pytest.mark.parametrize("encoding", [None, "float", "base64"])
def test_embeddings_are_the_documents_models(client, embedder, encoding):
    texts = ["a boat", "日本語 tea"]
    options = {} if encoding is None else {"encoding_format": encoding}
    answer = client.embeddings.create(model="hashing-64", input=texts, **options)
    expected = embedder.embed_documents(texts)
    for one, row in zip(answer.data, expected, strict=True):
        vector = one.embedding
        if encoding == "base64":
            import base64

            vector = np.frombuffer(base64.b64decode(vector), dtype="<f4")
        np.testing.assert_allclose(vector, row, rtol=1e-6)
    assert answer.usage.total_tokens == sum(map(estimated_tokens, texts))


TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
REFUSED = {
    "unknown model": {"model": "gpt-9"},
    "the embedder": {"model": "hashing-64"},
    "empty question": {"question": " "},
    "a long question": {"question": "boat " * 2000},
    "no temperature": {"temperature": -1},
    "no top_p": {"top_p": 0},
    "two texts": {"n": 2},
    "a tool that must be called": {"tools": TOOLS, "tool_choice": "required"},
    "a function that must be called": {"functions": [], "function_call": {"name": "f"}},
    "JSON": {"response_format": {"type": "json_object"}},
    "logprobs": {"logprobs": True},
    "penalty": {"frequency_penalty": 0.5},
    "bias": {"logit_bias": {"5": 1}},
    "unknown extra": {"extra_body": {"sift": {"mod": "base"}}},
    "no such mode": {"extra_body": {"sift": {"mode": "x"}}},
    "two modes": {"extra_body": {"sift": {"mode": "base"}}},
    "empty filter": {"extra_body": {"sift": {"filter": {"a": []}}}},
    "seventeen stops": {"stop": ["x"] * 17},
}


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("options", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_answered_is_refused_before_any_work(ask, options, is_streamed):
    with pytest.raises((openai.BadRequestError, openai.NotFoundError)) as caught:
        ask(stream=is_streamed, **options)
    is_model = "model" in options
    assert caught.value.status_code == (404 if is_model else 400)
    assert caught.value.code == ("model_not_found" if is_model else None)
    assert len(caught.value.body["message"]) > 10
    assert caught.value.request_id


@pytest.mark.parametrize("length", [-1, 0, 32_000, 10**6])
def test_a_length_that_no_window_has_is_cut(ask, length):
    # the answers of the small model end by their length alone: by default after 12 tokens
    answer = ask(max_tokens=length)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == (256 if length > 0 else 12)  # the service's limit


@pytest.mark.parametrize("is_streamed", [False, True])
def test_tools_that_may_be_left_alone_are_named_as_ignored(ask, is_streamed):
    """Open WebUI sends its own with each chat."""
    plain = ask().choices[0].message.content
    answer = ask(tools=TOOLS, tool_choice="auto", stream=is_streamed)
    if is_streamed:
        pieces = [piece for piece in answer if piece.choices]
        assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == plain
        answer = pieces[-1]
    else:
        assert answer.choices[0].message.content == plain
    assert answer.sift["ignored"] == ["tools"]


def test_a_title_for_a_chat_is_written_without_documents(ask):
    task = "Suggest a title for the chat below.\nUSER: How do I fold?\nASSISTANT: In half."
    answer = ask(task, model="tiny:fine_tune")
    assert answer.sift["mode"] == "base"
    assert answer.sift["sources"] == []


def test_what_a_model_wrote_before_is_no_fault(client):
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "4", "tool_call_id": "1"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "add"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "4"}]},
        {"role": "user", "content": QUESTION},
    ]
    answer = client.chat.completions.create(model="tiny", messages=messages)
    assert answer.choices[0].message.content


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "assistant", "content": "hello"}],
        [{"role": "tool", "content": "x", "tool_call_id": "1"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": "user"}],
    ],
)
def test_messages_must_be_of_words_and_end_with_the_user(client, messages):
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="tiny", messages=messages)


def test_tokens_are_no_text(client):
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length"):
        client.embeddings.create(model="hashing-64", input=[[1, 2]])
    for prompt in ([1, 2], " "):
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(model="tiny", prompt=prompt)
        assert caught.value.body["param"] == "prompt"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="text-embedding-3-small", input="x")
    with pytest.raises(openai.NotFoundError) as caught:  # it said "there are tiny, …"
        client.embeddings.create(model="tiny", input="x")
    message = "there is no model 'tiny' for embeddings; there are hashing-64"
    assert caught.value.body["message"] == message
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="hashing-64", input="x", dimensions=3)


def test_limits_that_cannot_be_are_refused(ask):
    for name in ("max_context_tokens", "max_per_document", "half_life_days"):
        with pytest.raises(openai.BadRequestError, match=name):
            ask(extra_body={"sift": {name: 0}})
    with pytest.raises(openai.BadRequestError, match="needs `newest`"):
        ask(extra_body={"sift": {"half_life_days": 30}})


def test_marks_are_annotations_of_their_own_span(ask, engine, embedder, source):
    class Citing:
        """Writes as the model, and a mark."""

        def generate(self, prompt, *, on_text=None, **options):
            options.pop("prefix", None)
            written = engine.language_model.generate(prompt, **options)
            return replace(written, text="Fold it [2]. Dry it [7].")

    app = create_app(
        replace(engine, generator=Citing()), source=source, embedder=embedder, settings=SETTINGS
    )
    with (
        serving(app) as url,
        openai.OpenAI(
            base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S
        ) as client,
    ):
        answer = client.chat.completions.create(
            model="tiny:context",
            messages=[{"role": "user", "content": QUESTION}],
            extra_body={"sift": {"cite": True}},
        )
    (note,) = answer.choices[0].message.annotations
    second = answer.sift["sources"][1]
    cited = note.url_citation
    assert (cited.url, cited.start_index, cited.end_index) == (second["url"], 8, 11)
    assert answer.sift["citations"] == [
        {"mark": 2, "start": 8, "end": 11, "rank": 2, "document_id": second["id"]}
    ]
    assert answer.sift["unknown_marks"] == [7]
    assert ask().sift["citations"] == []


def test_a_stream_tells_the_passages_that_are_read_before_the_text(url):
    body = {**CHAT, "stream": True, "sift": {"n_context": 8, "passages": True}}
    events = []
    with httpx.stream(
        "POST", f"{url}/v1/chat/completions", json=body, timeout=PATIENCE_S
    ) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                events.append(json.loads(line.removeprefix("data: ")))
    chosen = next(one for one in events if one.get("sift", {}).get("event") == "chosen")
    told = chosen["sift"]["passages"]
    sources = events[-1]["sift"]["sources"]
    assert [one["id"] for one in told] == [one["id"] for one in sources]
    assert len(told) > 1
    assert told[0].keys() >= {"rank", "title", "url", "text", "shares"}
