"""Pages that hold many words and answer nothing, planted into a set of questions.

Ten of each of four kinds: an index of names, a glossary, a list of links, and stuffed spam that
repeats the words of the set's questions. A choice that counts words must not fall for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.word_sets.vocabulary import pick, pick_several
from sift_core.evaluation.data import Passage, RetrievalSet

N_PAGES = 10  # of each kind
N_INDEXED, N_EXPLAINED, N_LINKED = 300, 40, 80  # names a page, at most
N_SPAM_WORDS, N_SPAM_NAMES = 250, 30
N_SPAM_QUESTIONS = 8  # repeated as they are, at most a fifth of the set's
LONGEST = 60  # characters of a gloss, and of a name that is a passage's first line ...
LARGEST_SHARE = 0.25  # ... and of the passage's text, so that they seldom answer
_WORD = re.compile(r"\w+")

Writer = Callable[["Names", np.random.Generator], str]


class Names:
    """What pages are made of: the names, first lines and questions of a set.

    Attributes:
        names: Distinct titles; where a passage has none, the beginning of its first line.
        glosses: Name → the beginning of one of its passages.
        questions: The texts of all questions.
        words: All words of the questions, repeated as often as they stand there.
    """

    def __init__(self, found: RetrievalSet) -> None:
        self.glosses: dict[str, str] = {}
        for passage in found.passages:
            text = passage.text.lstrip("#*-> \n")
            n = min(LONGEST, int(len(text) * LARGEST_SHARE))
            name = passage.title or _cut_beginning(text.partition("\n")[0], n)
            if name:
                self.glosses.setdefault(name, _cut_beginning(text.removeprefix(name), n))
        self.names = list(self.glosses)
        self.questions = [question.text for question in found.questions]
        self.words = [word for text in self.questions for word in _WORD.findall(text)]

    def some(self, rng: np.random.Generator, n: int) -> list[str]:
        """Return at most n names in random order."""
        return pick_several(rng, self.names, n)


def plant(found: RetrievalSet, *, seed: int = 0) -> RetrievalSet:
    """Return a copy of a set with forty planted pages after its passages.

    The passages keep their rows, and no question has a planted page as gold. Spam is made from
    the questions of this set, so plant before you sample. A page is one
    passage, however long: an index of names can have 20,000 characters. Takes well under a second.

    Args:
        found: Is not modified.
        seed: Fixes which names and words stand on a page. Default: 0.
    """
    source, rng = Names(found), np.random.default_rng(seed)
    pages = [
        Passage(passage_id=f"planted/{kind}/{i}", title=title(i), text=write(source, rng))
        for kind, (title, write) in KINDS.items()
        for i in range(N_PAGES)
    ]
    return replace(found, passages=[*found.passages, *pages])


def find_planted_rows(found: RetrievalSet) -> dict[str, list[int]]:
    """Return the rows of planted pages by kind; each kind has an empty list in other sets."""
    rows: dict[str, list[int]] = {kind: [] for kind in KINDS}
    for row, passage in enumerate(found.passages):
        if passage.passage_id.startswith("planted/"):
            rows[passage.passage_id.split("/")[1]].append(row)
    return rows


def _cut_beginning(text: str, n: int) -> str:
    """Return about n characters of a text, cut between words if it has spaces there."""
    line = " ".join(text.split())
    cut = line[:n]
    return cut.rsplit(" ", 1)[0] if len(line) > n and " " in cut else cut


def _index(source: Names, rng: np.random.Generator) -> str:
    names = sorted(source.some(rng, N_INDEXED), key=str.casefold)
    return ", ".join(f"{name} {int(rng.integers(1, 900))}" for name in names)


def _glossary(source: Names, rng: np.random.Generator) -> str:
    names = sorted(source.some(rng, N_EXPLAINED), key=str.casefold)
    return "\n".join(f"{name}: {source.glosses[name]} …" for name in names)


def _links(source: Names, rng: np.random.Generator) -> str:
    def link(name: str) -> str:
        return f"- [{name}](https://example.org/{'_'.join(_WORD.findall(name))})"

    return "See also\n" + "\n".join(link(name) for name in source.some(rng, N_LINKED))


def _spam(source: Names, rng: np.random.Generator) -> str:
    n = max(1, min(N_SPAM_QUESTIONS, len(source.questions) // 5))
    questions = pick_several(rng, source.questions, n)
    words = [pick(rng, source.words) for _ in range(N_SPAM_WORDS)] if source.words else []
    parts: Sequence[str] = [*questions, *source.some(rng, N_SPAM_NAMES), " ".join(words)]
    return f"Best answers here! {' | '.join(parts)} | {' '.join(questions)}"


KINDS: dict[str, tuple[Callable[[int], str], Writer]] = {
    "index": (lambda i: f"Index of names, part {i + 1}", _index),
    "glossary": (lambda i: f"Glossary {i + 1}", _glossary),
    "links": (lambda i: f"Links {i + 1}", _links),
    "spam": (lambda i: f"Answers to all questions {i + 1}", _spam),
}
