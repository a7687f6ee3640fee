"""Documents from JSON lines: a data space to choose from, and prompts to be scored.

A row has "text", and may have "id", "domain" and "doc" (the source that several rows are pieces
of). Files may be compressed (.gz, .xz).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from sift_core.answering import LanguageModel
from sift_core.errors import InvalidInputError
from sift_core.evaluation.data import Record, read_json_lines

Tokenizer = Callable[[str], Sequence[tuple[int, int]]]
NEAR_COPY = 0.3  # guess: the share of 8-grams above which a reader would call it a copy


@dataclass(frozen=True, kw_only=True)
class Document:
    """One text.

    Args:
        document_id: Unlike every other of its file; the line's number where its row has none.
        domain: The part of the data that it belongs to; "all" where its row names none.
        text: Not empty.
        source: What it is a piece of; its own id where its row names none, and a digest of its
            text where it has no id either.
    """

    document_id: str
    domain: str
    text: str
    source: str

    @property
    def digest(self) -> str:
        """SHA-1 of the id, in hex: an order that is no order of the data."""
        return _sha1(self.document_id)


def read_documents(path: Path) -> list[Document]:
    """Return the documents of a file, in its order; rows whose text is blank are left out.

    Args:
        path: .jsonl, .jsonl.gz or .jsonl.xz.

    Raises:
        InvalidInputError: If the file cannot be read, a row is not as above, two rows have one
            id, or no document is left.
    """
    documents: dict[str, Document] = {}
    for line in read_json_lines(path):
        document = _document(line)
        if document is None:
            continue
        if document.document_id in documents:
            raise line.error(f"the id {document.document_id!r} was there before")
        documents[document.document_id] = document
    if not documents:
        raise InvalidInputError(f"{path} has no document with text")
    return list(documents.values())


@dataclass(frozen=True, kw_only=True)
class NearCopy:
    """What the whole data space has of a prompt.

    Args:
        share: Of the prompt's 8-grams that the data space has, in [0, 1].
        nearest: Id of the document that has the most of them; None where none has any.
    """

    share: float
    nearest: str | None


def read_near_copies(path: Path) -> dict[str, NearCopy]:
    """Return what the data space has of each prompt, by the prompt's document id.

    Args:
        path: JSON lines of {"id", "gram8_covered", "nearest_train_id"}, as
            `neardup_test_dev.jsonl` of the mini-Pile.
    """
    return {
        line.identifier("id"): NearCopy(
            share=float(line.values["gram8_covered"]), nearest=line.values.get("nearest_train_id")
        )
        for line in read_json_lines(path)
    }


def token_spans(language_model: LanguageModel, text: str) -> list[tuple[int, int]]:
    """Return where each token of a text begins and ends, in characters; needs a fast tokenizer."""
    encoded = language_model.tokenizer(
        text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
    )
    return encoded["offset_mapping"]


def cut(documents: Sequence[Document], tokens_of: Tokenizer, n_tokens: int) -> list[Document]:
    """Return the documents with so many tokens at most.

    Args:
        documents: Any number.
        tokens_of: Returns where each token of a text begins and ends, in characters.
        n_tokens: At least 1.
    """
    return [replace(one, text=next(_pieces(one.text, tokens_of, n_tokens, 1))) for one in documents]


def chunks(
    documents: Sequence[Document],
    tokens_of: Tokenizer,
    n_tokens: int,
    *,
    per_document: int | None = None,
) -> list[Document]:
    """Return the documents in pieces of so many tokens.

    Ids are the document's with "#0", "#1", … behind. A last piece of less than a quarter of
    `n_tokens` is left out unless it is the only one.
    """
    found = []
    for one in documents:
        for number, text in enumerate(_pieces(one.text, tokens_of, n_tokens, per_document)):
            found.append(replace(one, document_id=f"{one.document_id}#{number}", text=text))
    return found


def sample(
    documents: Sequence[Document], per_domain: int | None, *, skipped: int = 0
) -> list[Document]:
    """Return so many documents of every domain, those with the least digests of their ids.

    The domains take turns, so that the first half of the sample is half of every domain. A larger
    sample has all of a smaller one: an experiment can be widened.
    """
    domains: dict[str, list[Document]] = defaultdict(list)
    for one in sorted(documents, key=lambda one: one.digest):
        domains[one.domain].append(one)
    end = None if per_domain is None else skipped + per_domain
    rounds = zip_longest(*(members[skipped:end] for _, members in sorted(domains.items())))
    return [one for members in rounds for one in members if one is not None]


def others(documents: Sequence[Document]) -> dict[str, Document]:
    """Return for the id of every document its control: one of another source, of any domain."""
    if len({one.source for one in documents}) < 2:
        raise InvalidInputError(
            "the control needs a second prompt of another source; pass at least two"
        )
    ordered = sorted(documents, key=lambda one: one.digest)
    twice = [*ordered, *ordered]
    return {
        one.document_id: next(other for other in twice[i:] if other.source != one.source)
        for i, one in enumerate(ordered)
    }


def _document(line: Record) -> Document | None:
    """Return the document of a row, None if its text is blank."""
    text = line.text("text").strip()
    if not text:
        return None
    has_id = line.values.get("id") is not None
    document_id = line.identifier("id") if has_id else str(line.number)
    return Document(
        document_id=document_id,
        domain=line.text("domain", "all"),
        text=text,
        source=line.text("doc", "") or (document_id if has_id else _sha1(text)),
    )


def _sha1(text: str) -> str:
    return hashlib.sha1(text.encode()).hexdigest()


def _pieces(text: str, tokens_of: Tokenizer, n_tokens: int, at_most: int | None) -> Iterator[str]:
    """Yield a text in pieces of `n_tokens`, at least one and `at_most` so many."""
    ends = [end for _, end in tokens_of(text)][: None if at_most is None else at_most * n_tokens]
    begin = 0
    for first in range(0, max(len(ends), 1), n_tokens):
        last = min(first + n_tokens, len(ends))
        if first and last - first < n_tokens / 4:
            return
        end = ends[last - 1] if ends else len(text)
        if end > begin or not first:  # else all tokens are of a character that the piece before has
            yield text[begin:end]
        begin = end
