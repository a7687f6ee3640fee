"""LlamaIndex's own evaluators as clients, which call the sync method in a running loop."""

import pytest
from llama_index.core import async_utils
from llama_index.core.evaluation import RetrieverEvaluator

from llama_index.postprocessor.sift import SIFTReranker


@pytest.mark.skipif(
    "contextvars" not in vars(async_utils),
    reason="asyncio_run of this LlamaIndex needs nest_asyncio in a running loop",
)
async def test_evaluating_in_a_running_loop_does_not_block_on_itself(
    build_index, nodes, embed_model, question
):
    evaluator = RetrieverEvaluator.from_metric_names(
        ["recall"],
        retriever=build_index("faiss", nodes, embed_model).as_retriever(similarity_top_k=20),
        node_postprocessors=[SIFTReranker(top_n=4)],
    )
    others = [node.node_id for node in nodes[8:11]]  # the facts that are said once
    assert evaluator.evaluate(question, others).metric_vals_dict["recall"] == 1.0
    assert (await evaluator.aevaluate(question, others)).metric_vals_dict["recall"] == 1.0
    assert embed_model.texts == []
