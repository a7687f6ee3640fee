"""Servers of OpenAI's API: each failure has its error, and each oddity its rule."""

from __future__ import annotations

import json
import time

import pytest

pytest.importorskip("openai", reason="needs the extra openai")

from sift_core import InvalidInputError
from sift_core.answering import OpenAIGenerator
from sift_core.answering.model.generation_options import seeded
from sift_core.errors import GeneratorError
from tests.answering.openai_double import (
    END,
    EVENTS,
    MODEL,
    Api,
    event,
    refused,
    serving_api,
    streamed,
)

KEY = "key-that-nobody-may-read"
LIMIT_S = 300  # of what a busy machine may delay; what takes longer hangs
HELLO = event(content="hello")


@pytest.fixture
def api():
    with serving_api(Api()) as api:
        yield api


@pytest.fixture
def make(api):
    return lambda **options: OpenAIGenerator(
        options.pop("base_url", api.base_url), options.pop("model", MODEL), **options
    )


def failed(call, *words):
    with pytest.raises(GeneratorError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
    assert KEY not in str(caught.value)
    return caught.value


def test_a_request_has_what_the_caller_asked_for_and_no_more(make, api):
    written = make(api_key=KEY, window=2000).generate("Hi", max_new_tokens=9)
    assert written.text == "Fold the sheet [1]."
    assert (written.n_prompt_tokens, written.n_new_tokens) == (40, 4)
    assert (written.finish_reason, written.thoughts) == ("stop", "")
    assert api.bodies == [
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": "Hi"}],
            "max_tokens": 9,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]
    assert api.headers[0]["authorization"] == f"Bearer {KEY}"
    assert api.paths == ["/v1/chat/completions"]


def test_without_a_key_none_is_sent_whatever_the_environment_says(make, api, monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_BASE_URL"):
        monkeypatch.setenv(name, KEY)
    make().generate("Hi")
    assert KEY not in json.dumps(api.headers)
    assert "authorization" not in api.headers[0]


def test_settings_of_sampling_are_the_servers(make, api):
    generator = make(extra_body={"reasoning_effort": "low"})
    sampled = {"do_sample": True, "temperature": 0.7, "top_p": 0.9, "top_k": 5, "seed": 3}
    generator.generate("Hi", stop=["."], chat_template_kwargs={"enable_thinking": False}, **sampled)
    generator.generate("Hi", **seeded(temperature=0.5, top_p=0.8, seed=4))
    first, second = api.bodies
    sampled.pop("do_sample")
    assert {name: first[name] for name in sampled} == sampled
    assert (first["stop"], first["reasoning_effort"]) == (["."], "low")
    assert first["chat_template_kwargs"] == {"enable_thinking": False}
    assert [second[name] for name in ("temperature", "top_p", "seed")] == [0.5, 0.8, 4]
    assert "top_k" not in second


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 2},
        {"temperature": 0.5},
        {"temperature": float("nan"), "do_sample": True},
        {"temperature": -1, "do_sample": True},
        {"do_sample": "yes"},
        {"stop": "."},
        {"stop": [""]},
        {"chat_template_kwargs": 3},
        {"chat_template_kwargs": {"x": float("nan")}},
        {"on_step": print},
        {"max_new_tokens": 0},
        {"max_new_tokens": 10**9},
        {"prompt": []},
        {"prompt": 7},
        {"prompt": "half a pair \ud83d"},
        {"prompt": "x" * 1_000_000},
        {"prompt": [{"role": "robot", "content": "x"}]},
    ],
)
def test_what_cannot_be_asked_is_refused_before_it_is_sent(make, api, options):
    with pytest.raises(InvalidInputError):
        make(window=4096).generate(options.pop("prompt", "Hi"), **options)
    assert api.bodies == []


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": f"http://user:{KEY}@host"},
        {"base_url": f"http://host/?key={KEY}"},
        {"base_url": "127.0.0.1:8000"},
        {"base_url": None},
        {"model": " "},
        {"model": None},
        {"api_key": KEY + "\n"},
        {"window": 0},
        {"count_tokens": 3},
        {"extra_body": [1]},
        {"extra_body": {"x": object()}},
        {"timeout_s": 0},
        {"max_retries": -1},
    ],
)
def test_odd_arguments_are_refused(make, options):
    with pytest.raises(InvalidInputError) as caught:
        make(**options)
    assert KEY not in str(caught.value)


def test_a_host_alone_gets_the_usual_path_and_a_path_is_taken_as_it_is(make, api):
    make(base_url=api.base_url.removesuffix("/v1") + "/").generate("Hi")
    make(base_url=api.base_url.replace("/v1", "/openai/v1beta/")).generate("Hi")
    chats = [path for path in api.paths if "chat" in path]
    assert chats == ["/v1/chat/completions", "/openai/v1beta/chat/completions"]


# Lengths


def test_a_length_is_counted_if_it_can_be_and_estimated_on_the_long_side_else(make):
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    counting = make(count_tokens=lambda text: len(words.encode(text)))
    assert counting.n_tokens("a b c") == 3
    # 64 around a prompt and 8 around a message, of which there are two.
    chat = [{"role": "system", "content": "a b"}, {"role": "user", "content": "a"}]
    assert counting.n_prompt_tokens(chat) == 64 + 2 * 8 + 3
    # GPT-2 takes 2 to 3 tokens a Chinese character, and cl100k 1 to 2.
    assert make().n_tokens("请用一句话介绍北京的历史。") >= 2 * 13
    with pytest.raises(InvalidInputError, match="count_tokens"):
        make(count_tokens=lambda text: None).n_tokens("a")


@pytest.mark.parametrize(
    ("cards", "window"),
    [
        ([{"id": MODEL, "max_model_len": 512}], 512),  # vLLM
        ([{"id": "other", "context_length": 9}, {"id": MODEL, "context_length": 777}], 777),
        ([{"id": MODEL, "context_length": "much"}], 4096),
        ([], 4096),
    ],
)
def test_the_window_is_what_the_server_says_of_the_model(make, api, cards, window):
    api.cards = cards
    generator = make()
    assert (generator.window, generator.window) == (window, window)
    assert api.paths == ["/v1/models"]
    assert make(window=99).window == 99
    with pytest.raises(InvalidInputError, match=f"window of {window}"):
        generator.generate("x y " * 10_000)


def test_a_busy_server_is_asked_for_its_window_again(make, api):
    """One busy moment at the first question made it 4,096 from then on."""
    api.cards = [{"id": MODEL, "max_model_len": 512}]
    api.models_answer = refused(503, "loading")
    generator = make(max_retries=0)
    failed(lambda: generator.window, "503 loading", "ask again later")
    api.models_answer = None
    assert generator.window == 512


def test_a_server_that_lists_no_models_is_used_all_the_same(make, api):
    api.models_answer = (404, {}, [b'{"detail": "Not Found"}'])
    generator = make()
    assert (generator.check(), generator.window) == ([], 4096)
    assert generator.generate("Hi").text


# Texts


def test_characters_that_pieces_cut_are_whole(make, api):
    boat = "\N{SAILBOAT}\N{GRINNING FACE}"
    raw = event(content="a").replace(b'"a"', f'"{boat}"'.encode())
    pieces = [raw[i : i + 1] for i in range(len(raw))]
    # The second event ends with the first half of a pair, the third begins with the second.
    half = event(content="x").replace(b'"x"', b'"\\ud83d"')
    other = event(content="x").replace(b'"x"', b'"\\ude00!"')
    api.answers.append(streamed(*pieces, half, other, half, END))
    passed = []
    written = make().generate("Hi", on_text=passed.append)
    assert written.text == f"{boat}\N{GRINNING FACE}!\N{REPLACEMENT CHARACTER}"
    assert "".join(passed) == written.text
    written.text.encode()


def test_separators_of_lines_are_no_ends_of_events(make, api):
    text = "a\u2028b\u2029c\x85d\r\n"
    data = {"choices": [{"delta": {"content": text}}]}
    raw = f": a comment\n\ndata: {json.dumps(data, ensure_ascii=False)}\r\n\r\n".encode()
    api.answers.append(streamed(raw, END))
    assert make().generate("Hi").text == text


@pytest.mark.parametrize(
    "pieces",
    [
        [event(reasoning_content="let me "), event(reasoning_content="see"), event(content="\n7")],
        [event(reasoning="let me see"), event(content="7")],
        [event(content="<thi"), event(content="nk>let me"), event(content=" see</think>\n\n7")],
    ],
    ids=["reasoning_content", "reasoning", "marks"],
)
def test_thoughts_are_no_part_of_the_text(make, api, pieces):
    api.answers.append(streamed(*pieces, END))
    passed = []
    written = make().generate("Hi", on_text=passed.append)
    assert (written.text, written.thoughts) == ("7", "let me see")
    assert "".join(passed) == "7"


def test_a_text_that_only_begins_like_a_thought_is_kept(make, api):
    api.answers.append(streamed(event(content="<th"), END))
    passed = []
    assert make().generate("Hi", on_text=passed.append).text == "<th" == "".join(passed)


def test_a_model_that_thinks_for_all_of_its_tokens_is_told_apart(make, api):
    api.answers += 2 * [streamed(event(reasoning="hm"), event(finish_reason="length"))]
    failed(lambda: make().generate("Hi"), "thought for all of its 1 tokens", "max_new_tokens")
    # The rewriting of a question, which stops at a line's end, goes on without it.
    assert make().generate("Hi", stop=["\n"]).text == ""


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_answer_is_an_error(make, api, text):
    api.answers.append(streamed(event(content=text), END))
    failed(lambda: make().generate("Hi"), "wrote an empty answer")


def test_a_server_that_knows_no_end_is_left(make, api):
    api.answers.append(streamed(*[event(content="x" * 100)] * 1000))
    written = make().generate("Hi", max_new_tokens=3)
    assert written.finish_reason == "length"
    assert len(written.text) == 200  # the first two pieces: 3 · 64 = 192 characters are passed


# Failures


def test_a_server_that_is_gone(make):
    with serving_api(Api()) as gone:
        url = gone.base_url
    generator = make(base_url=url, max_retries=0)
    for call in (generator.check, lambda: generator.generate("Hi")):
        assert failed(call, url, "is it running there?").status is None
    failed(lambda: make(base_url=url, max_retries=0, window=999).generate("Hi"), "is it running")


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_busy_server_is_asked_again_when_it_says(make, api, status):
    busy = refused(status, "busy", {"retry-after-ms": "1", "retry-after": "7"})
    api.answers += 2 * [busy]
    assert make().generate("Hi").text
    assert len(api.bodies) == 3
    api.answers += 2 * [busy]
    error = failed(lambda: make(max_retries=1).generate("Hi"), f"{status} busy", "ask again later")
    assert (error.status, error.retry_after_s) == (status, 7.0)


@pytest.mark.parametrize("seconds", ["nan", "inf", "-5", "soon"])
def test_a_time_to_ask_again_that_is_none_is_not_passed_on(make, api, seconds):
    """The service made a header of it, and failed at that."""
    api.answers.append(refused(503, "busy", {"retry-after": seconds}))
    assert failed(lambda: make(max_retries=0).generate("Hi")).retry_after_s is None


@pytest.mark.parametrize("length", [None, "many"])
def test_a_length_in_fields_of_the_callers_is_the_servers_to_judge(make, api, length):
    api.answers.append(streamed(HELLO, END))
    assert make(extra_body={"max_tokens": length}).generate("Hi").text == "hello"
    assert api.bodies[0]["max_tokens"] == length


def test_a_pause_before_another_try_ends_with_the_wish_for_a_text(make, api):
    api.answers.append(refused(503, "busy", {"retry-after": "60"}))
    started = time.monotonic()
    written = make().generate("Hi", stopping_criteria=[lambda *_: len(api.bodies) > 0])
    assert written.text == ""
    assert time.monotonic() - started < 50


def test_a_connection_that_is_lost_before_a_word_is_tried_again(make, api):
    api.answers.append((None, {}, []))
    assert make().generate("Hi").text


@pytest.mark.parametrize("pieces", [[30.0], [HELLO, 30.0]], ids=["at once", "in the middle"])
def test_a_server_that_says_nothing_is_late(make, api, pieces):
    api.answers.append(streamed(*pieces))
    generator = make(timeout_s=0.3, max_retries=0, window=999)
    failed(lambda: generator.generate("Hi"), "did not answer /v1/chat/completions in 0.3 s")


CHUNKED = {"content-type": EVENTS, "transfer-encoding": "chunked"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (streamed(HELLO), ["broke off a text after 5 characters"]),
        (streamed(HELLO, b'data: {"error": {"message": "engine dead"}}\n\n'), ["engine dead"]),
        ((200, {**CHUNKED}, [b"5\r\ndata:"]), ["broke off a text"]),
        (streamed(), ["before its first event", EVENTS]),
        ((200, {"content-type": "text/html"}, [b"<html>Hi</html>"]), ["text/html", "/v1"]),
        ((200, {"content-type": "application/json"}, [b'{"choices": []}']), ["application/json"]),
        (streamed(b"data: hello\n\n"), ["no event of a text", "hello"]),
        (streamed(b"data: 7\n\n"), ["no event of a text", "7"]),
        (streamed(b'data: {"choices": 3}\n\n'), ["no event of a text"]),
        (streamed(b'data: {"choices": [{"delta": {"content": [1]}}]}\n\n'), ["no event"]),
        (streamed(b'data: {"choices": [], "usage": {"prompt_tokens": "x"}}\n\n'), ["no event"]),
        (streamed(b'data: {"choices": [], "usage": {"prompt_tokens": -1}}\n\n'), ["no event"]),
        (streamed(b'data: "\xff\xfe"\n\n'), ["no event of a text"]),
        (streamed(b"data: " + b"[" * 100_000 + b"\n\n"), ["no event of a text"]),
    ],
)
def test_a_text_that_is_none_is_an_error(make, api, answer, words):
    api.answers.append(answer)
    assert failed(lambda: make().generate("Hi"), *words).status is None


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (refused(401, f"bad key {KEY}"), ["401 bad key ***", "api_key", "SIFT_GENERATOR_API_KEY"]),
        (refused(403, "no"), ["403 no", "api_key"]),
        ((401, {}, [b'{"error": "Unauthorized"}']), ["401 Unauthorized"]),
        (refused(404, "model not found"), ["404 model not found", "in /v1"]),
        ((404, {}, [b"<html>Not\x1b[31m Found</html>"]), ["404 <html>Not [31m", "in /v1"]),
        ((302, {"location": "https://evil.example"}, []), ["https://evil.example", "if you trust"]),
        ((307, {"location": "/v2/chat"}, []), ["redirects to '/v2/chat'"]),
        (
            refused(400, "This model's maximum context length is 2048 tokens."),
            ["400 This model's", "as `window`"],
        ),
        (refused(400, "`stop` is odd", param="stop"), ["correct what it names"]),
        ((400, {}, []), ["without a word"]),
    ],
)
def test_a_refusal_says_what_to_do(make, api, answer, words):
    api.answers.append(answer)
    error = failed(lambda: make(api_key=KEY).generate("Hi"), *words)
    assert error.status == answer[0]
    assert len(api.bodies) == 1  # asked once, and nowhere else


def test_an_unknown_model_is_refused_with_those_that_there_are(make, api):
    error = failed(lambda: make(model="smal").generate("Hi"), "no model 'smal'", "other, small")
    assert error.status == 404


@pytest.mark.parametrize(
    ("field", "other"),
    [("max_tokens", "max_completion_tokens"), ("temperature", None), ("stream_options", None)],
)
def test_a_field_of_ours_that_a_model_refuses_is_left_out_from_then_on(make, api, field, other):
    api.answers.append(refused(400, "unsupported", param=field, code="unsupported_parameter"))
    generator = make()
    assert generator.generate("Hi", max_new_tokens=9).text
    api.answers.append(streamed(HELLO, END))
    assert generator.generate("Hi").text == "hello"
    first, second, third = api.bodies
    assert field in first
    assert field not in {**second, **third}
    assert other is None or second[other] == first[field]


def test_a_setting_of_the_callers_is_not_left_out(make, api):
    api.answers.append(refused(400, "unsupported", param="temperature"))
    failed(lambda: make().generate("Hi", do_sample=True, temperature=0.5), "unsupported")
    assert len(api.bodies) == 1


def test_what_a_listener_raises_passes_and_disconnects(make, api):
    def listen(_):
        raise ValueError("mine")

    api.answers.append(streamed(HELLO, 60.0))
    with pytest.raises(ValueError, match="mine"):
        make().generate("Hi", on_text=listen)
    end = time.monotonic() + LIMIT_S
    while not api.n_left:
        assert time.monotonic() < end
        time.sleep(0.02)
