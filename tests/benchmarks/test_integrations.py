import asyncio
import json

import numpy as np
import pytest

pytest.importorskip("llama_index.postprocessor.sift")
pytest.importorskip("langchain_sift")

from benchmarks.bars import load_bars
from benchmarks.integrations_engines import (
    N_CHOSEN,
    PreparedQueries,
    engine,
    faiss_index,
    question,
)
from benchmarks.integrations_load import Effort, at_once, measure, text_of
from benchmarks.integrations_server import Answers, Served, point_id
from benchmarks.report import Report


def test_a_query_gets_the_documents_of_the_question_that_its_vector_is():
    served = Served(
        name="docs",
        vector_name="dense",
        asked=np.eye(2),
        vectors=np.array([[1.0, 0.0], [0.8, 0.6]]),
        payloads=[[{"page": 10 * group + i} for i in range(2)] for group in range(2)],
    )
    request = json.dumps({"query": [0.1, 0.9], "with_payload": True, "with_vector": ["dense"]})
    found = json.loads(Answers(served).answer("/points/query", request.encode()))["points"]
    assert [point["id"] for point in found] == [point_id(1, 0), point_id(1, 1)]
    assert [point["payload"]["page"] for point in found] == [10, 11]
    assert [point["vector"]["dense"] for point in found] == served.vectors.tolist()


def test_an_engine_answers_with_as_many_nodes_however_many_arrive():
    vectors = np.random.default_rng(0).standard_normal((30, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    model = PreparedQueries({question(0): vectors[4].tolist()})
    over = engine(faiss_index(vectors, batch=7), model, [], n_candidates=30)
    response = over.query(question(0))
    assert len(response.source_nodes) == N_CHOSEN
    assert response.source_nodes[0].metadata["page"] == 4


def test_a_load_counts_texts_of_others_and_missing_answers():
    async def ask(text):
        number = next(i for i in range(4) if question(i) == text)
        if number == 3:
            return []
        owners = [number] * (N_CHOSEN - 1) + [0]  # the last is question 0's
        return [text_of(owner, i) for i, owner in enumerate(owners)]

    found = asyncio.run(at_once(ask, 4))
    assert (found.foreign, found.unanswered) == (2, 1)


@pytest.mark.slow
def test_a_small_load_is_answered_by_every_way_and_judged():
    report = Report(bar_numbers=load_bars("integrations"))
    effort = Effort(rounds=1, n_at_once=3, n_candidates=12, n_memory=2, memory_candidates=12)
    measure(report, effort)
    ways = {row["method"] for row in report.rows if "foreign" in row}
    assert ways >= {"SIFTReranker", "SIFTRetriever", "SIFTRetriever, async client"}
    wrong = [bar for bar in report.bars if bar["bar"] == 0]
    assert [bar["pass"] for bar in wrong] == [True, True]
