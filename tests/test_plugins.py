import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sift_core import CandidatePool, InvalidInputError
from sift_core.plugins import MissingVectors, fill_gaps, pool_for_query, run_blocking

QUERY = np.array([3.0, 4.0])


def pool_of(query, embeddings, **options):
    n = len(embeddings)
    columns = {"document_ids": [str(i) for i in range(n)], "texts": ["text"] * n}
    return pool_for_query(CandidatePool, query, embeddings, **columns, **options)


def test_a_pool_by_hand():
    pool = pool_of(QUERY, [[2.0, 0.0], [0.0, 2.0]], scores=[None, 0.5])
    # cos((3, 4), (2, 0)) = 3 / 5 and cos((3, 4), (0, 2)) = 4 / 5.
    assert pool.similarities == pytest.approx([0.6, 0.8])
    assert pool.relevance is None
    assert pool.scores == [None, 0.5]
    assert pool_of(QUERY, []).embeddings.shape == (0, 2)


def test_scores_that_say_more_than_the_cosines_of_what_was_searched_by_are_the_relevance():
    rows, scores = np.eye(2), [2.0, 1.0]  # (3, 4) is nearer to the second row
    assert pool_of(QUERY, rows, scores=scores, use_scores=None).relevance.tolist() == scores
    by_first = pool_of(QUERY, rows, scores=scores, use_scores=None, searched_by=rows[0])
    assert by_first.relevance is None
    both = pool_of(np.array([[1.0, 0.0], [0.0, 1.0]]), rows)
    assert both.similarities.tolist() == [1.0, 1.0]  # with the nearest of the queries


@pytest.mark.parametrize(
    ("second", "complaint"),
    [
        ([1.0, 0.0, 0.0], r"query has 2 dimensions, the documents have \[2, 3\]"),
        ([np.nan, 1.0], r"must be finite, got nan at \[1, 0\]"),
        ([np.inf, 1.0], r"must be finite, got inf at \[1, 0\]"),
    ],
    ids=["length", "nan", "infinite"],
)
@pytest.mark.filterwarnings("error")
def test_vectors_that_cannot_be_compared_are_refused(second, complaint):
    with pytest.raises(InvalidInputError, match=complaint):
        pool_of(QUERY, [[1.0, 0.0], second])


@pytest.mark.parametrize("is_awaited", [False, True])
def test_missing_vectors_are_looked_up_brought_or_embedded_in_their_places(is_awaited, caplog):
    missing = MissingVectors(logging.getLogger("test"), "%d of %d of %s")
    asked, batches, model = [], [], type("Model", (), {})()

    def look_up(ids):
        asked.append(ids)
        return {"b": [2.0], "c": [3.0]}

    def embed(texts):
        batches.append(texts)
        return np.full((len(texts), 1), 4.0)

    async def aembed(texts):
        await asyncio.sleep(0)
        return embed(texts)

    def completed(vectors, ids):
        work = missing.completed(
            vectors,
            ids,
            lambda row: f"text {row}",
            lambda: (model, embed, aembed),
            place="a store",
            look_up=look_up,
            brought={3: [5.0]}.get,
            is_awaited=is_awaited,
        )
        return asyncio.run(work) if is_awaited else run_blocking(work)

    for _ in range(2):
        found = completed([None, [1.0], None, None], ["b", "a", "x", None])
        assert found == [[2.0], [1.0], [4.0], [5.0]]
    assert (asked, batches) == ([["b", "x"]] * 2, [["text 2"]])  # a vector is kept
    assert [record.message for record in caplog.records] == [
        "1 of 4 of a store, nor given by `vectors`"
    ]  # once
    matrix = np.eye(2)
    assert completed(matrix, ["a", "b"]) is matrix
    assert fill_gaps([None, None], matrix) is matrix
    # an id that two documents share names neither
    assert completed([None] * 3, ["b", "c", "b"]) == [[4.0], [3.0], [4.0]]


def test_each_place_without_vectors_is_warned_of_once(caplog):
    missing = MissingVectors(logging.getLogger("test"), "%d of %d in %s")

    def complete(n_texts, place, look_up=None):
        work = missing.completed(
            [None] * n_texts,
            [str(row) for row in range(n_texts)],
            lambda row: f"text {row}",
            lambda: (missing, lambda texts: np.ones((len(texts), 1)), None),
            place=place,
            look_up=look_up,
            is_awaited=False,
        )
        run_blocking(work)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: complete(2, "a store"), range(40)))
    complete(3, "a store")  # the same mistake, of another number of texts
    complete(2, "another store")
    for _ in range(2):
        complete(2, "a store", look_up=lambda ids: {})  # what the first message advises
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "2 of 2 in a store",
        "2 of 2 in another store",
        "2 of 2 in a store, nor given by `vectors`",
    ]


def test_what_waits_is_not_run_without_an_event_loop():
    with pytest.raises(RuntimeError, match="waits for something"):
        run_blocking(asyncio.sleep(0))
