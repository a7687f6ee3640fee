import numpy as np
import pytest

from sift_core.errors import InvalidInputError
from sift_core.evaluation.questions import read_questions, stand_in


def generator():
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("text", "heading", "expected"),
    [
        ("Cats purr a lot. Dogs bark.", None, "Cats purr a lot."),
        ("# Cats\n\nThey purr *all* day. And more.", None, "Cats: They purr all day."),
        ("They purr all day. More.", ["Pets", "Cats"], "Cats: They purr all day."),
        ("They purr all day. More.", "Cats", "Cats: They purr all day."),
        ("Yes. It does that too. More.", None, "Yes. It does that too."),
        ("```python\nimport csv\n```", None, "import csv"),
        ("----- ... 1234", None, ""),
        ("", None, ""),
    ],
    ids=["plain", "markdown", "titles", "title", "short", "code", "no word", "empty"],
)
def test_a_stand_in_is_the_heading_and_the_first_sentence(text, heading, expected):
    assert stand_in(text, heading) == expected


def test_a_long_stand_in_ends_with_a_word():
    opening = stand_in("word " * 200)
    assert len(opening) <= 200
    assert opening.endswith("word")


def test_lines_of_a_text_file_are_questions(tmp_path):
    path = tmp_path / "questions.txt"
    path.write_bytes("\ufeffHow?\r\n\r\n  Why?  \nHow?\n".encode())
    found = read_questions(path, 50, generator())
    assert [question.text for question in found.questions] == ["How?", "Why?"]


def test_of_ten_thousand_lines_a_random_choice_is_asked(tmp_path):
    path = tmp_path / "questions.txt"
    path.write_text("\n".join(f"Question {i}?" for i in range(10_000)))
    found = read_questions(path, 50, generator())
    again = read_questions(path, 50, generator())
    assert len(found.questions) == 50
    assert found == again
    numbers = [int(question.text.split()[1][:-1]) for question in found.questions]
    assert numbers == sorted(numbers)
    assert max(numbers) > 5_000  # not the first fifty


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"\n \n", "has no question in it"),
        ("latin.txt", b"How?\nWie gr\xfc\xdft man?\n", "cannot be read after line .*utf-8"),
        ("binary.txt", b"a\0b", "zero bytes"),
        ("none.txt", None, "there is no file"),
        ("", None, "cannot be read"),
    ],
    ids=["empty", "latin", "binary", "missing", "folder"],
)
def test_what_cannot_be_read_is_named(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=message):
        read_questions(path, 50, generator())
