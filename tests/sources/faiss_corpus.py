"""Vectors and documents that say which is which, for the tests of everything around Faiss."""

import faiss
import numpy as np

from sift_core.protocols import Lookup
from sift_core.sources import FaissSource
from sift_core.types import Document, Query

# Its threads wait by turning, which is slow where other tests have the cores.
faiss.omp_set_num_threads(1)

D = 8
NAME = "model-a"


def vectors(n, d=D, seed=0):
    """Return n unit rows; the first rows are the same for every n."""
    rows = np.random.default_rng(seed).standard_normal((n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def document(i, note=""):
    return Document(
        document_id=f"doc-{i}",
        text=f"№ {i} 漢字 🙂{note}",
        metadata={"number": i, "even": i % 2 == 0, "more": {"ключ": [i, None, 0.5]}},
    )


def documents(n):
    return [document(i) for i in range(n)]


def built(description, n=100, *, metric=faiss.METRIC_INNER_PRODUCT, ids=None, d=D):
    """Return an index of `vectors(n)`, under `ids` where they are given."""
    index = faiss.index_factory(d, description, metric)
    index.train(vectors(max(n, 64), d))
    if ids is None:
        index.add(vectors(n, d))
    else:
        index.add_with_ids(vectors(n, d), np.asarray(ids, dtype=np.int64))
    return index


def query(i=2, d=D, **options):
    """Return a query whose nearest document is number i."""
    return Query(text="?", embedding=vectors(i + 1, d)[i], **options)


def elsewhere(seed=1, d=D):
    """Return a query that is no document."""
    return Query(text="?", embedding=vectors(1, d, seed=seed)[0] * 3)


def saved(folder, n=0, description="Flat", **options):
    """Return a source that was loaded from a folder, with n documents in it."""
    FaissSource(built(description, n), documents(n), embedder_name=NAME, **options).save(folder)
    return FaissSource.load(folder)


def add(source, numbers, note=""):
    """Add documents by their numbers, each with its own vector and a content id to match."""
    numbers = list(numbers)
    rows = vectors(max(numbers, default=0) + 1)[numbers] if numbers else np.empty((0, D))
    source.add([f"content-{i}" for i in numbers], [document(i, note) for i in numbers], rows)


def remove(source, numbers):
    source.remove([f"content-{i}" for i in numbers])


def contents(source):
    """Return all documents' numbers; checks that each has its own text, vector and words."""
    pool = source.fetch(elsewhere(), 1_000_000)
    numbers = [metadata["number"] for metadata in pool.metadata]
    assert [name for name in pool.document_ids] == [f"doc-{i}" for i in numbers]
    assert all(text.startswith(f"№ {i} ") for i, text in zip(numbers, pool.texts, strict=True))
    expected = vectors(max(numbers) + 1)[numbers]
    np.testing.assert_allclose(pool.embeddings, expected, atol=1e-6)
    assert len(set(numbers)) == len(numbers)
    if source.has_words:  # the same documents
        assert by_words(source, "漢字") == sorted(numbers)
    return sorted(numbers)


def by_words(source, *words):
    """Return the numbers of all documents with any of the words."""
    lookup = Lookup(n_candidates=1_000_000, words=words)
    (pool,) = source.look_up(elsewhere(d=source._contents.index.d), [lookup])
    return sorted(metadata["number"] for metadata in pool.metadata)
