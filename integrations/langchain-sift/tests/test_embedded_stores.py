"""Stores that keep their vectors to themselves: what they find is embedded again."""

import logging

import pytest
from langchain_qdrant import RetrievalMode

from langchain_sift import SIFTCompressor, SIFTRetriever
from langchain_sift.sources import reader_of
from sift_core import CandidateSourceError


@pytest.fixture
def sparse_store(make_qdrant, documents, sparse_embeddings):
    return make_qdrant(
        documents, retrieval_mode=RetrievalMode.SPARSE, sparse_embedding=sparse_embeddings
    )


@pytest.mark.parametrize("is_awaited", [False, True])
async def test_texts_are_embedded_once_with_a_warning_and_awaited_where_the_store_is(
    make_text_only, documents, question, embeddings, caplog, is_awaited
):
    store = make_text_only(documents)
    called = []

    async def search(query, k, **options):
        called.append((query, k, options))
        return store.similarity_search(query, k, **options)

    store.asimilarity_search = search
    embeddings.document_batches = []
    retriever = SIFTRetriever(vectorstore=store, k=3, fetch_k=7)
    _ = await retriever.ainvoke(question) if is_awaited else retriever.invoke(question)
    assert called == [(question, 7, {})] * is_awaited
    assert embeddings.document_batches == [7]
    (record,) = caplog.records
    assert (record.levelno, record.name) == (logging.WARNING, "langchain_sift.documents")
    assert "7 of 7 documents" in record.message


async def test_scores_come_along_where_the_store_has_a_search_that_gives_them(
    sparse_store, question
):
    scores = {
        document.metadata["_id"]: score
        for document, score in sparse_store.similarity_search_with_score(question, k=12)
    }
    retriever = SIFTRetriever(vectorstore=sparse_store, k=3)
    found = retriever.invoke(question)
    assert [each.metadata["sift"]["score"] for each in found] == [scores[each.id] for each in found]
    assert await retriever.ainvoke(question) == found


def test_a_sparse_stores_documents_have_their_ids(sparse_store, documents, question):
    for found in SIFTRetriever(vectorstore=sparse_store, k=3).invoke(question):
        assert found.id == documents[found.metadata["number"]].id


def test_there_are_no_vectors_by_id(make_text_only, sparse_store, documents):
    for store in (make_text_only(documents), sparse_store):
        assert reader_of(store).vectors(documents[:2]) == [None, None]


def test_a_failing_store_is_a_source_error(make_text_only, documents, question):
    store = make_text_only(documents)
    retriever = SIFTRetriever(vectorstore=store, search_kwargs={"no_such_option": 1})
    store.collection_name = "papers"
    match = r"TextOnlyStore .* collection 'papers'"
    with pytest.raises(CandidateSourceError, match=match) as raised:
        retriever.invoke(question)
    assert isinstance(raised.value.__cause__, TypeError)


@pytest.fixture
def looked_up(documents, embeddings):
    """A function from ids to vectors that knows all documents but the last, and notes them."""
    known = {each.id: embeddings.embed_query(each.page_content) for each in documents[:-1]}
    asked = []

    def vectors(ids):
        asked.append(ids)
        return {key: known[key] for key in reversed(ids) if key in known}

    vectors.asked = asked
    return vectors


async def test_vectors_that_are_looked_up_are_not_embedded(
    make_text_only, make_in_memory, documents, question, embeddings, looked_up, caplog
):
    expected = SIFTRetriever(vectorstore=make_in_memory(documents), k=5).invoke(question)
    store = make_text_only(documents)
    retriever = SIFTRetriever(vectorstore=store, k=5, vectors=looked_up)
    with_store = SIFTCompressor(vectorstore=store, top_n=5, vectors=looked_up)
    without = SIFTCompressor(embeddings=embeddings, top_n=5, vectors=looked_up)
    nearest = store.similarity_search(question, k=12)
    embeddings.document_batches = []
    found = [retriever.invoke(question), await retriever.ainvoke(question)]
    for compressor in (with_store, without):
        found.append(compressor.compress_documents(nearest, question))
        found.append(await compressor.acompress_documents(nearest, question))
    assert [[each.id for each in one] for one in found] == [[each.id for each in expected]] * 6
    assert embeddings.document_batches == [1]  # the one that is not known, once
    assert len(looked_up.asked) == 6
    assert "no stored vector for 1 of 12 documents" in caplog.text


def test_a_look_up_is_refused_where_the_store_gives_its_vectors(
    make_in_memory, documents, looked_up
):
    with pytest.raises(ValueError, match="`vectors` is for stores that do not give"):
        SIFTRetriever(vectorstore=make_in_memory(documents), vectors=looked_up)
