import importlib
import re
import sys
import time
import tracemalloc
from contextlib import nullcontext

import numpy as np
import pytest

from sift_core.documents.indexing import IndexingReport, index_documents
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.sources import InMemorySource
from sift_core.sources.content_ids import content_id
from sift_core.testing import HashingEmbedder
from sift_core.types import Document, Query
from tests.documents.kill_indexing import STORES

EMBEDDER = HashingEmbedder(dimension=16)


class DictIndex:
    """The smallest thing that keeps DocumentIndex's promises."""

    def __init__(self, embedder_name=None):
        self.embedder_name = embedder_name
        self.dimension = None
        self.stored = {}
        self.calls = []

    def prepare(self, *, embedder_name, dimension):
        self.calls.append("prepare")
        if self.dimension not in (None, dimension):
            raise InvalidInputError(f"holds {self.dimension} dimensions, not {dimension}")
        self.embedder_name, self.dimension = embedder_name, dimension

    def content_ids(self):
        return set(self.stored)

    def add(self, content_ids, documents, embeddings):
        self.calls.append(f"add {len(documents)}")
        for key, document, embedding in zip(content_ids, documents, embeddings, strict=True):
            self.stored[key] = (document, embedding.copy())

    def remove(self, content_ids):
        self.calls.append(f"remove {len(content_ids)}")
        for key in content_ids:
            self.stored.pop(key, None)

    def flush(self):
        pass

    def complete(self):
        self.calls.append("complete")


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


class BusyIndex(DictIndex):
    """Answers "later" the first `n_busy` times that each of its methods is called."""

    def __init__(self, n_busy, retry_after_s=0.001):
        super().__init__()
        self.refusals_left = {}
        self.n_busy = n_busy
        self.retry_after_s = retry_after_s

    def _refuse(self, method):
        left = self.refusals_left.setdefault(method, self.n_busy)
        if left:
            self.refusals_left[method] -= 1
            raise CandidateSourceError(f"too busy to {method}", retry_after_s=self.retry_after_s)

    def prepare(self, **options):
        self._refuse("prepare")
        super().prepare(**options)

    def content_ids(self):
        self._refuse("list")
        return super().content_ids()

    def add(self, *arguments):
        self._refuse("add")
        super().add(*arguments)

    def remove(self, content_ids):
        self._refuse("remove")
        super().remove(content_ids)

    def complete(self):
        self._refuse("complete")
        super().complete()


class CountingEmbedder(HashingEmbedder):
    def __init__(self, dimension=16):
        super().__init__(dimension)
        self.batches = []

    def embed_documents(self, texts):
        self.batches.append(len(texts))
        return super().embed_documents(texts)


@pytest.fixture(params=["faiss", "qdrant-folder", "qdrant-memory", "qdrant-rest"])
def opened(request, tmp_path):
    """Open one kind of store again and again."""
    pytest.importorskip("faiss" if request.param == "faiss" else "qdrant_client")
    if request.param not in ("qdrant-memory", "qdrant-rest"):
        open_store = STORES[request.param]
        yield lambda: open_store(tmp_path / "store", None)
        return
    qdrant_client = importlib.import_module("qdrant_client")
    candidates = importlib.import_module("sift_core.sources")
    local = qdrant_client.QdrantClient(":memory:")
    if request.param == "qdrant-memory":
        yield lambda: nullcontext(candidates.QdrantSource(local, "documents"))
    else:
        with importlib.import_module("tests.sources.qdrant_rest").serving(local) as server:
            open_store = STORES["qdrant-rest"]
            yield lambda: open_store(tmp_path / "store", server.url)
    local.close()


def assert_store_holds_exactly(source, documents):
    """As `assert_holds_exactly`, of what a store lists and gives back."""
    assert source.content_ids() == {content_id(document) for document in documents}
    pool = source.fetch(Query(text="?", embedding=EMBEDDER.embed_query("text")), 1000)
    found = dict(zip(pool.document_ids, zip(pool.texts, pool.metadata, strict=True), strict=True))
    assert len(pool) == len(documents)
    assert found == {d.document_id: (d.text, d.metadata) for d in documents}
    np.testing.assert_allclose(
        pool.embeddings, EMBEDDER.embed_documents(pool.texts), rtol=0, atol=1e-6
    )


def test_every_real_store_is_made_equal_to_the_documents(opened):
    first, second = some_documents(*range(60)), some_documents(*range(20, 90))
    with opened() as source:
        report = index_into(source, iter(first), batch_size=16)
        assert (report.n_added, report.n_deleted) == (60, 0)
        assert_store_holds_exactly(source, first)
    with opened() as source:
        report = index_into(source, [*second, *second[:5]], batch_size=16)
        assert report == IndexingReport(
            n_documents=70, n_added=30, n_unchanged=40, n_deleted=20, n_duplicates=5
        )
        assert_store_holds_exactly(source, second)
    with opened() as source:
        assert_store_holds_exactly(source, second)
        report = index_into(source, second, resume=False)
        assert (report.n_added, report.n_unchanged) == (70, 0)
        assert_store_holds_exactly(source, second)


def test_every_real_store_goes_on_after_an_interrupted_run(opened):
    documents = some_documents(*range(40))

    def interrupted():
        yield from documents[:25]
        raise KeyboardInterrupt

    with opened() as source, pytest.raises(KeyboardInterrupt):
        index_into(source, interrupted(), batch_size=10)
    with opened() as source:
        report = index_into(source, documents, batch_size=10)
        assert (report.n_added, report.n_unchanged) == (20, 20)
        assert_store_holds_exactly(source, documents)


def some_documents(*numbers):
    return [Document(document_id=f"d{i}", text=f"text {i}", metadata={"i": i}) for i in numbers]


def assert_holds_exactly(index, documents):
    """Every document once, under its own id, with its own embedding."""
    expected = {content_id(document): document for document in documents}
    assert index.stored.keys() == expected.keys()
    for key, document in expected.items():
        stored, embedding = index.stored[key]
        assert stored == document
        np.testing.assert_array_equal(embedding, EMBEDDER.embed_query(document.text))


def index_into(index, documents, **options):
    return index_documents(index, documents, EMBEDDER, progress=False, **options)


def test_a_second_run_embeds_and_writes_what_changed_and_deletes_what_vanished():
    index, embedder = DictIndex(), CountingEmbedder()
    index_documents(index, some_documents(1, 2, 3), embedder, progress=False)
    index.calls.clear()
    report = index_documents(index, some_documents(3, 2, 1), embedder, progress=False)
    assert (report.n_added, report.n_unchanged, report.n_deleted) == (0, 3, 0)
    assert index.calls == ["complete"]  # an earlier run may have died before it
    assert embedder.batches == [3]
    changed = Document(document_id="d2", text="text 2, edited", metadata={"i": 2})
    report = index_into(index, [*some_documents(1, 4), changed])
    assert (report.n_added, report.n_unchanged, report.n_deleted) == (2, 1, 2)
    assert_holds_exactly(index, [*some_documents(1, 4), changed])
    report = index_into(index, some_documents(5), delete_vanished=False)
    assert (report.n_added, report.n_deleted) == (1, 0)
    assert_holds_exactly(index, [*some_documents(1, 4, 5), changed])


def test_without_resume_everything_is_written_again_in_place():
    index, embedder = DictIndex(), CountingEmbedder()
    index_documents(index, some_documents(1, 2, 3), embedder, progress=False)
    index.stored[content_id(some_documents(2)[0])][1][:] = 7  # written by a bad run
    report = index_documents(index, some_documents(1, 2), embedder, resume=False, progress=False)
    assert (report.n_added, report.n_unchanged, report.n_deleted) == (2, 0, 1)
    assert embedder.batches == [3, 2]
    assert_holds_exactly(index, some_documents(1, 2))


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_equal_documents_are_stored_once(resume, batch_size):
    index, embedder = DictIndex(), CountingEmbedder()
    documents = some_documents(1, 1, 2, 1, 2)
    report = index_documents(
        index, documents, embedder, batch_size=batch_size, resume=resume, progress=False
    )
    assert (report.n_documents, report.n_added, report.n_duplicates) == (2, 2, 3)
    assert sum(embedder.batches) == 2
    assert_holds_exactly(index, some_documents(1, 2))


def test_a_new_store_gets_everything_in_batches_each_read_when_the_last_is_written():
    index = DictIndex()
    states = []

    def reading():
        for document in some_documents(*range(7)):
            states.append(len(index.stored))
            yield document

    index_into(index, reading(), batch_size=3)
    assert states == [0, 0, 0, 3, 3, 3, 6]
    assert index.calls == ["prepare", "add 3", "add 3", "add 1", "complete"]
    assert (index.embedder_name, index.dimension) == ("hashing-16", 16)
    assert_holds_exactly(index, some_documents(*range(7)))


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
    assert set(index.refusals_left) == {"list", "prepare", "add", "remove", "complete"}
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
        match=r"stopped after waiting 5 times as it said, with 0 new .* too busy to list",
    ) as info:
        index_into(index, some_documents(1))
    assert info.value.retry_after_s == 0.001
    assert index.refusals_left == {"list": 0}


@pytest.mark.parametrize("retry_after_s", [60.001, float("inf"), float("nan")])
def test_a_long_wait_is_left_to_the_caller(retry_after_s):
    index = BusyIndex(n_busy=1, retry_after_s=retry_after_s)
    with pytest.raises(CandidateSourceError, match="indexing stopped, with 0 new") as info:
        index_into(index, some_documents(1))
    assert info.value.retry_after_s is not None


def test_no_documents_at_all_are_taken_for_a_mistake_and_what_it_says_deletes_all():
    source = DictIndex()
    index_into(source, some_documents(1, 2))
    assert index_into(source, [], delete_vanished=False).n_deleted == 0
    with pytest.raises(InvalidInputError, match=r"nothing, so all 2 stored .* purpose") as info:
        index_into(source, iter([]))
    assert_holds_exactly(source, some_documents(1, 2))
    advice = re.findall(r"`(source\..*?)`", str(info.value))
    assert len(advice) == 2
    for call in advice:
        eval(call)
    assert source.stored == {}


class Returning:
    """An embedder that makes what it is told to."""

    name = "returning"

    def __init__(self, *answers):
        self._answers = list(answers)

    def embed_query(self, text):
        return np.ones(2)

    def embed_documents(self, texts):
        return self._answers.pop(0)


GOOD = np.ones((2, 2), dtype=np.float32)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.ones((3, 2)), r"shape \(2, 2\) for documents 'd2' to 'd3', got ndarray of shape \(3"),
        (np.ones((2, 3)), r"shape \(2, 2\).*got ndarray of shape \(2, 3\)"),
        (np.ones(4), r"of shape \(4,\)"),
        ([[1.0], [1.0, 2.0]], r"got list of shape \(\) and dtype object"),
        (None, r"got NoneType"),
        (np.ones((2, 2), dtype=complex), r"dtype complex128"),
        ([[1, 2], [np.nan, 1]], r"document 'd3' must be finite as float32"),
        (np.array([[1, 2], [1e39, 1]]), r"document 'd3' must be finite as float32"),
        ([[0, 0], [1, 1]], r"document 'd2' must be other than all zero; so must 0 others"),
        (np.full((2, 2), 1e-46), r"document 'd2' must be other than all zero; so must 1 others"),
    ],
)
def test_a_wrong_embedding_names_the_document_and_nothing_of_its_batch_is_written(answer, message):
    index = DictIndex()
    with pytest.raises(InvalidInputError, match=message):
        index_documents(
            index, some_documents(*range(4)), Returning(GOOD, answer), batch_size=2, progress=False
        )
    assert index.calls == ["prepare", "add 2", "complete"]


def test_a_store_of_another_dimension_refuses_before_anything_is_written():
    index = DictIndex()
    index.dimension = 5
    with pytest.raises(InvalidInputError, match="holds 5 dimensions, not 16"):
        index_into(index, some_documents(1))
    assert index.calls == ["prepare"]


def test_the_store_gets_contiguous_float32_whatever_the_embedder_makes():
    index = DictIndex()
    columns = np.asfortranarray(np.array([[1, 2], [3, 4]]))
    index_documents(index, some_documents(1, 2), Returning(columns), progress=False)
    embeddings = [embedding for _, embedding in index.stored.values()]
    assert [embedding.dtype for embedding in embeddings] == [np.float32] * 2
    assert [embedding.tolist() for embedding in embeddings] == [[1, 2], [3, 4]]


class Untouched:
    """An iterable that must not be read."""

    def __iter__(self):
        raise AssertionError("was read")


@pytest.mark.parametrize(
    ("store", "message"),
    [
        (InMemorySource(np.eye(2), ["a", "b"]), r"a FaissSource.*read-only\), got InMemory"),
        (DictIndex(embedder_name="minilm"), r"vectors of 'minilm'.* those of 'hashing-16'"),
    ],
    ids=["read-only", "embedder"],
)
def test_a_store_that_cannot_be_written_is_refused_before_any_work(store, message):
    with pytest.raises(InvalidInputError, match=message):
        index_documents(store, Untouched(), EMBEDDER)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embedder": len}, "`embedder` must have a name, .* got builtin_function"),
        ({"documents": some_documents(1)[0]}, "an iterable of Document, got Document"),
        ({"documents": [*some_documents(1, 2), {}]}, "must yield Document, got dict at 2"),
        ({"documents": [Document(document_id="d", text="", metadata={1: 2})]}, "document 'd'"),
        ({"batch_size": 0}, "`batch_size` must be >= 1"),
    ],
)
def test_wrong_arguments_are_named(changes, message):
    index = DictIndex()
    arguments = {"documents": some_documents(1), "embedder": EMBEDDER, **changes}
    with pytest.raises(InvalidInputError, match=message):
        index_documents(index, **arguments, progress=False)
    assert index.calls == []


@pytest.mark.slow
def test_a_generator_of_many_documents_takes_bounded_memory():
    class Forgetful(DictIndex):
        """Keeps the ids alone, as a store on a disk does."""

        def add(self, content_ids, documents, embeddings):
            self.calls[:] = ["add"]

    n = 20_000
    embedder = HashingEmbedder(dimension=4)
    documents = (Document(document_id=f"d{i}", text=f"{'x' * 1000} {i % 7}") for i in range(n))
    tracemalloc.start()
    report = index_documents(Forgetful(), documents, embedder, progress=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.n_added == n
    # One id is a string of 36 characters (85 bytes) in a set (at most 4 x 16 bytes while it
    # grows); a batch is 256 documents of 1.3 kB. Held whole, the documents are 26 MB.
    assert peak < 250 * n + 256 * 3000


class Bar:
    """Stands for tqdm's bar."""

    def __init__(self, **options):
        self.options, self.n = options, 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def update(self, n):
        self.n += n


@pytest.mark.parametrize("as_iterable", [list, iter])
def test_a_bar_ends_at_the_total(monkeypatch, as_iterable):
    tqdm, bars = pytest.importorskip("tqdm"), []
    monkeypatch.setattr(tqdm, "tqdm", lambda **options: bars.append(Bar(**options)) or bars[-1])
    documents = some_documents(*range(5)) * 2
    index_documents(DictIndex(), as_iterable(documents), EMBEDDER)
    assert bars[0].options["total"] == (10 if as_iterable is list else None)
    assert bars[0].options["disable"] is None  # only on a terminal, in tqdm's words
    assert bars[0].n == 10
    index_into(DictIndex(), documents)
    assert len(bars) == 1  # progress=False
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert index_documents(DictIndex(), documents, EMBEDDER).n_added == 5
