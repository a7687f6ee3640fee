"""Names and numbers in a question, as runs of its words; no language is assumed.

A name is a run of words that begin with a capital letter or a digit, also over one or two short
words between, as in "Lord of the Rings". Scripts without capitals have no such names. There, the
headings of candidates say what a question names (`question_parts` in `spread`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sift_core.selection.word_counts import words_of

LONGEST_BETWEEN = 3  # letters of a word between two words of a name: "of", "the", "von", "di"
MOST_BETWEEN = 2  # such words in a row

_QUOTES = "'\"\u2018\u2019\u201c\u201d"
_TOKEN = re.compile(r"\w+(?:[.\-_/:'\u2019]\w+)*")
_JOINS = re.compile(rf"[\s{_QUOTES}(]*")  # what may stand between two words of one name
# What stands before the first word of a sentence; the last three are Chinese and Japanese.
_ENDS = re.compile(r"[.!?\u3002\uff01\uff1f]\s*$")


class NameRun(NamedTuple):
    """One name of a question, or several that short words join: "Lyon or Paris"."""

    segments: tuple[tuple[str, ...], ...]
    """The words before, between and after short words, as `words_of` spells them."""
    n_doubtful: int
    """How many of the first words may have a capital only because a sentence begins there."""


def name_runs(question: str) -> list[NameRun]:
    """Return the names in a question, each once, in their order.

    Costs 50 µs for a question of 20 words.
    """
    runs: list[list[list[str]]] = []  # runs of segments of words
    doubtful: list[bool] = []
    is_open, n_between, end = False, 0, 0
    for token in _TOKEN.finditer(question):
        before = question[end : token.start()]
        is_first = end == 0 or bool(_ENDS.search(before))
        is_open = is_open and not is_first and bool(_JOINS.fullmatch(before))
        end = token.end()
        word = token[0]
        if word[0].isupper() or word[0].isdigit():
            if not is_open:
                runs.append([[]])
                doubtful.append(is_first and word[0].isupper())
            elif n_between:
                runs[-1].append([])
            runs[-1][-1].append(word)
            is_open, n_between = True, 0
        else:
            n_between += 1
            is_open = is_open and len(word) <= LONGEST_BETWEEN and n_between <= MOST_BETWEEN
    found = []
    for run, is_doubtful in zip(runs, doubtful, strict=True):
        segments = tuple(
            tuple(dict.fromkeys(word for token in tokens for word in words_of(token)))
            for tokens in run
        )
        found.append(NameRun(segments, len(words_of(run[0][0])) if is_doubtful else 0))
    return list(dict.fromkeys(found))
