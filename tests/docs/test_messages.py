"""Every message that docs/troubleshooting.md quotes still occurs in an error of the library."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"^### `(.+)`$", PAGE, re.MULTILINE)
SOURCES = [
    *ROOT.glob("sift_core/**/*.py"),
    *ROOT.glob("integrations/langchain-sift/langchain_sift/*.py"),
    *ROOT.glob("integrations/llama-index-postprocessor-sift/llama_index/**/*.py"),
]
HOLE = "…"
SHORTEST = 12  # characters of a part between two holes that say something
WIDEST = 60  # characters that a hole of the page stands for in the source, at most


def written(node):
    """The text of a string in the source, with holes for what it is filled with."""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else HOLE for part in node.values
        )
    return re.sub(r"%[sd]", HOLE, node.value)  # of messages to a logger


@cache
def texts():
    """Every string in the sources; code words in backquotes are holes, as in the page."""
    return [
        plain(written(node))
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.JoinedStr)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str))
    ]


def plain(text):
    return re.sub(r"`[^`]+`", HOLE, text)


def has(text, message):
    """Whether the parts of a message stand in a text, in order and close to one another.

    A hole in the page may stand for several in the source, with words between.
    """
    parts = message.split(HOLE)
    if max(parts, key=len) not in text:  # saves most of the time
        return False
    return re.search(f".{{0,{WIDEST}}}?".join(map(re.escape, parts)), text, re.DOTALL) is not None


def test_the_page_quotes_messages():
    assert len(QUOTED) >= 40
    assert len(QUOTED) == len(set(QUOTED))


@pytest.mark.parametrize("message", QUOTED)
def test_the_message_is_in_the_sources(message):
    assert any(len(part.strip()) >= SHORTEST for part in message.split(HOLE))
    assert any(has(text, message) for text in texts())


def test_a_message_that_was_reworded_is_found():
    assert not any(has(text, "the question is empty; say something") for text in texts())
