import pickle

import pytest

from sift_core.sources.contract import CopiedOnRead
from sift_core.types import CandidatePool


def test_copies_are_made_on_reading_and_are_the_readers():
    originals = [{"n": 1}, {"n": 2}, {"n": 3}]
    copies = CopiedOnRead(originals)
    copies[0]["n"] = "changed"
    assert originals == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert copies[0] is copies[-3]  # the reader's change stays
    assert copies[1:] == ({"n": 2}, {"n": 3})
    assert list(copies) == [{"n": "changed"}, {"n": 2}, {"n": 3}]
    assert copies == ({"n": "changed"}, {"n": 2}, {"n": 3})
    assert copies != ({"n": 1},)
    assert copies != 5
    assert len(copies) == 3
    with pytest.raises(IndexError):
        copies[3]
    assert pickle.loads(pickle.dumps(copies)) == copies


def test_a_pool_takes_copies_on_reading_as_they_are():
    copies = CopiedOnRead(({"n": 1}, {"n": 2}))
    whole = CandidatePool(
        document_ids="a b".split(),
        texts="a b".split(),
        embeddings=[[1.0], [0.5]],
        similarities=[1.0, 0.5],
        metadata=copies,
    )
    assert whole.metadata is copies
    assert whole.take([1]).metadata == ({"n": 2},)
