from uuid import UUID

import numpy as np
import pytest

from sift_core import InvalidInputError, vectors_by_id


def test_each_id_is_asked_for_once_and_what_is_not_known_has_no_vector():
    asked = []

    def vectors(ids):
        asked.append(ids)
        return {"b": [2.0], "a": [1.0], "other": [3.0]}

    found = vectors_by_id(vectors, ["a", None, "c", "b", "a"])
    assert found == [[1.0], None, None, [2.0], [1.0]]
    assert asked == [["a", "c", "b"]]


def test_nothing_is_asked_without_ids():
    assert vectors_by_id(pytest.fail, [None, None]) == [None, None]


def test_rows_without_their_ids_are_refused():
    with pytest.raises(InvalidInputError, match="a mapping from ids to vectors, got list"):
        vectors_by_id(lambda ids: [[1.0], [2.0]], ["a", "b"])


NAME = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")


@pytest.mark.parametrize(
    ("document_id", "key"),  # what spells the same id in another type
    [
        ("12", 12),
        ("12", np.int64(12)),
        (str(NAME), NAME),
        (NAME.hex, NAME),
        ("é", "é".encode()),
    ],
)
def test_keys_are_matched_by_their_text(document_id, key):
    assert vectors_by_id(lambda ids: {"a": [1.0], key: [2.0]}, ["b", document_id]) == [None, [2.0]]


def test_vectors_of_other_ids_alone_are_refused_with_a_key_of_either_side():
    with pytest.raises(InvalidInputError, match=r"it has \('docs', 7\), and they have 'a'"):
        vectors_by_id(lambda ids: {("docs", 7): [1.0]}, ["a", "b"])
    assert vectors_by_id(lambda ids: {}, ["a"]) == [None]  # ids without a vector are left out
