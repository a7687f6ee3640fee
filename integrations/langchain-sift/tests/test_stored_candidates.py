import pytest

from langchain_sift import SIFTRetriever
from sift_core import CandidateSourceError, InvalidInputError


def test_the_in_memory_store_refuses_options(make_in_memory, documents, question):
    retriever = SIFTRetriever(vectorstore=make_in_memory(documents))
    with pytest.raises(InvalidInputError, match=r"InMemoryVectorStore .* \['score_threshold'\]"):
        retriever.invoke(question, score_threshold=0.5)


def test_another_dimension_in_memory_is_a_source_error(
    make_in_memory, documents, question, embeddings
):
    retriever = SIFTRetriever(vectorstore=make_in_memory(documents))
    embeddings.embed_query = lambda text: [1.0, 2.0]
    with pytest.raises(CandidateSourceError, match="embedded by one model"):
        retriever.invoke(question)


@pytest.mark.filterwarnings("ignore:NaN found in input arrays:RuntimeWarning")  # by the store
def test_a_nan_in_a_stored_vector_is_invalid_input(make_in_memory, documents, question):
    store = make_in_memory(documents)
    store.store[documents[0].id]["vector"][3] = float("nan")
    with pytest.raises(InvalidInputError, match="must be finite"):
        SIFTRetriever(vectorstore=store).invoke(question)


def test_a_zero_vector_is_invalid_input(make_in_memory, documents, question):
    store = make_in_memory(documents)
    store.store[documents[0].id]["vector"] = [0.0] * 64
    with pytest.raises(InvalidInputError, match="must not be all zero"):
        SIFTRetriever(vectorstore=store).invoke(question)
