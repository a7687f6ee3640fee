"""Options of `sift_core.ChoiceOptions` by name, in reranker and retriever."""

import pytest
from llama_index.core.bridge.pydantic import ValidationError
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_index.postprocessor.sift import SIFTReranker, SIFTRetriever

ASKED = QueryBundle("bees", embedding=[1.0, 0.0])
ARRIVED = [
    NodeWithScore(node=TextNode(text=text, embedding=vector), score=0.5)
    for text, vector in [("bees", [1.0, 0.0]), ("ants", [0.0, 1.0])]
]


def test_an_option_of_a_reranker_may_be_changed():
    reranker = SIFTReranker()
    assert len(reranker.postprocess_nodes(ARRIVED, ASKED)) == 2
    reranker.max_tokens = 1
    assert len(reranker.postprocess_nodes(ARRIVED, ASKED)) == 1


@pytest.mark.parametrize("name", ["n_select", "n_candidates", "max_token", "top_k"])
def test_a_name_that_is_no_option_is_refused(name, build_index, nodes, embed_model):
    with pytest.raises(ValidationError, match=name):
        SIFTReranker(**{name: 5})
    index = build_index("simple", nodes, embed_model)
    with pytest.raises(TypeError, match=f"keyword argument '{name}'"):
        SIFTRetriever.from_index(index, **{name: 5})
    with pytest.raises(ValueError, match="must be a VectorStoreIndex, got SimpleVectorStore"):
        SIFTRetriever.from_index(index.vector_store)
