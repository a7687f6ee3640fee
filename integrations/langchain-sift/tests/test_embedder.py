import numpy as np
import pytest

from langchain_sift import LangChainEmbedder
from sift_core import Embedder, InvalidInputError


async def test_it_embeds_as_the_model_does_called_and_awaited(embeddings, question):
    embedder, texts = LangChainEmbedder(embeddings), ("plants make sugar", "stars fuse hydrogen")
    assert isinstance(embedder, Embedder)
    for vector in (embedder.embed_query(question), await embedder.aembed_query(question)):
        np.testing.assert_array_equal(vector, embeddings.embed_query(question))
    expected = [embeddings.embed_query(text) for text in texts]
    for rows in (embedder.embed_documents(texts), await embedder.aembed_documents(texts)):
        np.testing.assert_array_equal(rows, expected)
    assert embeddings.document_batches == [2, 2]


def test_its_name_is_the_models_own_or_that_of_its_class(embeddings):
    assert LangChainEmbedder(embeddings).name == "HashingEmbeddings"
    embeddings.model = "small"
    assert LangChainEmbedder(embeddings).name == "small"
    embeddings.model_name = "words-64"
    assert LangChainEmbedder(embeddings).name == "words-64"
    assert LangChainEmbedder(embeddings, name="mine").name == "mine"


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
