"""Other versions of a text, as crawls of mirrors find them: seeded, and independent of the rest.

Sentences are dropped or reordered, and boilerplate is put before or after.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sift_core.evaluation.data import Passage
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.evaluation.search import Versions, as_is, unit_rows

EDITS = ("drop", "reorder", "before", "after")
LARGEST_SHARE_DROPPED = 0.34  # of the sentences, so that the rest still tells the same
LARGEST_BOILERPLATE = 0.4  # characters over the text's, so that the text outweighs it ...
SMALLEST_LIMIT = 20  # ... but a text of one line may get a short one, of so many characters

BOILERPLATE = (
    "[edit]",
    "Advertisement",
    "Print this page",
    "Share this article",
    "Read more below.",
    "Back to top",
    "Last updated: {day} {month} {year}.",
    "Revision of {day} {month} {year}",
    "Retrieved {month} {year}.",
    "Page {number} of {larger}",
    "Home > Reference > Articles",
    "Home | About | Contact | Help",
    "Skip to content",
    "Loading related articles ...",
    "From our archive, {month} {year}.",
    "This article needs more citations.",
    "This article is a stub; you can help by expanding it.",
    "Previous entry | Next entry | Index",
    "Log in or create an account to comment.",
    "{number} people found this page helpful.",
    "Viewed {larger} times since {month} {year}.",
    "Jump to: navigation, search",
    "Categories: uncategorised | pages to be checked",
    "This page was last modified on {day} {month} {year}, at {hour}:{minute}.",
    "Mirrored from the original site on {day} {month} {year}; links may be out of date.",
    "This is a cached copy; the live page may have changed since {month} {year}.",
    "Text is available under a free licence; additional terms may apply.",
    "The content below is distributed under the terms of the licence named in the footer.",
    "Copyright {year} by the contributors. All other rights remain with their owners.",
    "By using this site you agree to the terms of use and the privacy policy.",
    "We use cookies to improve your visit; you may change your settings at any time.",
    "Subscribe to our newsletter and receive a summary of new entries every week.",
    "Please report errors and omissions to the editors through the form at the end of the page.",
    "The following text was extracted automatically and may contain recognition errors.",
    "For the full entry with notes, tables and references see the printed edition of {year}.",
    "This snapshot was taken by an automatic archiving service on {day} {month} {year}.",
    "Sign up for a free account to save this page to your reading list and get updates.",
    "You are reading an offline copy from collection {number}, file {larger}.",
)
MONTHS = ("January", "March", "April", "June", "July", "September", "October", "December")


def textual_variants(
    passages: Sequence[Passage], n_versions: int, seed: int, cache: EmbeddingCache
) -> Versions:
    """Return every passage and `n_versions` - 1 variants of its text: "variants n"."""
    parts = [as_is(passages, cache).embeddings]
    for i, texts in enumerate(texts_of_variants(passages, n_versions, seed)[1:], start=1):
        embedded = cache.embed(texts, f"variant {i} of {n_versions - 1}")
        parts.append(unit_rows(embedded, "variant"))
    return Versions(
        condition=f"variants {n_versions}",
        embeddings=np.concatenate(parts),
        originals=np.tile(np.arange(len(passages)), n_versions),
    )


def texts_of_variants(passages: Sequence[Passage], n_versions: int, seed: int) -> list[list[str]]:
    """Return what `textual_variants` embeds, version by version, the passages themselves first."""
    texts = [versions(one.text, one.passage_id, n_versions, seed) for one in passages]
    return [
        [replace(one, text=own[i]).to_embed for one, own in zip(passages, texts, strict=True)]
        for i in range(n_versions)
    ]


def versions(text: str, key: str, n: int, seed: int) -> list[str]:
    """Return n distinct versions of a text, the first of them the text itself.

    They depend on the arguments alone, and fewer versions are the first of more.
    """
    generator = np.random.default_rng([seed, *hashlib.sha256(key.encode()).digest()])
    found = [text]
    while len(found) < n:
        varied = _varied(text, generator)
        if varied not in found:
            found.append(varied)
    return found


def _varied(text: str, generator: np.random.Generator) -> str:
    """Return the text with one to four of `EDITS`; short texts may come back as they are."""
    edits = set(generator.choice(EDITS, generator.integers(1, len(EDITS) + 1), replace=False))
    sentences = sentences_of(text)
    if "drop" in edits:
        sentences = _without_some(sentences, generator)
    if "reorder" in edits:
        sentences = _with_one_moved(sentences, generator)
    limit = max(SMALLEST_LIMIT, LARGEST_BOILERPLATE * len(text))
    if "before" in edits:
        line = _boilerplate(limit, generator)
        limit -= len(line)
        sentences = [line, *sentences]
    if "after" in edits:
        sentences = [*sentences, _boilerplate(limit, generator)]
    return " ".join(sentence for sentence in sentences if sentence)


def sentences_of(text: str) -> list[str]:
    """Return the text cut after full stops, question and exclamation marks; roughly sentences."""
    return re.split(r"(?<=[.!?])\s+(?=[\"'“(\[]?[A-Z0-9])", text.strip())


def _without_some(sentences: list[str], generator: np.random.Generator) -> list[str]:
    """Return all but at least one and at most a third of the sentences; two or fewer stay."""
    most = int(len(sentences) * LARGEST_SHARE_DROPPED)
    if most == 0:
        return sentences
    dropped = generator.choice(len(sentences), generator.integers(1, most + 1), replace=False)
    return [sentence for i, sentence in enumerate(sentences) if i not in dropped]


def _with_one_moved(sentences: list[str], generator: np.random.Generator) -> list[str]:
    """Return the sentences with one of them in another place."""
    if len(sentences) < 2:
        return sentences
    origin, place = generator.choice(len(sentences), 2, replace=False)
    rest = sentences[:origin] + sentences[origin + 1 :]
    return [*rest[:place], sentences[origin], *rest[place:]]


def _boilerplate(limit: float, generator: np.random.Generator) -> str:
    """Return up to three lines with their blanks filled in, of at most `limit` characters."""
    lines: list[str] = []
    for pattern in generator.choice(BOILERPLATE, generator.integers(1, 4), replace=False):
        line = _filled(str(pattern), generator)
        if len(" ".join([*lines, line])) <= limit:
            lines.append(line)
    return " ".join(lines)


def _filled(pattern: str, generator: np.random.Generator) -> str:
    return pattern.format(
        day=generator.integers(1, 29),
        month=generator.choice(MONTHS),
        year=generator.integers(2004, 2025),
        hour=generator.integers(10, 24),
        minute=generator.integers(10, 60),
        number=generator.integers(2, 60),
        larger=generator.integers(60, 9000),
    )
