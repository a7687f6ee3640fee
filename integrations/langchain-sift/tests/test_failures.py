"""What cannot be answered ends in an error of ours, whatever the store, called and awaited."""

import pytest
from qdrant_client import QdrantClient

from langchain_sift import SIFTRetriever
from sift_core import CandidateSourceError, InvalidInputError, SiftError


@pytest.fixture
def retriever(make_store, documents):
    return SIFTRetriever(vectorstore=make_store(documents), k=3)


async def assert_refused(retriever, question, error, match, **options):
    with pytest.raises(error, match=match):
        retriever.invoke(question, **options)
    with pytest.raises(error, match=match):
        await retriever.ainvoke(question, **options)


@pytest.mark.parametrize("question", ["", "  \n"], ids=repr)
async def test_a_blank_question_is_refused(retriever, embeddings, question):
    await assert_refused(retriever, question, InvalidInputError, "not blank")
    assert embeddings.queries == 0


async def test_half_a_surrogate_pair_is_refused(retriever):
    await assert_refused(retriever, "plants \ud83c", InvalidInputError, "UTF-8 cannot hold")


@pytest.mark.parametrize("number", [float("nan"), float("inf")], ids=str)
async def test_an_embedding_that_is_not_finite_is_refused(retriever, embeddings, question, number):
    embeddings.embed_query = lambda text: [number] * 64
    await assert_refused(retriever, question, InvalidInputError, "must be finite")


@pytest.mark.parametrize("dimension", [2, 65])
async def test_a_question_of_another_dimension_is_refused(
    retriever, embeddings, question, dimension
):
    embeddings.embed_query = lambda text: [1.0] * dimension
    match = rf"{dimension} (numbers|dimensions)|embedded by one model|is it reachable"
    await assert_refused(retriever, question, SiftError, match)


async def test_a_question_of_zeros_is_refused(retriever, embeddings, question):
    embeddings.embed_query = lambda text: [0.0] * 64
    await assert_refused(retriever, question, InvalidInputError, "must not be all zero")


@pytest.mark.parametrize("kind", ["qdrant", "faiss", "in_memory"])
@pytest.mark.parametrize("wrong", ["half = first", 3, ["half"]], ids=repr)
async def test_a_filter_of_no_stores_kind_is_refused(request, documents, question, kind, wrong):
    store = request.getfixturevalue(f"make_{kind}")(documents)
    retriever = SIFTRetriever(vectorstore=store)
    match = f"`filter` for {type(store).__name__} must be"
    await assert_refused(retriever, question, InvalidInputError, match, filter=wrong)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [("qdrant", {"half": "first"}), ("qdrant", callable), ("in_memory", {"half": "first"})],
    ids=str,
)
async def test_another_stores_filter_is_refused(request, documents, question, kind, wrong):
    store = request.getfixturevalue(f"make_{kind}")(documents)
    retriever = SIFTRetriever(vectorstore=store)
    await assert_refused(retriever, question, InvalidInputError, "own kind of filter", filter=wrong)


async def test_a_filter_that_an_unknown_store_cannot_use_is_a_source_error(
    make_text_only, documents, question
):
    retriever = SIFTRetriever(vectorstore=make_text_only(documents))
    await assert_refused(retriever, question, CandidateSourceError, "take this filter", filter=3)


async def test_a_store_that_dies_is_a_source_error(embeddings, documents, question):
    class DyingClient(QdrantClient):
        def query_points(self, *arguments, **options):
            raise ConnectionResetError("the server went away")

    from langchain_qdrant import QdrantVectorStore

    client = DyingClient(":memory:")
    store = QdrantVectorStore(client, "docs", embeddings, validate_collection_config=False)
    await assert_refused(
        SIFTRetriever(vectorstore=store), question, CandidateSourceError, "the server went away"
    )


async def test_one_candidate_is_enough(make_store, documents, question):
    retriever = SIFTRetriever(vectorstore=make_store(documents), k=1, fetch_k=1)
    (found,) = retriever.invoke(question)
    assert await retriever.ainvoke(question) == [found]
    assert found.metadata["sift"]["redundancy"] is None
