"""Texts are embedded once a model, within a number of bytes."""

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sift_core import InvalidInputError
from sift_core.testing import HashingEmbedder
from sift_core.vector_cache import BATCH, KeptEmbedder, KeptVectors

D = 64
ROW = D * 4 + 300  # bytes with what a key takes


class CountingEmbedder(HashingEmbedder):
    """Notes what it is asked to embed."""

    def __init__(self):
        super().__init__(D)
        self.asked = []

    def embed_documents(self, texts):
        self.asked.append(list(texts))
        return super().embed_documents(texts)

    async def aembed_documents(self, texts):
        return self.embed_documents(texts)


@pytest.fixture
def model():
    return CountingEmbedder()


def embedded(kept, model, *texts):
    rows = kept.embedded(model, texts, model.embed_documents)
    np.testing.assert_array_equal(rows, HashingEmbedder(D).embed_documents(texts))


async def test_a_text_is_embedded_once_whatever_comes_with_it(model):
    kept = KeptVectors()
    embedded(kept, model, "a", "b", "a")
    embedded(kept, model, "c", "b", "a")
    rows = await kept.aembedded(model, ["d", "c"], model.aembed_documents)
    np.testing.assert_array_equal(rows, HashingEmbedder(D).embed_documents(["d", "c"]))
    assert await kept.aembedded(model, [], model.aembed_documents) == []
    assert model.asked == [["a", "b"], ["c"], ["d"]]


def test_two_models_do_not_share_vectors_nor_does_one_at_a_former_ones_address(model):
    kept = KeptVectors()
    embedded(kept, model, "a")
    for _ in range(20):  # each is where the one before was, as a rule
        other = CountingEmbedder()
        embedded(kept, other, "a")
        assert other.asked == [["a"]]
        del other
    assert model.asked == [["a"]]


def test_the_least_recently_used_goes_first_and_no_more_is_kept_than_may_be(model):
    kept = KeptVectors(max_bytes=2 * ROW)
    embedded(kept, model, "a", "b")
    embedded(kept, model, "a")
    embedded(kept, model, "c")
    assert kept.n_bytes == 2 * ROW
    embedded(kept, model, "a", "c")
    embedded(kept, model, "b")
    assert model.asked == [["a", "b"], ["c"], ["b"]]
    nothing_fits = KeptVectors(max_bytes=1)
    embedded(nothing_fits, model, "a", "b")
    assert nothing_fits.n_bytes == 0


def test_a_view_of_a_batch_does_not_keep_the_batch(model):
    kept = KeptVectors()
    (row,) = kept.embedded(model, ["a"], model.embed_documents)
    assert row.base is None


def test_what_cannot_be_used_or_kept_is_embedded_again_and_evicts_nothing(model):
    kept = KeptVectors(max_bytes=2 * ROW)
    embedded(kept, model, "a")
    for bad in ([np.nan] * D, [np.inf] * D, [1.0] * 1_000, ["one"], [None]):
        kept.embedded(model, ["b"], lambda texts, bad=bad: [bad])
    embedded(kept, model, "a", "b")
    assert model.asked == [["a"], ["b"]]


def test_a_vector_that_somebody_writes_to_is_not_everybodys(model):
    kept = KeptVectors()
    (row,) = kept.embedded(model, ["a"], model.embed_documents)
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 9.0


def test_a_model_that_takes_no_weak_reference_embeds_each_time():
    class Slotted:
        __slots__ = ()

    kept, slotted = KeptVectors(), Slotted()
    for value in (1.0, 2.0):
        found = kept.embedded(slotted, ["a"], lambda texts, value=value: [[value]])
        assert found[0].tolist() == [value]


def test_nothing_is_remembered_of_models_that_are_gone(model):
    kept = KeptVectors()
    others = [CountingEmbedder() for _ in range(20)]
    for other in others:
        embedded(kept, other, "a")
    del other, others
    gc.collect()
    embedded(kept, model, "a")
    assert len(kept._numbers) == 1


def test_threads_get_the_vectors_of_their_texts(model):
    kept = KeptVectors(max_bytes=20 * ROW)
    texts = [str(i) for i in range(40)]

    def ask(seed):
        order = np.random.default_rng(seed).permutation(texts).tolist()
        for start in range(0, 40, 8):
            embedded(kept, model, *order[start : start + 8])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(50)))
    assert kept.n_bytes == 20 * ROW


def test_another_number_of_vectors_than_texts_is_refused(model):
    with pytest.raises(InvalidInputError, match="one vector a text, got 1 for 2 texts"):
        KeptVectors().embedded(model, ["a", "b"], lambda texts: [[1.0]])


@pytest.mark.parametrize("max_bytes", [0, -1, 1.5, None])
def test_a_size_that_cannot_be_is_refused(max_bytes):
    with pytest.raises(InvalidInputError, match="max_bytes"):
        KeptVectors(max_bytes)


@pytest.fixture
def kept_embedder(model):
    return KeptEmbedder(model, max_bytes=2**20, on_lookup=lambda hits, misses: None)


def test_an_embedder_keeps_questions_and_documents_apart_and_counts_lookups(model):
    lookups = []

    class Signed:
        name = "signed"
        embed_documents = model.embed_documents

        def embed_query(self, text):
            return -HashingEmbedder(D).embed_query(text)

    kept = KeptEmbedder(Signed(), max_bytes=2**20, on_lookup=lambda *n: lookups.append(n))
    for _ in range(2):
        rows = kept.embed_documents(["a", "b", "a"])
        np.testing.assert_array_equal(rows, HashingEmbedder(D).embed_documents(["a", "b", "a"]))
        np.testing.assert_array_equal(kept.embed_query("a"), -rows[0])
    assert model.asked == [["a", "b"]]
    assert lookups == [(0, 2), (0, 1), (2, 0), (1, 0)]


def test_a_text_that_several_threads_need_at_once_is_embedded_once(model, kept_embedder):
    embed, start = model.embed_documents, threading.Barrier(4)

    def slowly(texts):
        time.sleep(0.05)
        return embed(texts)

    def ask(_):
        start.wait()
        return kept_embedder.embed_documents(["a", "b"])

    model.embed_documents = slowly
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(ask, range(4)))
    assert model.asked == [["a", "b"]]
    np.testing.assert_array_equal(rows, [HashingEmbedder(D).embed_documents(["a", "b"])] * 4)


def test_batches_that_were_embedded_before_the_work_ended_are_kept(model, kept_embedder):
    texts, batches = [str(i) for i in range(2 * BATCH)], []

    def stop():
        batches.append(len(model.asked))
        if len(batches) == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        kept_embedder.embed_documents(texts, go_on=stop)
    kept_embedder.embed_documents(texts)
    assert model.asked == [texts[:BATCH], texts[BATCH:]]


def test_tokens_are_counted_once_and_estimated_where_the_model_counts_none(model, kept_embedder):
    counted = []
    # By `estimated_tokens`: two words of 0.85 are 2, and one is 1, both rounded up.
    assert kept_embedder.n_tokens(["the boss", "b"]) == 3
    model.count_tokens = lambda text: counted.append(text) or len(text)
    counting = KeptEmbedder(model, max_bytes=1, on_lookup=lambda hits, misses: None)
    assert [counting.n_tokens(["a" * 8, "b", "b"]) for _ in range(2)] == [10, 10]
    assert counting.count_tokens("b") == 1
    assert counted == ["a" * 8, "b"]
