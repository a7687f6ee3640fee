import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_qdrant import RetrievalMode
from qdrant_client import AsyncQdrantClient, models

from langchain_sift import SIFTRetriever, VectorStoreSource
from langchain_sift.sources import reader_of
from sift_core import CandidateSourceError, InvalidInputError, Query
from sift_core.errors import MissingKeyWarning
from sift_core.sources.qdrant import missing_keys


@pytest.fixture
def make_hybrid(make_qdrant, documents, sparse_embeddings):
    def make(**options):
        return make_qdrant(
            documents,
            retrieval_mode=RetrievalMode.HYBRID,
            sparse_embedding=sparse_embeddings,
            **options,
        )

    return make


@pytest.fixture
def query(embeddings, question):
    return Query(text=question, embedding=np.array(embeddings.embed_query(question)))


def test_integer_ids_become_strings_of_the_document(make_qdrant, documents, question):
    for number, document in enumerate(documents):
        document.id = number
    (found,) = SIFTRetriever(vectorstore=make_qdrant(documents), k=1).invoke(question)
    assert found.id == str(found.metadata["_id"])
    assert isinstance(found.metadata["_id"], int)
    assert found.metadata["_collection_name"] == "docs"


@pytest.mark.parametrize("vector_name", ["", "text"])
def test_a_hybrid_collection_gives_its_dense_vectors(
    make_hybrid, documents, query, embeddings, vector_name
):
    store = make_hybrid(vector_name=vector_name)
    embeddings.document_batches = []
    pool = VectorStoreSource(store).fetch(query, 6)
    by_id = reader_of(store).vectors(documents)
    assert embeddings.document_batches == []
    for texts, vectors in (
        (pool.texts, pool.embeddings),
        ([each.page_content for each in documents], by_id),
    ):
        expected = [embeddings.embed_query(text) for text in texts]
        np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_fused_scores_are_the_relevance(make_hybrid, query):
    hybrid = make_hybrid()
    expected = {
        document.metadata["_id"]: score
        for document, score in hybrid.similarity_search_with_score(query.text, k=12)
    }
    pool = VectorStoreSource(hybrid).fetch(query, 12)
    assert dict(zip(pool.document_ids, pool.relevance, strict=True)) == pytest.approx(expected)


def test_hybrid_search_takes_another_fusion(make_hybrid, question):
    store = make_hybrid()
    fusion = models.FusionQuery(fusion=models.Fusion.DBSF)
    retriever = SIFTRetriever(
        vectorstore=store, search_kwargs={"hybrid_fusion": fusion}, fetch_k=10
    )
    expected = store.similarity_search(question, k=10, hybrid_fusion=fusion)
    found = retriever.invoke(question)
    assert {each.id for each in found} == {each.metadata["_id"] for each in expected}


def test_search_options_reach_qdrant(make_qdrant, documents, question):
    retriever = SIFTRetriever(
        vectorstore=make_qdrant(documents), search_kwargs={"score_threshold": 0.5}
    )
    some = retriever.invoke(question)
    assert 0 < len(some) < len(retriever.invoke(question, score_threshold=-1.0))
    assert all(each.metadata["sift"]["similarity"] >= 0.5 for each in some)


def test_an_option_that_the_retriever_sets_itself_is_refused(make_qdrant, documents, question):
    retriever = SIFTRetriever(vectorstore=make_qdrant(documents))
    with pytest.raises(InvalidInputError, match="'limit', 'with_vectors'"):
        retriever.invoke(question, limit=3, with_vectors=False)


def test_a_filter_of_another_kind_is_refused_by_name(make_qdrant, documents, question):
    retriever = SIFTRetriever(vectorstore=make_qdrant(documents), filter={"topic": "boats"})
    with pytest.raises(InvalidInputError, match=r"`filter` must be a .*got dict"):
        retriever.invoke(question)


async def test_a_deleted_collection_is_a_source_error(make_qdrant, documents, question):
    store = make_qdrant(documents)
    store.client.delete_collection("docs")
    retriever = SIFTRetriever(vectorstore=store)
    match = r"QdrantVectorStore .* collection 'docs'.*is it up"
    with pytest.raises(CandidateSourceError, match=match) as raised:
        retriever.invoke(question)
    assert isinstance(raised.value.__cause__, ValueError)
    with pytest.raises(CandidateSourceError, match=match):
        await retriever.ainvoke(question)


def test_a_failure_of_the_model_is_not_blamed_on_the_store(
    make_qdrant, documents, question, embeddings
):
    def fail(text):
        raise ConnectionError("the model is away")

    embeddings.embed_query = fail
    with pytest.raises(ConnectionError, match="the model is away"):
        SIFTRetriever(vectorstore=make_qdrant(documents)).invoke(question)


async def test_a_slow_server_does_not_block_the_event_loop(
    make_qdrant, documents, query, off_the_loop
):
    store = make_qdrant(documents)
    off_the_loop(store.client, "query_points")
    assert len(await VectorStoreSource(store).afetch(query, 3)) == 3


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


def test_ids_of_other_stores_are_not_sent(make_qdrant, documents):
    store = make_qdrant(documents)
    store.client.close()  # a request would fail
    other = Document(page_content="a", metadata={"_id": "64f0c2a9e13b"})
    elsewhere = documents[0].model_copy(update={"metadata": {"_collection_name": "another"}})
    assert reader_of(store).vectors([other, elsewhere]) == [None, None]


async def test_a_filter_without_the_name_of_the_metadata_says_so(
    make_qdrant, documents, question, monkeypatch
):
    monkeypatch.setattr(missing_keys, "_seen", set())
    retriever = SIFTRetriever(vectorstore=make_qdrant(documents), k=1)
    first, second = (  # each key is named once
        models.Filter(must=[models.FieldCondition(key=key, match=models.MatchValue(value=1))])
        for key in ("first", "second")
    )
    with pytest.warns(MissingKeyWarning, match=r"no point .* the key \['first'\].*'metadata\."):
        assert retriever.invoke(question, filter=first) == []
    with pytest.warns(MissingKeyWarning, match=r"no point .* the key \['second'\].*'metadata\."):
        assert await retriever.ainvoke(question, filter=second) == []


def test_payloads_of_another_tool_are_advised_of(make_qdrant, documents, question):
    store = make_qdrant(documents)
    store.content_payload_key = "metadata"  # not a text
    with pytest.raises(CandidateSourceError, match="did another tool fill it"):
        SIFTRetriever(vectorstore=store, k=1).invoke(question)
