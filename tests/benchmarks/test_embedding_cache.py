import numpy as np
import pytest

from benchmarks import embedding_cache
from benchmarks.embedding_cache import EmbeddingCache


class CountingEmbedder:
    """Embeds a text as its length and first letter; remembers what it was asked."""

    name = "counting"

    def __init__(self, fail_at=None):
        self.asked = []
        self.fail_at = fail_at

    def embed_documents(self, texts):
        if self.fail_at in texts:
            raise KeyboardInterrupt
        self.asked += texts
        return np.array([[len(text), ord(text[0])] for text in texts], dtype=np.float32)


TEXTS = ["bb", "a", "dddd", "ccc", "eeeee"]
EXPECTED = [[2, 98], [1, 97], [4, 100], [3, 99], [5, 101]]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(embedding_cache, "BLOCK", 2)


def test_embeddings_come_in_the_order_of_the_texts(tmp_path):
    cache = EmbeddingCache(tmp_path, make_embedder=CountingEmbedder)
    np.testing.assert_array_equal(cache.embed(TEXTS), EXPECTED)


def test_a_second_call_embeds_nothing_and_makes_no_embedder(tmp_path):
    EmbeddingCache(tmp_path, make_embedder=CountingEmbedder).embed(TEXTS)
    np.testing.assert_array_equal(
        EmbeddingCache(tmp_path, make_embedder=list).embed(TEXTS), EXPECTED
    )


def test_another_model_has_other_embeddings(tmp_path):
    names = {EmbeddingCache(tmp_path, model).path_of(TEXTS) for model in ("one", "two")}
    assert len(names) == 2


def test_texts_are_told_apart_where_they_join(tmp_path):
    cache = EmbeddingCache(tmp_path)
    assert cache.path_of(["ab", "c"]) != cache.path_of(["a", "bc"])


def test_an_interrupted_call_resumes_at_the_block_that_it_lost(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        EmbeddingCache(tmp_path, make_embedder=lambda: CountingEmbedder("ccc")).embed(TEXTS)
    embedder = CountingEmbedder()
    found = EmbeddingCache(tmp_path, make_embedder=lambda: embedder).embed(TEXTS)
    np.testing.assert_array_equal(found, EXPECTED)
    assert sorted(embedder.asked) == ["ccc", "dddd", "eeeee"]
    assert not list(tmp_path.glob("*.unfinished"))
