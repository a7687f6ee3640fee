import logging

import pytest
from langchain_qdrant import RetrievalMode

from langchain_sift import SIFTRetriever
from sift_core import CandidateSourceError


def test_an_unknown_store_has_its_texts_embedded_once_with_a_warning(
    make_text_only, documents, question, embeddings, caplog
):
    retriever = SIFTRetriever(vectorstore=make_text_only(documents), k=3, fetch_k=7)
    embeddings.document_batches = []
    retriever.invoke(question)
    assert embeddings.document_batches == [7]
    (record,) = caplog.records
    assert (record.levelno, record.name) == (
        logging.WARNING,
        "langchain_sift.embedded_candidates",
    )
    assert "TextOnlyStore" in record.message
    assert "7 candidates" in record.message


async def test_nothing_is_embedded_or_logged_where_nothing_was_found(
    make_text_only, question, embeddings, caplog
):
    retriever = SIFTRetriever(vectorstore=make_text_only([]))
    embeddings.document_batches = []
    assert retriever.invoke(question) == await retriever.ainvoke(question) == []
    assert embeddings.document_batches == []
    assert caplog.records == []


async def test_an_unknown_store_is_searched_by_its_async_method(
    make_text_only, documents, question, embeddings, caplog
):
    store = make_text_only(documents)
    called = []

    async def search(query, k, **options):
        called.append((query, k, options))
        return store.similarity_search(query, k, **options)

    store.asimilarity_search = search
    embeddings.document_batches = []
    await SIFTRetriever(vectorstore=store, k=3, fetch_k=7).ainvoke(question)
    assert called == [(question, 7, {})]
    assert embeddings.document_batches == [7]
    assert "7 candidates" in caplog.text


def test_the_choice_equals_that_over_a_store_with_vectors(
    make_text_only, make_in_memory, documents, question
):
    unknown = SIFTRetriever(vectorstore=make_text_only(documents), k=5)
    known = SIFTRetriever(vectorstore=make_in_memory(documents), k=5)
    expected = known.invoke(question)
    for document in expected:
        del document.metadata["sift"]["score"]  # the unknown store has no search that gives it
    assert unknown.invoke(question) == expected


async def test_scores_come_along_where_the_store_has_a_search_that_gives_them(
    make_qdrant, documents, question, sparse_embeddings
):
    store = make_qdrant(
        documents, retrieval_mode=RetrievalMode.SPARSE, sparse_embedding=sparse_embeddings
    )
    scores = {
        document.metadata["_id"]: score
        for document, score in store.similarity_search_with_score(question, k=12)
    }
    retriever = SIFTRetriever(vectorstore=store, k=3)
    found = retriever.invoke(question)
    assert [each.metadata["sift"]["score"] for each in found] == [
        scores[each.metadata["_id"]] for each in found
    ]
    assert await retriever.ainvoke(question) == found


def test_a_sparse_stores_documents_have_their_ids(
    make_qdrant, documents, question, sparse_embeddings
):
    store = make_qdrant(
        documents, retrieval_mode=RetrievalMode.SPARSE, sparse_embedding=sparse_embeddings
    )
    for found in SIFTRetriever(vectorstore=store, k=3).invoke(question):
        assert found.id == documents[found.metadata["number"]].id


def test_a_known_store_causes_no_warning(make_vector_store, documents, question, caplog):
    SIFTRetriever(vectorstore=make_vector_store(documents)).invoke(question)
    assert caplog.records == []


def test_a_failing_unknown_store_is_a_source_error(make_text_only, documents, question):
    store = make_text_only(documents)
    retriever = SIFTRetriever(vectorstore=store, search_kwargs={"no_such_option": 1})
    store.collection_name = "papers"
    with pytest.raises(
        CandidateSourceError, match=r"TextOnlyStore .* collection 'papers'"
    ) as raised:
        retriever.invoke(question)
    assert isinstance(raised.value.__cause__, TypeError)
