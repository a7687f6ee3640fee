"""LlamaIndex's own evaluators as clients: values worked out by hand on the redundant corpus.

Eight texts word one fact in the same words, three say something else about bees each, and
nine are about steel. With four places, nearest neighbours give all of them to the one fact;
SIFTReranker gives it one and the other three one each.
"""

import asyncio
import json
import math
from contextlib import closing

import httpx
import pytest
from llama_index.core import VectorStoreIndex, async_utils
from llama_index.core.evaluation import RetrieverEvaluator
from llama_index.core.evaluation.benchmarks import BeirEvaluator
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import AsyncQdrantClient, QdrantClient

from llama_index.postprocessor.sift import SIFTReranker

TOP_N = 4
METRICS = ["hit_rate", "mrr", "precision", "recall", "ap", "ndcg"]
DISTINCT = slice(8, 11)  # where the conftest's corpus has the three other facts


@pytest.fixture(params=["faiss", "qdrant"])
async def index(request, build_index, nodes, embed_model):
    """An index that is asked both ways: Qdrant behind a server, for a client of each kind."""
    if request.param == "faiss":
        yield build_index("faiss", nodes, embed_model)
        return
    server_module = pytest.importorskip(
        "tests.sources.qdrant_rest", reason="the server that speaks Qdrant's REST is not here"
    )
    local = build_index("qdrant", nodes, embed_model).vector_store.client
    with server_module.serving(local) as server:
        options = {"url": server.url, "timeout": 30, "check_compatibility": False}
        # `evaluate` has a loop of its own, and a connection must not outlive its loop.
        async_client = AsyncQdrantClient(
            **options, limits=httpx.Limits(max_keepalive_connections=0)
        )
        with closing(QdrantClient(**options)) as client:
            store = QdrantVectorStore(
                "docs", client=client, aclient=async_client, index_doc_id=False
            )
            yield VectorStoreIndex.from_vector_store(store, embed_model=embed_model)
        await async_client.close()


@pytest.fixture(params=["evaluate", "aevaluate"])
def evaluated(request):
    """Evaluate one query by one of the two methods."""

    async def run(evaluator, query, expected_ids):
        if request.param == "aevaluate":
            return await evaluator.aevaluate(query, expected_ids)
        return await asyncio.to_thread(evaluator.evaluate, query, expected_ids)

    return run


def nearest(index, **options):
    """Return an evaluator of plain nearest neighbours."""
    return RetrieverEvaluator.from_metric_names(
        METRICS, retriever=index.as_retriever(similarity_top_k=TOP_N), **options
    )


def with_sift(index, **options):
    """Return an evaluator of as many documents, chosen from all."""
    return RetrieverEvaluator.from_metric_names(
        METRICS,
        retriever=index.as_retriever(similarity_top_k=20),
        node_postprocessors=[SIFTReranker(top_n=TOP_N)],
        **options,
    )


def others(nodes):
    """Return the ids of the facts that are said once."""
    return [node.node_id for node in nodes[DISTINCT]]


async def test_nearest_neighbours_find_none_of_the_other_facts(index, evaluated, nodes, question):
    values = (await evaluated(nearest(index), question, others(nodes))).metric_vals_dict
    assert values == dict.fromkeys(METRICS, 0.0)


async def test_sift_finds_every_other_fact_in_as_many_places(index, evaluated, nodes, question):
    result = await evaluated(with_sift(index), question, others(nodes))
    # The repeated fact comes first, being nearest; the other three follow at ranks 2, 3, 4.
    discounts = [1 / math.log2(rank + 1) for rank in (1, 2, 3, 4)]
    assert set(result.retrieved_ids[1:]) == set(others(nodes))
    assert result.metric_vals_dict == pytest.approx(
        {
            "hit_rate": 1.0,
            "mrr": 1 / 2,
            "precision": 3 / 4,
            "recall": 1.0,
            "ap": (1 / 2 + 2 / 3 + 3 / 4) / 3,
            "ndcg": sum(discounts[1:]) / sum(discounts[:3]),
        }
    )


async def test_an_evaluation_embeds_no_document(index, evaluated, nodes, question, embed_model):
    await evaluated(with_sift(index), question, others(nodes))
    assert embed_model.texts == []


async def test_evaluating_in_a_running_loop_does_not_block_on_itself(index, nodes, question):
    if "contextvars" not in vars(async_utils):
        pytest.skip("asyncio_run of this LlamaIndex needs nest_asyncio in a running loop")
    result = with_sift(index).evaluate(question, others(nodes))
    assert result.metric_vals_dict["recall"] == 1.0


async def test_queries_evaluated_at_once_have_their_own_values(index, nodes, question):
    steel = {node.text: [node.node_id] for node in nodes[11:]}
    asked = {question: others(nodes), **steel}
    evaluator = with_sift(index)
    results = await asyncio.gather(*(evaluator.aevaluate(*pair) for pair in asked.items()))
    for result, expected in zip(results, asked.values(), strict=True):
        assert result.expected_ids == expected
        assert result.metric_vals_dict["recall"] == 1.0
    for result in results[1:]:  # each asks for one text in its very words
        assert result.metric_vals_dict["mrr"] == 1.0
        assert result.metric_vals_dict["precision"] == 1 / TOP_N


async def test_a_data_set_is_evaluated(index, nodes, question):
    evaluator = with_sift(index)
    if not hasattr(evaluator, "aevaluate_dataset"):
        pytest.skip("this LlamaIndex has no aevaluate_dataset any more (gone by 0.14.25)")
    from llama_index.core.evaluation import EmbeddingQAFinetuneDataset

    asked = EmbeddingQAFinetuneDataset(
        queries={"bees": question, "steel": nodes[14].text},
        corpus={node.node_id: node.text for node in nodes},
        relevant_docs={"bees": others(nodes), "steel": [nodes[14].node_id]},
    )
    results = await evaluator.aevaluate_dataset(asked)
    assert [result.metric_vals_dict["recall"] for result in results] == [1.0, 1.0]


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


@pytest.fixture(params=["faiss", "qdrant"])
def beir_values(request, beir, build_index, embed_model, capsys):
    """Run BEIR's evaluation over a store; return what it prints, by the name of the metric."""

    def run(*rerankers, top_k):
        def create_retriever(documents):
            index = build_index(request.param, documents, embed_model)
            return index.as_retriever(similarity_top_k=top_k)

        BeirEvaluator().run(
            create_retriever,
            datasets=["bees"],
            metrics_k_values=[TOP_N],
            node_postprocessors=list(rerankers),
        )
        (line,) = [
            line for line in capsys.readouterr().out.splitlines() if line.startswith("{'NDCG")
        ]
        return json.loads(line.replace("'", '"'))

    return run


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # BEIR 2.2's loader
def test_beir_finds_the_other_facts_with_sift_and_not_with_nearest_neighbours(beir_values):
    plain = beir_values(top_k=TOP_N)
    sift = beir_values(SIFTReranker(top_n=TOP_N), top_k=20)
    # Means of the two queries. q1 has its one text first either way: recall 1, precision 1/4.
    # q0 has none of three, or all three at ranks 2 to 4.
    discounts = [1 / math.log2(rank + 1) for rank in (1, 2, 3, 4)]
    assert plain == pytest.approx(
        {"NDCG@4": 1 / 2, "MAP@4": 1 / 2, "Recall@4": 1 / 2, "precision@4": 1 / 8}, abs=1e-4
    )
    assert sift == pytest.approx(
        {
            "NDCG@4": (sum(discounts[1:]) / sum(discounts[:3]) + 1) / 2,
            "MAP@4": ((1 / 2 + 2 / 3 + 3 / 4) / 3 + 1) / 2,
            "Recall@4": 1.0,
            "precision@4": (3 / 4 + 1 / 4) / 2,
        },
        abs=1e-4,
    )
