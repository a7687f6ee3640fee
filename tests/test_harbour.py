"""The harbour's handbook and its questions agree with each other."""

import json
import re
from collections import Counter
from datetime import date
from pathlib import Path

import pytest

HARBOUR = Path(__file__).parents[1] / "examples" / "harbour"
PAGES = {
    path.relative_to(HARBOUR / "pages").as_posix(): path.read_text(encoding="utf-8")
    for path in sorted((HARBOUR / "pages").rglob("*.md"))
}
TEXTS = {page: " ".join(text.split()) for page, text in PAGES.items()}
LINES = (HARBOUR / "questions.jsonl").read_text(encoding="utf-8").splitlines()
QUESTIONS = [json.loads(line) for line in LINES]
KINDS = {"two hops": 20, "number or name": 15, "newest": 10, "several facts": 10, "unanswerable": 5}
FRONT_MATTER = re.compile(
    r'---\ntitle: (?:"[^"\n]+"|[^":\n]+)\ndate: (\d{4}-\d\d-\d\d)\n---\n\n# \S'
)

each_question = pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question["id"])


def words_of(text):
    return len(text.split())


def test_a_page_begins_with_a_title_and_a_date():
    for page, text in PAGES.items():
        matter = FRONT_MATTER.match(text)
        assert matter, page
        date.fromisoformat(matter[1])


def test_most_pages_have_60_to_400_words():
    assert len(PAGES) >= 190
    assert [page for page, text in PAGES.items() if words_of(text) < 60] == []
    assert sum(words_of(text) > 400 for text in PAGES.values()) <= 5


def test_links_between_pages_lead_to_pages():
    for page, text in PAGES.items():
        for link in re.findall(r"\]\(([^)]+)\)", text):
            assert (HARBOUR / "pages" / page).parent.joinpath(link).is_file(), (page, link)


def test_there_are_60_questions_of_five_kinds():
    assert Counter(question["kind"] for question in QUESTIONS) == KINDS
    assert len({question["id"] for question in QUESTIONS}) == len(QUESTIONS)
    assert len({question["question"] for question in QUESTIONS}) == len(QUESTIONS)
    assert {frozenset(question) for question in QUESTIONS} == {
        frozenset({"id", "kind", "question", "facts", "answers"})
    }


@each_question
def test_a_fact_stands_on_its_page_and_on_no_other(question):
    for fact in question["facts"]:
        assert [page for page, text in TEXTS.items() if fact["text"] in text] == [fact["page"]]
        assert 3 <= words_of(fact["text"]) <= 25


@each_question
def test_the_facts_of_a_question_stand_on_as_many_pages_as_its_kind_says(question):
    n_pages = len({fact["page"] for fact in question["facts"]})
    assert n_pages == len(question["facts"])
    assert (
        n_pages
        in {
            "two hops": {2},
            "number or name": {1},
            "newest": {1},
            "several facts": {2, 3},
            "unanswerable": {0},
        }[question["kind"]]
    )


@each_question
def test_an_answer_is_short_and_stands_in_a_fact(question):
    parts = {"several facts": len(question["facts"]), "unanswerable": 0}
    assert len(question["answers"]) == parts.get(question["kind"], 1)
    for spellings in question["answers"]:
        assert all(1 <= words_of(spelling) <= 6 for spelling in spellings)
        assert any(
            re.search(rf"(?<!\w){re.escape(spellings[0])}(?!\w)", fact["text"], re.IGNORECASE)
            for fact in question["facts"]
        )


def test_two_hops_end_on_the_second_page():
    for question in QUESTIONS:
        if question["kind"] == "two hops":
            (spellings,) = question["answers"]
            first, second = (TEXTS[fact["page"]] for fact in question["facts"])
            answer = re.compile(rf"(?<!\w){re.escape(spellings[0])}(?!\w)", re.IGNORECASE)
            assert answer.search(second), question["id"]
            assert not answer.search(first), question["id"]
