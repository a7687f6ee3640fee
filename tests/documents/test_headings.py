"""Which lines are headings, and what chunks say of them."""

import pytest

pytest.importorskip("semantic_text_splitter")

from sift_core.documents import cutting
from sift_core.documents.headings import markdown_headings, rst_headings


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("# A b #", ("A b",)),
        ("   ###### Deep", ("Deep",)),
        ("# C#", ("C#",)),
        ("#hashtag", None),
        ("####### seven", None),
        ("    # code", None),
        ("~~~\n# code\n~~~", None),
        ("````\n```\n# code\n````", None),
        ("```\n# never closed", None),
        ("``` `a` ```\n# A", ("A",)),
        ("Two\n===", ("Two",)),
        ("- item\n---", None),
        ("\n---\n", None),
        ("> quote\n---", None),
    ],
)
def test_markdown_headings_by_hand(line, path):
    headings = markdown_headings("\n" + line + "\n")
    assert [heading.path for heading in headings] == ([] if path is None else [path])


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("Title\n=====\n", ["Title"]),
        ("Much longer\n====\n", ["Much longer"]),  # docutils warns and takes it
        ("Longer\n===\n", []),
        ("A\n-\n", ["A"]),
        ("=====\n Title\n=====\n", ["Title"]),
        ("text\nTitle\n=====\n", []),
        ("    Title\n    =====\n", []),
        (" Title\n======\n", []),
        ("a\n\n-----\n\nb\n", []),
        ("====  ====\na     b\n====  ====\n", []),
        ("Title\n==-==\n", []),
    ],
)
def test_rst_titles_by_hand(text, titles):
    assert [heading.path[-1] for heading in rst_headings(text)] == titles


def test_rst_levels_are_the_styles_in_order_of_appearance():
    text = "~~~~\nDoc\n~~~~\n\nA\n~~~~\n\nB\n''''\n\nC\n~~~~\n"
    assert [(h.level, h.path) for h in rst_headings(text)] == [
        (1, ("Doc",)),
        (2, ("Doc", "A")),
        (3, ("Doc", "A", "B")),
        (2, ("Doc", "C")),
    ]


def test_headings_looked_at_grow_no_faster_than_the_text():
    class Counted(list):
        n_looks = 0

        def __getitem__(self, key):
            Counted.n_looks += len(range(*key.indices(len(self)))) if isinstance(key, slice) else 1
            return super().__getitem__(key)

    looks = []
    for n in (200, 400):
        text = "# A\n\nsome text of it\n" * n
        Counted.n_looks = 0
        cutter = cutting.Cutter(
            text, "markdown", Counted(markdown_headings(text)), capacity=100, count=len
        )
        assert len(cutter.spans()) >= n // 5
        looks.append(Counted.n_looks)
    assert looks[1] <= 2.5 * looks[0]


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("# a ##", "a"),
        ("# a#", "a#"),
        ("# #", ""),
        ("#\ta \t#\r", "a"),
        ("###", ""),
        ("# a # b", "a # b"),
        ("# a" + " " * 100_000 + "x", "a" + " " * 100_000 + "x"),  # took hours
    ],
    ids=range(7),
)
def test_titles_are_read_in_one_pass(line, title):
    (heading,) = markdown_headings(f"{line}\n")
    assert heading.path == (title[:200],)
