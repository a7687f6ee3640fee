import copy
import dataclasses
import pickle

import numpy as np
import pytest

from sift_core.answering.answer import Answer
from sift_core.errors import InvalidInputError
from sift_core.types import (
    AnswerMode,
    CandidatePool,
    Document,
    Query,
    Selection,
    StopReason,
)


def pool(**changes):
    columns = {
        "document_ids": ["a", "b", "c"],
        "texts": ["one", "two", "three"],
        "embeddings": np.float32([[1, 0], [0, 1], [3, 4]]),
        "similarities": np.float32([0.9, 0.5, 0.1]),
        "metadata": [{"n": 1}, {"n": 2}, {"n": 3}],
    }
    return CandidatePool(**{**columns, **changes})


@pytest.mark.parametrize(
    ("embedding", "message"),
    [
        ([], "at least 1 number"),
        ([[1.0, 2.0]], r"must have 1 dimension\(s\), got shape \(1, 2\)"),
        ([1.0, np.nan, np.nan], r"got nan at \[1\] \(2 such value\(s\)\); was an empty text"),
        ("text", "must hold real numbers, got dtype <U4"),
        ([1j], "must hold real numbers, got dtype complex128"),
        ([[1], [1, 2]], "must be an array of numbers"),
    ],
)
def test_a_query_refuses_what_is_not_one_finite_vector(embedding, message):
    with pytest.raises(InvalidInputError, match=message):
        Query(text="?", embedding=embedding)


def test_a_query_that_is_not_looked_for_has_no_vector():
    assert Query(text="?").embedding is None
    with pytest.raises(InvalidInputError, match="no `embedding`"):
        _ = Query(text="?").vector


@pytest.mark.parametrize(
    "value",
    [
        Query(text="?", embedding=[1.0]),
        Document(document_id="a", text="b"),
        pool(),
        Selection(positions=np.array([0]), variances=np.ones(2), stop_reason=StopReason.ALPHA),
        Answer(text="!", mode=AnswerMode.BASE),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_frozen_keyword_only_and_travel_between_processes(value):
    name = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, "changed")
    with pytest.raises(TypeError, match="positional argument"):
        type(value)("something")
    again = pickle.loads(pickle.dumps(value))
    assert repr(again) == repr(value) == repr(copy.deepcopy(value))


def test_a_pool_without_metadata_has_an_empty_mapping_for_each_document():
    made = pool(metadata=())
    assert made.metadata == ({}, {}, {})
    made.metadata[0]["n"] = 1  # one document's alone
    assert made.metadata == ({"n": 1}, {}, {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"texts": ["one"]}, "3 `document_ids` but 1 `texts`"),
        ({"embeddings": np.ones((2, 2))}, "3 `document_ids` but 2 `embeddings`"),
        ({"similarities": np.ones(4)}, "3 `document_ids` but 4 `similarities`"),
        ({"metadata": [{}]}, "3 `document_ids` but 1 `metadata`"),
        ({"embeddings": np.ones(3)}, r"`embeddings` must have 2 dimension\(s\)"),
        ({"similarities": np.ones((3, 1))}, r"`similarities` must have 1 dimension\(s\)"),
        ({"embeddings": np.full((3, 2), np.nan)}, r"`embeddings` must be finite.*6 such"),
        ({"texts": "abc"}, "`texts` must be a sequence of texts, got one text"),
    ],
)
def test_a_pool_refuses_columns_that_do_not_fit(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        pool(**changes)


def test_a_pool_may_have_the_stores_own_scores():
    assert pool().relevance is None
    scored = pool(relevance=[3, 2, 0.5])
    assert scored.take([2, 0]).relevance.tolist() == [0.5, 3]
    with pytest.raises(InvalidInputError, match="3 `document_ids` but 2 `relevance`"):
        pool(relevance=[3.0, 2.0])
    with pytest.raises(InvalidInputError, match="`relevance` must be finite, got nan"):
        pool(relevance=[3.0, np.nan, 1.0])


def test_take_gives_rows_in_the_order_asked_for_with_repeats():
    taken = pool().take([2, 0, 2])
    assert taken.document_ids == ("c", "a", "c")
    assert taken.texts == ("three", "one", "three")
    assert taken.embeddings.tolist() == [[3, 4], [1, 0], [3, 4]]
    assert taken.similarities == pytest.approx([0.1, 0.9, 0.1])
    assert taken.metadata == ({"n": 3}, {"n": 1}, {"n": 3})


def test_scores_and_items_stay_with_their_rows():
    things = [object(), object(), object()]
    scored = pool(scores=[3.0, None, 1.0], items=things)
    taken = scored.take([2, 0])
    assert taken.scores == [1.0, 3.0]
    assert taken.items == [things[2], things[0]]
    with pytest.raises(InvalidInputError, match="but 2 `items`"):
        pool(items=things[:2])


def test_a_sequence_that_makes_its_texts_is_left_to_make_them():
    class Texts(tuple):
        __slots__ = ()

    lazy = pool(texts=Texts(["one", "two", "three"]))
    assert type(lazy.texts) is Texts
    assert lazy.take([1]).texts == ("two",)


def test_pools_are_joined_one_after_the_other():
    class Named(CandidatePool):
        pass

    named = Named(**vars(pool(scores=[3.0, None, 1.0], relevance=[1.0, 2.0, 3.0])))
    twice = CandidatePool.concatenate([named, CandidatePool.empty(dimension=2), named.take([1])])
    assert type(twice) is Named
    assert twice.document_ids == ("a", "b", "c", "b")
    assert twice.texts[3] == "two"
    assert twice.embeddings.shape == (4, 2)
    assert twice.relevance.tolist() == [1.0, 2.0, 3.0, 2.0]
    assert list(twice.scores) == [3.0, None, 1.0, None]
    mixed = CandidatePool.concatenate([named, pool()])
    assert (type(mixed), len(mixed), mixed.relevance) == (CandidatePool, 6, None)
    assert len(mixed.scores) == 0
    assert len(CandidatePool.concatenate([CandidatePool.empty(dimension=2)])) == 0


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ([3], r"must be in \[0, 3\), got 3 to 3; were they chosen from another pool"),
        ([0, -1], r"must be in \[0, 3\), got -1 to 0"),
        ([True, False, True], "must be a row of integers, got bool.*flatnonzero"),
        ([0.0, 1.0], "must be a row of integers, got float64"),
        ([[0, 1]], r"must be a row of integers, got int64 of shape \(1, 2\)"),
        (1, "must be a row of integers"),
        (["a"], "must be a row of integers"),
    ],
)
def test_take_refuses_what_are_not_positions(positions, message):
    with pytest.raises(InvalidInputError, match=message):
        pool().take(positions)


def test_gains_and_standard_deviation_of_a_selection_by_hand():
    selection = Selection(
        positions=np.array([4, 4]),
        variances=np.array([1.0, 0.75, 0.25]),
        stop_reason=StopReason.N_SELECT,
    )
    assert len(selection) == 2
    assert selection.gains.tolist() == [0.25, 0.5]
    assert selection.standard_deviation == 0.5


def test_no_vector_is_printed():
    # Rounded to 12 digits so, 0.123456789012 would stand in a repr with the vectors.
    vectors = np.full((2, 3), 0.123456789012)
    pool = CandidatePool(
        document_ids=["a", "b"], texts=["one", "two"], embeddings=vectors, similarities=[0.5, 0.4]
    )
    assert "0.1234" not in repr(pool) + repr(Query(text="x", embedding=vectors[0]))
    assert "'one'" in repr(pool)
