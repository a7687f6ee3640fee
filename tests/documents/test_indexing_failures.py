"""Stores and iterables that fail or ask to wait while documents are indexed."""

import sys
import time
from contextlib import contextmanager, suppress

import pytest

from sift_core.errors import CandidateSourceError, SiftError
from sift_core.sources.content_ids import content_id
from tests.documents.kill_indexing import STORES
from tests.documents.test_indexing import (
    DictIndex,
    assert_holds_exactly,
    assert_store_holds_exactly,
    index_into,
    some_documents,
)


class DyingIndex(DictIndex):
    """Stores half of its `dies_at`-th batch and fails, once."""

    def __init__(self, dies_at, retry_after_s=None):
        super().__init__()
        self.dies_at = dies_at
        self.retry_after_s = retry_after_s
        self.n_adds = 0

    def add(self, content_ids, documents, embeddings):
        self.n_adds += 1
        if self.n_adds != self.dies_at:
            return super().add(content_ids, documents, embeddings)
        half = len(documents) // 2
        super().add(content_ids[:half], documents[:half], embeddings[:half])
        raise CandidateSourceError("the disk is full", retry_after_s=self.retry_after_s)


METHODS = {"content_ids", "prepare", "add", "remove", "complete"}


class BusyIndex(DictIndex):
    """Answers "later" the first `n_busy` times that each of its methods is called."""

    def __init__(self, n_busy, retry_after_s=0.001):
        super().__init__()
        self.refusals_left = {}
        self.n_busy = n_busy
        self.retry_after_s = retry_after_s

    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        if name not in METHODS:
            return value

        def call(*arguments, **options):
            left = self.refusals_left.setdefault(name, self.n_busy)
            if left:
                self.refusals_left[name] -= 1
                raise CandidateSourceError(f"too busy: {name}", retry_after_s=self.retry_after_s)
            return value(*arguments, **options)

        return call


def test_a_crash_of_the_iterable_comes_through_and_deletes_nothing():
    index = DictIndex()
    index_into(index, some_documents(1, 2, 3))

    def crashing():
        yield from some_documents(4, 5, 6)
        raise OSError("the share went away")

    with pytest.raises(OSError, match="the share went away"):
        index_into(index, crashing(), batch_size=2)
    assert_holds_exactly(index, some_documents(1, 2, 3, 4, 5))


@pytest.mark.parametrize("dies_at", [1, 2, 3])
def test_a_store_that_dies_in_a_batch_is_completed_by_the_next_run(dies_at):
    index = DyingIndex(dies_at)
    documents = some_documents(*range(10))
    safe = 4 * (dies_at - 1)
    with pytest.raises(
        CandidateSourceError, match=f"with {safe} new documents safely stored.*the disk is full"
    ) as info:
        index_into(index, documents, batch_size=4)
    assert str(info.value.__cause__) == "the disk is full"
    assert info.value.retry_after_s is None
    report = index_into(index, documents, batch_size=4)
    assert report.n_added + report.n_unchanged == 10
    assert report.n_unchanged >= safe
    assert_holds_exactly(index, documents)


@pytest.mark.parametrize("n_busy", [1, 5])
def test_a_store_that_says_later_is_asked_again_after_as_long_as_it_said(n_busy, monkeypatch):
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    index = BusyIndex(n_busy=n_busy, retry_after_s=7.5)
    index.stored = {"vanished": None}
    assert index_into(index, some_documents(1, 2)).n_deleted == 1
    assert set(index.refusals_left) == METHODS
    assert not any(index.refusals_left.values())
    assert waits == [7.5] * 5 * n_busy
    assert_holds_exactly(index, some_documents(1, 2))


def test_a_store_is_flushed_so_often_that_this_takes_a_small_part_of_the_time(monkeypatch):
    """A batch takes 1 s, a flush 1/40 s a batch that is stored: 2 %, 4 %, 6 % of a batch."""
    now_s = 0.0

    class Slow(DictIndex):
        def add(self, *arguments):
            nonlocal now_s
            now_s += 1
            super().add(*arguments)

        def flush(self):
            nonlocal now_s
            now_s += len(self.stored) / 40
            self.calls.append(f"flush {len(self.stored)}")

    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    index = Slow()
    index_into(index, some_documents(*range(10)), batch_size=1)
    # After 1 of 1/40 s: 20/40 s at least. After 2: 1 s. After 3: 1.5 s, so 2 batches later.
    flushes = [call for call in index.calls if call.startswith("flush")]
    assert flushes == ["flush 1", "flush 2", "flush 3", "flush 5", "flush 8"]


def test_an_error_tells_what_was_flushed_and_flushes_the_rest_where_it_can():
    class Unflushed(DyingIndex):
        def flush(self):
            if self.n_adds == self.dies_at:
                raise CandidateSourceError("no space left")

    with pytest.raises(CandidateSourceError, match="with 4 new documents safely stored"):
        index_into(Unflushed(2), some_documents(*range(10)), batch_size=4)


def test_a_store_that_stays_busy_is_given_up_with_its_time():
    index = BusyIndex(n_busy=6)
    with pytest.raises(
        CandidateSourceError,
        match=r"stopped after waiting 5 times as it said, with 0 new .* too busy: content_ids",
    ) as info:
        index_into(index, some_documents(1))
    assert info.value.retry_after_s == 0.001
    assert index.refusals_left == {"content_ids": 0}


@pytest.mark.parametrize("retry_after_s", [60.001, float("inf"), float("nan")])
def test_a_long_wait_is_left_to_the_caller(retry_after_s):
    index = BusyIndex(n_busy=1, retry_after_s=retry_after_s)
    with pytest.raises(CandidateSourceError, match="indexing stopped, with 0 new") as info:
        index_into(index, some_documents(1))
    assert info.value.retry_after_s is not None


@contextmanager
def full_at(n_bytes):
    """Let no file become larger than so many bytes; Python ignores the signal that says so."""
    resource = pytest.importorskip("resource")
    _, most = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.skipif(sys.platform == "win32", reason="needs RLIMIT_FSIZE")
@pytest.mark.parametrize(
    ("kind", "n_bytes"),
    [
        *(("faiss", n_bytes) for n_bytes in (0, 1_000, 10_000, 30_000)),
        *(("qdrant-folder", n_bytes) for n_bytes in (0, 10_000)),
    ],
)
def test_a_full_disk_loses_nothing_that_was_stored(kind, n_bytes, tmp_path):
    pytest.importorskip("faiss" if kind == "faiss" else "qdrant_client")
    before, wanted = some_documents(*range(20)), some_documents(*range(120))
    with STORES[kind](tmp_path / "store", None) as source:
        index_into(source, before)
    with (
        full_at(n_bytes),
        suppress(SiftError),
        STORES[kind](tmp_path / "store", None) as source,
    ):
        index_into(source, wanted, batch_size=16)
    with STORES[kind](tmp_path / "store", None) as source:
        assert {content_id(document) for document in before} <= source.content_ids()
        index_into(source, wanted)
    with STORES[kind](tmp_path / "store", None) as source:
        assert_store_holds_exactly(source, wanted)
