"""What every source promises of words: order and scores of BM25, in one trip with vectors."""

import asyncio
import math
import re
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from qdrant_client import QdrantClient, models

from sift_core.errors import InvalidInputError, MissingWordsWarning
from sift_core.protocols import LexicalSource, Lookup
from sift_core.selection.cosines import cosine_similarities
from sift_core.selection.word_counts import HEADING, words_of
from sift_core.sources import CombinedSource, OversamplingSource, QdrantSource
from tests.sources import stores

N = 60
KINDS = [
    *(f"{kind}, called" for kind in ("in memory", "faiss flat, inner product", "faiss IDMap flat")),
    *(f"{kind}, called" for kind in ("faiss HNSW", "faiss IVF, own ids", "faiss SQ8")),
    *("faiss folder, flat, called", "faiss folder, IDMap2 IVF, called", "qdrant memory, called"),
    *("qdrant folder, called", "qdrant REST, called", "qdrant gRPC, called", "in memory, awaited"),
    *("faiss folder, flat, awaited", "qdrant REST, awaited", "async qdrant REST, awaited"),
    "async qdrant gRPC, awaited",
]
COMMON = "of the and in is to which common".split()
ODD = ["東京都", "0.68.1", "file_name", "cafe\u0301", "हिन्दी", "наука", "ISO-8601", "กรุงเทพ"]


def make_corpus():
    """Return documents of which each has a few words of its own, and some have headings."""
    rng = np.random.default_rng(3)
    corpus = stores.make_corpus()
    words = [f"word{i}" for i in range(40)] + COMMON * 4
    texts = [" ".join(rng.choice(words, size=8 + i % 23)) for i in range(N)]
    texts = [f"{text} {ODD[i % 8]} number{i}" for i, text in enumerate(texts)]
    metadata = [dict(each) for each in corpus.metadata[:N]]
    for i in range(0, N, 3):
        metadata[i] |= {"title": f"word{i % 7}", "heading": ["The", f"word{i % 11}"]}
    return stores.Corpus(
        embeddings=corpus.embeddings[:N], texts=texts, ids=corpus.ids[:N], metadata=metadata
    )


@pytest.fixture(scope="module")
def corpus():
    return make_corpus()


@pytest.fixture(scope="module", params=KINDS)
def store(request, corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    with stores.opened(request.param, corpus, folder, words=True) as store:
        # Qdrant's points assume a mean length, and each word counts however frequent it is.
        yield store, 128 if "qdrant" in request.param else None


def bm25(corpus, words, mean):
    """Return the positive scores by document, by the formula alone."""
    counts = []
    for text, metadata in zip(corpus.texts, corpus.metadata, strict=True):
        heading = " ".join([metadata.get("title", ""), *metadata.get("heading", [])])
        counts.append(Counter(words_of(text)) + Counter(words_of(heading) * HEADING))
    lengths = [sum(each.values()) for each in counts]
    frequencies = {word: sum(word in each for each in counts) for word in set(words)}
    if mean is None:
        few = {word for word, df in frequencies.items() if 0 < df <= N / 2}
        frequencies = {word: df for word, df in frequencies.items() if word in few or not few}
        mean = sum(lengths) / N
    scores = {}
    for name, each, length in zip(corpus.ids, counts, lengths, strict=True):
        score = 0.0
        for word, df in frequencies.items():
            norm = 1.2 * (0.25 + 0.75 * length / mean)
            idf = math.log(1 + (N - df + 0.5) / (df + 0.5))
            score += idf * each[word] * 2.2 / (each[word] + norm)
        if score > 0:
            scores[str(name)] = score
    return scores


QUESTIONS = [
    "number7",
    "word3 word17 number44",
    "the common word5 of word5, and WORD6",
    "東京",
    "version 0.68.1 of file_name",
    "cafe\u0301 हिन्दी",
    "Наука: iso-8601, or กรุงเทพ?",
]


def test_follows_the_protocol(store):
    source = store[0].source
    assert isinstance(source, LexicalSource)
    assert source.has_words


@pytest.mark.parametrize("question", QUESTIONS)
def test_words_find_documents_by_bm25(store, corpus, question):
    store, mean = store
    words = words_of(question)
    (pool,) = store.look_up(corpus.query(), [Lookup(n_candidates=N, words=words)])
    expected = bm25(corpus, words, mean)
    assert sorted(pool.document_ids) == sorted(expected)
    wanted = [expected[name] for name in pool.document_ids]
    np.testing.assert_allclose(pool.scores, wanted, rtol=1e-5)
    assert (np.diff(wanted) <= 1e-5).all()
    assert pool.relevance is None
    cosines = cosine_similarities(corpus.query().vector, pool.embeddings)
    np.testing.assert_allclose(pool.similarities, cosines, atol=1e-6)
    for i, name in enumerate(pool.document_ids):
        row = corpus.ids.index(int(name))
        assert pool.texts[i] == corpus.texts[row]
        assert pool.metadata[i] == corpus.metadata[row]
        assert float(pool.embeddings[i] @ corpus.embeddings[row]) > (
            0.9 if store.is_lossy else 0.999
        )


def test_the_best_are_the_first_of_all(store, corpus):
    store, _ = store
    words = words_of("word1 word2 word3 number9")
    few, all_ = store.look_up(corpus.query(), [Lookup(n_candidates=n, words=words) for n in (5, N)])
    np.testing.assert_allclose(few.scores, all_.scores[:5])
    assert len(few) == 5


def test_unknown_words_and_no_words_find_nothing(store, corpus):
    store, _ = store
    asked = [["unheard"], [], ["🙂", "two words", "FILE"], ["unheard", "number3"]]
    pools = store.look_up(corpus.query(), [Lookup(n_candidates=3, words=w) for w in asked])
    assert [len(pool) for pool in pools] == [0, 0, 0, 1]
    assert pools[0].embeddings.shape == (0, 16)


def test_a_vector_finds_what_fetch_finds(store, corpus):
    store, _ = store
    query, other = corpus.query(0), corpus.query(1)
    vectors = [Lookup(n_candidates=7, vector=each.vector) for each in (query, other)]
    words = Lookup(n_candidates=4, words=["word3"])
    near, first, far = store.look_up(query, [vectors[0], words, vectors[1]])
    assert len(first) == 4
    for pool, each in ((near, query), (far, other)):
        expected = store.fetch(each, 7)
        assert pool.document_ids == expected.document_ids
        assert pool.texts == expected.texts
        assert pool.metadata == expected.metadata
        np.testing.assert_allclose(pool.embeddings, expected.embeddings, atol=1e-6)
        cosines = cosine_similarities(query.vector, expected.embeddings)
        np.testing.assert_allclose(pool.similarities, cosines, atol=1e-6)


def test_a_filter_holds_for_words_and_vectors(store, corpus):
    store, mean = store
    words = words_of("word1 word2 word3 word4")
    lookups = [Lookup(n_candidates=6, words=words), Lookup(n_candidates=6, vector=np.ones(16))]
    by_words, near = store.look_up(corpus.query(), lookups, filter=store.even)
    even = {
        str(i) for i, each in zip(corpus.ids, corpus.metadata, strict=True) if not each["parity"]
    }
    assert {*by_words.document_ids, *near.document_ids} <= even
    best = sorted((s for n, s in bm25(corpus, words, mean).items() if n in even), reverse=True)
    np.testing.assert_allclose(by_words.scores, best[:6], rtol=1e-5)
    pools = store.look_up(corpus.query(), lookups, filter=store.nothing)
    assert [len(pool) for pool in pools] == [0, 0]


def test_what_is_no_lookup_is_refused(store, corpus):
    store, _ = store
    lookups = [Lookup(n_candidates=1, words=["word1"])]
    with pytest.raises(InvalidInputError, match="`filter` must be"):
        store.look_up(corpus.query(), lookups, filter={"parity": 0})
    for lookups in ("words", Lookup(n_candidates=1, words=["a"]), [["a"]]):
        with pytest.raises(InvalidInputError, match="`lookups` must be a sequence of Lookup"):
            store.look_up(corpus.query(), lookups)
    for other in (np.ones(3), np.ones(17)):
        with pytest.raises(InvalidInputError, match="dimensions"):
            store.look_up(corpus.query(), [Lookup(n_candidates=1, vector=other)])
    query = corpus.query(embedder_name="model-b")
    with pytest.raises(InvalidInputError, match="'model-b', the store by 'model-a'"):
        store.look_up(query, [Lookup(n_candidates=1, words=["a"])])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either `vector` or `words`"),
        ({"vector": np.ones(3), "words": ["a"]}, "either `vector` or `words`"),
        ({"words": "text"}, "`words` must be a sequence of words"),
        ({"words": [3]}, "`words` must be a sequence of words"),
        ({"vector": np.array([np.nan])}, "finite"),
        ({"vector": np.array([])}, "at least 1 number"),
        ({"n_candidates": 0, "words": []}, "`n_candidates` must be"),
    ],
)
def test_a_lookup_is_of_one_kind(options, message):
    with pytest.raises(InvalidInputError, match=message):
        Lookup(**{"n_candidates": 1, **options})


def test_one_state_is_asked_for_in_one_call_of_the_server(corpus, tmp_path):
    with stores.opened("qdrant REST, called", corpus, tmp_path, words=True) as store:
        assert store.source.has_words
        client = store.source._client
        asked = []
        send = client.http.client.send_inner

        def counted(request):
            asked.append(request.url.path)
            return send(request)

        client.http.client.send_inner = counted
        lookups = [
            Lookup(n_candidates=3, vector=np.ones(16)),
            Lookup(n_candidates=3, words=["word1"]),
        ]
        lookups.append(Lookup(n_candidates=3, words=["word2"]))
        store.look_up(corpus.query(), lookups)
        assert asked == ["/collections/docs/points/query/batch"]


@pytest.mark.parametrize("kind", ["qdrant memory, called", "async qdrant REST, awaited"])
def test_a_collection_without_words_says_so_once(corpus, tmp_path, kind):
    with stores.opened(kind, corpus, tmp_path) as store:
        lookups = [
            Lookup(n_candidates=3, vector=np.ones(16)),
            Lookup(n_candidates=3, words=["word1"]),
        ]
        with pytest.warns(MissingWordsWarning, match="collection 'docs' keeps no words.*new coll"):
            near, none = store.look_up(corpus.query(), lookups)
        assert not store.source.has_words
        assert (len(near), len(none)) == (3, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            again, _ = store.look_up(corpus.query(), lookups)
        assert again.document_ids == near.document_ids


def test_of_several_threads_one_is_told_that_words_are_missing(corpus, tmp_path):
    """Each of two collections is told once, whoever asks first."""
    client = QdrantClient(":memory:")
    words = [Lookup(n_candidates=3, words=["word1"])]
    sources = []
    for name in ("first", "second"):
        vectors = models.VectorParams(size=16, distance=models.Distance.COSINE)
        client.create_collection(name, vectors_config=vectors)
        sources.append(QdrantSource(client, name))
    asked = [source for source in sources for _ in range(20)]
    with ThreadPoolExecutor(8) as threads, pytest.warns(MissingWordsWarning) as caught:
        list(threads.map(lambda source: source.look_up(corpus.query(), words), asked))
    names = [re.search("collection '(.*?)'", str(one.message)).group(1) for one in caught]
    assert sorted(names) == ["first", "second"]


def test_lists_of_several_sources_are_joined_rank_by_rank(corpus):
    source = CombinedSource(stores.slices(corpus, 3))
    parts = [*stores.slices(corpus, 3).values()]
    assert source.has_words
    query, other = corpus.query(), corpus.query(1)
    words = Lookup(n_candidates=7, words=words_of("word1 word2 word3"))
    lookups = [words, Lookup(n_candidates=7, vector=other.vector)]
    joined, near = source.look_up(query, lookups)
    lists = [part.look_up(query, [words])[0].document_ids for part in parts]
    expected = [each[rank] for rank in range(7) for each in lists][:7]
    assert list(joined.document_ids) == expected
    assert near.document_ids == source.fetch(other, 7).document_ids
    awaited, _ = asyncio.run(source.alook_up(query, lookups))
    assert awaited.document_ids == joined.document_ids
    mixed = CombinedSource({"words": parts[0], "none": stores.Fetching(parts[1])})
    assert not mixed.has_words
    found, near = mixed.look_up(query, lookups)
    assert found.document_ids == lists[0][:7]
    assert near.document_ids == mixed.fetch(other, 7).document_ids
    awaited = asyncio.run(mixed.alook_up(query, lookups))
    assert [pool.document_ids for pool in awaited] == [found.document_ids, near.document_ids]


def test_a_source_that_oversamples_passes_words_on(corpus):
    rows = np.repeat(corpus.embeddings[:6], 10, axis=0)  # ten copies of each
    inner = stores.in_memory(replace(corpus, embeddings=rows))
    source = OversamplingSource(inner, n_select=3)
    assert source.has_words
    query, other = corpus.query(), corpus.query(1)
    words = Lookup(n_candidates=9, words=["word1", "word2"])
    lookups = [words, *(Lookup(n_candidates=9, vector=each.vector) for each in (query, other))]
    pools = source.look_up(query, lookups)
    assert pools[0].document_ids == inner.look_up(query, [words])[0].document_ids
    for pool, each in zip(pools[1:], (query, other), strict=True):
        expected = source.fetch(each, 9)
        assert pool.document_ids == expected.document_ids != inner.fetch(each, 9).document_ids
    awaited = asyncio.run(source.alook_up(query, lookups))
    assert [pool.document_ids for pool in awaited] == [pool.document_ids for pool in pools]
    assert not OversamplingSource(stores.Fetching(inner), n_select=3).has_words
