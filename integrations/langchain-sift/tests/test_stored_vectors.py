import uuid

import faiss
import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_qdrant import RetrievalMode

from langchain_sift.stored_vectors import stored_vectors
from sift_core import CandidateSourceError


def test_vectors_are_those_of_the_store(
    make_vector_store, documents, question, stored_vectors_by_id
):
    store = make_vector_store(documents)
    expected = stored_vectors_by_id(store)
    found = store.similarity_search(question, k=12)  # Qdrant leaves `id` out
    vectors = stored_vectors(store, found)
    ids = [each.id or each.metadata["_id"] for each in found]
    np.testing.assert_allclose(vectors, [expected[each] for each in ids], atol=1e-6)


def test_what_is_not_in_the_store_has_none(make_vector_store, documents):
    store = make_vector_store(documents[:2])
    others = [Document(page_content="a"), Document(page_content="a", id="b"), documents[5]]
    vectors = stored_vectors(store, [documents[0], *others])
    assert [vector is None for vector in vectors] == [False, True, True, True]


def test_a_changed_text_has_none(make_vector_store, documents):
    # A splitter keeps the metadata, so that a piece has its document's id.
    store = make_vector_store(documents)
    whole = store.similarity_search("plants", k=1)[0]
    piece = Document(id=whole.id, page_content=whole.page_content[:6], metadata=whole.metadata)
    kept, changed = stored_vectors(store, [whole, piece])
    assert kept is not None
    assert changed is None


def test_a_document_that_occurs_twice_has_its_vector_twice(make_vector_store, documents):
    store = make_vector_store(documents)
    first, second = stored_vectors(store, [documents[3], documents[3]])
    np.testing.assert_array_equal(first, second)


def test_a_store_that_keeps_its_vectors_gives_none(make_text_only, documents):
    assert stored_vectors(make_text_only(documents), documents[:2]) == [None, None]


def test_no_documents_have_no_vectors(make_store, documents):
    assert stored_vectors(make_store(documents), []) == []


@pytest.mark.parametrize("vector_name", ["", "text"])
def test_a_hybrid_collection_gives_dense_vectors(
    make_qdrant, documents, sparse_embeddings, vector_name
):
    store = make_qdrant(
        documents,
        retrieval_mode=RetrievalMode.HYBRID,
        sparse_embedding=sparse_embeddings,
        vector_name=vector_name,
    )
    plain = stored_vectors(make_qdrant(documents), documents)
    np.testing.assert_array_equal(stored_vectors(store, documents), plain)


def test_a_sparse_collection_gives_none(make_qdrant, documents, sparse_embeddings):
    store = make_qdrant(
        documents, retrieval_mode=RetrievalMode.SPARSE, sparse_embedding=sparse_embeddings
    )
    assert stored_vectors(store, documents[:1]) == [None]


@pytest.mark.parametrize("spelled", [7, "7"], ids=repr)
def test_an_integer_id_of_qdrant_may_be_spelled_as_text(make_qdrant, documents, spelled):
    documents[0].id = 7
    store = make_qdrant(documents[:1])
    asked = Document(page_content=documents[0].page_content, metadata={"_id": spelled})
    assert stored_vectors(store, [asked])[0] is not None


def test_a_uuid_of_qdrant_may_be_spelled_without_hyphens(make_qdrant, documents):
    store = make_qdrant(documents)
    documents[0].id = uuid.UUID(documents[0].id).hex
    assert stored_vectors(store, documents[:1])[0] is not None


@pytest.mark.parametrize("other", ["64f0c2a9e13b", -1, 2**64, True, 1.5, ["x"]], ids=repr)
def test_ids_of_other_stores_are_not_sent_to_qdrant(make_qdrant, documents, other):
    store = make_qdrant(documents)
    store.client.close()  # a request would fail
    foreign = Document(page_content="a", metadata={"_id": other})
    assert stored_vectors(store, [foreign]) == [None]


def test_another_collections_document_has_none(make_qdrant, documents):
    store = make_qdrant(documents)
    documents[0].metadata["_collection_name"] = "another"
    assert stored_vectors(store, documents[:1]) == [None]


def test_qdrant_is_asked_once(make_qdrant, documents):
    store = make_qdrant(documents)
    retrieve, asked = store.client.retrieve, []
    store.client.retrieve = lambda *arguments, **options: (
        asked.append(len(options["ids"])) or retrieve(*arguments, **options)
    )
    stored_vectors(store, [*documents, documents[0]])
    assert asked == [12]


def test_a_closed_client_is_a_source_error(make_qdrant, documents):
    store = make_qdrant(documents)
    store.client.close()
    with pytest.raises(CandidateSourceError, match=r"12 documents by id.*Leave `vectorstore` out"):
        stored_vectors(store, documents)


def test_an_index_that_keeps_its_vectors_is_a_source_error(make_faiss, documents):
    store = make_faiss(documents)
    rows = store.index.reconstruct_n(0, 12)
    store.index = faiss.IndexIDMap(faiss.IndexFlatL2(64))
    store.index.add_with_ids(rows, np.arange(12))
    with pytest.raises(CandidateSourceError, match="does it give its vectors back"):
        stored_vectors(store, documents)


def test_rows_are_found_after_a_deletion(make_faiss, documents):
    store = make_faiss(documents)
    expected = stored_vectors(store, documents)
    store.delete([documents[0].id])
    gone, *rest = stored_vectors(store, documents)
    assert gone is None
    np.testing.assert_array_equal(rest, expected[1:])
