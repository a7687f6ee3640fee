"""Which chosen chunks repeat another chosen one word for word, and texts that share one vector.

Embeddings alone cannot decide that. A chunk and a longer one that contains it may be as far apart
as two short sentences that state different facts. Only texts of chosen chunks are compared.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np

from sift_core.checks import warn
from sift_core.errors import SameVectorWarning, SeenFacts
from sift_core.protocols import Selector
from sift_core.selection.context import ContextSelector
from sift_core.selection.limits import Limits
from sift_core.selection.preferences import Preferences
from sift_core.types import FloatArray, Selection, StopReason

RUN_LENGTH = 5  # words; decision 0022 has what other lengths and shares did
SHARE_REPEATED = 0.8  # of a text's runs: from here on the other text contains it
SHARE_OF_WORDS = 0.4  # that two texts must share to be compared run by run
# Chinese, Japanese, Thai, Lao, Burmese and Khmer have no spaces: each character is a word.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff"
)
_UNSPACED += "\uff66-\uff9f\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
_LETTER = re.compile(f"[{_UNSPACED}]")
_PAUSE = re.compile(
    r"(?= )|(?<=[\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f])"
)  # 、 。 and full-width signs
_UNSPACED_LETTER = re.compile(rf"(?=\w)[{_UNSPACED}]")  # no mark of the letter before it
LETTERS_A_WORD = 3  # of such a script: two in Chinese, four in Thai
FEWEST_ALIKE = 4  # texts with one vector that are worth a warning

Runs = frozenset[tuple[str, ...]]


def select_texts(
    selector: Selector,
    query: FloatArray,
    candidates: FloatArray,
    n_select: int,
    *,
    text_of: Callable[[int], str],
    relevance: FloatArray | None = None,
    limits: Limits | None = None,
    preferences: Preferences | None = None,
) -> Selection:
    """Return a choice in which no text repeats another one.

    A text repeats another if four fifths of its runs of five words stand there. If two repeat
    each other, the less preferred one is the repeat, or else the one chosen later. The selector
    chooses again without repeats, and without other candidates of the same text, until there is
    none. If too little else is left to choose as many, its first choice is the result.
    Costs 0.2 to 0.3 ms for ten chunks, and one more selection for each round of repeats.

    Choices of selectors other than `ContextSelector` stay as they are.

    Args:
        selector: What chooses.
        query: As `selector.select` takes it.
        candidates: Shape (n, d).
        n_select: How many to choose at most.
        text_of: Returns the text of a candidate by its position. It is called for the chosen
            ones, and for all candidates if one of these repeats another.
        relevance: As `selector.select` takes it.
        limits: As `selector.select` takes it, if it does.
        preferences: As `selector.select` takes it, if it does.

    Raises:
        InvalidInputError: As `selector.select`.
    """
    rules: dict[str, Any] = {"limits": limits, "preferences": preferences}
    rules = {name: one for name, one in rules.items() if one is not None}
    found = first = selector.select(query, candidates, n_select, relevance=relevance, **rules)
    if not isinstance(selector, ContextSelector):
        return found
    candidates = np.asarray(candidates)
    text_of = cache(text_of)
    kept = np.arange(len(candidates))
    nothing_left = {StopReason.POOL_EXHAUSTED}
    if (
        limits is None or limits.budget is None
    ):  # with one, fewer chunks that are longer may have used it up
        nothing_left.add(StopReason.LIMITS)
    prefer = None if preferences is None else preferences.prefer
    while repeats := _repeats(found.positions.tolist(), text_of, prefer):
        gone = {text_of(row): other for row, other in repeats.items()}
        stays = set(found.positions.tolist()).difference(repeats)
        kept = np.array([row for row in kept.tolist() if row in stays or text_of(row) not in gone])
        of_kept = {name: one.take(kept) for name, one in rules.items()}
        if relevance is not None:  # (n,), or of several queries (m, n)
            of_kept["relevance"] = np.asarray(relevance)[..., kept]
        again = selector.select(query, candidates[kept], n_select, **of_kept)
        if len(again) < len(found) and again.stop_reason in nothing_left:
            return first
        assert found.stands_for is not None
        assert again.stands_for is not None
        one_of = np.array([gone.get(text_of(row), row) for row in range(len(candidates))])
        one_of[kept] = kept[again.stands_for]
        # A candidate that stood for others may be gone. The one that stands for it is not.
        found = replace(again, positions=kept[again.positions], stands_for=one_of[found.stands_for])
    return found


def _repeats(
    chosen: list[int], text_of: Callable[[int], str], prefer: FloatArray | None
) -> dict[int, int]:
    """Return the chosen positions whose texts repeat another's, each with that other one."""
    words = [_words_to_compare(text_of(position)) for position in chosen]
    runs_of = cache(lambda position: runs_in(text_of(position)))
    repeats: dict[int, int] = {}
    for i, j in combinations(range(len(chosen)), 2):
        if len(words[i] & words[j]) < SHARE_OF_WORDS * min(len(words[i]), len(words[j])):
            continue
        other, one = chosen[i], chosen[j]  # in order of choice
        if one in repeats or other in repeats:
            continue
        shared = len(runs_of(one) & runs_of(other))
        stands = [p for p in (one, other) if 0 < SHARE_REPEATED * len(runs_of(p)) <= shared]
        if stands and prefer is not None:
            ahead = np.atleast_2d(prefer)[:, [one, other]]
            if (ahead[:, 0] > ahead[:, 1]).any() and (ahead[:, 0] < ahead[:, 1]).any():
                continue  # each is the preferred one of a row
            stands = [one if (ahead[:, 0] <= ahead[:, 1]).all() else other]
        repeats |= {row: other if row == one else one for row in stands[:1]}
    return repeats


def _words_to_compare(text: str) -> frozenset[str]:
    return frozenset(text.split() if text.isascii() else _WORD.findall(text.lower()))


def runs_in(text: str) -> Runs:
    """Return a text's runs of five words; of fewer words, all of them as one.

    In a script without spaces a run has 15 characters.
    """
    words = _WORD.findall(text.lower())
    is_unspaced = 2 * len(_LETTER.findall(text)) > len(words)
    length = RUN_LENGTH * (LETTERS_A_WORD if is_unspaced else 1)
    n_runs = max(min(1, len(words)), len(words) - length + 1)
    return frozenset(tuple(words[i : i + length]) for i in range(n_runs))


def middle_of(text: str) -> int:
    """Return where the second half of a text begins: at a space, else behind a sign or letter."""
    half, soon = len(text) // 2, 3 * len(text) // 4
    place = (
        _PAUSE.search(text, half, soon)
        or _UNSPACED_LETTER.search(text, half)
        or _PAUSE.search(text, half)
    )
    return place.start() if place else len(text)


def warn_of_one_vector(
    document_ids: Sequence[str],
    texts: Sequence[str],
    embeddings: FloatArray,
    seen: SeenFacts | None = None,
) -> None:
    """Warn if most of the texts, and four at least, differ and have one and the same vector.

    An embedder makes the same unknown token of all words in a script that it lacks.

    Args:
        document_ids: n names, for the warning.
        texts: n texts, read only where vectors agree.
        embeddings: Shape (n, d).
        seen: Scripts of which it warned before. Default: none.
    """
    if len(embeddings) < FEWEST_ALIKE:
        return
    rows = np.asarray(embeddings)
    middle = np.median(rows[:, 0])  # a vector that most rows have is their median
    near = np.flatnonzero(np.abs(rows[:, 0] - middle) <= 1e-5 * abs(middle))
    if 2 * len(near) <= len(rows):
        return
    shared = np.median(rows[near], axis=0)
    tolerance = 1e-5 * np.abs(shared).max()
    alike = near[(np.abs(rows[near] - shared) <= tolerance).all(axis=1)].tolist()
    # Copies that differ in their signs alone may well have one vector.
    first = {"".join(filter(str.isalnum, texts[row])) or texts[row]: row for row in alike[::-1]}
    if not shared.any() or len(first) < FEWEST_ALIKE or 2 * len(first) <= len(set(texts)):
        return
    scripts = sorted({_script_of(texts[row]) for row in first.values()})
    if seen is not None and not [script for script in scripts if seen.add(script)]:
        return
    one, other = sorted(first.values())[:2]
    warn(
        f"{len(first)} of {len(set(texts))} texts have one and the same vector, "
        f"{document_ids[one]!r} and {document_ids[other]!r} for example, so that only words tell "
        f"them apart: the embedder does not know their script ({', '.join(scripts)}); take a "
        f"multilingual one",
        SameVectorWarning,
    )


def _script_of(text: str) -> str:
    """Return the script of a text's first letter by its Unicode name, as "Thai"; else "signs"."""
    letter = next(filter(str.isalpha, text), None)
    return "signs" if letter is None else unicodedata.name(letter, "?").split()[0].capitalize()
