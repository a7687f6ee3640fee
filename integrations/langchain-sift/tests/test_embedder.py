import numpy as np
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

from langchain_sift import LangChainEmbedder
from sift_core import Embedder, InvalidInputError


def test_it_is_an_embedder_of_the_core(embeddings):
    assert isinstance(LangChainEmbedder(embeddings), Embedder)


def test_it_embeds_as_the_model_does(embeddings, question):
    embedder = LangChainEmbedder(embeddings)
    np.testing.assert_array_equal(embedder.embed_query(question), embeddings.embed_query(question))
    texts = ["plants make sugar", "stars fuse hydrogen"]
    np.testing.assert_array_equal(
        embedder.embed_documents(texts), [embeddings.embed_query(text) for text in texts]
    )
    assert embeddings.document_batches == [2]


async def test_async_equals_sync(embeddings, question):
    embedder = LangChainEmbedder(embeddings)
    texts = ("plants make sugar", "stars fuse hydrogen")
    np.testing.assert_array_equal(
        await embedder.aembed_query(question), embedder.embed_query(question)
    )
    np.testing.assert_array_equal(
        await embedder.aembed_documents(texts), embedder.embed_documents(texts)
    )


def test_it_takes_the_models_own_name(embeddings):
    embeddings.model = "small"
    assert LangChainEmbedder(embeddings).name == "small"
    embeddings.model_name = "words-64"
    assert LangChainEmbedder(embeddings).name == "words-64"
    assert LangChainEmbedder(embeddings, name="mine").name == "mine"


def test_a_model_without_name_is_called_by_its_class():
    assert LangChainEmbedder(DeterministicFakeEmbedding(size=8)).name == (
        "DeterministicFakeEmbedding"
    )


def test_what_is_no_model_is_refused():
    with pytest.raises(InvalidInputError, match="must be a langchain_core Embeddings, got str"):
        LangChainEmbedder("text-embedding-3-small")


@pytest.mark.parametrize("blank", ["", " \n\t", 7, b"bytes", "a \ud83c"], ids=ascii)
def test_what_is_no_question_is_refused_before_it_costs(embeddings, blank):
    with pytest.raises(InvalidInputError, match=r"not blank|must be a string|UTF-8 cannot hold"):
        LangChainEmbedder(embeddings).embed_query(blank)
    assert embeddings.queries == 0


@pytest.mark.parametrize("vectors", [[[1.0, 2.0], [1.0]], [[1.0, 2.0]]], ids=["ragged", "few"])
def test_a_model_that_miscounts_is_refused(embeddings, vectors):
    embeddings.embed_documents = lambda texts: vectors
    with pytest.raises(InvalidInputError, match="must return one vector a text, all of one length"):
        LangChainEmbedder(embeddings).embed_documents(["a", "b"])
