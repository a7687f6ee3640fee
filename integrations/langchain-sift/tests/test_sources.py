import contextvars

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_qdrant import RetrievalMode
from qdrant_client import AsyncQdrantClient, models

from langchain_sift import LangChainEmbedder, SIFTRetriever, VectorStoreSource
from sift_core import (
    CandidateSource,
    CandidateSourceError,
    ContextSelector,
    InvalidInputError,
    OversamplingSource,
    Query,
    selector_from_settings,
)


@pytest.fixture
def query(embeddings, question):
    return Query(text=question, embedding=LangChainEmbedder(embeddings).embed_query(question))


@pytest.fixture
def hybrid(make_qdrant, documents, sparse_embeddings):
    return make_qdrant(
        documents, retrieval_mode=RetrievalMode.HYBRID, sparse_embedding=sparse_embeddings
    )


def test_it_is_a_source_of_the_core(make_store, documents):
    assert isinstance(VectorStoreSource(make_store(documents)), CandidateSource)


def test_the_pool_has_the_stores_nearest_in_order(make_store, documents, query):
    store = make_store(documents)
    nearest = store.similarity_search(query.text, k=7)
    pool = VectorStoreSource(store).fetch(query, 7)
    assert list(pool.texts) == [each.page_content for each in nearest]
    ids = [each.id or each.metadata["_id"] for each in nearest]
    assert list(pool.document_ids) == ids
    assert [row["document"].id for row in pool.metadata] == ids
    assert [row["document"].metadata for row in pool.metadata] == [
        each.metadata for each in nearest
    ]
    assert pool.relevance is None


def test_the_pool_has_cosines_and_vectors(make_store, documents, query, embeddings):
    pool = VectorStoreSource(make_store(documents)).fetch(query, 12)
    expected = np.array([embeddings.embed_query(text) for text in pool.texts])
    np.testing.assert_allclose(pool.embeddings, expected, atol=1e-6)
    np.testing.assert_allclose(pool.similarities, expected @ query.embedding, atol=1e-6)


def test_the_pool_has_the_stores_own_scores(make_vector_store, documents, query):
    store = make_vector_store(documents)
    expected = {
        document.page_content: score
        for document, score in store.similarity_search_with_score(query.text, k=12)
    }
    pool = VectorStoreSource(store).fetch(query, 12)
    found = {text: row["score"] for text, row in zip(pool.texts, pool.metadata, strict=True)}
    assert found == pytest.approx(expected, abs=1e-6)


def test_a_store_without_scores_gives_none(make_text_only, documents, query):
    pool = VectorStoreSource(make_text_only(documents)).fetch(query, 3)
    assert [set(row) for row in pool.metadata] == [{"document"}] * 3


def test_fused_scores_are_the_relevance(hybrid, query):
    expected = {
        document.metadata["_id"]: score
        for document, score in hybrid.similarity_search_with_score(query.text, k=12)
    }
    pool = VectorStoreSource(hybrid).fetch(query, 12)
    assert dict(zip(pool.document_ids, pool.relevance, strict=True)) == pytest.approx(expected)


async def test_async_equals_sync(make_store, documents, query, first_half):
    store = make_store(documents)
    source = VectorStoreSource(store)
    for filter in (None, first_half(store)):
        expected = source.fetch(query, 5, filter=filter)
        pool = await source.afetch(query, 5, filter=filter)
        assert pool.document_ids == expected.document_ids
        assert pool.metadata == expected.metadata
        np.testing.assert_array_equal(pool.embeddings, expected.embeddings)


def test_an_empty_store_gives_an_empty_pool_of_the_questions_dimension(make_store, query):
    assert VectorStoreSource(make_store([])).fetch(query, 5).embeddings.shape == (0, 64)


def test_a_filter_of_the_source_holds_where_a_call_gives_none(
    make_store, documents, query, first_half
):
    store = make_store(documents)
    source = VectorStoreSource(store, {"filter": first_half(store)})
    assert len(source.fetch(query, 12)) == 6


def test_options_reach_the_store(make_qdrant, documents, query):
    source = VectorStoreSource(make_qdrant(documents), {"score_threshold": 0.5})
    pool = source.fetch(query, 12)
    assert 0 < len(pool) < 12
    assert pool.similarities.min() >= 0.5


@pytest.mark.parametrize("name", ["k", "fetch_k", "lambda_mult"])
def test_options_that_mean_something_else_are_refused(make_text_only, documents, name):
    with pytest.raises(InvalidInputError, match=f"must not hold \\['{name}'\\]"):
        VectorStoreSource(make_text_only(documents), {name: 3})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a question", 3), "`query` must be a sift_core.Query, got str"),
        ((None, 0), "`n_candidates` must be an integer >= 1, got 0"),
        ((None, 2.0), r"`n_candidates` must be an integer >= 1, got 2\.0"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(make_in_memory, documents, query, arguments, message):
    asked, n_candidates = arguments
    with pytest.raises(InvalidInputError, match=message):
        VectorStoreSource(make_in_memory(documents)).fetch(asked or query, n_candidates)


def test_what_is_no_store_is_refused():
    with pytest.raises(InvalidInputError, match="must be a langchain_core VectorStore, got dict"):
        VectorStoreSource({})


def n_versions(numbers):
    return sum(number < 3 for number in numbers)  # documents 0, 1 and 2 differ in case alone


def test_oversampling_takes_the_source(make_vector_store, documents, query):
    # The three nearest are one fact in three versions, so more are fetched.
    source = VectorStoreSource(make_vector_store(documents))
    pools = source.fetch(query, 3), OversamplingSource(source, n_select=3).fetch(query, 3)
    numbers = [[row["document"].metadata["number"] for row in pool.metadata] for pool in pools]
    assert [n_versions(each) for each in numbers] == [3, 1]


async def test_the_retriever_oversamples_where_asked_to(make_vector_store, documents, question):
    store = make_vector_store(documents)
    plain = SIFTRetriever(vectorstore=store, k=3, fetch_k=3).invoke(question)
    oversampling = SIFTRetriever(vectorstore=store, k=3, fetch_k=3, max_fetch_k=12)
    found = oversampling.invoke(question)
    assert n_versions(each.metadata["number"] for each in plain) == 3
    assert n_versions(each.metadata["number"] for each in found) == 1
    assert await oversampling.ainvoke(question) == found
    assert oversampling.invoke(question, max_fetch_k=None) == plain


def test_oversampling_is_refused_where_texts_are_embedded_again(make_text_only, documents):
    with pytest.raises(ValueError, match="`max_fetch_k` is for stores that give their vectors"):
        SIFTRetriever(vectorstore=make_text_only(documents), max_fetch_k=400)


@pytest.mark.parametrize("kernel", ["auto", "rbf"])
def test_fused_scores_decide_with_kernel_auto_alone(hybrid, query, kernel):
    pool = VectorStoreSource(hybrid).fetch(query, 12)
    cosine_alone = ContextSelector().select(query.embedding, pool.embeddings, 6).positions
    fused = ContextSelector().select(query.embedding, pool.embeddings, 6, relevance=pool.relevance)
    rbf = selector_from_settings(kernel="rbf").select(query.embedding, pool.embeddings, 6)
    assert cosine_alone.tolist() != fused.positions.tolist()
    expected = {"auto": fused, "rbf": rbf}[kernel].positions
    found = SIFTRetriever(vectorstore=hybrid, k=6, kernel=kernel).invoke(query.text)
    assert [each.id for each in found] == [pool.document_ids[i] for i in expected]


@pytest.fixture
async def async_client(make_qdrant, documents):
    """An asynchronous client with the points of `make_qdrant(documents)`."""
    store = make_qdrant(documents, collection_name="copied")
    points, _ = store.client.scroll("copied", limit=100, with_vectors=True)
    client = AsyncQdrantClient(":memory:")
    size = models.VectorParams(size=64, distance=models.Distance.COSINE)
    await client.create_collection("docs", vectors_config=size)
    await client.upsert(
        "docs", [models.PointStruct(id=p.id, vector=p.vector, payload=p.payload) for p in points]
    )
    yield client
    await client.close()


async def test_an_async_client_is_used_instead_of_a_thread(
    make_qdrant, documents, question, async_client
):
    store = make_qdrant(documents)
    expected = SIFTRetriever(vectorstore=store, k=4).invoke(question)
    store.client.close()  # whoever used it would fail
    retriever = SIFTRetriever(vectorstore=store, k=4, async_client=async_client)
    assert await retriever.ainvoke(question) == expected


async def test_a_failing_async_client_is_a_source_error(
    make_qdrant, documents, question, async_client
):
    retriever = SIFTRetriever(vectorstore=make_qdrant(documents), async_client=async_client)
    await async_client.delete_collection("docs")
    with pytest.raises(CandidateSourceError, match="collection 'docs'"):
        await retriever.ainvoke(question)


async def test_the_callers_context_reaches_the_thread(make_in_memory, documents, query):
    tenant = contextvars.ContextVar("tenant", default="nobody")
    seen = set()

    def keep(document: Document) -> bool:
        seen.add(tenant.get())
        return True

    tenant.set("caller")
    await SIFTRetriever(vectorstore=make_in_memory(documents)).ainvoke(query.text, filter=keep)
    assert seen == {"caller"}
