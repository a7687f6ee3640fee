"""What the benchmark of policies reads: the mini-Pile's test documents and their data space."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.embedding_cache import EmbeddingCache
from benchmarks.retrieval_search import nearest
from sift_core import CandidatePool
from sift_core.answering import LanguageModel

TEXT_TOKENS = 500  # of a test document: query and what is scored, as in FINDINGS.md section 5
CHUNK_TOKENS = 256  # of a document of the data space: what MiniLM reads of it
N_CANDIDATES = 200
TRAINED_ON = "01234567"  # last hex digits of sha1(doc) that examples/train_tiny_lm.py reads


@dataclass(frozen=True, kw_only=True)
class Document:
    """One row of the mini-Pile."""

    document_id: str
    domain: str
    text: str

    @property
    def digest(self) -> str:
        """What decides by chance, always alike, where the document belongs."""
        return hashlib.sha256(self.document_id.encode()).hexdigest()


def read_data_space(folder: Path, at_most: int | None = None) -> list[Document]:
    """Return the train documents that tiny_lm has not seen, or `some` of them."""
    documents = [
        one
        for one, doc in _read(folder / "train.jsonl.xz")
        if hashlib.sha1(doc.encode()).hexdigest()[-1] not in TRAINED_ON
    ]
    return documents if at_most is None else some(documents, at_most)


def read_test_documents(folder: Path, at_most: int) -> list[Document]:
    """Return `some` of the test documents, whose sources are not in train."""
    return some([one for one, _ in _read(folder / "test_dev.jsonl.xz")], at_most)


def some(documents: Sequence[Document], n: int) -> list[Document]:
    """Return n documents, as evenly from the domains as can be, by chance within each."""
    return [one for _, one in sorted(_ranked(documents), key=lambda pair: pair[0])][:n]


def is_calibration(documents: Sequence[Document]) -> dict[str, bool]:
    """Return for every id whether it is in the half that calibrates; half of each domain."""
    return {one.document_id: rank % 2 == 0 for (rank, _), one in _ranked(documents)}


def pools(
    documents: Sequence[Document], data_space: Sequence[Document], cache: EmbeddingCache
) -> list[tuple[np.ndarray, CandidatePool]]:
    """Return the embedding of every document and its nearest of the data space."""
    space = cache.embed([one.text for one in data_space], "data space")
    queries = cache.embed([one.text for one in documents], "test documents")
    return [(query, _pool(query, data_space, space)) for query in queries]


def _pool(query: np.ndarray, data_space: Sequence[Document], space: np.ndarray) -> CandidatePool:
    similarities = space @ query
    rows = nearest(similarities, N_CANDIDATES)
    return CandidatePool(
        document_ids=[data_space[i].document_id for i in rows],
        texts=[data_space[i].text for i in rows],
        embeddings=space[rows],
        similarities=np.clip(similarities[rows], -1, 1),
    )


def _ranked(documents: Sequence[Document]) -> list[tuple[tuple[int, str], Document]]:
    """Return each document with its rank by chance within its domain, and the domain."""
    domains: dict[str, list[Document]] = defaultdict(list)
    for one in documents:
        domains[one.domain].append(one)
    return [
        ((rank, domain), one)
        for domain, members in sorted(domains.items())
        for rank, one in enumerate(sorted(members, key=lambda one: one.digest))
    ]


def cut(
    documents: Sequence[Document], language_model: LanguageModel, n_tokens: int
) -> list[Document]:
    """Return the documents with so many tokens at most."""
    return [replace(one, text=_cut(one.text, language_model, n_tokens)) for one in documents]


def _cut(text: str, language_model: LanguageModel, n_tokens: int) -> str:
    encoded = language_model.tokenizer(
        text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
    )
    ends = encoded["offset_mapping"]
    return text[: ends[n_tokens - 1][1]] if len(ends) > n_tokens else text


def _read(path: Path) -> Iterator[tuple[Document, str]]:
    """Yield the documents that are not empty, each with its source."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            text = row["text"].strip()
            if text:
                yield Document(document_id=row["id"], domain=row["domain"], text=text), row["doc"]
