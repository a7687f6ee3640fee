"""LlamaIndex's own evaluators as clients: values worked out by hand on the redundant corpus.

Eight texts word one fact in the same words, three say something else about bees each, and
nine are about steel. With four places, nearest neighbours give all of them to the one fact;
SIFTReranker gives it one and the other three one each.
"""

import asyncio
import math

import pytest
from llama_index.core import async_utils
from llama_index.core.evaluation import RetrieverEvaluator

from llama_index.postprocessor.sift import SIFTReranker

TOP_N = 4
METRICS = ["hit_rate", "mrr", "precision", "recall", "ap", "ndcg"]
DISCOUNTS = [1 / math.log2(rank + 1) for rank in (1, 2, 3, 4)]
# The repeated fact comes first, being nearest; the other three follow at ranks 2, 3, 4.
NDCG = sum(DISCOUNTS[1:]) / sum(DISCOUNTS[:3])
AP = (1 / 2 + 2 / 3 + 3 / 4) / 3


@pytest.fixture
def evaluator(build_index, nodes, embed_model):
    """Of as many documents as have a place, chosen from all."""
    return RetrieverEvaluator.from_metric_names(
        METRICS,
        retriever=build_index("faiss", nodes, embed_model).as_retriever(similarity_top_k=20),
        node_postprocessors=[SIFTReranker(top_n=TOP_N)],
    )


@pytest.fixture
def others(nodes):
    """The ids of the facts that are said once."""
    return [node.node_id for node in nodes[8:11]]


@pytest.mark.parametrize("method", ["evaluate", "aevaluate"])
async def test_sift_finds_every_other_fact_in_as_many_places(
    method, evaluator, others, question, embed_model
):
    if method == "evaluate":
        result = await asyncio.to_thread(evaluator.evaluate, question, others)
    else:
        result = await evaluator.aevaluate(question, others)
    assert result.metric_vals_dict == pytest.approx(
        {
            "hit_rate": 1.0,
            "mrr": 1 / 2,
            "precision": 3 / 4,
            "recall": 1.0,
            "ap": AP,
            "ndcg": NDCG,
        }
    )
    assert embed_model.texts == []


@pytest.mark.skipif(
    "contextvars" not in vars(async_utils),
    reason="asyncio_run of this LlamaIndex needs nest_asyncio in a running loop",
)
async def test_evaluating_in_a_running_loop_does_not_block_on_itself(evaluator, others, question):
    assert evaluator.evaluate(question, others).metric_vals_dict["recall"] == 1.0
