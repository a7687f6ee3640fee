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
