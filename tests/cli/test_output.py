import pytest

from sift_core.cli.output import (
    Terminal,
    print_chunks,
    print_table,
    shortened,
    source_of,
    sparkline,
)
from sift_core.explanation import Pick
from sift_core.repeats import repeats_of
from tests.pools import pool_of, turned


@pytest.fixture
def printed(capsys, monkeypatch):
    """Return a function that returns how chunks are printed."""

    def call(pool, width=60, **options):
        monkeypatch.setenv("COLUMNS", str(width))
        repeats = repeats_of(pool.embeddings)
        print_chunks(Terminal(), pool, repeats=repeats, **options)
        return capsys.readouterr().out

    return call


@pytest.mark.parametrize(
    ("text", "width", "keep_end", "expected"),
    [
        ("abcdef", 6, False, "abcdef"),
        ("abcdef", 5, False, "abcd…"),
        ("abcdef", 5, True, "…cdef"),
        ("日本語", 5, False, "日本…"),  # two columns each
        ("日本語", 4, False, "日…"),
        ("日本語", 5, True, "…本語"),
    ],
)
def test_a_line_is_shortened_to_the_columns_of_a_terminal(text, width, keep_end, expected):
    assert shortened(text, width, keep_end=keep_end) == expected


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (60, "docs/guide.md#3 > Guide > Paths > Numbers > p. 7"),
        (30, "docs/guide.md#3 > … > p. 7"),
        (14, "…cs/guide.md#3"),
        (9, "…ide.md#3"),
        (3, "…#3"),
    ],
)
def test_a_source_loses_what_says_least_first(width, expected):
    metadata = {"source": "docs/guide.md", "heading": ["Guide", "Paths", "Numbers"], "page": 7}
    assert source_of(metadata, "docs/guide.md#3", width) == expected


def test_a_source_is_named_by_other_indexers_too_or_by_its_id():
    assert source_of({"file_path": "a.txt", "heading": "Title"}, "17", 40) == "a.txt > Title"
    assert source_of({"source": 3}, "17", 40) == "17"
    assert source_of({}, "a\x1b[2Jb\nc", 40) == "a[2Jb c"


def test_a_sparkline_is_as_high_as_its_first_value():
    assert sparkline([1.0, 0.5, 0.0]) == "█▅▁"
    assert sparkline([2.0, 1.0, 0.0]) == "█▅▁"
    assert sparkline([0.0, 0.0]) == "▁▁"


def test_chunks_are_printed_with_rank_mark_similarity_and_source(printed):
    pool = pool_of(
        [
            "# Paths\n\nFirst words.",
            "Second [bold]words[/bold] which take more than two lines.",
        ],
        [turned(1.0), turned(0.9)],
        [{"source": "guide.md"}, {"source": "guide.md", "heading": ["Paths"]}],
    )
    assert printed(pool, width=34, counts=[3, 1]).splitlines() == [
        "  1      0.90  guide.md#0 ×3",
        "    First words.",
        "  2 ≈1   0.10  guide.md#1",
        "    Second [bold]words[/bold]",
        "    which take more than two line…",
    ]
    assert len(printed(pool, n_lines=0).splitlines()) == 2


@pytest.mark.parametrize("columns", [None, "40"])
def test_a_table_is_as_wide_as_it_needs_but_for_the_columns_of_a_terminal(
    capsys, monkeypatch, columns
):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    cells = ["*1.0 [0.5, 1.5]"] * 6
    heads = ["method", *(f"rival {i}" for i in range(6))]
    print_table(Terminal(), heads, [["[b]nn\x1b[2J", *cells]], title="A title")
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[:2] == ["A title", ""]
    if columns:
        assert max(map(len, lines)) <= 40
    else:
        assert lines[3].split("  ") == ["[b]nn[2J", *cells]


OPENING = "The chair opens the meeting at seven in the evening. "


@pytest.mark.parametrize(
    ("text", "shares", "shown"),
    [
        (f"{OPENING}The key is kept by Ann.", ("key",), "… The key is kept by Ann."),
        (f"{OPENING}A key costs 65 euros.", ("cost",), "… A key costs 65 euros."),
        (f"{OPENING}A keyhole was found behind the stairs. The key is Ann's.", ("key",),
         "… The key is Ann's."),
        ("No sentence has an end in here\n" * 5 + "key: Ann", ("key",),
         "… No sentence has an end in here key: Ann"),
        (f"{OPENING}The key is Ann's.", (), f"{OPENING}The key i…"),
        (f"{OPENING}The key is Ann's.", ("lock",), f"{OPENING}The key i…"),
        (f"{OPENING}Ann has it. " * 3, ("seven", "ann"), f"{OPENING}Ann has i…"),
    ],
)  # fmt: skip
def test_a_text_is_printed_from_where_it_has_the_words_it_was_chosen_for(
    printed, text, shares, shown
):
    pool = pool_of([text], [turned(1.0)], [{}])
    numbers = {"similarity": 1.0, "score": None, "relevance": 1.0, "redundancy": None}
    pick = Pick(row=0, gain=1.0, variance=0.0, shares=shares, **numbers)
    lines = printed(pool, width=36, picks=[pick]).splitlines()[1:3]
    assert " ".join(line.strip() for line in lines if "shares:" not in line) == shown
