"""Entries with a vector of zeros or without text are left out, with one warning (issue 41)."""

import warnings

import numpy as np
import pytest

from sift_core import ChoiceOptions, Query, choose, search
from sift_core.comparison import compare_methods
from sift_core.errors import (
    CandidateSourceError,
    EmptyEntryWarning,
    MissingKeyWarning,
    SameVectorWarning,
)
from sift_core.sources import InMemorySource, OversamplingSource
from sift_core.sources.content_ids import content_id
from sift_core.types import Document

N, D = 60, 8
ROWS = np.random.default_rng(0).standard_normal((N, D)).astype(np.float32)
ROWS[[3, 40]] = 0
TEXTS = [f"text {i} of boats and word{i % 7}" for i in range(N)]
IDS = [f"d{i}" for i in range(N)]
QUERY = Query(text="boats word3", embedding=ROWS[0])


def memory():
    return InMemorySource(ROWS, TEXTS, document_ids=IDS)


def documents():
    return [Document(document_id=i, text=text) for i, text in zip(IDS, TEXTS, strict=True)]


def in_faiss():
    faiss = pytest.importorskip("faiss")
    index = faiss.IndexFlatIP(D)
    index.add(ROWS)
    from sift_core.sources import FaissSource

    return FaissSource(index, documents())


def in_qdrant():
    client = pytest.importorskip("qdrant_client").QdrantClient(":memory:")
    from sift_core.sources import QdrantSource

    source = QdrantSource(client, "c")
    source.prepare(embedder_name="e", dimension=D)
    source.add([content_id(each) for each in documents()], documents(), ROWS)
    return source


def oversampled():
    return OversamplingSource(memory(), n_select=20, max_candidates=N)


@pytest.mark.parametrize("make", [memory, in_faiss, in_qdrant, oversampled])
@pytest.mark.parametrize(
    "options",
    [
        ChoiceOptions(n_select=N, n_candidates=N),
        ChoiceOptions(n_select=5, n_candidates=45),  # with a second hop
        ChoiceOptions(n_select=5, n_candidates=N, words=0),
    ],
)
def test_the_query_is_answered_without_them(make, options):
    with pytest.warns(EmptyEntryWarning, match="vectors are all zero") as caught:
        chosen = search(make(), QUERY, options)
    assert len(caught) == 1
    assert "'d3'" in str(caught[0].message)
    assert len(chosen) == min(options.n_select, N - 2)  # two of N have no direction
    assert not {"d3", "d40"} & set(chosen.pool.document_ids)


async def test_so_it_is_awaited():
    from sift_core import asearch

    with pytest.warns(EmptyEntryWarning) as caught:
        chosen = await asearch(memory(), QUERY, ChoiceOptions(n_select=N, n_candidates=N))
    assert len(caught) == 1
    assert len(chosen) == N - 2


def test_the_others_are_chosen_as_without_the_empty_ones():
    kept = [row for row in range(N) if row not in (3, 40)]
    pool = memory().fetch(QUERY, N)
    filled = pool.take([row for row in range(N) if pool.document_ids[row] not in ("d3", "d40")])
    with pytest.warns(EmptyEntryWarning):
        chosen = choose(pool, QUERY)
    assert chosen.chunks.document_ids == choose(filled, QUERY).chunks.document_ids
    assert len(chosen.pool) == len(kept)


def test_nothing_is_chosen_where_all_are_empty():
    source = InMemorySource(np.zeros((3, D)), ["", "", ""])
    with pytest.warns(EmptyEntryWarning, match="3 of 3"):
        assert len(search(source, QUERY)) == 0


def test_points_of_qdrant_without_text_are_left_out():
    qdrant_client = pytest.importorskip("qdrant_client")
    from sift_core.sources import QdrantSource

    models, client = qdrant_client.models, qdrant_client.QdrantClient(":memory:")
    params = models.VectorParams(size=D, distance=models.Distance.COSINE)
    client.create_collection("c", vectors_config=params)
    payloads = [{"text": text} for text in TEXTS[:6]] + [{}, {"text": None}, {"text": ["a"]}]
    rows = [ROWS[i].tolist() for i in (0, 1, 2, 4, 5, 6, 7, 8, 9)]
    points = zip(rows, payloads, strict=True)
    client.upsert(
        "c", [models.PointStruct(id=i, vector=v, payload=p) for i, (v, p) in enumerate(points)]
    )
    source = QdrantSource(client, "c")
    with pytest.warns(EmptyEntryWarning, match="no text under 'text'.*'6', '7', '8'") as caught:
        assert len(source.fetch(QUERY, 9)) == 6
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        assert len(source.fetch(QUERY, 9)) == 6
        alone = Query(text="", embedding=ROWS[7])  # the nearest, and the only one, has no text
        assert len(source.fetch(alone, 1)) == 0
    with pytest.raises(CandidateSourceError, match="pass the right `text_key`"):
        QdrantSource(client, "c", text_key="txt").fetch(QUERY, 9)  # none has one


@pytest.mark.parametrize("words", [0.7, 0])
def test_each_warning_comes_once_a_call_at_the_callers_line(words):
    """A missing key was told again after the second hop, the others at lines of the library."""
    same = InMemorySource(np.tile(ROWS[0], (N, 1)), TEXTS, metadata=[{"page": 1}] * N)
    options = ChoiceOptions(n_candidates=20, words=words, document_key="file", max_per_document=5)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        compare_methods(search(same, QUERY, options), 3)
        search(memory(), QUERY, ChoiceOptions(n_candidates=N))
    kinds = [one.category for one in told]
    assert kinds == [MissingKeyWarning, SameVectorWarning, EmptyEntryWarning]
    assert {one.filename for one in told} == {__file__}
