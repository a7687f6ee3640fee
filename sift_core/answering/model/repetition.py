"""Tells where a text repeats itself without end, as a small model's greedy text does.

Penalties on what was said before cure that at a price: those on the prompt's tokens too keep a
model from using what it has read, those on its own spoil code. So the text stays as it is, up
to where it only says again what stands right before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SAID_AGAIN = 60  # characters, and a whole turn at least; a guess
_PASSAGE = re.compile(r"(?<=[.!?:]\s)|(?<=\n)")  # begins behind a sentence's end or a new line


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """The end of a text that says again what stands right before it.

    Args:
        start: Where the second turn begins; the text's length where it has no beginning.
        is_closed: Whether it is a repetition by now; if not, the text may still leave it.
    """

    start: int
    is_closed: bool


def repetition_at_the_end(text: str) -> Repetition | None:
    """Return how a text repeats itself at its end; None if it does not.

    Sentences and lines are compared, of which the last may be unfinished; one without an end is
    compared by its characters. Takes O(n²) in the number of passages.
    """
    passages = [passage for passage in _PASSAGE.split(text) if passage]
    best = Repetition(start=len(text), is_closed=_turns(passages[-1]) if passages else False)
    for period in range(1, len(passages)):
        n = _n_again(passages, period)
        size = sum(map(len, passages[len(passages) - n :]))
        if n and len(text) - size < best.start:
            turn = passages[len(passages) - n - period : len(passages) - n]
            is_closed = size >= max(SAID_AGAIN, sum(map(len, turn))) and _says_something(turn)
            best = Repetition(start=len(text) - size, is_closed=best.is_closed or is_closed)
    return best if best.is_closed or best.start < len(text) else None


def _n_again(passages: list[str], period: int) -> int:
    """Return how many passages at the end are those that stand `period` before them."""
    if not passages[-1 - period].startswith(passages[-1]):
        return 0
    n = 1
    while n + period < len(passages) and passages[-1 - n] == passages[-1 - n - period]:
        n += 1
    return n


def _turns(passage: str) -> bool:
    """Return whether an unfinished passage repeats a part of itself, without end."""
    last = passage[-SAID_AGAIN:]
    before = passage.rfind(last, 0, len(passage) - 1)
    is_near = before >= len(passage) - 2 * SAID_AGAIN
    return len(last) == SAID_AGAIN and before >= 0 and is_near and _says_something([last])


def _says_something(passages: list[str]) -> bool:
    """Return whether there is a letter or a digit: a ruled line is no repetition."""
    return any(character.isalnum() for passage in passages for character in passage)
