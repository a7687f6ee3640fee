"""Each known trap of LangChain, and the test that would fall into it.

An invoke's `k` is dropped unless the retriever takes it:
    test_retriever::test_k_may_be_given_for_one_call
    test_standard::TestOverQdrant
`ContextualCompressionRetriever` lives in langchain_classic:
    test_compressor::test_it_works_in_a_contextual_compression_retriever
langchain-community warns on import, so its FAISS is not imported here:
    test_surface::test_importing_loads_no_store_and_no_torch
Documents carry no embedding, and `with_vectors=True` is accepted and discarded:
    test_retriever::test_documents_are_not_embedded_again
    test_retriever::test_the_choice_equals_select_on_the_stored_vectors
langchain-qdrant leaves `Document.id` out and writes `metadata["_id"]`:
    test_retriever::test_id_content_and_metadata_are_kept
    test_embedded_stores::test_a_sparse_stores_documents_have_their_ids
    test_stores::test_vectors_by_id_are_those_of_the_store
A splitter's pieces keep that id, whose vector is another text's:
    test_stores::test_a_changed_text_has_no_vector
    test_compressor::test_it_works_after_a_splitter
langchain-qdrant has no asynchronous client:
    test_qdrant_store::test_a_slow_server_does_not_block_the_event_loop
    test_qdrant_store::test_an_async_client_is_used_instead_of_a_thread
An index that keeps its vectors, and rows without document:
    test_faiss_store::test_an_index_with_ids_gives_its_vectors
    test_faiss_store::test_a_row_without_a_document_is_a_source_error
FAISS' filtered search finds too few, and gives other documents' scores with MMR:
    test_faiss_store::test_a_filter_widens_the_search_until_enough_documents_pass
    test_faiss_store::test_a_filtered_score_is_the_documents_own
Returned documents alias the docstore:
    test_retriever::test_the_store_is_not_modified
`lambda_mult` means opposite things in langchain-qdrant and FAISS:
    test_traps::test_a_lambda_mult_is_refused
Fused scores are ranks, and raw cosines must not override them or a reranker's scores:
    test_qdrant_store::test_fused_scores_decide_by_default_alone
    test_compressor::test_scores_of_an_earlier_reranker_say_what_is_relevant
Scores are lost:
    test_stores::test_the_pool_has_the_stores_own_scores
    test_compressor::test_the_stores_score_that_the_retriever_kept_is_kept
"""

import re
from pathlib import Path

import pytest

from langchain_sift import SIFTRetriever
from sift_core import InvalidInputError


@pytest.mark.parametrize("place", re.findall(r"^    (\S+)$", __doc__, re.MULTILINE))
def test_the_list_names_tests_that_exist(place):
    module, name = place.split("::")
    source = (Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8")
    assert re.search(rf"^(class|(async )?def) {name}\b", source, re.MULTILINE)


async def test_a_lambda_mult_is_refused(make_store, documents, question):
    store = make_store(documents)
    with pytest.raises(ValueError, match="SIFT has no `lambda_mult`"):
        SIFTRetriever(vectorstore=store, search_kwargs={"lambda_mult": 0.5})
    retriever = SIFTRetriever(vectorstore=store)
    with pytest.raises(InvalidInputError, match="SIFT has no `lambda_mult`"):
        retriever.invoke(question, lambda_mult=0.5)
    with pytest.raises(InvalidInputError, match="SIFT has no `lambda_mult`"):
        await retriever.ainvoke(question, lambda_mult=0.5)
