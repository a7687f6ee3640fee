import enum
import math
import sys
import uuid
from datetime import date
from types import MappingProxyType

import numpy as np
import pytest

from sift_core.errors import InvalidInputError
from sift_core.sources.content_ids import content_id
from sift_core.types import Document


def document(text="a text", document_id="d", **metadata):
    return Document(document_id=document_id, text=text, metadata=metadata)


def with_metadata(metadata):
    return Document(document_id="d", text="a text", metadata=metadata)


def test_the_id_by_hand():
    # An id that changes makes every existing index embed all that it holds again.
    written = '["a#1","Grüße",{"a":[1,true,null],"b":1.5}]'
    namespace = uuid.UUID("c86f83b2-0a6c-4d4a-9d01-3396e7ba8253")
    stored = document("Grüße", "a#1", b=1.5, a=[1, True, None])
    assert content_id(stored) == str(uuid.uuid5(namespace, written))
    assert content_id(stored) == "dc2cf651-a9be-53b3-be9d-e89654a51e91"


def test_every_part_of_a_document_counts():
    variants = [
        document(),
        document("A text"),
        document("a text "),
        document(document_id="e"),
        document(key=1),
        document(key=1.0),
        document(key=True),
        document(key="1"),
        document(key=None),
        document(key=[1]),
        document(key={}),
        document(other=1),
        document("e\N{COMBINING ACUTE ACCENT}"),
        document("é"),
    ]
    assert len({content_id(variant) for variant in variants}) == len(variants)


def test_the_order_of_keys_and_the_kind_of_mapping_do_not_count():
    expected = content_id(document(a=1, b={"x": 1, "y": 2}))
    assert content_id(document(b={"y": 2, "x": 1}, a=1)) == expected
    assert content_id(with_metadata(MappingProxyType({"a": 1, "b": {"x": 1, "y": 2}}))) == expected


class Colour(str, enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


def test_what_json_gives_back_as_an_equal_value_is_taken():
    subclasses = document(colour=Colour.RED, level=Level.HIGH, size=np.float64(1.5), pair=(1, 2))
    assert content_id(subclasses) == content_id(
        document(colour="red", level=3, size=1.5, pair=[1, 2])
    )


def nested(depth):
    value = 0
    for _ in range(depth):
        value = [value]
    return value


def circular():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({1: "a"}, r"metadata of document 'd'` must have strings as keys, got 1 of type int"),
        ({"a": [0, {None: 1}]}, r"metadata of document 'd'\['a'\]\[1\]` must have strings"),
        ({"a": math.nan}, r"\['a'\]` must be finite, got nan"),
        ({"a": {"b": -math.inf}}, r"\['a'\]\['b'\]` must be finite, got -inf"),
        ({"day": date(2026, 1, 1)}, r"\['day'\]` must be something that JSON .* got datetime.date"),
        ({"a": {1, 2}}, r"\['a'\]` must be something that JSON can hold, got builtins.set"),
        ({"a": b"x"}, r"\['a'\]` .* got builtins.bytes"),
        ({"a": np.int64(1)}, r"\['a'\]` .* got numpy.int64"),
        ({"a": np.ones(2)}, r"\['a'\]` .* got numpy.ndarray; convert it, .* \.tolist\(\)"),
        ({"a": "\ud800"}, r"\['a'\]` holds the character '\\ud800' at 0, which UTF-8 cannot hold"),
        ({"a\ud800": 1}, r"a key in metadata of document 'd'` holds the character"),
        ({"a": circular()}, r"metadata of document 'd' is nested too deeply .* contains itself"),
        ({"a": nested(100_000)}, r"nested too deeply for JSON"),
        ([("a", 1)], r"the metadata of document 'd' must be a mapping, got list"),
    ],
)
def test_metadata_that_json_cannot_hold_is_refused_by_name(metadata, message):
    with pytest.raises(InvalidInputError, match=message):
        content_id(with_metadata(metadata))


@pytest.mark.skipif(
    not getattr(sys, "get_int_max_str_digits", int)(), reason="this Python converts any integer"
)
@pytest.mark.parametrize("metadata", [{"a": 10**5000}, {"a": {10**5000: 1}}])
def test_an_integer_of_thousands_of_digits_is_refused(metadata):
    with pytest.raises(InvalidInputError, match=r"document 'd' .* too long for JSON.*as text"):
        content_id(with_metadata(metadata))


def test_text_that_no_store_can_hold_is_refused_by_name():
    with pytest.raises(InvalidInputError, match=r"`text of document 'd'` holds the character"):
        content_id(document("half \udc80 a pair"))
    with pytest.raises(InvalidInputError, match=r"`text of document 'd'` must be a string"):
        content_id(document(None))
    with pytest.raises(InvalidInputError, match=r"`document_id` must be a string, got int"):
        content_id(document(document_id=7))
    with pytest.raises(InvalidInputError, match=r"`document_id` holds the character"):
        content_id(document(document_id="\ud800"))
