"""Front matter is in no chunk, and its title is a heading."""

import json

import pytest

pytest.importorskip("semantic_text_splitter")

from sift_core.documents import Chunker, read_files
from sift_core.documents.front_matter import front_matter, same_words

MATTER = "---\ntitle: Boats\ntags:\n- ferry\n  - crane\n\n# mine\n---\n"


def read(tmp_path, text, name="a.md", size=1000):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_files([tmp_path / name], base=tmp_path, chunker=Chunker(size))


def headings(reading):
    return [chunk.metadata.get("heading") for chunk in reading.documents]


@pytest.mark.parametrize(
    "matter",
    [
        MATTER,
        "---\n---\n",
        "--- \ntitle: x\n...\n",
        "---\r\ntitle: x\r\n\r\n- a\r\n---\r\n",
        "---\n# by hand\n\nlayout: page\n---\n",
        '---\n"title": x\nLast modified: y\nog:image: z\nflow: [\n  a,\n]\n---\n',
        "---\ntitle: Part 1: the boat\nowner: @me\n---\n",  # no valid YAML
        "---\ntitle: {{title}}\n---\n",
        '+++\n\n# by hand\n[params]\na = """\nNo key\n"""\n+++\n',
        "+++\n+++\n",
    ],
    ids=range(10),
)
def test_front_matter_ends_behind_its_last_line(matter):
    for body in ("", "Text\n", "\n# Title\n\n---\n\nText: more\n"):
        found = front_matter(matter + body)
        assert found is not None
        assert found.end == len(matter)


@pytest.mark.parametrize(
    "text",
    [
        "title: x\n---\nText",
        "\n---\ntitle: x\n---\n",
        "---\ntitle: x\n",
        "---\n\nNote: a rule is above.\n\n---\n",
        "---\nRules are around this.\n---\n",
        "---\nWhat nobody ever knew: boats sink.\n---\n",
        "---\nhttps://example.org\n---\n",
        "---\ntitle: x\nmore text at the margin\n---\n",
        "---\n# Heading\n\n---\n",
        "---\n- item\n---\n",
        "---\nname: a\n---\nname: b\n---\nname: c\n",
        "----\ntitle: x\n----\n",
        "+++\nText\n+++\n",
        "---\ntitle: x\n+++\n",
    ],
)
def test_rules_and_records_are_no_front_matter(tmp_path, text):
    assert front_matter(text) is None
    [chunk] = read(tmp_path, text).documents
    assert chunk.text == text.strip()


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("title: The  boat # a comment", "The boat"),
        ('Title: "The \\"boat\\" #1" # a comment', 'The "boat" #1'),
        ("title: 'The captain''s boat'", "The captain's boat"),
        ("title: Part 1: the boat", "Part 1: the boat"),
        ("title: >-\n  The\n  boat\nnext: x", "The boat"),
        ("title: The\n  boat\nnext: x", "The boat"),
        ("title: 2024", "2024"),
        ("subtitle: x\nparent:\n  title: y", ""),
        ("title:\nnext: x", ""),
        ("title:\n  en: Boat\n  de: Boot", ""),
        ("title: {{title}}", ""),
        ("title: null", ""),
        ('title: ""', ""),
    ],
)
def test_titles(line, title):
    matter = front_matter(f"---\nfirst: 1\n{line}\n---\n")
    assert matter is not None
    assert matter.title == title


def test_a_title_of_toml_is_the_page_s_own():
    own = front_matter('+++\ntitle = "Boats"\n[menu]\ntitle = "Menu"\n+++\n')
    others = front_matter('+++\ndraft = true\n[menu]\ntitle = "Menu"\n+++\n')
    assert (own.title, others.title) == ("Boats", "")


def test_titles_are_compared_by_their_words():
    assert same_words("Boats, and *cranes*", "boats and Cranes")
    assert not same_words("Boats", "Boats 2")


@pytest.mark.parametrize("name", ["a.md", "a.markdown", "a.rst", "a.txt"])
def test_chunks_hold_the_text_behind_it_at_its_place_in_the_file(tmp_path, name):
    text = MATTER + "\nCats purr here.\n\nDogs bark there.\n"
    documents = read(tmp_path, text, name, size=20).documents
    assert [chunk.text for chunk in documents] == ["Cats purr here.", "Dogs bark there."]
    for chunk in documents:
        start, end = chunk.metadata["start"], chunk.metadata["end"]
        assert text[start:end].strip() == chunk.text
        assert chunk.metadata["heading"] == ["Boats"]


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ("# *boats*\n\nCats purr.\n\n# Dogs\n\nDogs bark.", [["*boats*"], ["Dogs"]]),
        ("# Cats\n\nCats purr.\n\n# Dogs\n\nDogs bark.", [["Boats", "Cats"], ["Boats", "Dogs"]]),
        ("A badge, to begin.\n\n# Boats\n\nDogs bark.", [["Boats"], ["Boats"]]),
    ],
)
def test_the_title_stands_above_the_headings_unless_it_is_the_first(tmp_path, body, paths):
    assert headings(read(tmp_path, MATTER + body, size=22)) == paths


def test_a_page_of_nothing_else_is_empty(tmp_path):
    reading = read(tmp_path, "---\ntitle: Boats\n---\n\n")
    assert reading.documents == ()
    [skipped] = reading.skipped
    assert (skipped.reason.value, skipped.detail) == ("empty", "only front matter")


def test_the_first_cell_of_a_notebook_may_be_front_matter(tmp_path):
    cells = [{"cell_type": "raw", "source": MATTER}, {"cell_type": "markdown", "source": "Purr."}]
    [chunk] = read(tmp_path, json.dumps({"cells": cells}), "a.ipynb").documents
    assert (chunk.text, chunk.metadata["heading"]) == ("Purr.", ["Boats"])


def test_half_a_surrogate_pair_in_it_is_no_text(tmp_path):
    matter = "---\ntitle: \ud83d\n---\n"
    cells = [{"cell_type": "raw", "source": matter}, {"cell_type": "markdown", "source": "Purr."}]
    [skipped] = read(tmp_path, json.dumps({"cells": cells}), "a.ipynb").skipped
    assert skipped.reason.name == "ENCODING"


def test_what_html_shows_between_rules_is_text(tmp_path):
    pytest.importorskip("bs4")
    [chunk] = read(tmp_path, "<p>---<br>Note: a<br>---</p><p>Text</p>", "a.html").documents
    assert "Note: a" in chunk.text
