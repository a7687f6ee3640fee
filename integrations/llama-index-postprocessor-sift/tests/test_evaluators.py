"""LlamaIndex's own evaluators as clients: values worked out by hand on the redundant corpus.

Eight texts word one fact in the same words, three say something else about bees each, and
nine are about steel. With four places, nearest neighbours give all of them to the one fact;
SIFTReranker gives it one and the other three one each.
"""

import asyncio
import json
import math

import pytest
from llama_index.core import async_utils
from llama_index.core.evaluation import RetrieverEvaluator
from llama_index.core.evaluation.benchmarks import BeirEvaluator

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


async def test_evaluating_in_a_running_loop_does_not_block_on_itself(evaluator, others, question):
    if "contextvars" not in vars(async_utils):
        pytest.skip("asyncio_run of this LlamaIndex needs nest_asyncio in a running loop")
    assert evaluator.evaluate(question, others).metric_vals_dict["recall"] == 1.0


@pytest.fixture
def beir(tmp_path, monkeypatch, nodes, question):
    """A data set in BEIR's form where LlamaIndex looks for one before it downloads it."""
    pytest.importorskip("beir", reason="beir needs sentence-transformers: newest versions only")
    monkeypatch.setenv("LLAMA_INDEX_CACHE_DIR", str(tmp_path))
    folder = tmp_path / "datasets" / "BeIR__bees" / "bees"
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": f"d{i}", "title": "", "text": node.text} for i, node in enumerate(nodes)]
    queries = [{"_id": "q0", "text": question}, {"_id": "q1", "text": nodes[14].text}]
    # q0 wants the other facts, q1 one text on steel in its very words.
    judged = [("q0", "d8"), ("q0", "d9"), ("q0", "d10"), ("q1", "d14")]
    rows = ["query-id\tcorpus-id\tscore", *(f"{query}\t{of}\t1" for query, of in judged)]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, corpus)))
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    (folder / "qrels" / "test.tsv").write_text("\n".join(rows) + "\n")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # BEIR 2.2's loader
def test_beir_finds_the_other_facts_with_sift(beir, build_index, embed_model, capsys):
    BeirEvaluator().run(
        lambda documents: build_index("faiss", documents, embed_model).as_retriever(
            similarity_top_k=20
        ),
        datasets=["bees"],
        metrics_k_values=[TOP_N],
        node_postprocessors=[SIFTReranker(top_n=TOP_N)],
    )
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("{'NDCG")]
    # Means of the two queries; q1 has its one text first: all 1, precision 1/4.
    expected = {
        "NDCG@4": (NDCG + 1) / 2,
        "MAP@4": (AP + 1) / 2,
        "Recall@4": 1,
        "precision@4": 1 / 2,
    }
    assert json.loads(line.replace("'", '"')) == pytest.approx(expected, abs=1e-4)
