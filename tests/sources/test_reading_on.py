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
FOUND = [12, 13, 19, 55, 102]  # rows that are looked for
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
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    return replace(
        corpus,
        embeddings=embeddings,
        texts=[text_at(*place) for place in places],
        metadata=metadata,
    )


@pytest.fixture(scope="module")
def source(corpus):
    return stores.in_memory(corpus)


def query_near(corpus, *rows):
    embedding = sum(corpus.embeddings[row] * (1 - i / 10) for i, row in enumerate(rows))
    return Query(text="?", embedding=embedding, embedder_name=stores.MODEL)


def options_of(n_select, **options):
    return ChoiceOptions(n_select=n_select, words=0, **options)


def read(source, corpus, rows, n_select, *, filter=None, **options):
    options = options_of(n_select, **options)
    chosen = search(source, query_near(corpus, *rows), options, filter=filter)
    return chosen, read_on(source, chosen, options, filter=filter)


@pytest.mark.parametrize("kind", KINDS)
def test_half_of_what_is_read_follows_the_other_half(kind, corpus, tmp_path):
    query, options = query_near(corpus, 12, 55), options_of(4)
    with stores.opened(kind, corpus, tmp_path) as store:
        if store.loop is None:
            chosen = search(store.source, query, options)
            found = read_on(store.source, chosen, options)
        else:
            chosen = search(stores.in_memory(corpus), query, options)
            call = aread_on(store.source, chosen, options)
            found = asyncio.run_coroutine_threadsafe(call, store.loop).result(timeout=300)
    assert chosen.chunks.texts[:2] == (text_at(1, 2), text_at(5, 5))
    assert found.chunks.texts == (
        f"{text_at(1, 2)}\n{text_at(1, 3)}",
        f"{text_at(5, 5)}\n{text_at(5, 6)}",
    )
    first = found.chunks.metadata[0]
    assert (first["source"], first["start"], first["end"]) == ("1.py", 40, 80)
    assert len(first["chunks"]) == 2
    assert found.picks[0].chunks == tuple(first["chunks"])
    assert found.timings["read_on"] > 0


def test_the_next_choices_fill_what_nothing_follows(source, corpus):
    chosen, found = read(source, corpus, [19, 55, 102], 4)  # 19 is the last of its file
    assert chosen.chunks.texts[:3] == (text_at(1, 9), text_at(5, 5), text_at(10, 2))
    assert found.chunks.texts == (
        text_at(1, 9),
        f"{text_at(5, 5)}\n{text_at(5, 6)}",
        text_at(10, 2),
    )
    assert list(found.variances) == list(chosen.variances[:4])


def test_what_is_chosen_already_is_not_read_again(source, corpus):
    _, found = read(source, corpus, [12, 13], 4)
    assert found.chunks.texts[:2] == (text_at(1, 2), f"{text_at(1, 3)}\n{text_at(1, 4)}")
    assert len(found.chunks) == 3


def test_one_chunk_has_no_room_for_another(source, corpus):
    _, found = read(source, corpus, [12], 1)
    assert found.chunks.texts == (text_at(1, 2),)


def test_no_more_tokens_are_read_than_allowed(source, corpus):
    _, found = read(source, corpus, [12, 55], 4, max_tokens=60, count_tokens=len)
    # Two chunks have 38 characters, and what follows adds 20 to one of them.
    assert found.chunks.texts == (f"{text_at(1, 2)}\n{text_at(1, 3)}", text_at(5, 5))


def test_no_more_tokens_are_read_than_there_is_room_for(source, corpus):
    options = options_of(4, count_tokens=len)
    chosen = search(source, query_near(corpus, 12, 55), options)
    found = read_on(source, chosen, options, room=60)
    assert found.chunks.texts == (f"{text_at(1, 2)}\n{text_at(1, 3)}", text_at(5, 5))
    found = read_on(source, chosen, options, room=30)
    assert found.chunks.texts == (text_at(1, 2), text_at(5, 5))  # the caller takes what fits


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda source, corpus: source, {"max_per_document": 1}),
        (lambda source, corpus: stores.Fetching(source), {}),
        (
            lambda source, corpus: InMemorySource(
                corpus.embeddings, corpus.texts, embedder_name=stores.MODEL
            ),
            {},
        ),
    ],
    ids=["max_per_document", "another library's store", "no places"],
)
def test_a_choice_stays_as_it_is_where_nothing_can_be_read_on(source, corpus, make, options):
    chosen, found = read(make(source, corpus), corpus, [12, 55], 4, **options)
    assert found.chunks.texts == chosen.chunks.texts
    assert len(found) == 4


def test_what_a_filter_leaves_out_is_not_read(source, corpus):
    _, found = read(source, corpus, [12], 2, filter=lambda metadata: metadata["parity"] == 0)
    assert found.chunks.texts[0] == text_at(1, 2)
    assert len(found.chunks) == 2


def test_a_filter_of_qdrant_holds_too(corpus):
    with stores.qdrant_in_memory(corpus) as client:
        source = stores.QdrantSource(client, stores.NAME, embedder_name=stores.MODEL)
        _, found = read(source, corpus, [12], 2, filter=stores.parity_filter(0))
        assert found.chunks.texts[0] == text_at(1, 2)
        _, found = read(source, corpus, [12], 2)
        assert found.chunks.texts == (f"{text_at(1, 2)}\n{text_at(1, 3)}",)


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
        _, found = read(source, corpus, [12, 55], 4)
    assert found.chunks.texts[0] == f"{text_at(1, 2)}\n{text_at(1, 3)}"
    assert (text_at(5, 6) in found.chunks.texts[1]) == (not isinstance(source, FilteredSource))


def test_a_joined_passage_goes_on_too(source, corpus):
    options = options_of(4, merge_neighbors=True)
    query = query_near(corpus, 12, 13, 55)
    found = read_on(source, chosen := search(source, query, options), options)
    assert chosen.chunks.texts[0] == f"{text_at(1, 2)}\n{text_at(1, 3)}"
    assert found.chunks.texts[0] == f"{text_at(1, 2)}\n{text_at(1, 3)}\n{text_at(1, 4)}"
    assert len(found.chunks.metadata[0]["chunks"]) == 3


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
    chosen = search(source, query_near(corpus, 12, 55), options)
    ask = (lambda *given: asyncio.run(aread_on(*given))) if is_awaited else read_on
    with pytest.warns(ReadAloneWarning, match="not found for 'start'; a Qdrant server"):
        found = ask(source, chosen, options)
    assert found.chunks.texts == chosen.chunks.texts
