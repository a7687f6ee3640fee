import asyncio
import threading

import numpy as np
import pytest
from langchain_qdrant import QdrantVectorStore, RetrievalMode
from qdrant_client import QdrantClient, models

from langchain_sift import SIFTRetriever
from sift_core import CandidateSourceError, ContextSelector, InvalidInputError


def test_a_named_vector_is_found(make_qdrant, documents, question):
    unnamed = SIFTRetriever(vectorstore=make_qdrant(documents)).invoke(question)
    named = make_qdrant(documents, vector_name="text")
    assert SIFTRetriever(vectorstore=named).invoke(question) == unnamed


def test_the_stores_own_metadata_is_there(make_qdrant, documents, question):
    for found in SIFTRetriever(vectorstore=make_qdrant(documents)).invoke(question):
        assert found.metadata["_id"] == found.id
        assert found.metadata["_collection_name"] == "docs"


def test_integer_ids_become_strings_of_the_document(make_qdrant, documents, question):
    for number, document in enumerate(documents):
        document.id = number
    found = SIFTRetriever(vectorstore=make_qdrant(documents), k=1).invoke(question)[0]
    assert found.id == str(found.metadata["_id"])
    assert isinstance(found.metadata["_id"], int)


@pytest.mark.parametrize("distance", list(models.Distance))
def test_every_distance_gives_cosines(make_qdrant, documents, question, embeddings, distance):
    store = make_qdrant(documents, distance=distance)
    query = embeddings.embed_query(question)
    for found in SIFTRetriever(vectorstore=store).invoke(question):
        cosine = np.dot(query, embeddings.embed_query(found.page_content))
        assert found.metadata["sift"]["similarity"] == pytest.approx(cosine, abs=1e-6)


@pytest.mark.parametrize("vector_name", ["", "text"])
def test_hybrid_candidates_bring_their_dense_vectors(
    make_qdrant, documents, question, sparse_embeddings, embeddings, vector_name
):
    store = make_qdrant(
        documents,
        retrieval_mode=RetrievalMode.HYBRID,
        sparse_embedding=sparse_embeddings,
        vector_name=vector_name,
    )
    hits = store.similarity_search_with_score(question, k=6)
    fused = [document for document, _ in hits]
    candidates = np.array([embeddings.embed_query(each.page_content) for each in fused])
    expected = ContextSelector().select(
        np.array(embeddings.embed_query(question)),
        candidates,
        3,
        relevance=np.array([score for _, score in hits]),
    )
    embeddings.document_batches = []

    found = SIFTRetriever(vectorstore=store, k=3, fetch_k=6).invoke(question)

    texts = [each.page_content for each in found]
    assert texts == [fused[i].page_content for i in expected.positions]
    assert embeddings.document_batches == []


def test_hybrid_search_takes_another_fusion(make_qdrant, documents, question, sparse_embeddings):
    fusion = models.FusionQuery(fusion=models.Fusion.DBSF)
    options = {"retrieval_mode": RetrievalMode.HYBRID, "sparse_embedding": sparse_embeddings}
    store = make_qdrant(documents, **options)
    retriever = SIFTRetriever(
        vectorstore=store, search_kwargs={"hybrid_fusion": fusion}, fetch_k=10
    )
    expected = store.similarity_search(question, k=10, hybrid_fusion=fusion)
    found = retriever.invoke(question)
    assert {each.id for each in found} == {each.metadata["_id"] for each in expected}


def test_a_sparse_store_has_its_texts_embedded(
    make_qdrant, documents, question, sparse_embeddings, caplog
):
    store = make_qdrant(
        documents, retrieval_mode=RetrievalMode.SPARSE, sparse_embedding=sparse_embeddings
    )
    assert len(SIFTRetriever(vectorstore=store, k=2).invoke(question)) == 2
    assert "does not give its vectors back" in caplog.text


def test_a_point_without_its_dense_vector_is_an_error(
    make_qdrant, documents, question, sparse_embeddings
):
    options = {"retrieval_mode": RetrievalMode.HYBRID, "sparse_embedding": sparse_embeddings}
    store = make_qdrant(documents, **options)
    sparse = models.SparseVector(**sparse_embeddings.embed_query(question).model_dump())
    point = models.PointStruct(id=7, vector={store.sparse_vector_name: sparse}, payload={})
    store.client.upsert("docs", [point])
    with pytest.raises(CandidateSourceError, match=r"point 7 .* has no single dense vector"):
        SIFTRetriever(vectorstore=store).invoke(question)


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


def test_a_deleted_collection_is_a_source_error(make_qdrant, documents, question):
    store = make_qdrant(documents)
    store.client.delete_collection("docs")
    with pytest.raises(
        CandidateSourceError, match=r"QdrantVectorStore .* collection 'docs'"
    ) as raised:
        SIFTRetriever(vectorstore=store).invoke(question)
    assert isinstance(raised.value.__cause__, ValueError)
    assert "is the server up" in str(raised.value)


async def test_a_deleted_collection_is_a_source_error_asynchronously(
    make_qdrant, documents, question
):
    store = make_qdrant(documents)
    store.client.delete_collection("docs")
    with pytest.raises(CandidateSourceError, match=r"QdrantVectorStore .* collection 'docs'"):
        await SIFTRetriever(vectorstore=store).ainvoke(question)


def test_a_closed_client_is_a_source_error(make_qdrant, documents, question):
    store = make_qdrant(documents)
    store.client.close()
    with pytest.raises(CandidateSourceError, match="closed"):
        SIFTRetriever(vectorstore=store).invoke(question)


def test_an_unreachable_server_is_a_source_error(embeddings, question):
    client = QdrantClient(url="http://127.0.0.1:1", timeout=1, check_compatibility=False)
    store = QdrantVectorStore(
        client, "docs", embeddings, validate_embeddings=False, validate_collection_config=False
    )
    with pytest.raises(CandidateSourceError, match=r"collection 'docs'.*is the server up"):
        SIFTRetriever(vectorstore=store).invoke(question)


def test_another_dimension_is_a_source_error_that_names_it(
    make_qdrant, documents, question, embeddings
):
    retriever = SIFTRetriever(vectorstore=make_qdrant(documents))
    embeddings.embed_query = lambda text: [1.0, 2.0]
    with pytest.raises(CandidateSourceError, match="query of 2 numbers"):
        retriever.invoke(question)


def test_a_failure_of_the_model_is_not_blamed_on_the_store(
    make_qdrant, documents, question, embeddings
):
    def fail(text):
        raise ConnectionError("the model is away")

    embeddings.embed_query = fail
    with pytest.raises(ConnectionError, match="the model is away"):
        SIFTRetriever(vectorstore=make_qdrant(documents)).invoke(question)


async def test_a_collection_in_a_folder_is_searched_from_a_thread(
    make_qdrant, documents, question, tmp_path
):
    store = make_qdrant(documents, location=None, path=str(tmp_path))
    retriever = SIFTRetriever(vectorstore=store, k=3)
    assert await retriever.ainvoke(question) == retriever.invoke(question)
    store.client.close()


async def test_a_slow_server_does_not_block_the_event_loop(embeddings, documents, question):
    # Each request waits for the others: one after another they would wait in vain.
    together = threading.Barrier(3)

    class SlowClient(QdrantClient):
        def query_points(self, *arguments, **options):
            together.wait(timeout=10)
            return super().query_points(*arguments, **options)

    client = SlowClient(":memory:")
    config = models.VectorParams(size=64, distance=models.Distance.COSINE)
    client.create_collection("docs", vectors_config=config)
    store = QdrantVectorStore(client, "docs", embeddings)
    store.add_documents(documents, ids=[document.id for document in documents])
    retriever = SIFTRetriever(vectorstore=store, k=3)
    first, *others = await asyncio.gather(*(retriever.ainvoke(question) for _ in range(3)))
    assert others == [first, first]
    assert len(first) == 3
