"""What follows the chosen chunks in their documents, fetched from every kind of store."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from sift_core import ChoiceOptions, InMemorySource, search
from sift_core.errors import (
    CandidateSourceError,
    EmptyEntryWarning,
    ReadAloneWarning,
    UndatedWarning,
)
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
    (copy,) = found.left_out
    assert (copy.document_id, copy.rank) == (str(corpus.ids[COPY]), 1)
    assert found.pool.document_ids[copy.row] == copy.document_id


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


def ids_of(found):
    return [one for about in found.chunks.metadata for one in about.get("chunks", ["alone"])]


@pytest.mark.parametrize("options", [{}, {"merge_neighbors": True}])
def test_a_chunk_that_two_pairs_have_is_read_once(source, corpus, options):
    _, found = read(source, corpus, [55, 56, 57], 4, **options)
    assert found.chunks.texts == ("\n".join(text_at(5, i) for i in range(5, 9)),)
    assert ids_of(found) == [str(corpus.ids[row]) for row in range(55, 59)]
    assert found.picks[0].chunks == tuple(ids_of(found))
    assert len(found.variances) == len(found.chunks) + 1
    assert all(np.diff(found.variances) <= 0)


def test_a_passage_has_the_numbers_of_the_chunk_that_was_chosen_first(source, corpus):
    _, found = read(source, corpus, [56, 55], 4)
    assert found.chunks.texts[0].startswith(both_at(5, 5))
    assert found.chunks.document_ids[0] == str(corpus.ids[56])
    assert found.chunks.metadata[0]["start"] == 5 * LENGTH


def test_pairs_that_touch_are_no_more_than_are_chosen(source, corpus):
    _, found = read(source, corpus, [52, 54, 56, 58], 4, merge_neighbors=True)
    assert len(ids_of(found)) == 4


def test_a_choice_of_many_is_not_smaller_for_reading_on(corpus):
    is_followed = [one["start"] == 0 for one in corpus.metadata]
    metadata = [
        one if first or one["start"] == LENGTH else {"source": one["source"]}
        for one, first in zip(corpus.metadata, is_followed, strict=True)
    ]
    source = stores.in_memory(replace(corpus, metadata=metadata))
    chosen, found = read(source, corpus, [50], 40)
    assert len(chosen) == 40
    assert sum(len(passage.rows) for passage in found.passages) == 40


def test_what_the_search_found_out_stays(corpus):
    texts = [*corpus.texts]
    texts[-1] = texts[-1].replace("part", "Zanzibar")
    source = stores.in_memory(replace(corpus, texts=texts))
    query = replace(query_near(corpus, 55, 102), text="Where are Zanzibar and Timbuktu?")
    options = ChoiceOptions(n_select=4, words=0.3)
    chosen = search(source, query, options)
    found = read_on(source, chosen, options)
    assert both_at(5, 5) in found.chunks.texts
    assert chosen.missing_names == found.missing_names == ("timbuktu",)
    assert found.hop == chosen.hop
    assert found.pool.document_ids[: len(chosen.pool)] == chosen.pool.document_ids
    assert len(found.relevance) == len(found.pool) == len(set(found.pool.document_ids))
    assert found.as_dict()["chunks"][0]["metadata"]["end"] == 7 * LENGTH


def test_words_say_what_is_followed(corpus):
    texts = [*corpus.texts]
    texts[33] = "file 3, whales".ljust(LENGTH - 1, ".")
    source = stores.in_memory(replace(corpus, texts=texts))
    query = replace(query_near(corpus, 55), text="whales")
    for words, is_read in ((1, True), (0, False)):
        options = ChoiceOptions(n_select=4, words=words)
        found = read_on(source, search(source, query, options), options)
        assert (f"{texts[33]}\n{texts[34]}" in found.chunks.texts) == is_read


def test_only_the_24_most_relevant_are_followed(source, corpus):
    chosen = search(source, query_near(corpus, 55, 102), options_of(4))
    n = len(chosen.pool)
    last = replace(chosen, relevance=np.arange(n, dtype=float))
    found = read_on(source, last, options_of(4))
    assert set(found.positions.tolist()) <= set(range(n - 24, n))
    assert found.pool is not chosen.pool


def test_what_follows_is_as_relevant_as_what_it_follows(source, corpus):
    chosen = search(source, query_near(corpus, 55, 102), options_of(4, n_candidates=2))
    found = read_on(source, chosen, options_of(4))
    assert [passage.rows for passage in found.passages] == [(0, 2), (1, 3)]
    assert found.relevance[[2, 3]].tolist() == chosen.pool.similarities.tolist()


def test_a_date_that_is_missing_is_warned_of_once(corpus):
    dated = [{**one, "date": 2020 if one["parity"] else None} for one in corpus.metadata]
    source = stores.in_memory(replace(corpus, metadata=dated))
    with pytest.warns(UndatedWarning) as warnings:
        read(source, corpus, [55, 102], 4, newest="date")
    assert len(warnings) == 1


def test_several_queries_are_not_read_on(source, corpus):
    query = replace(query_near(corpus, 55), also=(query_near(corpus, 102),))
    chosen = search(source, query, options_of(4))
    assert read_on(source, chosen, options_of(4)).chunks.texts == chosen.chunks.texts


@pytest.mark.parametrize(
    "more",
    [
        {"vector": np.zeros(3)},
        {"chunks": 6},
        {"chunks": "abcdefgh"},
        {"title": "5.py"},
        {"end": np.int64(0)},
    ],
    ids=["array", "number", "text", "title", "other end"],
)
def test_metadata_of_the_caller_says_nothing(corpus, more):
    metadata = [{**more, **one} for one in corpus.metadata]
    source = stores.in_memory(replace(corpus, metadata=metadata))
    _, found = read(source, corpus, [55, 102], 4)
    assert found.chunks.texts == (both_at(5, 5), both_at(10, 2))


def test_an_end_that_is_no_number_is_followed_by_nothing(corpus):
    metadata = [
        {**one, "end": [one["end"]]} if i % 2 else one for i, one in enumerate(corpus.metadata)
    ]
    source = stores.in_memory(replace(corpus, metadata=metadata))
    _, found = read(source, corpus, [55, 102], 4)
    assert both_at(5, 5) not in "".join(found.chunks.texts)
    assert both_at(5, 6) in found.chunks.texts


def test_a_key_of_documents_may_be_named(corpus):
    metadata = [{**one, "book": one["source"], "source": "all"} for one in corpus.metadata]
    source = stores.in_memory(replace(corpus, metadata=metadata))
    _, found = read(source, corpus, [55, 102], 4, document_key="book")
    assert found.chunks.texts == (both_at(5, 5), both_at(10, 2))
    chosen, found = read(source, corpus, [55, 102], 4)
    assert found.chunks.texts == chosen.chunks.texts  # what follows "all" is not one text
    bare = [{**one, "source": ""} for one in metadata]
    source = stores.in_memory(replace(corpus, metadata=bare))
    _, found = read(source, corpus, [55, 102], 4, document_key="book")
    assert found.chunks.texts == (both_at(5, 5), both_at(10, 2))


def test_texts_of_two_documents_of_one_name_are_not_joined(corpus):
    embeddings = np.where(np.arange(stores.D) < len(FOUND), 0, corpus.embeddings)
    texts = [text.replace("file", "FILE") for text in corpus.texts]
    embeddings[[*FOUND, COPY], -1] = 1
    other = replace(corpus, texts=texts, embeddings=embeddings)
    source = CombinedSource({"one": stores.in_memory(corpus), "other": stores.in_memory(other)})
    _, found = read(source, corpus, [55, 102], 4)
    assert not any("FILE" in text and "file" in text for text in found.chunks.texts)


def test_a_chunk_without_a_vector_does_not_follow(corpus):
    embeddings = corpus.embeddings.copy()
    embeddings[56] = 0
    source = stores.in_memory(replace(corpus, embeddings=embeddings))
    with pytest.warns(EmptyEntryWarning):
        _, found = read(source, corpus, [102, 55], 4)
    assert text_at(5, 6) not in "".join(found.chunks.texts)


def test_two_chunks_that_are_not_kept_together_are_not_joined(source, corpus):
    apart = FilteredSource(source, lambda text, _: not ("part 5" in text and "part 6" in text))
    _, found = read(apart, corpus, [102, 55], 4)
    assert found.chunks.texts[0].startswith(both_at(10, 2))
    assert both_at(5, 5) not in found.chunks.texts
    assert apart.keeps(found.chunks)


class Hiding(FilteredSource):
    """A caller's own source around Qdrant, which does not say what it is around."""

    wrapped_source = None


def test_a_filter_that_a_store_cannot_take_is_a_warning(corpus):
    with stores.qdrant_in_memory(corpus) as client:
        inner = stores.QdrantSource(client, stores.NAME, embedder_name=stores.MODEL)
        with pytest.warns(ReadAloneWarning, match="filter"):
            chosen, found = read(Hiding(inner, lambda *_: True), corpus, [102], 4)
    assert found.chunks.texts == chosen.chunks.texts
