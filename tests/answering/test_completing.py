"""A text that goes on: what is read of it, what is read beside it, and where it ends."""

import asyncio

import pytest

from sift_core import InvalidInputError
from sift_core.answering.completing import (
    CompletionPrompt,
    block_end,
    complete,
    prepare_completion,
    stream_completion,
)
from sift_core.answering.model.text_model import RawText
from sift_core.errors import SiftError
from tests.engines import engine_of

FILE = "def count(boxes):\n    return len(boxes)\n\n\ndef fold(table):\n    return half(table)\n"
AT_FOLD = "def count(boxes):\n    return len(boxes)\n\n\ndef fold(table):"
COUNT, FOLD = FILE.rstrip().split("\n\n\n")
CHUNKS = {
    COUNT: "shelf.py",
    FOLD: "shelf.py",
    f"{FOLD}  # copied": "copy.py",
    "def fold(chair):\n    return chair": "other.py",
}


def engine_over(chunks, language_model, **options):
    metadata = [{"source": source} for source in chunks.values()]
    return engine_of(language_model, list(chunks), metadata=metadata, **options)


@pytest.fixture
def engine(small_lm):
    return engine_over(CHUNKS, small_lm, max_new_tokens=8)


@pytest.mark.parametrize(
    ("line", "before"),
    [(1, "def count(boxes):"), (5, AT_FOLD), (6, FILE.rstrip("\n")), (7, FILE), (None, FILE)],
)
def test_the_cursor_stands_at_the_end_of_its_line(line, before):
    prompt = CompletionPrompt.at_line(FILE, line)
    assert prompt.before == before
    assert prompt.before + prompt.after == FILE


def test_a_line_of_windows_ends_before_its_return():
    prompt = CompletionPrompt.at_line("a = 1\r\nb = 2\r\n", 1)
    assert (prompt.before, prompt.after) == ("a = 1", "\r\nb = 2\r\n")


@pytest.mark.parametrize("line", [0, 8])
def test_a_line_that_is_not_there_is_refused(line):
    with pytest.raises(InvalidInputError, match="there is no line"):
        CompletionPrompt.at_line(FILE, line)


def test_nothing_before_the_cursor_is_refused():
    with pytest.raises(InvalidInputError, match="no text before the cursor"):
        CompletionPrompt(before=" \n")


@pytest.mark.parametrize("path", ["shelf.py", "/home/me/shelf.py"])
def test_no_chunk_of_the_file_from_behind_the_cursor_is_read(engine, path):
    prompt = CompletionPrompt.at_line(FILE, 5, path=path)
    answer = complete(engine, prompt, mode="context", n_select=4)
    sources = [metadata["source"] for metadata in answer.chunks.metadata]
    # The first function stands in the prompt, so that its chunk would add nothing.
    assert sorted(sources) == ["copy.py", "other.py"]


@pytest.mark.parametrize("source", ["../boxes/shelf.py", "../../home/me/boxes/shelf.py"])
def test_a_file_that_was_indexed_from_beside_its_folder_is_known(small_lm, source):
    engine = engine_over({FOLD: source, "def fold(chair):": "other.py"}, small_lm)
    prompt = CompletionPrompt.at_line(FILE, 5, path="/home/me/boxes/shelf.py")
    answer = complete(engine, prompt, mode="context", max_new_tokens=1)
    assert [metadata["source"] for metadata in answer.chunks.metadata] == ["other.py"]


def test_a_chunk_of_the_file_from_before_what_is_read_is_a_chunk_like_others(engine):
    prompt = CompletionPrompt.at_line(FILE, 5, path="shelf.py")
    n_tokens = engine.language_model.n_tokens("def fold(table):")
    answer = complete(engine, prompt, mode="context", n_select=4, n_prompt_tokens=n_tokens)
    assert COUNT in answer.chunks.texts
    assert FOLD not in answer.chunks.texts


def test_joined_chunks_of_the_file_stand_in_it_whatever_blank_lines_they_lost():
    prompt = CompletionPrompt(before=f"{FILE}x = 1\n", path="shelf.py")
    joined, about = f"{COUNT}\n\n{FOLD}", {"source": "shelf.py"}
    assert joined not in FILE
    assert prompt.may_be_read("x = 1\n")(joined, about)
    assert not prompt.may_be_read("x = 1\n")(f"{joined}.", about)


def test_without_a_path_a_known_text_behind_the_cursor_is_not_read(engine):
    at = CompletionPrompt.at_line(FILE, 5)
    assert FOLD not in complete(engine, at, mode="context", n_select=4).chunks.texts


PACK = "def pack(box):\n    seal(box, tape=True)\n    return box"
CARRY = "def carry_upstairs(box):\n    lift(box)\n    return box"


@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
@pytest.mark.parametrize("path", [None, "shelf.py"])
@pytest.mark.parametrize(
    ("before", "after", "chunk"),
    [
        ("def pack(box):\n    check", "\n    seal(box, tape=True)\n    return box\n", PACK),
        ("x = 1\n", f"\n{CARRY}\n", CARRY),
        ("x = 1\n", "\n\ndef carry_upstairs(box):\n", CARRY),
    ],
    ids=["edited since", "whole", "an editor sends a part"],
)
def test_of_an_unknown_file_no_chunk_that_holds_text_from_behind_is_read(
    before, after, chunk, path, line_break
):
    parts = (part.replace("\n", line_break) for part in (before, after))
    at = CompletionPrompt(**dict(zip(("before", "after"), parts, strict=True)), path=path)
    keep = at.may_be_read(at.before)
    about = {"source": "boxes/shelf.py"} if path else {}
    assert not keep(chunk, about)
    assert not keep(chunk, {})
    assert keep("def open(box):\n    cut(box)\n    return box", about)
    if path:
        assert keep(chunk, {"source": "boxes/copy.py"})


def test_a_file_with_returns_has_its_chunks_from_before_the_cursor():
    at = CompletionPrompt(before=FILE.replace("\n", "\r\n"), path="shelf.py")
    about = {"source": "shelf.py"}
    assert at.may_be_read("table)\r\n")(COUNT, about)
    assert not at.may_be_read(at.before)(COUNT, about)  # it stands there already


def test_the_model_goes_on_behind_chunks_and_text_as_they_stand(engine):
    prompt = CompletionPrompt(before=AT_FOLD)
    writer, request = prepare_completion(engine, prompt, mode="context", n_select=1)
    choice = writer.choose(request)
    put = writer.answerer_for(choice).prompt_for(choice.query, choice.read.chunks)
    assert put == RawText(f"{choice.read.chunks.texts[0]}\n\n{AT_FOLD}")
    assert request.queries == ["\n".join(line for line in AT_FOLD.split("\n") if line)]


METHOD = """import boxes

class Shelf:
    size = 3

    def count(
        self, kind=None
    ) -> int:
        \"\"\"Return how many boxes there are.\"\"\"
        for box in self.boxes:
            a = 1
            b = 2
            c = 3
            d = 4
            if box.kind == kind:"""
LINES = [line for line in METHOD.split("\n") if line]


@pytest.mark.parametrize(
    ("n_lines", "rows"),
    [
        (len(LINES), [1, 3, 7, *range(8, 13)]),
        (7, [1, 2, 3, 4, 5, 6]),
        (5, [0, 1, 2, 3, 4]),
        (1, [0]),
    ],
)
def test_code_is_searched_for_by_its_last_lines_and_the_blocks_around_them(n_lines, rows):
    before = "\n\n".join(LINES[:n_lines])
    query = CompletionPrompt(before=before, path="shelf.py").query()
    assert query == "\n".join(LINES[row] for row in rows)


def test_prose_is_searched_for_by_its_last_lines():
    assert CompletionPrompt(before=METHOD, path="a.md").query() == "\n".join(LINES[-10:])


@pytest.mark.parametrize(
    ("before", "is_code"),
    [
        ("Dear all,\n\nplease bring:\n\n- a pen\n- paper\n- a coat\n\nWe meet at nine.", False),
        (METHOD, True),
        ("def fold(sheet):", True),
    ],
)
def test_code_of_an_unknown_file_is_known_by_the_ends_of_its_lines(before, is_code):
    assert CompletionPrompt(before=before).is_code == is_code


@pytest.mark.parametrize(
    ("path", "read_on", "is_read"),
    [
        ("new.py", None, True),
        ("new.md", None, False),
        ("new.md", True, True),
        ("a.py", False, False),
    ],
)
@pytest.mark.parametrize("is_awaited", [False, True])
def test_what_follows_a_chunk_of_code_is_read_beside_it(
    small_lm, path, read_on, is_read, is_awaited
):
    texts = ["def fold(table):", "    return half(table)", "def count(boxes):"]
    metadata = [{"source": "copy.py", "start": start, "end": start + 17} for start in (0, 17, 90)]
    metadata[2]["source"] = "other.py"
    engine = engine_of(small_lm, texts, metadata=metadata)
    prompt = CompletionPrompt(before="x = 1\ndef fold(table):", path=path)
    options = {"mode": "context", "n_select": 2, "n_prompt_tokens": 4}
    writer, request = prepare_completion(engine, prompt, read_on=read_on, **options)
    choice = asyncio.run(writer.achoose(request)) if is_awaited else writer.choose(request)
    joined = "def fold(table):\n    return half(table)"
    assert (joined in choice.read.chunks.texts) == is_read
    assert ("read_on" in choice.timings) == is_read
    assert len(choice.pool) == 3  # what is learned is chosen from all


def test_the_last_lines_that_fit_are_read(small_lm):
    before = "".join(f"line {n} of the text\n" for n in range(500)) + "and now"
    prompt = CompletionPrompt(before=before)
    tail = prompt.tail(40, small_lm.n_tokens)
    assert before.endswith(f"\n{tail}")
    assert small_lm.n_tokens(tail) <= 40
    longer = before[: -len(tail)].split("\n")[-2] + "\n" + tail
    assert small_lm.n_tokens(longer) > 40


def test_of_one_long_line_the_end_is_read(small_lm):
    prompt = CompletionPrompt(before="word " * 5000)
    tail = prompt.tail(40, small_lm.n_tokens)
    assert 20 <= small_lm.n_tokens(tail) <= 40
    assert prompt.before.endswith(tail)


@pytest.mark.parametrize(
    ("after", "stops"),
    [
        ("\n\n    return 1\nx", ["\n    return 1\n"]),
        (f"\n{'a' * 201}\n", [f"\n{'a' * 200}"]),
        (" \n", []),
        ("", []),
    ],
)
def test_a_text_ends_where_it_comes_to_what_stands_behind(engine, after, stops):
    prompt = CompletionPrompt(before=AT_FOLD, after=after)
    assert prepare_completion(engine, prompt)[1].generation.get("stop", []) == stops
    _, request = prepare_completion(engine, prompt, stop=["#"])
    assert request.generation["stop"] == ["#", *stops]


@pytest.mark.parametrize(
    ("text", "least", "kept"),
    [
        ("\n    return 1\n\n\ndef g():", 1, "\n    return 1"),
        ("\n    return 1\ndef g():", 1, "\n    return 1"),
        ("\n    a = f(\n        1\n    )\n    b", 4, None),
        ("\n    a = [\n    1,\n]\nb", 1, "\n    a = [\n    1,\n]"),
        (" boxes)\n    return 1\nx", 4, " boxes)\n    return 1"),
        ("\n\n\ndef g():\n    return 1\n\n", 4, "\n\n\ndef g():\n    return 1"),
        ("a paragraph\nof two lines\n\nand one", 0, "a paragraph\nof two lines"),
        ("   \n", 0, None),
    ],
)
def test_a_block_ends_at_a_blank_line_or_where_less_is_indented(text, least, kept):
    end = block_end(text, least)
    assert (None if end is None else text[:end]) == kept


def written(language_model, text):
    """Return an engine whose model writes a text, byte by byte of its tokens."""

    class Writer:
        def generate(self, prompt, *, max_new_tokens, on_text=None, stopping_criteria=(), **_):
            from sift_core.answering.model.text_model import Generation

            sent = ""
            for piece in text:
                sent += piece
                on_text and on_text(piece)
                if any(one(None, None) for one in stopping_criteria):
                    break
            return Generation(
                text=sent, n_prompt_tokens=1, n_new_tokens=len(sent), finish_reason="length"
            )

    return engine_of(language_model, generator=Writer())


@pytest.mark.parametrize(
    ("until", "kept", "n_written"),
    [
        ("block", "\n    return half(table)", 29),
        ("line", "\n    return half(table)", 24),
        ("length", "\n    return half(table)\n\n\ndef x():", 34),
    ],
)
def test_a_continuation_ends_where_it_is_told_and_its_pieces_too(small_lm, until, kept, n_written):
    engine = written(small_lm, "\n    return half(table)\n\n\ndef x():")
    pieces = []
    prompt = CompletionPrompt(before=AT_FOLD, path="shelf.py")
    answer = complete(engine, prompt, until=until, on_text=pieces.append)
    assert answer.text == "".join(pieces) == kept
    assert answer.finish_reason == ("length" if until == "length" else "stop")
    assert answer.n_new_tokens <= n_written


@pytest.mark.parametrize(
    ("before", "text", "kept"),
    [
        (FILE, "A = 1\nB = 2\n\nC = 3", "A = 1\nB = 2"),
        ("def fold(table):\n", "    a = 1\n    b = 2\nc = 3", "    a = 1\n    b = 2"),
        ("def fold(table):\n    ", "a = 1\n    b = 2\nc = 3", "a = 1\n    b = 2"),
    ],
)
def test_a_block_that_begins_a_line_has_the_indentation_of_its_first_line(
    small_lm, before, text, kept
):
    prompt, pieces = CompletionPrompt(before=before, path="shelf.py"), []
    answer = complete(written(small_lm, text), prompt, on_text=pieces.append)
    assert answer.text == "".join(pieces) == kept


def test_a_stream_has_the_same_text(engine):
    prompt = CompletionPrompt(before=AT_FOLD, path="elsewhere.py")
    options = {"mode": "context", "until": "length"}
    with stream_completion(engine, prompt, **options) as stream:
        pieces = list(stream)
        answer = stream.answer()
    assert "".join(pieces) == answer.text == complete(engine, prompt, **options).text
    assert answer.text


def test_the_mode_is_what_the_engine_can_do(small_lm, engine):
    prompt = CompletionPrompt(before=AT_FOLD)
    assert complete(engine, prompt).mode == "context"
    assert complete(engine_of(small_lm), prompt).mode == "base"


@pytest.mark.parametrize(
    "options", [{"mode": "auto"}, {"mode": "learned"}, {"until": "never"}, {"stop": "a"}]
)
def test_what_cannot_be_is_refused(engine, options):
    with pytest.raises(SiftError):
        complete(engine, CompletionPrompt(before=AT_FOLD), **options)
