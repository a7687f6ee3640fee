import re
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("semantic_text_splitter")

from sift_core.documents import Chunker, cutting
from sift_core.errors import InvalidInputError
from tests.documents.texts import GUIDE_MD, GUIDE_RST, MODULE

FORMATS = ["markdown", "rst", "python", "text"]


def split(text, format, max_characters=1000, **options):
    return Chunker(max_characters, **options).split(text, format=format, document_id="x")


def texts_of(chunks):
    return [chunk.text for chunk in chunks]


def visible(text):
    return "".join(text.split())


def assert_lossless(text, chunks, max_characters):
    """Every visible character once, in order, in chunks that are no larger than allowed."""
    parts = [text[chunk.metadata["start"] : chunk.metadata["end"]] for chunk in chunks]
    assert "".join(map(visible, parts)) == visible(text)
    for chunk, part in zip(chunks, parts, strict=True):
        assert part.strip() != ""
        assert chunk.text.endswith(part.strip())  # a table's header may stand before it
        assert max(len(chunk.text), len(part)) <= max_characters
    assert all(a.metadata["end"] <= b.metadata["start"] for a, b in pairwise(chunks))
    assert [chunk.document_id for chunk in chunks] == [f"x#{i}" for i in range(len(chunks))]


BITS = (
    "# |## a\n|Title\n===\n|Title\n---\n|```\n|~~~py\n|    |\t|- |1. |> |[a](b)|**|`|\n|\n\n|\r\n"
    "|\r|\x0c|::\n\n|.. note::\n\n|   x\n|.. _t:\n|+--+\n|=====\n|'''|def f():\n|class A:\n|("
    "|)|x = 1\n|#|word |A sentence. |\U0001f469\u200d\U0001f467|e\u0301|\u2028|\ufeff|<!-- |---\n"
    "|\\|\x00|漢字|\xa0"
)
bits = st.sampled_from([*BITS.split("|"), "| a | b |\n|---|---|\n", "a" * 50, " " * 20])
any_text = st.text(max_size=80) | st.lists(bits | st.text(max_size=5), max_size=60).map("".join)


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=60, deadline=None)
@given(text=any_text, max_characters=st.integers(1, 120))
@example(text="", max_characters=1)
@example(text=" \r\n\t\n", max_characters=1)
@example(text="x" * 5000, max_characters=100)
@example(text="00000000:\n: ", max_characters=11)  # a part of whitespace alone
@example(text="漢" * 500 + " 👩‍👩‍👧" * 100, max_characters=7)
def test_every_visible_character_is_kept_once_in_order(format, text, max_characters):
    assert_lossless(text, split(text, format, max_characters), max_characters)


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=60, deadline=None)
@given(text=any_text, max_characters=st.integers(16, 120))
def test_a_stump_has_no_neighbour_with_room_for_it(format, text, max_characters):
    chunks = split(text, format, max_characters)
    spans = [(chunk.metadata["start"], chunk.metadata["end"]) for chunk in chunks]
    for i, chunk in enumerate(chunks):
        if any("|" in near.text for near in chunks[max(0, i - 1) : i + 2]):
            continue  # a table's header may take the room
        if len(chunk.text.strip()) < max_characters // 8:
            assert i == 0 or spans[i][1] - spans[i - 1][0] > max_characters
            assert i == len(spans) - 1 or spans[i + 1][1] - spans[i][0] > max_characters


sentences = st.integers(3, 12).map(lambda n: " ".join(["Some"] + ["words"] * n) + ".")
code_lines = st.sampled_from(["x = 1", "def f(a):", "    return a", "", "print(x)", "| a | b |"])
code_blocks = st.lists(code_lines, min_size=1, max_size=9).map(
    lambda lines: "```python\nfirst\n" + "\n".join(lines) + "\n```"
)
lists = st.lists(sentences, min_size=1, max_size=6).map(
    lambda items: "\n".join(f"* {item}" for item in items)
)
lead_ins = st.sampled_from(["Do this:", "Here is a longer lead-in, of many words:"])
sections = st.lists(st.one_of(sentences, code_blocks, lists, lead_ins), min_size=1, max_size=6).map(
    lambda blocks: "\n\n".join(["## A title", "A first sentence.", *blocks])
)
pages = st.lists(sections, min_size=1, max_size=4).map("\n\n".join)


@settings(max_examples=80, deadline=None)
@given(text=pages, max_characters=st.integers(120, 400))
def test_pages_have_no_stump_and_no_cut_in_a_block_of_code_that_fits(text, max_characters):
    chunks = split(text, "markdown", max_characters)
    assert_lossless(text, chunks, max_characters)
    starts = {chunk.metadata["start"] for chunk in chunks}
    for block in re.finditer(r"^```python\n.*?^```$", text, re.MULTILINE | re.DOTALL):
        if len(block[0]) <= max_characters:
            assert not starts & set(range(block.start() + 1, block.end()))
    for chunk in chunks:
        assert not chunk.text.endswith(("## A title", "```python"))


WORDS = "Some words before it, which fill the first chunk. " * 2
CODE = "```python\nfrom thing import main\n\nmain()\n```"
BEFORE = "A sentence before them. " * 4
ITEMS = [f"* Item {i} of a list, in some words." for i in range(4)]
FUNCTIONS = [f"def f{i}(x):\n    return x + {i}" for i in range(3)]
NEXT = "# Next\n\n" + "Words of the next section. " * 2 + "The last words."
LONG = "Words of a section that is as long as a chunk may be, at the most. " * 2
FUNCTION = "def add(first, second):\n" + "".join(f"    value_{i} = {i}\n" for i in range(9))
RST = "A\n=\n\na\n\nB\n-\n\nb\n\nC\n-\n\nc\n\nD\n=\n\nd\n"
PLAIN = "One. Two two.\n\nThree three three. Four."
# Format, text, largest chunk, and the chunks.
CUTS = {
    "a lead-in goes with what it leads to": (
        *("markdown", f"{WORDS}\n\nTo run it, write:\n\n{CODE}\n\nThe last words of a page.", 130),
        [WORDS.strip(), f"To run it, write:\n\n{CODE}\n\nThe last words of a page."],
    ),
    "a lead-in takes the first items of a list": (
        *("markdown", "\n".join([BEFORE, "", "These are the items:", "", *ITEMS]), 150),
        [
            BEFORE.strip(),
            "\n".join(["These are the items:", "", *ITEMS[:2]]),
            "\n".join(ITEMS[2:]),
        ],
    ),
    "the cut before a stump moves to a better place": (
        "markdown",
        "```python\n" + "\n\n".join(FUNCTIONS) + "\n\n    x\n```\n\n" + NEXT,
        100,
        [
            "```python\n" + "\n\n".join(FUNCTIONS[:2]),
            FUNCTIONS[2] + "\n\n    x\n```",
            NEXT,
        ],
    ),
    "a short section takes nothing of another": (
        *("markdown", f"# A\n\n{LONG}\n\n# B\n\nShort.\n\n# C\n\n{LONG}", 140),
        [f"# A\n\n{LONG.strip()}", "# B\n\nShort.", f"# C\n\n{LONG.strip()}"],
    ),
    "sections share a chunk until a higher title": (
        *("rst", RST, 28),
        ["A\n=\n\na\n\nB\n-\n\nb\n\nC\n-\n\nc", "D\n=\n\nd"],
    ),
    "a short line takes nothing of a function that fits": (
        *("python", f"x = 1\n\n\n{FUNCTION}", len(FUNCTION) + 2),
        ["x = 1", FUNCTION.rstrip()],
    ),
    "paragraphs": ("text", PLAIN, 30, ["One. Two two.", "Three three three. Four."]),
    "sentences": ("text", PLAIN, 20, ["One. Two two.", "Three three three.", "Four."]),
    "words": ("text", "three words here", 11, ["three words", "here"]),
    "a bracket takes a line along": (
        *("text", "aaaa bbbb\ncccc dddd\n)", 20),  # 20 characters before it
        ["aaaa bbbb", "cccc dddd\n)"],
    ),
    "a bracket alone": ("text", "cccc dddd\n)", 10, ["cccc dddd", ")"]),
}


@pytest.mark.parametrize(("format", "text", "size", "chunks"), CUTS.values(), ids=CUTS)
def test_cuts_by_hand(format, text, size, chunks):
    assert texts_of(split(text, format, size)) == chunks


def test_chunks_know_the_headings_above_their_first_visible_line():
    def paths(*arguments):
        return [chunk.metadata.get("heading") for chunk in split(*arguments)]

    first, second, *others = paths(GUIDE_MD, "markdown", 70)
    assert (first, second) == (None, ["The guide"])
    assert set(map(tuple, others)) == {
        ("The guide", "Installing"),
        ("The guide", "Installing", "Deeper"),
        ("The guide", "Using it"),
    }
    installing = ["The guide", "Installing"]
    assert paths(GUIDE_RST, "rst", 130) == [
        *(["The guide"], installing, installing),
        *([*installing, "Using it"], ["The guide", "Last words"]),
    ]
    (chunk,) = split("\n\n# A\n\nText.", "markdown")
    assert chunk.metadata == {"source": "x", "start": 0, "end": 12, "heading": ["A"]}


def test_neither_marks_without_a_word_nor_the_end_of_a_block_of_code_start_a_chunk():
    docstring = "    " + "Words of a long docstring. " * 8
    module = f'def f():\n    """\n{docstring}\n    """\n    return 1\n'
    code = "\n".join(f"print('a line of code, number {n}')" for n in range(8))
    page = f"Words before.\n\n```\n{code}\n```\n\nWords behind it, some more than a few."
    for size in range(60, 300, 7):
        assert all(re.search(r"\w", chunk) for chunk in texts_of(split(module, "python", size)))
        found = texts_of(split(page, "markdown", size))
        assert not any(chunk.startswith("```\n\n") for chunk in found)


@pytest.mark.parametrize("format", ["markdown", "text"])
@pytest.mark.parametrize("title", ["**Warning**", "  __Technical details__", "<form>"])
def test_a_title_in_bold_and_an_opening_tag_go_with_what_follows(format, title):
    text = "One line of words.\n\nOther words here.\n\n" + title + "\n\nWhat is to be known of it."
    chunks = texts_of(split(text, format, 60))
    assert len(chunks) == 2
    assert chunks[1].split("\n")[0].strip() == title.strip()


@pytest.mark.parametrize("closing", ["</form>", "  </ul>", "},"])
def test_what_closes_goes_with_what_it_closes(closing):
    words = "Some words of the first part,\nand of its end\n"
    text = f"{words}{closing}\nThen a few of another."
    first, second = texts_of(split(text, "text", len(words) + len(closing) - 1))
    assert first == "Some words of the first part,"
    assert second == text[len(first) + 1 :]


@pytest.mark.parametrize("fence", ["```Python", "~~~ python title='a`b'", "    ```py hl_lines=3"])
@pytest.mark.parametrize("before", ["", "# Title\n\n", "Some words before the code.\n\n"])
def test_the_line_that_opens_a_block_of_code_goes_with_its_beginning(before, fence):
    code = "".join(f"value_{i} = function_{i}()\n\n\n" for i in range(20))
    text = f"{before}{fence}\n{code}{fence.split()[0][:3]}\n"
    for max_characters in range(90, 200, 10):
        chunks = split(text, "markdown", max_characters)
        assert_lossless(text, chunks, max_characters)
        assert all("function" in chunk.text or "before" in chunk.text for chunk in chunks)


def test_windows_line_ends_are_cut_at_the_same_places():
    windows = GUIDE_MD.replace("\n", "\r\n")
    here = [visible(text) for text in texts_of(split(GUIDE_MD, "markdown", 140))]
    there = [visible(text) for text in texts_of(split(windows, "markdown", 150))]
    assert there == here


HEADER = "| Item | Net |\n|---|---|\n"
TABLES = {
    "with marks at both ends": (HEADER, "| cell {} | {} |\n"),
    "without": ("Item | Net\n:--- | ---:\n", "cell {} | {}\n"),
    "in a list": ("  | Item | Net |\n  | --- | --- |\n", "  | cell {} | {} |\n"),
    "of long rows": (HEADER, "| cell {} | " + "words " * 60 + "cell {} |\n"),
}


@pytest.mark.parametrize(("header", "row"), TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("max_characters", [120, 333])
def test_every_chunk_of_a_long_table_has_its_header(header, row, max_characters):
    table = header + "".join(row.format(i, 7 * i) for i in range(40))
    text = f"# Prices\n\nAll in euros.\n\n{table}\nThe end of it.\n"
    chunks = split(text, "markdown", max_characters)
    assert_lossless(text, chunks, max_characters)
    of_table = [chunk.text for chunk in chunks if "cell" in chunk.text]
    assert len(of_table) > 2
    assert all(chunk.count(header.strip()) == 1 for chunk in of_table)


def test_neither_code_nor_a_header_over_half_a_chunk_is_repeated():
    rows = "| a | b |\n" * 20
    for text, size in ((f"```\n{HEADER}{rows}```", 90), (f"{HEADER}{rows}", len(HEADER) * 2 - 1)):
        chunks = split(text, "markdown", size)
        assert len(chunks) > 2
        assert sum("Item" in chunk.text for chunk in chunks) == 1


def count_words(text):
    return len(text.split())


@pytest.mark.parametrize("format", FORMATS)
def test_the_size_can_be_counted_in_the_callers_unit(format):
    text = {"markdown": GUIDE_MD, "rst": GUIDE_RST, "python": MODULE}.get(format, GUIDE_MD)
    chunks = split(text, format, 12, size=count_words)
    assert len(chunks) > 2
    assert max(count_words(chunk.text) for chunk in chunks) <= 12
    assert "".join(visible(chunk.text) for chunk in chunks) == visible(text)


def test_a_size_that_is_no_whole_number_is_rounded_up():
    chunks = split("four five six seven", "text", 2, size=lambda text: len(text) / 4)
    assert texts_of(chunks) == ["four", "five six", "seven"]


def test_chunks_carry_the_callers_metadata_and_their_own():
    chunker = Chunker(40)
    (one,) = chunker.split("A text.", format="text", document_id="d", metadata={"year": 1})
    assert one.metadata == {"year": 1, "source": "d", "start": 0, "end": 7}
    assert chunker.split("", format="text", document_id="d") == []
    assert chunker.split(" \n\t\n", format="markdown", document_id="d") == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Chunker(0), "`max_characters` must be >= 1"),
        (lambda: Chunker(10, size=3), "`size` must be a function of a text, got int"),
        (lambda: split("x", "html"), "one of markdown, rst, python, text, got 'html'"),
        (lambda: split(b"x", "text"), "`text` must be a string, got bytes"),
        (lambda: split("\ud800", "text"), "`text` holds the character"),
        (
            lambda: Chunker().split("x", format="text", document_id="d", metadata={"end": 1}),
            "chunks have a 'end' of their own; rename yours",
        ),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


@pytest.mark.parametrize("format", ["text", "markdown", "python", "rst"])
@pytest.mark.parametrize("text", ["x" * 90_000, "ab " * 30_000, '{"a":[1],"b":"c"},' * 5_000])
def test_no_line_that_the_library_would_take_long_for_is_given_to_it(monkeypatch, format, text):
    given = []
    splitter = cutting._splitter

    class Recorded:
        def __init__(self, *arguments):
            self.splitter = splitter(*arguments)

        def chunk_indices(self, part):
            given.append(len(part))
            return self.splitter.chunk_indices(part)

    monkeypatch.setattr(cutting, "_splitter", Recorded)
    chunks = Chunker(1000).split(text, format=format, document_id="x")
    assert "".join("".join(chunk.text.split()) for chunk in chunks) == "".join(text.split())
    assert max(given) <= 20_000
    assert sum(given) <= 4 * len(text)
