import asyncio
import json
import time
import urllib.request

import numpy as np
import pytest

pytest.importorskip("llama_index.postprocessor.sift")
pytest.importorskip("langchain_sift")

from llama_index.core.schema import QueryBundle

from benchmarks.bars import load_bars
from benchmarks.integrations_engines import (
    N_CHOSEN,
    PreparedQueries,
    engine,
    faiss_index,
    question,
)
from benchmarks.integrations_load import (
    N_AT_ONCE,
    Effort,
    at_once,
    is_own,
    measure,
    memory_growth,
    problem,
    text_of,
)
from benchmarks.integrations_overhead import reranking
from benchmarks.integrations_server import Answers, Served, point_id, serving
from benchmarks.report import Report


@pytest.fixture
def served():
    """Two questions with three documents each."""
    payloads = [[{"page": 10 * group + i} for i in range(3)] for group in range(2)]
    vectors = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]])
    asked = np.array([[1.0, 0.0], [0.0, 1.0]])
    return Served(name="docs", vector_name="dense", asked=asked, vectors=vectors, payloads=payloads)


def asked_for(served, path, **request):
    return json.loads(Answers(served).answer(path, json.dumps(request).encode()))


def test_a_query_gets_the_documents_of_the_question_that_its_vector_is(served):
    found = asked_for(served, "/points/query", query=[0.1, 0.9], limit=2, with_payload=True)
    assert [point["payload"]["page"] for point in found["points"]] == [10, 11]


def test_vectors_come_when_they_are_asked_for_and_under_their_name(served):
    found = asked_for(served, "/points/query", query={"nearest": [1, 0]}, with_vector=["dense"])
    assert [point["vector"]["dense"] for point in found["points"]] == served.vectors.tolist()


def test_points_come_by_id_in_the_order_asked_for(served):
    ids = [point_id(1, 2), point_id(0, 1)]
    found = asked_for(served, "/points", ids=ids, with_payload=True)
    assert [(point["id"], point["payload"]["page"]) for point in found] == [
        (ids[0], 12),
        (ids[1], 1),
    ]


def test_a_batch_has_one_result_a_search(served):
    searches = [{"query": [1, 0], "limit": 1}, {"query": [0, 1], "limit": 1}]
    found = asked_for(served, "/points/query/batch", searches=searches)
    assert [result["points"][0]["id"] for result in found] == [point_id(0, 0), point_id(1, 0)]


def test_the_server_answers_over_http_until_the_block_ends(served):
    with serving(served) as url:
        with urllib.request.urlopen(f"{url}/collections/docs/exists") as answer:
            assert json.load(answer)["result"] == {"exists": True}
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{url}/collections/docs/exists")


@pytest.fixture(scope="module")
def small_index():
    """Thirty documents, and the embedding of one question."""
    vectors = np.random.default_rng(0).standard_normal((30, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return faiss_index(vectors, batch=7), PreparedQueries({question(0): vectors[4].tolist()})


def test_the_index_holds_every_vector_in_order(small_index):
    index, _ = small_index
    ids = [index.index_struct.nodes_dict[str(row)] for row in range(30)]
    assert ids == sorted(ids)
    assert index.vector_store.client.ntotal == 30


def test_both_engines_answer_with_as_many_nodes_however_many_arrive(small_index):
    index, model = small_index
    response = engine(index, model, [], n_candidates=30).query(question(0))
    assert len(response.source_nodes) == N_CHOSEN
    assert response.source_nodes[0].metadata["page"] == 4


def test_reranking_leaves_the_nodes_that_it_gets_as_they_are(small_index):
    index, model = small_index
    retriever = index.as_retriever(similarity_top_k=5, embed_model=model)
    nodes = retriever.retrieve(question(0))
    scores = [node.score for node in nodes]

    class Spoiler:
        def postprocess_nodes(self, nodes, query_bundle):
            for node in nodes:
                node.score = -1.0
            return nodes

    reranked = reranking(Spoiler())((QueryBundle(question(0)), nodes))
    assert [node.score for node in reranked] == [-1.0] * 5
    assert [node.score for node in nodes] == scores


def test_a_text_is_its_own_questions_alone():
    assert is_own(text_of(1, 0), 1)
    assert not is_own(text_of(11, 0), 1)


def test_a_load_counts_texts_of_others_and_missing_answers():
    async def ask(text):
        number = next(i for i in range(4) if question(i) == text)
        if number == 3:
            return []
        owners = [number] * (N_CHOSEN - 1) + [0]  # the last is question 0's
        return [text_of(owner, i) for i, owner in enumerate(owners)]

    found = asyncio.run(at_once(ask, 4))
    assert (found.foreign, found.unanswered) == (2, 1)


def test_a_load_shows_how_long_the_loop_was_blocked():
    async def ask(text):
        time.sleep(0.05)  # nothing is computed meanwhile
        return []

    found = asyncio.run(at_once(ask, 2))
    assert found.stall_ms >= 90
    assert found.own_ms < found.stall_ms


def test_memory_that_is_kept_is_counted():
    kept = []

    async def ask(text):
        kept.append(bytes(4096))
        return []

    growth = asyncio.run(memory_growth(ask, 100))
    assert growth["kib_per_1000"] == pytest.approx(4000, rel=0.1)


def test_the_problem_has_its_documents_nearest_first():
    asked, vectors = problem(20)
    assert (np.diff(vectors @ asked[0]) <= 0).all()
    assert np.linalg.norm(asked, axis=1) == pytest.approx(1)
    assert asked.shape == (N_AT_ONCE, vectors.shape[1])


@pytest.mark.slow
def test_a_small_load_is_answered_by_every_way_and_judged():
    report = Report(bar_numbers=load_bars("integrations"))
    effort = Effort(rounds=1, n_at_once=3, n_candidates=12, n_memory=2, memory_candidates=12)
    measure(report, effort)
    ways = {row["method"] for row in report.rows if "foreign" in row}
    assert ways >= {"SIFTReranker", "SIFTRetriever", "SIFTRetriever, async client"}
    wrong = [bar for bar in report.bars if bar["bar"] == 0]
    assert [bar["pass"] for bar in wrong] == [True, True]
