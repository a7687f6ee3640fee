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

pytest.importorskip("playwright", reason="drives the browser")
from playwright.sync_api import expect, sync_playwright

from sift_core import InMemorySource
from sift_core.service import create_app, state
from sift_core.testing import HashingEmbedder
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
    page.get_by_label("Chunks").fill(str(n))
    page.get_by_label("Question").fill(question)
    page.get_by_role("button", name="Ask").click()


def ended(page, word="Done."):
    expect(page.get_by_role("status")).to_have_text(word)


def columns_of(page):
    return {
        name: page.locator(f".column.{name}").locator("li") for name in ("nearest", "mmr", "sift")
    }


def test_columns_and_strikes_are_those_of_search(opened, ranking_url):
    body = {"query": QUESTION, "n_select": 4, "compare": True}
    found = httpx.post(f"{ranking_url}/search", json=body, timeout=PATIENCE_S)
    found = found.raise_for_status().json()
    with opened(ranking_url) as page:
        ask(page)
        ended(page)
        for name, shown in columns_of(page).items():
            chunks = found["columns"][name]["chunks"]
            expect(shown).to_have_count(len(chunks))
            for item, chunk in zip(shown.all(), chunks, strict=True):
                assert item.locator(".whole").text_content() == chunk["text"]
                assert item.locator(".title").text_content() == chunk["title"]
                repeat, is_copy = chunk["near_duplicate_of"], chunk["is_copy"]
                assert item.locator("s").count() == (2 if is_copy else 0)  # title and text
                said = f"A copy of {repeat['rank']} " if is_copy else ""
                assert (item.locator(".repeat").all_text_contents() or [""])[0].startswith(said)
            n_copies = found["columns"][name]["n_copies"]
            expect(page.locator(f".column.{name} li.copy")).to_have_count(n_copies)
        assert page.locator("li.copy").count() > 0
        page.get_by_text("The curve in numbers").click()
        rows = [row.split() for row in page.locator("tbody tr").all_inner_texts()]
        variances = [found["columns"][name]["question_variances"] for name in found["columns"]]
        assert rows == [
            [str(i), *(f"{values[i]:.3f}" for values in variances)] for i in range(len(rows))
        ]
        assert len(rows) == 5
        assert page.locator(".chart polyline").count() == 3
        expect(page.get_by_text("This service has no language model")).to_be_visible()
        expect(page.locator(".answer")).to_have_count(0)


def test_answers_are_written_as_the_service_gives_them(opened, url):
    asked = {"messages": [{"role": "user", "content": QUESTION}], "sift": {"n_context": 4}}
    with opened(url) as page:
        page.evaluate(WATCH)
        ask(page)
        ended(page)
        for way, title in (("context", "By reading"), ("fine_tune", "By learning")):
            body = {**asked, "model": f"tiny:{way}"}
            told = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE_S).json()
            panel = page.get_by_role("article", name=title)
            text = panel.locator(".text").text_content()
            assert text == told["choices"][0]["message"]["content"]
            expect(panel).to_contain_text("Complete after")
            expect(panel).to_contain_text(f"{told['usage']['completion_tokens']} tokens written")
            items = panel.locator("ol li").all_text_contents()
            assert len(items) == len(told["sift"]["sources"]) > 0
            seen = page.evaluate("title => window.seen[title]", title)
            assert len(seen) > 2  # piece by piece
            assert all(text.startswith(piece) for piece in seen)
            assert told["sift"]["reasons"][0] in panel.inner_text()
        learning = page.get_by_role("article", name="By learning")
        losses = told["sift"]["fine_tuning"]["losses"]
        spelled = f"from {losses[0]:.2f} to {losses[-1]:.2f}"
        expect(learning.get_by_role("img")).to_have_attribute("aria-label", re.compile(spelled))
        expect(learning).to_contain_text(f"in {len(losses)} steps")


def test_one_answer_is_written_where_a_server_writes_and_nothing_learns(opened, engine):
    pytest.importorskip("openai", reason="needs the extra openai")
    from sift_core.answering import OpenAIGenerator
    from tests.answering.openai_double import Api, serving_api

    with serving_api(Api()) as api:
        written_there = replace(engine, generator=OpenAIGenerator(api.base_url, "small"))
        with service(written_there) as client, opened(client) as page:
            ask(page)
            ended(page)
            expect(page.get_by_role("article", name="By reading")).to_contain_text("Fold the sheet")
            expect(page.get_by_role("article", name="By learning")).to_have_count(0)


# Notes what stands in each answer at every change.
WATCH = """() => {
  window.seen = {};
  new MutationObserver(() => {
    for (const panel of document.querySelectorAll(".answer")) {
      const texts = (window.seen[panel.querySelector("h3").textContent] ??= []);
      const text = panel.querySelector(".text").textContent;
      if (texts.at(-1) !== text) texts.push(text);
    }
  }).observe(document.body, { childList: true, subtree: true });
}"""


def test_stop_ends_the_learning(opened, engine):
    endless = changed(engine, n_steps=10_000, cache=None)
    with service(endless) as client, opened(client) as page:
        ask(page)
        expect(page.get_by_text(re.compile(r"Learns: step ([2-9]|\d\d)"))).to_be_visible()
        page.get_by_role("button", name="Stop").click()
        ended(page, "Stopped.")
        expect(page.get_by_role("button", name="Stop")).to_be_disabled()
        until(lambda: figures(client)['sift_queue_running{queue="answers"}'] == 0)
        expect(page.get_by_role("article", name="By learning")).to_contain_text("Stopped.")
        ask(page, n=2)  # a question in the midst of another takes its place
        expect(page.get_by_text(re.compile(r"Learns: step ([2-9]|\d\d)"))).to_be_visible()
        ask(page, n=3)
        expect(columns_of(page)["sift"]).to_have_count(3)
        expect(page.locator(".answer")).to_have_count(2)
        page.get_by_role("button", name="Stop").click()
        ended(page, "Stopped.")


def test_a_failure_is_a_sentence(opened, source):
    with (
        service(source=source, embedder=BrokenEmbedder()) as client,
        opened(client) as page,
    ):
        ask(page)
        problem = page.get_by_role("alert")
        expect(problem).to_have_text(
            re.compile(r"The service failed; .* The request was [0-9a-f]+\.$")
        )
        expect(page.get_by_role("status")).to_contain_text("not all is there")
        ask(page, "   ")
        expect(problem).to_have_text("Type a question first.")


def test_a_busy_service_says_when_to_come_back(opened, engine, monkeypatch):
    monkeypatch.setattr(state, "WAITING_ANSWERS", 1)
    endless = changed(engine, n_steps=10_000, cache=None)
    with service(endless, n_answers=1) as client:
        with opened(client) as first, opened(client) as second:
            ask(first)
            until(lambda: figures(client)["sift_learning_steps_total"] > 0)
            ask(second)
            expect(second.locator(".answer .problem", has_text="Ask again in").first).to_have_text(
                re.compile(r"The service is busy: .* Ask again in \d+ s\.")
            )
            expect(second.locator(".column")).to_have_count(3)  # waits for no model


def _serve_endlessly(model, told):
    embedder = HashingEmbedder(64)
    engine = tiny_engine(model, small_store(embedder), embedder)
    with serving(create_app(changed(engine, n_steps=10_000))) as address:
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
            learning = page.get_by_role("article", name="By learning")
            expect(learning).to_contain_text("Learns: step")
            server.kill()
            expect(learning.locator(".problem")).to_contain_text("The connection broke off")
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
        expect(page.locator(".column")).to_have_count(3)
        expect(problem).to_be_empty()
        kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
        assert kept == "[{},{}]"
        assert page.context.cookies() == []
        page.reload()
        expect(page.get_by_label("API key")).to_have_value("")
        expect(problem).to_have_text("This service asks for a key.")


def test_text_of_a_document_stays_text(opened, engine, embedder):
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
        service(replace(engine, source=hostile)) as client,
        opened(client) as page,
    ):
        ask(page, f"{HOSTILE} fold paper", n=9)
        ended(page)
        first = columns_of(page)["sift"].first
        assert first.locator(".whole").text_content() == HOSTILE
        assert first.locator(".title").text_content() == HOSTILE
        assert first.locator("a").count() == 0  # a script is no address
        assert page.locator("img, script:not([src='page.js'])").count() == 0
        assert page.title() != "taken"
        link = page.locator(".column.sift a")
        expect(link).to_have_text("a <b>good</b> one")
        assert link.get_attribute("href").startswith("https://example.org/")
        assert link.get_attribute("rel") == "noopener noreferrer"


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
        assert hosts == {ranking_url.removeprefix("http://")}


@pytest.mark.parametrize("width", [320, 360, 768])
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
        boxes = [page.locator(".column").nth(i).bounding_box() for i in range(3)]
        assert (boxes[0]["x"] == boxes[1]["x"]) == (width < 600)  # one below the other
        assert page.locator(".chart svg").bounding_box()["width"] <= width


def test_the_keyboard_is_enough(opened, url):
    with opened(url) as page:
        expect(page.get_by_label("Question")).to_be_focused()
        page.keyboard.type("how to fold")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("a boat of paper")
        assert "\n" in page.get_by_label("Question").input_value()
        page.keyboard.press("Enter")
        ended(page)
        stations, outlines = [], []
        for _ in range(60):
            page.keyboard.press("Tab")
            tag, name, outline = page.evaluate(FOCUSED)
            if tag == "BODY":
                break
            stations.append((tag, name))
            outlines.append(outline)
        tags = [tag for tag, _ in stations]
        assert [name for _, name in stations[:2]] == ["Ask", "6"]  # nothing to stop by now
        n_texts = page.locator(".column summary").count()
        assert tags.count("SUMMARY") >= n_texts + 1  # every text, and the curve in numbers
        assert all(float(outline.removesuffix("px")) >= 2 for outline in outlines)
        page.locator(".column summary").first.focus()
        page.keyboard.press("Enter")
        expect(page.locator(".whole").first).to_be_visible()


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
def test_both_schemes_can_be_read(opened, url, scheme):
    with opened(url, color_scheme=scheme, reduced_motion="reduce") as page:
        ask(page)
        ended(page)
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground))) < 200) == (scheme == "dark")
        contrast, where = page.evaluate(CONTRAST)
        assert contrast >= 4.5, where
        page.locator(".answer").first.evaluate("panel => panel.setAttribute('aria-busy', 'true')")
        cursor = "getComputedStyle(document.querySelector('.text'), '::after').animationName"
        assert page.evaluate(cursor) == "none"


def test_before_a_question_and_without_documents_the_page_says_so(opened, embedder):
    empty = InMemorySource(embedder.embed_documents(["x"])[:0], [], embedder_name=embedder.name)
    with serving(create_app(source=empty, embedder=embedder)) as address, opened(address) as page:
        expect(page.get_by_text("Nothing has been asked yet.")).to_be_visible()
        expect(page.get_by_role("button", name="Stop")).to_be_disabled()
        ask(page)
        expect(page.locator("#problem")).to_have_text(
            "There are no documents to fetch from; add some first."
        )
        expect(page.get_by_text("Nothing has been asked yet.")).to_be_hidden()
