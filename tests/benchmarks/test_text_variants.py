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
from sift_core.evaluation.data import Passage
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.evaluation.search import as_is
from sift_core.testing import HashingEmbedder

TEXT = (
    "Jane Austen was born in 1775. She wrote six novels. Emma came out in 1815. It was the last "
    'in her life. "Persuasion" followed after her death. She lies in Winchester.'
)
LINE = "A star makes light."


@pytest.mark.parametrize("text", [TEXT, LINE])
def test_versions_are_distinct_and_tell_the_same(text):
    found = versions(text, "id", 50, seed=0)
    assert found[0] == text
    assert len(set(found)) == 50
    sentences = sentences_of(text)
    assert min(sum(one in version for one in sentences) for version in found) >= 2 / 3 * len(
        sentences
    )
    limit = max(SMALLEST_LIMIT, LARGEST_BOILERPLATE * len(text))
    assert max(map(len, found)) <= len(text) + limit + 2  # two blanks


def test_versions_depend_on_the_arguments_alone():
    found = versions(TEXT, "id", 4, seed=0)
    assert found[:2] == versions(TEXT, "id", 2, seed=0)
    assert found[1:] != versions(TEXT, "other", 4, seed=0)[1:]
    assert found[1:] != versions(TEXT, "id", 4, seed=1)[1:]
    # Embeddings are kept by text: another version of this module makes them all anew.
    assert versions(LINE, "id", 2, seed=0)[1] == "Print this page A star makes light."


def test_variants_add_to_the_passages(tmp_path):
    passages = [
        Passage(passage_id="a", title="Tides", text="The moon pulls at the sea. Tides follow."),
        Passage(passage_id="b", title="", text="Bees dance. They tell where flowers are."),
    ]
    cache = EmbeddingCache(tmp_path / "cache", "hashing-64", HashingEmbedder)
    made = textual_variants(passages, 3, 0, cache)
    assert made.originals.tolist() == [0, 1, 0, 1, 0, 1]
    np.testing.assert_array_equal(made.embeddings[:2], as_is(passages, cache).embeddings)
    path = tmp_path / "mirror.jsonl"
    path.write_text(json.dumps({"id": "v", "text": passages[1].text, "duplicate_of": "b"}))
    given = given_variants(passages, path, cache)
    assert given.originals.tolist() == [0, 1, 1]
    np.testing.assert_array_equal(given.embeddings[2], given.embeddings[1])
