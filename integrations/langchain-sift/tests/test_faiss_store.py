import faiss
import numpy as np
import pytest

from langchain_sift import SIFTRetriever, VectorStoreSource
from langchain_sift.sources import reader_of
from sift_core import CandidateSourceError, InvalidInputError, Query


def numbers(documents):
    return [document.metadata["number"] for document in documents]


def with_index(faiss_class, store, index):
    """Return the same store over another index of the same rows."""
    return faiss_class(store.embeddings, index, store.docstore, store.index_to_docstore_id)


def rows_of(store):
    return store.index.reconstruct_n(0, store.index.ntotal)


def test_rows_that_the_store_normalised_are_compared_with_a_normalised_query(
    make_faiss, documents, question, embeddings
):
    # Against a query this long all float32 distances to unit rows would be equal.
    options = {"k": 4, "fetch_k": 5}
    expected = SIFTRetriever(vectorstore=make_faiss(documents), **options).invoke(question)
    store = make_faiss(documents[::-1], normalize_L2=True)
    embed = embeddings.embed_query
    embeddings.embed_query = lambda text: [1e9 * number for number in embed(text)]
    found = SIFTRetriever(vectorstore=store, **options).invoke(question)
    similarities = [each.metadata["sift"]["similarity"] for each in found]
    expected_similarities = [each.metadata["sift"]["similarity"] for each in expected]
    np.testing.assert_allclose(similarities, expected_similarities, atol=1e-6)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"half": "first"}, [0, 1, 2, 3, 4, 5]),
        ({"number": {"$gte": 9}}, [9, 10, 11]),
        ({"number": [2, 11]}, [2, 11]),
        (lambda metadata: metadata["number"] % 5 == 0, [0, 5, 10]),
    ],
    ids=["equal", "operator", "list", "callable"],
)
def test_filters_mean_what_the_store_means(make_faiss, documents, question, condition, expected):
    retriever = SIFTRetriever(vectorstore=make_faiss(documents), filter=condition)
    assert sorted(numbers(retriever.invoke(question))) == expected


def test_a_filter_widens_the_search_until_enough_documents_pass(make_faiss, documents, question):
    # Number 11 is the least similar: a single search for two rows would not reach it.
    retriever = SIFTRetriever(vectorstore=make_faiss(documents), k=1, fetch_k=2)
    assert numbers(retriever.invoke(question, filter={"number": 11})) == [11]


def test_a_filtered_score_is_the_documents_own(make_faiss, documents, question, embeddings):
    store = make_faiss(documents)
    condition = {"number": {"$gte": 4}}
    nearest = store.similarity_search_with_score(question, k=3, filter=condition, fetch_k=12)
    query = Query(text=question, embedding=np.array(embeddings.embed_query(question)))
    found = VectorStoreSource(store).fetch(query, 3, filter=condition)
    expected = numbers(document for document, _ in nearest)
    assert numbers(found.items) == expected
    np.testing.assert_array_equal(found.embeddings, rows_of(store)[expected])
    assert list(found.scores) == pytest.approx([score for _, score in nearest], abs=1e-5)


def test_an_error_in_the_users_filter_is_the_users_own(make_faiss, documents, question):
    retriever = SIFTRetriever(vectorstore=make_faiss(documents))
    with pytest.raises(KeyError, match="missing"):
        retriever.invoke(question, filter=lambda metadata: metadata["missing"])


def test_search_options_are_refused(make_faiss, documents, question):
    retriever = SIFTRetriever(vectorstore=make_faiss(documents))
    with pytest.raises(InvalidInputError, match="score_threshold"):
        retriever.invoke(question, score_threshold=0.5)


def test_an_index_with_ids_gives_its_vectors(faiss_class, make_faiss, documents, question):
    exact = make_faiss(documents)
    index = faiss.IndexIDMap(faiss.IndexFlatL2(64))
    index.add_with_ids(rows_of(exact), np.arange(12))
    store = with_index(faiss_class, exact, index)
    expected = SIFTRetriever(vectorstore=exact).invoke(question)
    assert SIFTRetriever(vectorstore=store).invoke(question) == expected
    vectors = reader_of(store).vectors(documents)
    np.testing.assert_array_equal(vectors, rows_of(exact))


def test_a_row_without_a_document_is_a_source_error(make_faiss, documents, question):
    store = make_faiss(documents)
    store.docstore.delete([documents[0].id])
    with pytest.raises(CandidateSourceError, match="index and docstore must be built together"):
        SIFTRetriever(vectorstore=store).invoke(question)


def test_deleted_documents_are_not_found(make_faiss, documents, question):
    store = make_faiss(documents)
    store.delete([documents[0].id, documents[5].id])
    expected = rows_of(store)
    found = numbers(SIFTRetriever(vectorstore=store, k=12).invoke(question))
    assert sorted(found) == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
    gone, second, *_ = reader_of(store).vectors(documents)
    assert gone is None
    np.testing.assert_array_equal(second, expected[0])


def test_a_document_of_an_older_store_gets_the_docstores_id(make_faiss, documents, question):
    store = make_faiss(documents[:1])
    store.docstore.search(documents[0].id).id = None
    (found,) = SIFTRetriever(vectorstore=store).invoke(question)
    assert found.id == documents[0].id
    assert store.docstore.search(documents[0].id).id is None
