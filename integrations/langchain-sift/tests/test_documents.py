import numpy as np
import pytest
from langchain_core.documents import Document

from langchain_sift.documents import as_pool, chosen_documents
from sift_core import Chosen, Query, StopReason
from sift_core.passages import Passage

QUERY = Query(text="?", embedding=np.array([3.0, 4.0]))


@pytest.fixture
def pool():
    originals = [
        Document(page_content="far"),
        Document(page_content="near", id="7", metadata={"a": [1]}),
        Document(page_content="between"),
    ]
    embeddings = np.array([[2.0, 0.0], [0.0, 2.0], [3.0, 4.0]])
    return as_pool(QUERY, originals, embeddings, scores=[None, 0.75, 0.25])


@pytest.fixture
def chosen(pool):
    return Chosen(
        query=QUERY,
        pool=pool,
        passages=[Passage(rows=(row,), first=row, text=pool.texts[row]) for row in (1, 2, 0)],
        positions=np.array([1, 2, 0]),
        variances=np.array([1.0, 0.25, 0.125, 0.0625]),
        stop_reason=StopReason.N_SELECT,
    )


def test_a_pool_by_hand(pool):
    # cos((3, 4), (2, 0)) = 3 / 5 and cos((3, 4), (0, 2)) = 4 / 5.
    assert pool.document_ids == ("0", "7", "2")
    assert pool.texts == ("far", "near", "between")
    np.testing.assert_allclose(pool.similarities, [0.6, 0.8, 1.0])
    assert list(pool.scores) == [None, 0.75, 0.25]
    assert list(pool.metadata) == [{}, {"a": [1]}, {}]
    assert pool.items[0].page_content == "far"
    assert pool.relevance is None


def test_what_is_returned_shares_nothing_with_the_originals(pool, chosen):
    found, *_ = chosen_documents(chosen)
    original = pool.items[1]
    assert "sift" not in original.metadata
    del found.metadata["sift"]
    assert found == original
    assert found.metadata["a"] is not original.metadata["a"]
