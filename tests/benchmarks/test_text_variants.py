import json

import numpy as np
import pytest

from benchmarks.text_variants import (
    LARGEST_BOILERPLATE,
    SMALLEST_LIMIT,
    given_variants,
    sentences_of,
    textual_variants,
    versions,
)
from sift_core import InvalidInputError
from sift_core.evaluation.data import Passage
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.evaluation.search import as_is
from sift_core.testing import HashingEmbedder

TEXT = (
    "Jane Austen was born in 1775. She wrote six novels. Emma came out in 1815. It was the last "
    'in her life. "Persuasion" followed after her death. She lies in Winchester.'
)
SENTENCES = sentences_of(TEXT)
TEXTS = {"sentences": TEXT, "one line": "A star makes light."}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_versions_are_distinct_and_the_first_is_the_text(text):
    found = versions(text, "id", 20, seed=0)
    assert found[0] == text
    assert len(set(found)) == len(found) == 20


def test_versions_depend_on_the_arguments_alone():
    found = versions(TEXT, "id", 4, seed=0)
    assert found == versions(TEXT, "id", 4, seed=0)
    assert found[:2] == versions(TEXT, "id", 2, seed=0)
    assert found[1:] != versions(TEXT, "other", 4, seed=0)[1:]
    assert found[1:] != versions(TEXT, "id", 4, seed=1)[1:]


def test_a_pinned_version():
    # Embeddings are kept by text: another version of this module makes them all anew.
    assert versions(TEXTS["one line"], "id", 2, seed=0)[1] == "Print this page A star makes light."


def test_at_most_a_third_of_the_sentences_is_dropped_and_none_is_changed():
    kept = [sum(one in text for one in SENTENCES) for text in versions(TEXT, "id", 100, seed=0)]
    assert min(kept) == 4
    assert max(kept) == 6


def test_every_kind_of_edit_happens():
    found = versions(TEXT, "id", 100, seed=0)[1:]
    assert any(not text.startswith(tuple(SENTENCES)) for text in found)
    assert any(not text.endswith(tuple(SENTENCES)) for text in found)
    places = [[text.index(one) for one in SENTENCES if one in text] for text in found]
    assert any(place != sorted(place) for place in places)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_the_text_outweighs_the_boilerplate(text):
    limit = max(SMALLEST_LIMIT, LARGEST_BOILERPLATE * len(text))
    longest = max(versions(text, "id", 50, seed=0), key=len)
    assert len(longest) <= len(text) + limit + 2  # two blanks


PASSAGES = [
    Passage(passage_id="a", title="Tides", text="The moon pulls at the sea. Tides follow."),
    Passage(passage_id="b", title="", text="Bees dance. They tell where flowers are."),
]


@pytest.fixture
def cache(tmp_path):
    return EmbeddingCache(tmp_path / "cache", "hashing-64", HashingEmbedder)


def test_textual_variants_add_to_the_passages(cache):
    found = textual_variants(PASSAGES, 3, 0, cache)
    assert found.condition == "variants 3"
    assert found.originals.tolist() == [0, 1, 0, 1, 0, 1]
    np.testing.assert_array_equal(found.embeddings[:2], as_is(PASSAGES, cache).embeddings)
    cosines = found.embeddings @ found.embeddings.T
    assert (cosines[0, [2, 4]] > cosines[0, [3, 5]]).all()  # nearer to its own than to the other's


def test_given_variants_add_to_the_passages(tmp_path, cache):
    row = {"id": "v", "title": "", "text": PASSAGES[1].text, "duplicate_of": "b"}
    path = tmp_path / "mirror.jsonl"
    path.write_text(json.dumps(row), encoding="utf-8")
    found = given_variants(PASSAGES, path, cache)
    assert found.condition == "variants mirror.jsonl"
    assert found.originals.tolist() == [0, 1, 1]
    np.testing.assert_array_equal(found.embeddings[2], found.embeddings[1])


@pytest.mark.parametrize(
    "row",
    [{"id": "v", "text": "?"}, {"id": "v", "text": "?", "of": "c"}, {"id": "a", "text": "?"}],
)
def test_a_variant_of_nothing_is_refused(tmp_path, cache, row):
    path = tmp_path / "v.jsonl"
    path.write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(InvalidInputError, match="no variant"):
        given_variants(PASSAGES, path, cache)
