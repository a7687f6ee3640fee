import hashlib
import logging
from io import BytesIO

import numpy as np
import pytest

from sift_core import InvalidInputError
from sift_core.evaluation import embedding_cache
from sift_core.evaluation.embedding_cache import EmbeddingCache, version_of
from sift_core.testing import HashingEmbedder


class CountingEmbedder:
    """Embeds a text as its length and first letter; remembers what it was asked."""

    name = "counting"

    def __init__(self, fail_at=None):
        self.asked = []
        self.fail_at = fail_at

    def embed_query(self, text):
        return -self.embed_documents([text])[0]

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


def counting(folder, make_embedder=CountingEmbedder):
    return EmbeddingCache(folder, "counting", make_embedder)


def no_embedder():
    raise AssertionError("everything is in the cache")


def test_embeddings_come_in_the_order_of_the_texts_and_are_made_once(tmp_path, monkeypatch):
    monkeypatch.setattr(embedding_cache, "BATCH", 1)
    for make_embedder in (CountingEmbedder, no_embedder):
        cache = counting(tmp_path, make_embedder)
        found = cache.embed(TEXTS)
        np.testing.assert_array_equal(found, EXPECTED)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(cache.embed_queries(TEXTS), -np.array(EXPECTED))


def test_an_interrupted_call_resumes_at_the_block_that_it_lost(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        counting(tmp_path, lambda: CountingEmbedder("ccc")).embed(TEXTS)
    embedder = CountingEmbedder()
    found = counting(tmp_path, lambda: embedder).embed(TEXTS)
    np.testing.assert_array_equal(found, EXPECTED)
    assert sorted(embedder.asked) == ["ccc", "dddd", "eeeee"]
    assert not list(tmp_path.glob("*.unfinished"))


DAMAGES = {
    "cut": lambda content, other: content[:-3],
    "a bit of a number": lambda content, other: content[:-40] + b"\x01" + content[-39:],
    "a list": lambda content, other: b"[]",
    "another file": lambda content, other: other,
    "nothing": lambda content, other: b"",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_made_again(tmp_path, caplog, damage):
    cache = counting(tmp_path)
    cache.embed(TEXTS)
    damaged, other = (cache.path_of(TEXTS[i : i + 2]) for i in (0, 2))
    damaged.write_bytes(damage(damaged.read_bytes(), other.read_bytes()))
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(counting(tmp_path).embed(TEXTS), EXPECTED)
    assert "made again" in caplog.text
    np.testing.assert_array_equal(counting(tmp_path, no_embedder).embed(TEXTS), EXPECTED)


@pytest.mark.parametrize("rows", [[["x"]], [[np.nan]], [[None]], 5.0, None], ids=repr)
def test_a_forged_file_is_made_again(tmp_path, rows):
    cache = counting(tmp_path)
    cache.embed(TEXTS)
    forged, path = BytesIO(), cache.path_of(TEXTS[:2])
    if rows is None:
        np.savez(forged, rows=np.ones(2))
    else:
        np.save(forged, np.array(rows))
    content = forged.getvalue()
    path.write_bytes(content + hashlib.sha256(path.name.encode() + content).digest())
    np.testing.assert_array_equal(counting(tmp_path).embed(TEXTS), EXPECTED)


def test_an_embedder_of_another_name_is_refused(tmp_path):
    cache = EmbeddingCache(tmp_path, "hashing-64", lambda: HashingEmbedder(32))
    with pytest.raises(InvalidInputError, match=r"'hashing-32', got 'hashing-64'"):
        cache.embed(["one"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("rows", "message"),
    [(np.ones((2, 3)), "shape"), (np.ones(3), "shape"), (np.array([[np.nan]]), "inf or nan")],
)
def test_an_embedder_that_gives_no_finite_vector_a_text_is_refused(tmp_path, rows, message):
    embedder = CountingEmbedder()
    embedder.embed_documents = lambda texts: rows
    with pytest.raises(InvalidInputError, match=message):
        counting(tmp_path, lambda: embedder).embed(["one"])


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(InvalidInputError, match=r"kept in .*file/cache: .*another folder"):
        counting(tmp_path / "file/cache").embed(TEXTS)


def test_a_model_that_was_changed_in_its_folder_is_another_one(tmp_path):
    model = tmp_path / "model"
    (model / "1_Pooling").mkdir(parents=True)
    for name in ("weights.bin", "1_Pooling/config.json"):
        (model / name).write_text("as it was")
    before = version_of(str(model))
    assert before == version_of(str(model))
    (model / "1_Pooling/config.json").write_text("tuned")
    after = version_of(str(model))
    assert after != before
    assert version_of("all-MiniLM-L6-v2") == ""
    versions = [
        EmbeddingCache(tmp_path, "m", version=one).path_of(TEXTS) for one in ("", before, after)
    ]
    names = [EmbeddingCache(tmp_path, model).path_of(["ab", "c"]) for model in ("one", "two")]
    names.append(EmbeddingCache(tmp_path, "one").path_of(["a", "bc"]))
    assert len({*versions, *names}) == 6  # texts that join alike, too


@pytest.mark.parametrize("texts", [[], "one text", [1]])
def test_what_is_no_text_is_refused(tmp_path, texts):
    with pytest.raises(InvalidInputError, match="`texts` must"):
        counting(tmp_path).embed(texts)
