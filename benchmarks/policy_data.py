"""What the benchmark of policies reads: the mini-Pile's test documents and their data space."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.language_modeling.documents import Document, read_documents, token_spans
from benchmarks.language_modeling.documents import cut as cut_at
from sift_core import CandidatePool
from sift_core.answering import LanguageModel
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.evaluation.search import nearest

TEXT_TOKENS = 500  # of a test document: query and what is scored
CHUNK_TOKENS = 256  # of a document of the data space: what MiniLM reads of it
N_CANDIDATES = 200


def read_data_space(folder: Path, at_most: int | None = None) -> list[Document]:
    """Return the train documents of the mini-Pile, or `some` of them."""
    documents = read_documents(folder / "train.jsonl.xz")
    return documents if at_most is None else some(documents, at_most)


def read_test_documents(folder: Path, at_most: int) -> list[Document]:
    """Return `some` of the test documents, whose sources are not in train."""
    return some(read_documents(folder / "test_dev.jsonl.xz"), at_most)


def some(documents: Sequence[Document], n: int) -> list[Document]:
    """Return n documents, as evenly from the domains as can be, by chance within each."""
    return [one for _, one in sorted(_ranked(documents), key=lambda pair: pair[0])][:n]


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
    return cut_at(documents, partial(token_spans, language_model), n_tokens)
