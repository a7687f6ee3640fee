import numpy as np
import pytest

from sift_core.errors import InvalidInputError
from sift_core.sources import InMemorySource
from sift_core.types import Query

QUERY = Query(text="?", embedding=[2.0, 0.0])


def test_nearest_by_cosine_by_hand():
    # Cosines with (2, 0): 0.6, 1, -1, 0.8; inner products would put the first one first.
    embeddings = [[60.0, 80.0], [0.1, 0.0], [-5.0, 0.0], [4.0, 3.0]]
    pool = InMemorySource(embeddings, list("abcd")).fetch(QUERY, 4)
    assert pool.texts == ("b", "d", "a", "c")
    assert pool.document_ids == ("1", "3", "0", "2")
    assert pool.similarities == pytest.approx([1, 0.8, 0.6, -1])
    assert pool.embeddings.tolist() == np.float32([[0.1, 0], [4, 3], [60, 80], [-5, 0]]).tolist()
    assert pool.metadata == ({},) * 4


def test_ties_go_to_the_document_that_was_given_first():
    for d in (3, 100, 768):
        rng = np.random.default_rng(d)
        labels = rng.permutation(np.arange(203) % 5)
        embeddings = rng.standard_normal((5, d))[labels]
        source = InMemorySource(embeddings, [str(label) for label in labels])
        pool = source.fetch(Query(text="?", embedding=rng.standard_normal(d)), 203)
        for label in range(5):
            ids = [
                int(i)
                for i, text in zip(pool.document_ids, pool.texts, strict=True)
                if text == str(label)
            ]
            assert ids == sorted(ids)


def test_a_zero_vector_has_cosine_zero():
    pool = InMemorySource([[0.0, 0.0], [-1.0, 0.0]], ["zero", "opposite"]).fetch(QUERY, 2)
    assert pool.texts == ("zero", "opposite")
    assert pool.similarities.tolist() == [0, -1]


def test_keeps_its_own_copy_of_the_embeddings():
    embeddings = np.eye(2, dtype=np.float32)
    source = InMemorySource(embeddings, ["a", "b"])
    embeddings[:] = 7
    assert source.fetch(QUERY, 1).embeddings.tolist() == [[1, 0]]
    assert len(source) == 2


def test_no_documents():
    source = InMemorySource(np.empty((0, 2)), [])
    with pytest.raises(InvalidInputError, match="no documents to fetch from; add some first"):
        source.fetch(QUERY, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"texts": ["a"]}, "2 `document_ids` but 1 `texts`"),
        ({"document_ids": ["x"]}, "1 `document_ids` but 2"),
        ({"metadata": [{}]}, "2 `document_ids` but 1 `metadata`"),
        ({"embeddings": [1.0, 2.0]}, r"must have 2 dimension\(s\), got shape \(2,\)"),
        ({"embeddings": [[1.0, 2.0], [np.nan, 0]]}, r"must be finite, got nan at \[1, 0\]"),
        ({"embeddings": [[1.0, 2.0], [1e39, 0]]}, "must be finite, got inf"),
        ({"texts": "ab"}, "`texts` must be a sequence of texts, got one text"),
        ({"texts": None}, "`texts` must be a sequence, one item a document, got None"),
        ({"document_ids": 3}, "`document_ids` must be a sequence, one item a document, got 3"),
        ({"metadata": None}, "`metadata` must be a sequence, one item a document, got None"),
    ],
)
def test_refuses_columns_that_do_not_fit(changes, message):
    columns = {"embeddings": np.eye(2), "texts": ["a", "b"], **changes}
    with pytest.raises(InvalidInputError, match=message):
        InMemorySource(columns.pop("embeddings"), columns.pop("texts"), **columns)
