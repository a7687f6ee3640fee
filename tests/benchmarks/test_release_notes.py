"""The thirty questions fit the notes, and what is counted of them is counted by hand."""

import json
from pathlib import Path

import pytest

from benchmarks.demo_questions import read_lines
from benchmarks.release_notes import QUESTIONS, measure, notes_of
from sift_core import InMemorySource
from sift_core.testing import HashingEmbedder

PAGES = Path(__file__).parents[2].parent / "shared/data/demo/pages.jsonl.gz"
ASKED = json.loads(QUESTIONS.read_text(encoding="utf-8"))


@pytest.mark.skipif(not PAGES.is_file(), reason="needs ../shared/data/demo")
def test_each_gold_note_is_newer_than_the_older_ones():
    dates = dict(notes_of(read_lines(PAGES)).values())
    assert len(ASKED) == len({one["question"] for one in ASKED}) == 30
    for one in ASKED:
        assert one["older"]
        assert dates[one["gold"]] > max(dates[version] for version in one["older"]), one


def test_the_newest_of_two_that_say_the_same_comes_first_where_it_was_asked_for():
    embedder = HashingEmbedder()
    texts = ["Starlette is upgraded now", "Starlette is upgraded now", "docs have a new page"]
    source = InMemorySource(
        embedder.embed_documents(texts),
        texts,
        metadata=[
            {"version": version, "date": date}
            for version, date in (("1", "2020-01-01"), ("2", "2021-01-01"), ("3", "2022-01-01"))
        ],
    )
    asked = [{"question": "Starlette upgraded", "gold": "2", "older": ["1"]}]
    rows = {row["method"]: row for row in measure(asked, source, embedder)}
    assert {row["found"] for row in rows.values()} == {1.0}
    assert (rows["nearest"]["first"], rows["sift"]["first"]) == (0.0, 0.0)
    assert (rows["nearest, then by date"]["first"], rows["sift, newest"]["first"]) == (1.0, 1.0)
