"""OpenAI's own client has prompts go on, as editors do."""

import httpx
import pytest

from sift_core.answering.completing import CompletionPrompt, complete
from sift_core.service import create_app
from sift_core.types import Query
from tests.engines import engine_of
from tests.service.servers import PATIENCE_S, SETTINGS, serving

openai = pytest.importorskip("openai", reason="a client of the service")

PROMPT = "To fold a boat, first fold the sheet\n"


@pytest.fixture
def client(url):
    options = {"api_key": "none", "max_retries": 0, "timeout": PATIENCE_S}
    with openai.OpenAI(base_url=f"{url}/v1", **options) as client:
        yield client


@pytest.fixture
def go_on(client):
    def call(prompt=PROMPT, model="tiny:context", **options):
        return client.completions.create(model=model, prompt=prompt, **options)

    return call


@pytest.fixture
def expected(engine):
    def call(prompt=PROMPT, **options):
        return complete(engine, CompletionPrompt(before=prompt), until="length", **options)

    return call


@pytest.mark.parametrize("mode", ["context", "fine_tune", "both", "base"])
def test_a_prompt_goes_on_as_the_engine_has_it(go_on, expected, mode):
    answer = go_on(model=f"tiny:{mode}", max_tokens=5)
    wanted = expected(mode=mode, max_new_tokens=5)
    assert answer.object == "text_completion"
    assert answer.choices[0].text == wanted.text != ""
    assert answer.choices[0].finish_reason == wanted.finish_reason
    assert answer.usage.prompt_tokens == wanted.n_prompt_tokens
    assert answer.usage.completion_tokens == wanted.n_new_tokens
    assert answer.sift["mode"] == wanted.mode.value == mode
    assert answer.id.startswith("cmpl-")


def test_a_name_without_a_mode_means_to_read(go_on, expected):
    assert go_on(model="tiny").choices[0].text == expected(mode="context").text


def test_a_stream_has_the_pieces_of_the_same_text(go_on):
    whole = go_on(max_tokens=6)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    pieces = list(go_on([PROMPT], max_tokens=6, **options))
    assert {piece.object for piece in pieces} == {"text_completion"}
    assert len({piece.id for piece in pieces}) == 1
    texts = [piece.choices[0].text for piece in pieces if piece.choices]
    assert "".join(texts) == whole.choices[0].text
    reasons = [piece.choices[0].finish_reason for piece in pieces if piece.choices]
    assert [one for one in reasons if one] == [whole.choices[0].finish_reason]
    assert pieces[-1].choices == []
    assert pieces[-1].usage == whole.usage


@pytest.mark.parametrize("is_stream", [False, True])
def test_several_prompts_and_texts_are_choices_in_order(go_on, is_stream):
    prompts = [PROMPT, "Tea is black when"]
    options = {"n": 2, "echo": True, "max_tokens": 4, "temperature": 1.0, "seed": 3}
    if is_stream:
        texts = [""] * 4
        for piece in go_on(prompts, stream=True, **options):
            texts[piece.choices[0].index] += piece.choices[0].text
    else:
        answer = go_on(prompts, **options)
        assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
        assert {choice.sift["mode"] for choice in answer.choices} == {"context"}
        assert 4 < answer.usage.completion_tokens <= 16
        texts = [choice.text for choice in answer.choices]
    assert [text.startswith(prompts[i // 2]) for i, text in enumerate(texts)] == [True] * 4
    assert texts[0] != texts[1]
    assert texts[0] == go_on(**{**options, "n": 1}).choices[0].text


def test_a_chunk_of_what_stands_behind_the_prompt_is_not_read(go_on, engine):
    options = {"extra_body": {"sift": {"n_context": 20}}}
    read = [source["id"] for source in go_on(**options).sift["sources"]]
    query = Query(text=PROMPT, embedding=engine.embedder.embed_query(PROMPT))
    documents = engine.source.fetch(query, 20)
    text = documents.texts[documents.document_ids.index(read[0])]
    left = [source["id"] for source in go_on(suffix=f"\n{text}\n", **options).sift["sources"]]
    assert read[0] not in left


def test_no_chunk_of_the_named_file_is_read(go_on):
    first = go_on().sift["sources"][0]["url"]
    answer = go_on(extra_body={"sift": {"path": f"/home/me/{first}"}})
    assert first not in [source["url"] for source in answer.sift["sources"]]


def test_of_a_long_prompt_the_end_is_read(go_on):
    answer = go_on("word after word\n" * 2000 + PROMPT, model="tiny:base", max_tokens=2)
    assert answer.usage.prompt_tokens < 600
    options = {"extra_body": {"sift": {"max_prompt_tokens": 8}}}
    assert go_on(model="tiny:base", **options).usage.prompt_tokens <= 9


def test_a_stop_string_ends_a_text(go_on):
    text = go_on(model="tiny:base", max_tokens=12).choices[0].text
    stop = text[3:6]
    cut = go_on(model="tiny:base", max_tokens=12, stop=[stop]).choices[0]
    assert (cut.text, cut.finish_reason) == (text[: text.index(stop)], "stop")


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"prompt": " "}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [PROMPT] * 9, "n": 2}, "prompt"),
        ({"n": 0}, "n"),
        ({"best_of": 2}, "best_of"),
        ({"logprobs": 5}, "logprobs"),
        ({"extra_body": {"sift": {"path": ""}}}, "sift.path"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(go_on, options, param):
    with pytest.raises(openai.BadRequestError) as caught:
        go_on(**options)
    assert caught.value.body["param"] == param
    assert caught.value.body["type"] == "invalid_request_error"


def test_a_model_that_is_not_there_is_not_found(go_on):
    with pytest.raises(openai.NotFoundError):
        go_on(model="gpt-3.5-turbo-instruct")


def test_the_work_ends_where_the_client_leaves(url):
    body = {"model": "tiny:base", "prompt": PROMPT, "stream": True, "max_tokens": 400, "n": 8}
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
        before = _gone(client)
        with client.stream("POST", "/v1/completions", json=body) as answer:
            next(answer.iter_lines())
        for _ in range(100):
            if _gone(client) > before:
                break
        else:
            pytest.fail("the answer goes on")


def _gone(client):
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("sift_clients_gone"))


def test_a_session_reads_its_chunks_once(go_on):
    options = {"extra_body": {"sift": {"session": "boats", "n_context": 2}}, "max_tokens": 4}
    first = go_on(**options)
    again = go_on("Tea is black when", **options)
    ids = [[source["id"] for source in answer.sift["sources"]] for answer in (first, again)]
    assert ids[0] == ids[1]
    assert "read" in first.sift["timings"]
    assert "fetch" not in again.sift["timings"]
    assert first.choices[0].text == go_on(**options).choices[0].text


def test_a_session_reads_no_chunk_from_behind_a_cursor_that_has_moved_up(engine):
    top, end = "def count(boxes):\n    return 1", "def fold(table):\n    return 2"
    metadata = [{"source": source} for source in ("shelf.py", "shelf.py", "other.py")]
    chunks = [top, end, "def fold(chair):"]
    engine = engine_of(engine.language_model, chunks, metadata=metadata)
    app = create_app(engine, source=engine.source, embedder=engine.embedder, settings=SETTINGS)
    sift = {"session": "one", "path": "shelf.py", "n_context": 3, "max_prompt_tokens": 4}
    body = {"model": "tiny:context", "max_tokens": 1, "sift": sift}
    with serving(app) as url:

        def sources(prompt):
            answer = httpx.post(f"{url}/v1/completions", json={**body, "prompt": prompt})
            return len(answer.raise_for_status().json()["sift"]["sources"])

        whole = f"{top}\n\n{end}\n\ndef lift(chair):"
        assert [sources(whole), sources(f"{whole}\n"), sources("def count(boxes):")] == [3, 3, 1]
