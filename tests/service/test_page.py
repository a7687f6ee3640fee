"""The page in a real browser, over a real service; nothing of either is stood in for."""

import multiprocessing
import os
import re
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

pytest.importorskip("openai", reason="needs the extra openai")
pytest.importorskip("playwright", reason="drives the browser")
from playwright.sync_api import expect, sync_playwright

from sift_core import InMemorySource
from sift_core.answering import OpenAIGenerator
from sift_core.service import create_app, state
from sift_core.testing import HashingEmbedder
from tests.answering.openai_double import Api, serving_api
from tests.engines import changed
from tests.service.servers import (
    PATIENCE_S,
    TEXTS,
    BrokenEmbedder,
    figures,
    service,
    serving,
    small_store,
    tiny_engine,
    until,
)

expect.set_options(timeout=1000 * PATIENCE_S)
CHROMIUM = Path(os.environ.get("SIFT_CHROMIUM", "/usr/bin/chromium"))
QUESTION = "how to fold a boat of paper"
HOSTILE = (
    "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script> boat"
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.is_file(), reason="no Chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser):
    """Open the page of a service; what it logs as an error and does not expect fails the test."""
    faults = []

    @contextmanager
    def open_page(address, **options):
        with browser.new_context(**options) as context:
            page = context.new_page()
            page.set_default_timeout(1000 * PATIENCE_S)
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.on("console", lambda line: faults.append(line.text) if _is_bad(line) else None)
            page.goto(str(getattr(address, "base_url", address)))
            yield page

    def _is_bad(line):
        return line.type == "error" and "Failed to load resource" not in line.text

    yield open_page
    assert faults == []


def ask(page, question=QUESTION, n=4):
    page.get_by_label("Passages to read").fill(str(n))
    page.get_by_role("textbox", name="Question").fill(question)
    page.get_by_role("button", name="Ask", exact=True).click()


def ended(page, word="Done."):
    expect(page.locator("#progress")).to_have_text(word)


@contextmanager
def written_by(engine, *said):
    """Serve an engine for which a server of OpenAI's API writes these pieces; yield both."""
    with serving_api(Api()) as api:
        api.said = list(said)
        generator = OpenAIGenerator(api.base_url, "small")
        with service(replace(engine, generator=generator)) as client:
            yield client, api


def test_passages_are_those_that_the_model_reads_with_file_and_reason(opened, url):
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": QUESTION}],
        "sift": {"n_context": 4},
    }
    told = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE_S).json()
    with opened(url) as page:
        page.evaluate(WATCH)
        ask(page)
        ended(page)
        cards = page.locator(".passage")
        sources = told["sift"]["sources"]
        expect(cards).to_have_count(len(sources))
        assert len(sources) == 4
        for card, source in zip(cards.all(), sources, strict=True):
            text = TEXTS[int(source["id"].removeprefix("doc-"))]
            assert card.locator(".whole").text_content() == text
            expect(card.locator(".place")).to_have_text(source["url"])
            reason = card.locator(".reason").text_content()
            for word in re.findall("“(.+?)”", reason):
                assert word in text
                assert word in QUESTION
        expect(cards.first.locator(".reason")).to_contain_text("from the question.")
        answer = page.locator(".text").evaluate("text => text.cloneNode(true).textContent")
        assert answer == told["choices"][0]["message"]["content"]
        seen = page.evaluate("() => window.seen")
        assert len(seen) > 2  # piece by piece
        assert all(answer.startswith(piece) for piece in seen)
        assert page.evaluate("() => window.passagesFirst")
        assert "nats" not in page.inner_text("main")
        assert "σ" not in page.inner_text("main")


# Notes what stands in the answer at every change, and whether the passages were there before.
WATCH = """() => {
  window.seen = [];
  new MutationObserver(() => {
    const text = document.querySelector(".text")?.textContent ?? "";
    if (!text || window.seen.at(-1) === text) return;
    window.passagesFirst ??= document.querySelector(".passage") !== null;
    window.seen.push(text);
  }).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""


def test_sentences_lead_to_passages_and_back(opened, engine):
    said = ("A paper boat floats until", " the paper is wet. ", "Cats sleep on warm roofs. Yes.")
    with written_by(engine, *said) as (client, _), opened(client) as page:
        ask(page, n=8)
        ended(page)
        link = page.locator(".sentence")
        expect(link).to_have_count(1)
        number = link.locator("sup").text_content()
        passage = page.locator(".passage").nth(int(number) - 1)
        expect(passage.locator(".whole")).to_have_text(TEXTS[2])
        expect(page.locator(".unfound")).to_have_text(re.compile("Cats sleep"))
        expect(page.locator(".state")).to_contain_text("1 of 2 sentences leads to a passage.")
        for point in (link.hover, link.focus):
            point()
            expect(passage).to_have_class(re.compile(r"\blit\b"))
            page.mouse.move(0, 0)
        page.keyboard.press("Enter")
        expect(passage).to_be_focused()
        expect(link).to_have_class(re.compile(r"\blit\b"))
        passage.get_by_role("button", name="Used in 1 sentence").click()
        expect(link).to_be_focused()


def test_marks_of_the_model_lead_to_their_passages(opened, engine):
    with written_by(engine, "Wash your hands [2, 3]. Then [9] sing a very loud song.") as (
        client,
        _,
    ):
        with opened(client) as page:
            ask(page)
            ended(page)
            link = page.locator(".sentence")
            assert link.locator("sup").all_text_contents() == ["2, 3"]
            expect(link).to_have_attribute("title", "Cites passage 2, 3.")
            expect(page.locator(".unfound")).to_contain_text("[9]")


REASONS = [
    ({"shares": ["ward", "of"], "reached_from": None}, "Has “ward” from the question."),
    (
        {"shares": ["ward"], "reached_from": 1, "reached_by": ["17", "the"]},
        "Names “17”, which the first passage mentions.",
    ),
    ({"reached_from": 12, "reached_by": ["x"]}, "Names “x”, which passage 12 mentions."),
    ({"reached_from": 2, "reached_by": []}, "Goes on from the second passage."),
    ({"shares": ["the", "of"]}, "Is close to the question in meaning."),
    ({}, "Is close to the question in meaning."),
]


def test_reasons_are_plain_sentences(opened, ranking_url):
    with opened(ranking_url) as page:
        for pick, reason in REASONS:
            call = "async (pick) => (await import('/passages.js')).reasonOf(pick)"
            assert page.evaluate(call, pick) == reason


def test_a_follow_up_knows_the_conversation_until_a_new_one_begins(opened, engine):
    with written_by(engine, "Fold it twice.") as (client, api), opened(client) as page:
        expect(page.get_by_role("button", name="New conversation")).to_be_hidden()
        for question in (QUESTION, "and a boat of wax"):
            ask(page, question)
            ended(page)
        expect(page.locator(".turn h2")).to_have_text([QUESTION, "and a boat of wax"])
        said = [one["content"] for one in api.bodies[-1]["messages"] if one["role"] != "system"]
        assert said[:2] == [QUESTION, "Fold it twice."]
        assert said[2].endswith("and a boat of wax")
        page.get_by_role("button", name="New conversation").click()
        expect(page.locator(".turn")).to_have_count(0)
        expect(page.get_by_role("textbox", name="Question")).to_be_focused()
        ask(page, "fold a paper boat")
        ended(page)
        assert len([one for one in api.bodies[-1]["messages"] if one["role"] != "system"]) == 1


def test_methods_are_compared_when_the_tab_is_opened(opened, ranking_url):
    body = {"query": QUESTION, "n_select": 3, "compare": True}
    found = httpx.post(f"{ranking_url}/search", json=body, timeout=PATIENCE_S).json()
    columns = found["columns"]
    with opened(ranking_url) as page:
        bodies = []
        page.on("request", lambda one: bodies.append(one.post_data_json or {}))
        page.get_by_role("tab", name="Compare methods").click()
        expect(page.get_by_role("tabpanel")).to_contain_text("Ask a question first.")
        page.get_by_role("tab", name="Answers").click()
        ask(page, n=3)
        ended(page)
        expect(page.locator(".state")).to_contain_text("has no language model")
        assert not any(body.get("compare") for body in bodies)
        page.get_by_role("tab", name="Compare methods").click()
        table = page.get_by_role("table", name="Who found which passage")
        expect(table).to_be_visible()
        heads = table.get_by_role("columnheader").all_inner_texts()
        assert heads == ["Passage", "Nearest", "MMR", "Hybrid", "SIFT"]
        chunks = [chunk for column in columns.values() for chunk in column["chunks"]]
        rows = table.locator("tbody tr")
        expect(rows).to_have_count(len({chunk["candidate"] for chunk in chunks}))
        for row in rows.all():
            text = row.locator(".whole").text_content()
            ranks = [
                next((str(one["rank"]) for one in column["chunks"] if one["text"] == text), "–")
                for column in columns.values()
            ]
            assert row.locator("td").all_inner_texts() == ranks
        for name, column in columns.items():
            own = {chunk["candidate"] for chunk in column["chunks"]}
            missed = {chunk["candidate"] for chunk in chunks} - own
            said = page.locator(f".methods .{name}").inner_text()
            assert f"Missed {len(missed) or 'none'}." in said
            assert ("repeat an earlier" in said or "repeats an earlier" in said) == bool(
                column["n_redundant"]
            )
        words = page.get_by_role("table", name="Rare words of the question")
        rare = [one for one in found["rare_words"] if one["word"] in ("fold", "boat", "paper")]
        expect(words.locator("tbody tr")).to_have_count(len(rare))
        for one in rare:
            row = words.locator("tr", has=page.get_by_role("rowheader", name=one["word"]))
            cells = [", ".join(map(str, one["ranks"][name])) or "–" for name in columns]
            assert row.first.locator("td").all_inner_texts() == cells


def test_learning_says_its_time_first_and_happens_on_request(opened, url):
    with opened(url) as page:
        paths = []
        page.on("request", lambda one: paths.append(one.url.removeprefix(url)))
        ask(page)
        ended(page)
        assert "/learning-time" not in paths
        page.get_by_role("button", name="Learn for this question").click()
        note = page.locator(".learning .note")
        expect(note).to_have_text(
            re.compile(r"Learning \d passages? takes about .* The answer then takes up to ")
        )
        page.get_by_role("button", name="No", exact=True).click()
        expect(note).to_be_hidden()
        page.get_by_role("button", name="Learn for this question").click()
        page.get_by_role("button", name="Learn now").click()
        expect(note).to_contain_text("Done after")
        body = {
            "model": "tiny:fine_tune",
            "messages": [{"role": "user", "content": QUESTION}],
            "sift": {"n_context": 4},
        }
        told = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE_S).json()
        learned = page.get_by_role("region", name="Learned answer").locator(".text")
        assert learned.text_content() == told["choices"][0]["message"]["content"]


def test_nothing_is_learned_where_a_server_writes(opened, engine):
    with written_by(engine, "Fold it.") as (client, _), opened(client) as page:
        ask(page)
        ended(page)
        expect(page.locator(".text")).to_have_text("Fold it.")
        expect(page.get_by_role("button", name="Learn")).to_have_count(0)
        chat = {"model": "tiny", "messages": [{"role": "user", "content": QUESTION}]}
        refused = client.post("/learning-time", json=chat)
        assert refused.status_code == 404


def test_stop_ends_the_work_of_the_server(opened, engine):
    long = changed(engine, n_steps=1000, cache=None)
    with service(long) as client, opened(client) as page:
        ask(page)
        ended(page)
        expect(page.get_by_role("button", name="Stop", exact=True)).to_be_hidden()
        page.get_by_role("button", name="Learn for this question").click()
        page.get_by_role("button", name="Learn now").click()
        expect(page.get_by_text(re.compile(r"Learning: step ([2-9]|\d\d)"))).to_be_visible()
        page.get_by_role("button", name="Stop learning").click()
        expect(page.locator(".learning .note")).to_have_text("Stopped.")
        until(lambda: figures(client)['sift_queue_running{queue="answers"}'] == 0)
    with opened_slowly(engine) as client, opened(client) as page:
        ask(page)
        expect(page.locator(".passage").first).to_be_visible()
        page.get_by_role("button", name="Stop", exact=True).click()
        ended(page, "Stopped.")
        expect(page.locator(".turn .state")).to_contain_text("Stopped.")
        until(lambda: figures(client)['sift_queue_running{queue="answers"}'] == 0)


@contextmanager
def opened_slowly(engine, **settings):
    """Serve an engine whose answers go on for minutes; yield a client."""
    endless = {"eos_token_id": None, "stopping_criteria": [pauses], "max_new_tokens": 900}
    with service(replace(engine, generation=endless), **settings) as client:
        yield client


def pauses(ids, _, **__):
    """Have each token take a moment, so that an answer can be met while it is being written."""
    time.sleep(0.2)
    return ids.new_zeros(len(ids), dtype=bool)


def test_a_question_that_the_documents_cannot_answer_is_refused_at_first(opened, url):
    with opened(url) as page:
        ask(page, "zebra quagga okapi")
        ended(page)
        expect(page.locator(".text")).to_have_text("The documents say nothing about that.")
        expect(page.get_by_text("The nearest passages")).to_be_visible()
        expect(page.locator(".reason").first).to_contain_text("hardly about the question")
        page.get_by_role("button", name="Answer anyway").click()
        expect(page.locator(".passage")).to_have_count(4)
        ended(page)
        expect(page.locator(".text")).not_to_have_text("The documents say nothing about that.")


def test_a_list_of_collections_shows_where_there_are_several(opened, source, embedder):
    notes = InMemorySource(
        embedder.embed_documents(["a note on boats"]),
        ["a note on boats"],
        embedder_name=embedder.name,
    )
    app = create_app(
        source=source,
        embedder=embedder,
        name="guides",
        collections={"notes": (notes, embedder)},
    )
    with serving(app) as address, opened(address) as page:
        choice = page.get_by_label("Collection")
        expect(choice.locator("option")).to_have_text(["guides", "notes"])
        ask(page)
        ended(page)
        expect(page.locator(".passage")).to_have_count(4)
        choice.select_option("notes")
        expect(page.locator(".turn")).to_have_count(0)
        ask(page)
        ended(page)
        expect(page.locator(".whole")).to_have_text(["a note on boats"])


def test_one_collection_is_not_listed(opened, ranking_url):
    with opened(ranking_url) as page:
        ask(page)
        ended(page)
        expect(page.get_by_label("Collection")).to_be_hidden()


def test_a_failure_is_a_sentence(opened, source):
    with (
        service(source=source, embedder=BrokenEmbedder()) as client,
        opened(client) as page,
    ):
        ask(page)
        expect(page.locator(".turn .problem")).to_have_text(
            re.compile(r"The service failed; .* The request was [0-9a-f]+\.$")
        )
        ask(page, "   ")
        expect(page.locator("#problem")).to_have_text("Type a question first.")


def test_a_busy_service_says_when_to_come_back(opened, engine, monkeypatch):
    monkeypatch.setattr(state, "WAITING_ANSWERS", 0)
    with (
        opened_slowly(engine, n_answers=1) as client,
        opened(client) as first,
        opened(client) as second,
    ):
        ask(first)
        expect(first.locator(".passage").first).to_be_visible()
        ask(second)
        expect(second.locator(".turn .problem")).to_have_text(
            re.compile(r"The service is busy: .* Ask again in \d+ s\.")
        )


def _serve_endlessly(model, told):
    embedder = HashingEmbedder(64)
    engine = tiny_engine(model, small_store(embedder), embedder)
    endless = {"eos_token_id": None, "stopping_criteria": [pauses], "max_new_tokens": 900}
    with serving(create_app(replace(engine, generation=endless))) as address:
        told.send(address)
        time.sleep(3600)


def test_a_dead_server_is_said_to_be_that(opened, random_model):
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe()
    server = spawning.Process(target=_serve_endlessly, args=(random_model, there), daemon=True)
    server.start()
    try:
        assert here.poll(PATIENCE_S)
        with opened(here.recv()) as page:
            ask(page)
            expect(page.locator(".passage").first).to_be_visible()
            server.kill()
            expect(page.locator(".turn .problem")).to_contain_text("The connection broke off")
            ask(page)
            expect(page.locator("#problem")).to_have_text(
                re.compile(
                    r"The service at 127\.0\.0\.1:\d+ does not answer\. Is it still running\?"
                )
            )
    finally:
        server.kill()
        server.join()


def test_a_key_is_asked_for_and_kept_in_memory_alone(opened, source, embedder):
    with (
        service(source=source, embedder=embedder, api_key="secret-7") as client,
        opened(client) as page,
    ):
        field, problem = page.get_by_label("API key"), page.locator("#problem")
        expect(problem).to_have_text("This service asks for a key.")
        expect(field).to_be_focused()
        for wrong, words in (("wrong", "refuses this key"), ("schlüssel", "ASCII")):
            field.fill(wrong)
            ask(page)
            expect(problem).to_contain_text(words)
            expect(field).to_be_focused()
        field.fill("secret-7")
        ask(page)
        ended(page)
        expect(page.locator(".passage")).to_have_count(4)
        expect(problem).to_be_empty()
        kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
        assert kept == "[{},{}]"
        assert page.context.cookies() == []
        page.reload()
        expect(page.get_by_label("API key")).to_have_value("")
        expect(problem).to_have_text("This service asks for a key.")


def test_text_of_a_document_or_a_model_stays_text(opened, engine, embedder):
    texts = [HOSTILE, *TEXTS]
    hostile = InMemorySource(
        embedder.embed_documents(texts),
        texts,
        metadata=[
            {"title": HOSTILE, "url": "javascript:document.title='taken'"},
            {"title": "a <b>good</b> one", "url": "https://example.org/a?b=<c>"},
            *({} for _ in TEXTS[1:]),
        ],
        embedder_name=embedder.name,
    )
    with (
        written_by(replace(engine, source=hostile), HOSTILE, " is what it says.") as (client, _),
        opened(client) as page,
    ):
        ask(page, f"{HOSTILE} fold paper", n=9)
        ended(page)
        assert page.locator(".text").inner_text().startswith(HOSTILE)
        first = page.locator(".passage", has=page.locator(f".whole:text-is({HOSTILE!r})")).first
        assert first.locator(".title").text_content() == HOSTILE
        assert first.locator(".title a").count() == 0  # a script is no address
        link = page.locator(".passage .title a")
        expect(link).to_have_text("a <b>good</b> one")
        assert link.get_attribute("href").startswith("https://example.org/")
        assert link.get_attribute("rel") == "noopener noreferrer"
        page.get_by_role("tab", name="Compare methods").click()
        expect(page.get_by_role("table").last).to_be_visible()
        assert page.locator("img, script:not([src='page.js'])").count() == 0
        assert page.title() != "taken"


def test_metadata_of_any_kind_are_shown_beside_an_answer_and_a_refusal(opened, engine, embedder):
    odd = [{"title": 7, "url": "http://[half"} for _ in TEXTS]
    source = InMemorySource(
        embedder.embed_documents(TEXTS), TEXTS, metadata=odd, embedder_name=embedder.name
    )
    with service(replace(engine, source=source)) as client, opened(client) as page:
        for question in (QUESTION, "zebra quagga okapi"):
            page.reload()  # a new conversation
            ask(page, question)
            ended(page)
            passage = page.locator(".passage").first
            expect(passage.locator(".title")).to_have_text("[half")
            expect(passage.locator(".place")).to_have_text("[half")
        expect(page.get_by_text("The nearest passages")).to_be_visible()


def test_nothing_from_elsewhere_runs_or_frames_the_page(opened, ranking_url):
    answer = httpx.get(f"{ranking_url}/", timeout=PATIENCE_S)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    for name in re.findall(r'(?:src|href)="([\w.]+)"', answer.text):
        assert httpx.get(f"{ranking_url}/{name}", timeout=PATIENCE_S).status_code == 200
    with opened(ranking_url) as page:
        hosts = set()
        page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
        page.reload()
        ask(page)
        ended(page)
        page.get_by_role("tab", name="Compare methods").click()
        expect(page.get_by_role("table").last).to_be_visible()
        assert hosts == {ranking_url.removeprefix("http://")}


@pytest.mark.parametrize("width", [320, 390, 1024])
def test_a_narrow_screen_needs_no_scrolling_sideways(opened, engine, embedder, width):
    texts = [*TEXTS, "boat_" * 200]  # a word that no line holds
    source = InMemorySource(embedder.embed_documents(texts), texts, embedder_name=embedder.name)
    with (
        service(replace(engine, source=source)) as client,
        opened(client, viewport={"width": width, "height": 640}) as page,
    ):
        ask(page, n=9)
        ended(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        answer = page.locator(".answer").bounding_box()
        passages = page.locator("aside").bounding_box()
        is_below = passages["y"] >= answer["y"] + answer["height"]
        assert is_below == (width < 768)
        page.get_by_role("tab", name="Compare methods").click()
        expect(page.get_by_role("table").last).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_keyboard_is_enough(opened, engine):
    said = ("A paper boat floats until the paper is wet. ", "And more.")
    with written_by(engine, *said) as (client, _), opened(client) as page:
        field = page.get_by_role("textbox", name="Question")
        expect(field).to_be_focused()
        page.keyboard.type("how to fold")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("a boat of paper")
        assert "\n" in field.input_value()
        page.keyboard.press("Enter")
        ended(page)
        stations, outlines = [], []
        page.locator("#tab-answers").focus()
        for _ in range(60):
            page.keyboard.press("Tab")
            tag, name, outline = page.evaluate(FOCUSED)
            if tag == "BODY":
                break
            stations.append((tag, name))
            outlines.append(outline)
        tags = [tag for tag, _ in stations]
        names = [name for _, name in stations]
        assert names[0] == "New conversation"
        assert any(name.startswith("A paper boat floats") for name in names)
        assert "Used in 1 sentence" in names
        assert tags.count("SUMMARY") == page.locator(".passage").count() > 0
        assert "Ask" in names
        assert all(float(outline.removesuffix("px")) >= 2 for outline in outlines)
        page.locator(".passage summary").first.focus()
        page.keyboard.press("Enter")
        expect(page.locator(".whole").first).to_be_visible()
        page.locator("#tab-answers").focus()
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("tab", name="Compare methods")).to_be_focused()
        expect(page.get_by_role("table").last).to_be_visible()
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("tab", name="Answers")).to_be_focused()


FOCUSED = """() => {
  const { tagName, textContent, value } = document.activeElement;
  const name = (value || textContent).trim();
  return [tagName, name, getComputedStyle(document.activeElement).outlineWidth];
}"""

# The least contrast of all text with what lies behind it, as WCAG 2 defines it, and where it is.
CONTRAST = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => c / 255).map((c) =>
      c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const colour = numbers(getComputedStyle(element).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let least = [Infinity, ""];
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility()) continue;
    const { color, fill } = getComputedStyle(element);
    const pair = [numbers(element.closest("svg") ? fill : color), ground(element)];
    const [dark, light] = pair.map(luminance).sort((a, b) => a - b);
    const contrast = (light + 0.05) / (dark + 0.05);
    if (contrast < least[0]) least = [contrast, texts.currentNode.data];
  }
  return least;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_schemes_can_be_read(opened, engine, scheme):
    said = ("A paper boat floats until the paper is wet. ", "Cats sleep on warm roofs. ")
    with (
        written_by(engine, *said) as (client, _),
        opened(client, color_scheme=scheme, reduced_motion="reduce") as page,
    ):
        ask(page)
        ended(page)
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground))) < 200) == (scheme == "dark")
        page.locator(".sentence").first.focus()  # lit
        contrast, where = page.evaluate(CONTRAST)
        assert contrast >= 4.5, where
        page.locator(".answer").first.evaluate("panel => panel.setAttribute('aria-busy', 'true')")
        cursor = "getComputedStyle(document.querySelector('.text'), '::after').animationName"
        assert page.evaluate(cursor) == "none"
        page.get_by_role("tab", name="Compare methods").click()
        expect(page.get_by_role("table").last).to_be_visible()
        contrast, where = page.evaluate(CONTRAST)
        assert contrast >= 4.5, where


def test_what_is_written_is_announced(opened, url):
    with opened(url) as page:
        ask(page)
        ended(page)
        expect(page.locator(".text")).to_have_attribute("aria-live", "polite")
        expect(page.locator(".answer")).to_have_attribute("aria-busy", "false")
        expect(page.locator("#progress")).to_have_attribute("role", "status")


def test_before_a_question_and_without_documents_the_page_says_so(opened, embedder):
    empty = InMemorySource(embedder.embed_documents(["x"])[:0], [], embedder_name=embedder.name)
    with serving(create_app(source=empty, embedder=embedder)) as address, opened(address) as page:
        expect(page.get_by_text("Ask your documents")).to_be_visible()
        ask(page)
        expect(page.locator(".turn .problem")).to_have_text(
            "There are no documents to fetch from; add some first."
        )
        expect(page.get_by_text("Ask your documents")).to_be_hidden()
