import io
import re
import sys
import tracemalloc

import numpy as np
import pytest

from sift_core.documents.indexing import IndexingReport, index_documents
from sift_core.errors import InvalidInputError
from sift_core.sources import InMemorySource
from sift_core.sources.content_ids import content_id
from sift_core.testing import HashingEmbedder
from sift_core.types import Document, Query
from tests.documents.kill_indexing import STORES, address_for

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


class CountingEmbedder(HashingEmbedder):
    def __init__(self, dimension=16):
        super().__init__(dimension)
        self.batches = []

    def embed_documents(self, texts):
        self.batches.append(len(texts))
        return super().embed_documents(texts)


@pytest.fixture(
    params=[
        *("faiss", "qdrant-rest"),
        pytest.param("qdrant-folder", marks=pytest.mark.slow),
    ]
)
def opened(request, tmp_path):
    """Open one kind of store again and again."""
    with address_for(request.param) as url:
        yield lambda: STORES[request.param](tmp_path / "store", url)


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
    index.stored[content_id(some_documents(1)[0])][1][:] = 7  # written by a bad run
    report = index_into(index, some_documents(1, 5), resume=False)
    assert (report.n_added, report.n_unchanged, report.n_deleted) == (2, 0, 2)
    assert_holds_exactly(index, some_documents(1, 5))


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


def test_the_store_gets_contiguous_float32_whatever_the_embedder_makes():
    index, columns = DictIndex(), np.asfortranarray(np.array([[1, 2], [3, 4]]))
    index_documents(index, some_documents(1, 2), Returning(columns), progress=False)
    embeddings = np.array([embedding for _, embedding in index.stored.values()])
    assert (embeddings.dtype, embeddings.tolist()) == (np.float32, [[1, 2], [3, 4]])


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"source": InMemorySource(np.eye(2), ["a", "b"])},
            r"a FaissSource.*read-only\), got InMemory",
        ),
        ({"source": DictIndex("minilm")}, r"vectors of 'minilm'.* those of 'hashing-16'"),
        ({"embedder": len}, "`embedder` must have `name`, .* a builtin_function"),
        ({"documents": some_documents(1)[0]}, "an iterable of Document, got Document"),
        ({"documents": [*some_documents(1, 2), {}]}, "must yield Document, got dict at 2"),
        ({"documents": [Document(document_id="d", text="", metadata={1: 2})]}, "document 'd'"),
        ({"batch_size": 0}, "`batch_size` must be >= 1"),
    ],
)
def test_wrong_arguments_are_named_before_anything_is_written(changes, message):
    index = DictIndex()
    arguments = {"source": index, "documents": some_documents(1), "embedder": EMBEDDER, **changes}
    with pytest.raises(InvalidInputError, match=message):
        index_documents(**arguments, progress=False)
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


@pytest.mark.parametrize("as_iterable", [list, iter])
def test_a_bar_ends_at_the_total(monkeypatch, as_iterable):
    tqdm, bars = pytest.importorskip("tqdm"), []

    class Bar(tqdm.tqdm):
        def __init__(self, **options):
            super().__init__(**{**options, "file": io.StringIO(), "disable": False})
            bars.append((self, options))

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    documents = some_documents(*range(5)) * 2
    index_documents(DictIndex(), as_iterable(documents), EMBEDDER)
    ((bar, options),) = bars
    assert bar.n == 10
    assert options["total"] == (10 if as_iterable is list else None)
    assert options["disable"] is None  # only on a terminal, in tqdm's words
    index_into(DictIndex(), documents)
    assert len(bars) == 1  # progress=False
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert index_documents(DictIndex(), documents, EMBEDDER).n_added == 5
