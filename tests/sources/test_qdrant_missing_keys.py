"""A filter of Qdrant that lets nothing pass, since its keys are in no payload."""

import asyncio
import warnings
from itertools import count

import numpy as np
import pytest

pytest.importorskip("qdrant_client")
from qdrant_client import AsyncQdrantClient, QdrantClient, models

from sift_core import Query
from sift_core.errors import MissingKeyWarning
from sift_core.sources import QdrantSource
from sift_core.sources.qdrant import missing_keys

QUERY = Query(text="a", embedding=np.array([1.0, 0.0]))
LANGCHAIN = {"page_content": "a", "metadata": {"year": 2025, "author": {"name": "Ada"}}}
FLAT = {"text": "a", "year": 2025, "author": {"name": "Ada"}, "tags": [{"of": "x"}]}
DOTTED = {"text": "a", "page.nr": 7, "meta": {"page nr.": 7}, "_node_type": "TextNode"}
numbers = count()


@pytest.fixture(autouse=True)
def seen(monkeypatch):
    """Return what was warned of, which is nothing yet."""
    found = set()
    monkeypatch.setattr(missing_keys, "_seen", found)
    return found


def condition(key, value=1999):
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


def filled(client, payload):
    """Return the name of a new collection: a key of each is named once."""
    name = f"of filters {next(numbers)}"
    size = models.VectorParams(size=2, distance=models.Distance.COSINE)
    steps = (
        client.create_collection(name, size),
        client.upsert(name, [models.PointStruct(id=1, vector=[1.0, 0.0], payload=payload)]),
    )
    return name, steps


@pytest.mark.parametrize(
    ("payload", "asked", "said"),
    [
        (LANGCHAIN, models.Filter(must=[condition("year")]), r"'year'.*'metadata.year'"),
        (LANGCHAIN, models.Filter(must=condition("metadata.yeer")), "'metadata.yeer'"),
        (FLAT, models.Filter(should=[condition("metadata.year")]), "'metadata.year'.*'year'"),
        (
            FLAT,
            models.Filter(min_should=models.MinShould(conditions=[condition("page")], min_count=1)),
            "'page'",
        ),
        (FLAT, models.Filter(must=[models.Filter(must=[condition("deep")])]), "'deep'"),
    ],
    ids=str,
)
def test_a_key_that_no_point_has_is_named_once(payload, asked, said):
    client = QdrantClient(":memory:")
    name, _ = filled(client, payload)
    source = QdrantSource(client, name)
    with pytest.warns(MissingKeyWarning, match=said) as warned:
        assert len(source.fetch(QUERY, 3, filter=asked)) == 0
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", MissingKeyWarning)
        assert len(source.fetch(QUERY, 3, filter=asked)) == 0


def test_of_alternatives_one_that_is_there_is_enough():
    client = QdrantClient(":memory:")
    name, _ = filled(client, LANGCHAIN)
    either = [condition("year"), condition("metadata.year")]
    source = QdrantSource(client, name)
    with warnings.catch_warnings():
        warnings.simplefilter("error", MissingKeyWarning)
        assert len(source.fetch(QUERY, 3, filter=models.Filter(should=either))) == 0
    neither = models.Filter(should=[condition("jahr"), condition("meta.jahr")])
    with pytest.warns(MissingKeyWarning, match=r"the key \['jahr', 'meta.jahr'\]"):
        assert len(source.fetch(QUERY, 3, filter=neither)) == 0


@pytest.mark.parametrize(
    ("payload", "key"),
    [
        (LANGCHAIN, "metadata.year"),
        (LANGCHAIN, "metadata.author.name"),
        (FLAT, "year"),
        (FLAT, "author.name"),
        (FLAT, "tags[].of"),
        (DOTTED, '"page.nr"'),
        (DOTTED, 'meta."page nr."'),
        (DOTTED, "_node_type"),
    ],
)
def test_a_filter_with_keys_that_are_there_says_nothing(payload, key):
    client = QdrantClient(":memory:")
    name, _ = filled(client, payload)
    with warnings.catch_warnings():
        warnings.simplefilter("error", MissingKeyWarning)
        asked = models.Filter(must=[condition(key)])
        assert len(QdrantSource(client, name).fetch(QUERY, 3, filter=asked)) == 0


def test_an_awaited_search_names_it_too():
    async def ask():
        client = AsyncQdrantClient(":memory:")
        name, steps = filled(client, LANGCHAIN)
        for step in steps:
            await step
        asked = models.Filter(must=[condition("year")])
        return await QdrantSource(client, name).afetch(QUERY, 3, filter=asked)

    with pytest.warns(MissingKeyWarning, match=r"'metadata.year'"):
        assert len(asyncio.run(ask())) == 0


def test_a_client_that_asks_for_any_number_of_keys_fills_no_memory(seen):
    client = QdrantClient(":memory:")
    name, _ = filled(client, FLAT)
    source = QdrantSource(client, name)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for number in range(missing_keys.MOST_WARNINGS + 3):
            source.fetch(QUERY, 3, filter=models.Filter(must=[condition(f"key_{number}")]))
    assert len(warned) == len(seen) == missing_keys.MOST_WARNINGS
