"""What follows the chosen chunks in their documents, fetched from every kind of store."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from sift_core import ChoiceOptions, InMemorySource, search
from sift_core.errors import CandidateSourceError, ReadAloneWarning
from sift_core.reading_on import aread_on, read_on
from sift_core.sources import CombinedSource, OversamplingSource
from sift_core.sources.filtered import FilteredSource
from sift_core.sources.metadata_filters import filter_for
from sift_core.types import Query
from tests.sources import stores

LENGTH, A_FILE = 20, 10  # characters of a chunk, chunks of a file
FOUND = [12, 19, 55, 102]  # rows that are looked for; 19 is the last of its file
COPY = 72  # a near-copy of the first, before another chunk
KINDS = [
    "in memory, called",
    "in memory, awaited",
    "faiss flat, L2, called",
    "faiss IVF, all lists, called",
    "faiss IDMap flat, awaited",
    "qdrant memory, called",
    "qdrant REST, called",
    "async qdrant REST, awaited",
]


def text_at(file, i):
    return f"file {file}, part {i}:".ljust(LENGTH - 1, ".")  # a line break ends it


def both_at(file, i):
    return f"{text_at(file, i)}\n{text_at(file, i + 1)}"


@pytest.fixture(scope="module")
def corpus():
    corpus = stores.make_corpus()
    places = [divmod(i, A_FILE) for i in range(stores.N)]
    metadata = [
        {"source": f"{file}.py", "start": i * LENGTH, "end": (i + 1) * LENGTH, "parity": i % 2}
        for file, i in places
    ]
    embeddings = corpus.embeddings.copy()
    embeddings[:, : len(FOUND)] = 0  # the rows that are looked for are unlike all others
    for i, row in enumerate(FOUND):
        embeddings[row] = np.eye(stores.D)[i]
        embeddings[row + 1, i] = 0.7  # what follows one is a little like it
    embeddings[COPY] = embeddings[FOUND[0]] + 0.05 * embeddings[COPY]
    embeddings[COPY + 1, 0] = 0.7
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    texts = [text_at(*place) for place in places]
    return replace(corpus, embeddings=embeddings, texts=texts, metadata=metadata)


@pytest.fixture(scope="module")
def source(corpus):
    return stores.in_memory(corpus)


def query_near(corpus, *rows):
    embedding = sum(corpus.embeddings[row] * (1 - i / 10) for i, row in enumerate(rows))
    return Query(text="?", embedding=embedding, embedder_name=stores.MODEL)


def options_of(n_select, **options):
    return ChoiceOptions(n_select=n_select, words=0, **options)


def read(source, corpus, rows, n_select, *, filter=None, room=None, **options):
    options = options_of(n_select, **options)
    chosen = search(source, query_near(corpus, *rows), options, filter=filter)
    return chosen, read_on(source, chosen, options, filter=filter, room=room)


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_are_read_with_those_that_follow_them(kind, corpus, tmp_path):
    query, options = query_near(corpus, 55, 102), options_of(4)
    with stores.opened(kind, corpus, tmp_path) as store:
        if store.loop is None:
            chosen = search(store.source, query, options)
            found = read_on(store.source, chosen, options)
        else:
            chosen = search(stores.in_memory(corpus), query, options)
            call = aread_on(store.source, chosen, options)
            found = asyncio.run_coroutine_threadsafe(call, store.loop).result(timeout=300)
    assert chosen.chunks.texts[:2] == (text_at(5, 5), text_at(10, 2))
    assert found.chunks.texts == (both_at(5, 5), both_at(10, 2))
    first = found.chunks.metadata[0]
    assert (first["source"], first["start"], first["end"]) == ("5.py", 100, 140)
    assert len(first["chunks"]) == 2
    assert found.timings["read_on"] > 0


def test_near_copies_are_both_read_if_what_follows_them_differs(source, corpus):
    chosen, found = read(source, corpus, [12], 4)
    assert text_at(7, 2) not in chosen.chunks.texts
    assert set(found.chunks.texts) == {both_at(1, 2), both_at(7, 2)}


def test_near_copies_are_read_once_if_what_follows_them_is_the_same(corpus):
    embeddings = corpus.embeddings.copy()
    embeddings[COPY + 1] = embeddings[13]
    _, found = read(stores.in_memory(replace(corpus, embeddings=embeddings)), corpus, [12], 4)
    assert found.chunks.texts[0].startswith(both_at(1, 2))
    assert both_at(7, 2) not in found.chunks.texts
    assert [one.document_id for one in found.left_out] == [str(corpus.ids[COPY])]


def test_a_chunk_that_nothing_follows_is_read_alone(source, corpus):
    _, found = read(source, corpus, [19, 55, 102], 4)
    assert found.chunks.texts == (text_at(1, 9), both_at(5, 5), text_at(10, 2))


@pytest.mark.parametrize("n_select", [2, 3, 4])
def test_an_odd_chunk_is_read_alone(source, corpus, n_select):
    _, found = read(source, corpus, [55, 102], n_select)
    second = {2: [], 3: [text_at(10, 2)], 4: [both_at(10, 2)]}[n_select]
    assert found.chunks.texts == (both_at(5, 5), *second)


@pytest.mark.parametrize("limit", [{"max_tokens": 60}, {"room": 60}])
def test_two_chunks_that_fit_are_joined(source, corpus, limit):
    _, found = read(source, corpus, [55, 102], 4, count_tokens=len, **limit)
    assert found.chunks.texts[0] == both_at(5, 5)


@pytest.mark.parametrize("limit", [{"max_tokens": 30}, {"room": 30}])
def test_two_chunks_that_do_not_fit_are_not_joined(source, corpus, limit):
    _, found = read(source, corpus, [55, 102], 4, count_tokens=len, **limit)
    assert found.chunks.texts[0] == text_at(5, 5)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda source, corpus: source, {"max_per_document": 1}),
        (lambda source, corpus: source, {"n_select": 1}),
        (lambda source, corpus: stores.Fetching(source), {}),
        (
            lambda source, corpus: InMemorySource(
                corpus.embeddings, corpus.texts, embedder_name=stores.MODEL
            ),
            {},
        ),
    ],
    ids=["max_per_document", "one chunk", "another library's store", "no places"],
)
def test_a_choice_stays_as_it_is_where_nothing_can_be_read_on(source, corpus, make, options):
    options = {"n_select": 4, **options}
    chosen, found = read(make(source, corpus), corpus, [12, 55], **options)
    assert found.chunks.texts == chosen.chunks.texts
    assert len(found) == options["n_select"]


def test_what_a_filter_leaves_out_is_not_read(source, corpus):
    _, found = read(source, corpus, [102], 2, filter=lambda metadata: metadata["parity"] == 0)
    assert found.chunks.texts[0] == text_at(10, 2)
    assert len(found.chunks) == 2


def test_a_filter_of_qdrant_holds_too(corpus):
    with stores.qdrant_in_memory(corpus) as client:
        source = stores.QdrantSource(client, stores.NAME, embedder_name=stores.MODEL)
        _, found = read(source, corpus, [102], 2, filter=stores.parity_filter(0))
        assert found.chunks.texts[0] == text_at(10, 2)
        _, found = read(source, corpus, [102], 2)
        assert found.chunks.texts == (both_at(10, 2),)


@pytest.mark.parametrize(
    "around",
    [
        lambda source: FilteredSource(source, lambda text, _: "part 6" not in text),
        lambda source: OversamplingSource(source, n_select=4),
        lambda source: CombinedSource({"one": source}),
    ],
    ids=["filtered", "oversampling", "combined"],
)
def test_sources_around_qdrant_are_asked_as_it_is(corpus, around):
    with stores.qdrant_in_memory(corpus) as client:
        source = around(stores.QdrantSource(client, stores.NAME, embedder_name=stores.MODEL))
        assert filter_for(source, {"start": 40}) == filter_for(source.wrapped_source, {"start": 40})
        _, found = read(source, corpus, [102, 55], 4)
    assert found.chunks.texts[0].startswith(both_at(10, 2))
    assert (text_at(5, 6) in found.chunks.texts[1]) == (not isinstance(source, FilteredSource))


def test_what_does_not_touch_is_not_joined(corpus):
    gaps = [{**one, "start": 2 * one["start"], "end": 2 * one["end"]} for one in corpus.metadata]
    source = stores.in_memory(replace(corpus, metadata=gaps))
    chosen, found = read(source, corpus, [12, 55], 4)
    assert found.chunks.texts == chosen.chunks.texts


class Refusing(InMemorySource):
    """A store that takes no filter, as a server may that has no index of the metadata."""

    def fetch_batch(self, queries, n_candidates, *, filter=None):
        if filter is not None:
            raise CandidateSourceError("Index required but not found for 'start'")
        return super().fetch_batch(queries, n_candidates)


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_store_that_refuses_has_its_chunks_read_alone(corpus, is_awaited):
    source = Refusing(
        corpus.embeddings, corpus.texts, metadata=corpus.metadata, embedder_name=stores.MODEL
    )
    options = options_of(4)
    chosen = search(source, query_near(corpus, 55, 102), options)
    ask = (lambda *given: asyncio.run(aread_on(*given))) if is_awaited else read_on
    with pytest.warns(ReadAloneWarning, match="not found for 'start'; a Qdrant server"):
        found = ask(source, chosen, options)
    assert found.chunks.texts == chosen.chunks.texts
