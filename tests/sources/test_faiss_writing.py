import os
import random
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sift_core.documents import index_documents
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.protocols import BatchCandidateSource, DocumentIndex
from sift_core.sources import FaissSource
from sift_core.sources.content_ids import content_id
from sift_core.sources.faiss.sqlite_documents import SQLiteDocuments
from sift_core.testing import HashingEmbedder
from sift_core.types import Document, Query

faiss = pytest.importorskip("faiss")

from tests.sources.faiss_corpus import (  # noqa: E402  # needs faiss
    NAME,
    D,
    add,
    built,
    contents,
    document,
    documents,
    elsewhere,
    query,
    remove,
    saved,
    vectors,
)
from tests.sources.test_faiss_folder import died, only  # noqa: E402
from tests.sources.test_faiss_index import recorded  # noqa: E402

# Every way in which an index takes ids and lets go of entries.
KINDS = {
    "Flat": "IDMap2,Flat",
    "IDMap": "IDMap,Flat",
    "IDMap of a rotation": "IDMap2,RR8,Flat",
    "IVF": "IVF4,Flat",
    "rotated IVF": "RR8,IVF4,Flat",
    "IDMap of IVF": "IDMap2,IVF4,Flat",
    "HNSW": "HNSW8,Flat",
    "IDMap of HNSW": "IDMap2,HNSW8,Flat",
    "refined": "SQ8,RFlat",
    "rotated flat": "RR8,Flat",
}
REMOVES = {"Flat", "IDMap", "IDMap of a rotation", "IVF", "rotated IVF", "rotated flat"}


def empty(description):
    """Return a trained index without vectors whose searches see all that it holds."""
    index = faiss.index_factory(D, description, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors(300))
    ivf = faiss.try_extract_index_ivf(index)
    if ivf is not None:
        ivf.nprobe = ivf.nlist
    if isinstance(index, faiss.IndexRefine):
        index.k_factor = 20
    return index


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def source(kind, tmp_path):
    """A source that lives in a folder, and has nothing in it yet."""
    FaissSource(empty(KINDS[kind]), [], embedder_name=NAME).save(tmp_path / "index")
    return FaissSource.load(tmp_path / "index")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "index"


def nearest(among, n):
    """Return the numbers nearest to `elsewhere()` by a dense product."""
    among = sorted(among)
    return [among[i] for i in np.argsort(-vectors(max(among) + 1)[among] @ elsewhere().embedding)][
        :n
    ]


def found(source, n, **options):
    return [m["number"] for m in source.fetch(elsewhere(), n, **options).metadata]


def test_follows_the_protocols(source):
    assert isinstance(source, DocumentIndex)
    assert isinstance(source, BatchCandidateSource)


def test_what_was_added_is_found_here_and_by_others(source, folder):
    add(source, range(60))
    add(source, range(60, 100))
    for one in (source, FaissSource.load(folder)):
        assert contents(one) == list(range(100))
        assert found(one, 7) == nearest(range(100), 7)
        assert one.content_ids() == {f"content-{i}" for i in range(100)}


def test_what_was_removed_is_gone_here_and_for_others(source, folder):
    add(source, range(100))
    gone = set(range(0, 100, 3))
    remove(source, [*sorted(gone), 5000])
    left = [i for i in range(100) if i not in gone]
    for one in (source, FaissSource.load(folder)):
        assert contents(one) == left
        assert found(one, 7) == nearest(left, 7)
        assert len(one.content_ids()) == len(left)
    source.complete()
    assert contents(FaissSource.load(folder)) == left


def test_vectors_leave_the_index_where_it_can_remove_them(kind, source, folder):
    add(source, range(100))
    remove(source, range(40))
    source.complete()
    ntotal = faiss.read_index(str(only(folder, "index-*"))).ntotal
    assert ntotal == (60 if kind in REMOVES else 100)


def test_loading_repeats_removals_too(kind, source, folder):
    add(source, range(20))
    remove(source, range(10))
    add(source, range(10, 15), note=" new")  # replaces
    FaissSource.load(folder).complete()
    ntotal = faiss.read_index(str(only(folder, "index-*"))).ntotal
    assert ntotal == (10 if kind in REMOVES else 25)


def test_any_order_of_writes_leaves_what_it_says(source, folder):
    generator = random.Random(3)
    expected = {}
    for step in range(40):
        numbers = generator.sample(range(60), generator.randint(1, 8))
        action = generator.choice(["add", "add", "remove", "complete", "load"])
        if action == "add":
            add(source, numbers, note=f" step {step}")
            expected |= dict.fromkeys(numbers, step)
        elif action == "remove":
            remove(source, numbers)
            expected = {i: at for i, at in expected.items() if i not in numbers}
        elif action == "complete":
            source.complete()
        else:
            source = FaissSource.load(folder)
        if not expected:
            continue
        pool = source.fetch(elsewhere(), 1000)
        texts = {
            metadata["number"]: text
            for metadata, text in zip(pool.metadata, pool.texts, strict=True)
        }
        assert texts == {i: document(i, f" step {at}").text for i, at in expected.items()}
        assert contents(source) == sorted(expected)
        assert found(source, 5) == nearest(expected, 5)


def test_ids_are_never_used_again(source, folder):
    add(source, range(10))
    remove(source, range(5, 10))
    source.complete()
    source = FaissSource.load(folder)
    add(source, range(20, 25))
    with SQLiteDocuments(only(folder, "documents-*")) as kept:
        assert list(kept) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]


def test_equal_content_ids_are_replaced(source, folder):
    add(source, range(10))
    source.add(["content-3"], [document(3, " new")], vectors(12)[11:])
    for one in (source, FaissSource.load(folder)):
        pool = one.fetch(query(11), 1)
        assert pool.texts == (document(3, " new").text,)
        assert len(one.fetch(elsewhere(), 100)) == 10


def test_the_last_of_equal_content_ids_in_one_call_counts(source):
    source.add(["a", "b", "a"], documents(3), vectors(3))
    assert sorted(source.fetch(elsewhere(), 9).document_ids) == ["doc-1", "doc-2"]
    assert source.fetch(query(2), 1).document_ids == ("doc-2",)


@pytest.mark.parametrize("n_left", [1, 30])
def test_deleted_documents_never_make_a_list_short(source, n_left):
    add(source, range(300))
    remove(source, range(300 - n_left))
    left = range(300 - n_left, 300)
    for n in (1, 5, n_left, 200):
        assert found(source, n) == nearest(left, n)
    even = [i for i in left if i % 2 == 0]
    assert found(source, 5, filter=lambda m: m["even"]) == (nearest(even, 5) if even else [])


def test_nothing_is_left(source):
    add(source, range(3))
    remove(source, range(3))
    with pytest.raises(InvalidInputError, match="no documents to fetch from; add some first"):
        source.fetch(elsewhere(), 1)
    add(source, [1])
    assert contents(source) == [1]


def test_documents_removed_by_another_process_never_make_a_list_short(source, folder):
    add(source, range(100))
    other = FaissSource.load(folder)
    remove(source, range(0, 100, 2))
    assert found(other, 10) == nearest(range(1, 100, 2), 10)


def test_completing_writes_only_what_changed(folder):
    source = saved(folder, 3)
    before = only(folder, "index-*")
    source.complete()
    assert only(folder, "index-*") == before
    add(source, [3])
    source.complete()
    assert only(folder, "index-*") != before
    with SQLiteDocuments(only(folder, "documents-*")) as kept:
        assert not kept.has_changes()


def test_an_empty_call_changes_nothing(folder):
    source = saved(folder, 3)
    before = only(folder, "documents-*").read_bytes()
    add(source, [])
    source.remove([])
    assert only(folder, "documents-*").read_bytes() == before


def test_indexing_embeds_what_is_new_and_deletes_what_vanished(folder):
    embedder = HashingEmbedder(dimension=64)
    FaissSource(faiss.IndexFlatIP(64), []).save(folder)
    first = index_documents(FaissSource.load(folder), documents(40), embedder, progress=False)
    assert (first.n_added, first.n_deleted) == (40, 0)
    source = FaissSource.load(folder)
    assert source.embedder_name == embedder.name
    second = index_documents(source, documents(50)[5:], embedder, batch_size=4, progress=False)
    assert (second.n_added, second.n_unchanged, second.n_deleted) == (10, 35, 5)
    asked = Query(text="?", embedding=embedder.embed_query("№ 7"), embedder_name=embedder.name)
    assert len(FaissSource.load(folder).fetch(asked, 100)) == 45


def test_documents_that_a_user_saved_count_as_indexed(folder):
    embedder = HashingEmbedder(dimension=D)
    FaissSource(built("Flat", 5), documents(5), embedder_name=embedder.name).save(folder)
    source = FaissSource.load(folder)
    assert len(source.content_ids()) == 5
    report = index_documents(source, documents(3), embedder, progress=False)
    assert (report.n_unchanged, report.n_deleted) == (3, 2)


def test_another_writer_is_noticed(folder):
    add(saved(folder), range(3))
    first, second = FaissSource.load(folder), FaissSource.load(folder)
    add(first, [3])
    for call in (lambda: add(second, [4]), lambda: remove(second, [0]), second.complete):
        with pytest.raises(CandidateSourceError, match=r"changed by something else.*load.*again"):
            call()
    assert contents(second) == [0, 1, 2]
    assert contents(FaissSource.load(folder)) == contents(first) == [0, 1, 2, 3]


def test_a_folder_that_was_saved_anew_is_not_written_to(folder):
    old = saved(folder, 3)
    new = saved(folder, 5)
    for call in (lambda: add(old, [7]), lambda: remove(old, [0]), lambda: old.save(folder)):
        with pytest.raises(CandidateSourceError, match=r"load it again"):
            call()
    add(new, [5])
    assert contents(FaissSource.load(folder)) == list(range(6))


def test_a_folder_whose_old_documents_could_not_be_deleted_is_not_written_to(folder):
    old = saved(folder, 3)
    path = only(folder, "documents-*")
    os.link(path, folder / "kept")
    saved(folder, 5)
    os.link(folder / "kept", path)  # as a process that died before deleting it leaves it
    with pytest.raises(CandidateSourceError, match="was saved anew by something else"):
        add(old, [7])


def test_a_full_disk_leaves_index_and_documents_as_they_were(folder):
    source = saved(folder, 3)
    kept = source._writer._documents
    kept._file.read(f"PRAGMA max_page_count = {kept._file.pragma('page_count')}")
    with pytest.raises(CandidateSourceError, match="full; free some space"):
        add(source, range(3, 300))
    assert contents(source) == contents(FaissSource.load(folder)) == [0, 1, 2]
    kept._file.read("PRAGMA max_page_count = 100000")
    add(source, range(3, 300))
    assert contents(source) == contents(FaissSource.load(folder)) == list(range(300))


class FailingIndex(faiss.IndexFlatIP):
    """Has no memory left for the fourth vector."""

    def add(self, x):
        if self.ntotal + len(x) > 3:
            raise MemoryError("no memory")
        super().add(x)


def test_an_index_that_fails_after_the_documents_are_stored_is_not_written_to_again():
    source = FaissSource(FailingIndex(D), SQLiteDocuments())
    add(source, range(3))
    with pytest.raises(CandidateSourceError, match=r"are stored, but Faiss could not") as info:
        add(source, [3])
    assert isinstance(info.value.__cause__, MemoryError)
    with pytest.raises(CandidateSourceError, match=r"lacks documents.*no memory; load"):
        add(source, [4])
    assert contents(source) == [0, 1, 2]


class InterruptedIndex(faiss.IndexFlatIP):
    """Is stopped by Ctrl-C at the fourth vector, as Faiss stops a long `add`."""

    def add(self, x):
        if self.ntotal + len(x) > 3:
            raise KeyboardInterrupt
        super().add(x)


@pytest.mark.parametrize("index", [FailingIndex, InterruptedIndex])
def test_a_write_that_stopped_halfway_keeps_what_was_stored(index, tmp_path):
    path = tmp_path / "docs.sqlite"
    source = FaissSource(index(D), SQLiteDocuments(path), embedder_name=NAME)
    add(source, range(3))
    with pytest.raises((CandidateSourceError, KeyboardInterrupt)):
        add(source, [3])
    for call in (
        source.content_ids,
        lambda: source.prepare(embedder_name=NAME, dimension=D),
        lambda: add(source, [4]),
        lambda: remove(source, [0]),
        source.complete,
        lambda: source.save(tmp_path / "other"),
    ):
        with pytest.raises(CandidateSourceError, match=r"lacks documents.*; load the source again"):
            call()
    assert not (tmp_path / "other").exists()
    assert contents(FaissSource.load(path)) == [0, 1, 2, 3]


def test_indexing_again_after_an_interrupt_asks_to_load_again(tmp_path):
    path = tmp_path / "docs.sqlite"
    source = FaissSource(InterruptedIndex(D), SQLiteDocuments(path))
    embedder = HashingEmbedder(dimension=D)
    with pytest.raises(KeyboardInterrupt):
        index_documents(source, documents(4), embedder, progress=False)
    with pytest.raises(CandidateSourceError, match="load the source again"):
        index_documents(source, documents(4), embedder, progress=False)
    again = FaissSource.load(path)
    assert index_documents(again, documents(4), embedder, progress=False).n_unchanged == 4
    assert len(again.fetch(elsewhere(), 9)) == 4


class InterruptsSecondReading(Mapping):
    """Metadata that is read once to be checked and is interrupted while it is stored."""

    n_readings = 0

    def __getitem__(self, key):
        raise KeyError(key)

    def __len__(self):
        return 0

    def __iter__(self):
        self.n_readings += 1
        if self.n_readings > 1:
            raise KeyboardInterrupt
        return iter(())


def test_an_interrupt_before_anything_is_stored_leaves_the_source_usable(folder):
    source = saved(folder, 3)
    stopping = Document(document_id="x", text="y", metadata=InterruptsSecondReading())
    with pytest.raises(KeyboardInterrupt):
        source.add(["x"], [stopping], vectors(1))
    add(source, [3])
    assert contents(source) == contents(FaissSource.load(folder)) == [0, 1, 2, 3]


def test_the_log_is_kept_where_the_index_lacks_what_it_says(folder):
    source = saved(folder)
    add(source, range(5))
    source._index.remove_ids(np.array([3]))  # behind its back
    with pytest.raises(CandidateSourceError, match="document 3 has no vector"):
        source.complete()
    assert contents(FaissSource.load(folder)) == list(range(5))


def test_the_log_is_kept_where_vectors_lack_their_ids(folder):
    source = saved(folder)
    add(source, range(5))
    faiss.downcast_index(source._index.index).add(vectors(1))
    with pytest.raises(CandidateSourceError, match=r"5 ids for 6 vectors.*interrupted; load"):
        source.complete()
    with pytest.raises(CandidateSourceError, match="5 ids for 6 vectors"):
        source.fetch(elsewhere(), 3)
    assert contents(FaissSource.load(folder)) == list(range(5))


def test_readers_see_the_state_before_or_after_a_write(source):
    """Pairs are added and removed together, so nobody ever sees one of them alone."""
    add(source, range(20))
    stop = threading.Event()

    def read():
        n_fetches = 0
        while not stop.is_set():
            pool = source.fetch(elsewhere(), 500)
            numbers = {metadata["number"] for metadata in pool.metadata}
            assert numbers >= set(range(20))
            assert {i ^ 1 for i in numbers} == numbers
            n_fetches += 1
        return n_fetches

    with ThreadPoolExecutor(3) as executor:
        readers = [executor.submit(read) for _ in range(3)]
        end = time.monotonic() + 0.7
        for i in range(20, 10_000, 2):
            if time.monotonic() > end:
                break
            add(source, [i, i + 1])
            if i % 4 == 0:
                remove(source, [i, i + 1])
        stop.set()
        assert all(reader.result() >= 1 for reader in readers)


def test_writers_of_one_source_take_turns(folder):
    source = saved(folder)
    with ThreadPoolExecutor(4) as executor:
        list(executor.map(lambda i: add(source, [2 * i, 2 * i + 1]), range(12)))
    assert contents(source) == contents(FaissSource.load(folder)) == list(range(24))


def test_a_filter_cannot_write_to_its_own_source(folder):
    source = saved(folder, 5)

    def writes(metadata):
        remove(source, [0])
        return True

    with pytest.raises(InvalidInputError, match="within a filter; write after the fetch"):
        source.fetch(elsewhere(), 1, filter=writes)
    add(source, [5])


@pytest.mark.parametrize(
    "call",
    [
        lambda source, folder: source.save(folder / "copy"),
        lambda source, folder: source.prepare(embedder_name=NAME, dimension=D),
        lambda source, folder: source.complete(),
    ],
)
def test_a_filter_that_would_wait_for_a_writer_that_waits_for_it_is_refused(folder, call):
    source = saved(folder, 5)
    writer = threading.Thread(target=add, args=(source, [5]), daemon=True)
    raised = []

    def keep(metadata):
        if not writer.ident:
            writer.start()
            time.sleep(0.05)  # until it waits
        call(source, folder)
        return True

    def fetch():
        try:
            source.fetch(elsewhere(), 1, filter=keep)
        except InvalidInputError as error:
            raised.append(str(error))

    reader = threading.Thread(target=fetch, daemon=True)
    reader.start()
    reader.join(5)
    assert "within a filter; write after the fetch" in raised[0]
    writer.join(5)
    assert contents(source) == list(range(6))


def test_a_filter_may_ask_what_is_stored_while_a_writer_waits(folder):
    source = saved(folder, 5)
    writer = threading.Thread(target=add, args=(source, [5]), daemon=True)

    def keep(metadata):
        if not writer.ident:
            writer.start()
            time.sleep(0.05)  # until it waits
        return len(source.content_ids()) == 5

    with ThreadPoolExecutor(1) as executor:
        pool = executor.submit(source.fetch, elsewhere(), 3, filter=keep).result(timeout=5)
    assert len(pool) == 3
    writer.join(5)


def test_a_filter_may_fetch_while_a_writer_waits(folder):
    source = saved(folder, 5)
    writer = threading.Thread(target=add, args=(source, [5]))

    def fetches(metadata):
        if not writer.ident:
            writer.start()
            time.sleep(0.05)  # until it waits
        return len(source.fetch(elsewhere(), 1)) == 1

    assert len(source.fetch(elsewhere(), 3, filter=fetches)) == 3
    writer.join(5)
    assert not writer.is_alive()
    assert contents(source) == list(range(6))


@pytest.mark.parametrize(
    ("contents_", "rows", "message"),
    [
        (["a"], np.ones((2, D)), "one row a document, got 1, 1 and 2"),
        (["a", "b"], np.ones((1, D)), "got 2, 1 and 1"),
        (["a"], np.ones((1, 3)), "must have 8 columns like the index, got 3"),
        (["a"], np.full((1, D), np.nan), "must be finite"),
        (["a"], np.full((1, D), 1e300), "float32` must be finite"),
        (["a"], np.ones(D), "2 dimension"),
        ([7], np.ones((1, D)), "`content id` must be a string"),
    ],
)
def test_refuses_what_does_not_fit_together(folder, contents_, rows, message):
    source = saved(folder, 3)
    with pytest.raises(InvalidInputError, match=message):
        source.add(contents_, documents(1), rows)
    assert contents(source) == contents(FaissSource.load(folder)) == [0, 1, 2]


def test_refuses_metadata_that_json_cannot_hold(folder):
    source = saved(folder, 3)
    broken = Document(document_id="x", text="y", metadata={"set": {1}})
    with pytest.raises(InvalidInputError, match="JSON"):
        source.add(["a"], [broken], np.ones((1, D)))
    assert contents(FaissSource.load(folder)) == [0, 1, 2]


def prepared(index, kept=None, **options):
    source = FaissSource(index, SQLiteDocuments() if kept is None else kept, **options)
    source.prepare(embedder_name=NAME, dimension=D)
    return source


def test_the_name_of_the_embedder_is_noted_in_an_empty_store(tmp_path):
    source = prepared(empty("Flat"), SQLiteDocuments(tmp_path / "d.sqlite"))
    assert source.embedder_name == NAME
    assert SQLiteDocuments(tmp_path / "d.sqlite").state().embedder_name == NAME
    again = FaissSource(empty("Flat"), SQLiteDocuments(tmp_path / "d.sqlite"))
    assert again.embedder_name == NAME
    with pytest.raises(InvalidInputError, match="made by 'model-a', not by 'model-b'"):
        FaissSource(empty("Flat"), SQLiteDocuments(tmp_path / "d.sqlite"), embedder_name="model-b")


def test_another_embedder_is_refused():
    with pytest.raises(InvalidInputError, match=r"holds vectors of 'model-b'.*mixed.*'model-a'"):
        prepared(empty("Flat"), embedder_name="model-b")


def test_vectors_of_an_embedder_that_is_not_known_are_not_mixed_with_others(folder):
    FaissSource(built("Flat", 3), documents(3)).save(folder)
    with pytest.raises(InvalidInputError, match="3 vectors of an embedder that is not known"):
        FaissSource.load(folder).prepare(embedder_name=NAME, dimension=D)
    FaissSource.load(folder, embedder_name=NAME).prepare(embedder_name=NAME, dimension=D)


def test_the_name_that_another_source_noted_is_not_replaced(tmp_path):
    path = tmp_path / "d.sqlite"
    late, named = FaissSource(empty("Flat"), SQLiteDocuments(path)), SQLiteDocuments(path)
    other = FaissSource(empty("Flat"), named, embedder_name="model-b")
    prepared(empty("Flat"), SQLiteDocuments(path))
    with pytest.raises(InvalidInputError, match=r"vectors of 'model-a'.*mixed.*'model-b'"):
        late.prepare(embedder_name="model-b", dimension=D)
    with pytest.raises(InvalidInputError, match=r"vectors of 'model-a'.*mixed.*'model-b'"):
        add(other, [1])
    assert SQLiteDocuments(path).state().embedder_name == NAME
    assert len(named) == 0


def test_another_dimension_is_refused():
    source = FaissSource(empty("Flat"), SQLiteDocuments())
    with pytest.raises(InvalidInputError, match=r"index has 8 dimensions, .* makes 9"):
        source.prepare(embedder_name=NAME, dimension=9)


@pytest.mark.parametrize("description", ["IVF4,Flat", "PQ4x4,RFlat", "IDMap2,RR8,IVF4,Flat"])
def test_an_index_is_to_be_trained_first(description):
    index = faiss.index_factory(D, description)
    with pytest.raises(InvalidInputError, match="is not trained; call its `train`"):
        prepared(index)


@pytest.mark.parametrize("description", ["NSG8,Flat", "IDMap2,NSG8,Flat"])
def test_an_index_that_is_built_once_is_refused_before_anything_is_stored(description, folder):
    FaissSource(empty(description), [], embedder_name=NAME).save(folder)
    source = FaissSource.load(folder)
    for call in (
        lambda: source.prepare(embedder_name=NAME, dimension=D),
        lambda: add(source, range(3)),
    ):
        with pytest.raises(InvalidInputError, match="IndexNSGFlat cannot be added to one batch"):
            call()
    assert source.content_ids() == set()
    source.save(folder)


def test_documents_are_removed_from_an_index_that_is_built_once(folder):
    FaissSource(built("NSG8,Flat", 300), documents(300), embedder_name=NAME).save(folder)
    source = FaissSource.load(folder)
    source.remove([content_id(document(i)) for i in range(100)])
    assert contents(source) == contents(FaissSource.load(folder)) == list(range(100, 300))


def test_documents_are_removed_from_an_ivf_index_with_an_array_for_a_direct_map():
    kept = SQLiteDocuments()
    kept.update(enumerate(documents(50)))
    index = built("IVF4,Flat", 50)
    index.nprobe = 4
    index.make_direct_map()
    source = FaissSource(index, kept)
    source.remove(list(kept.content_ids())[:20])
    assert len(contents(source)) == len(kept) == 30


def test_an_ivf_index_with_an_array_for_a_direct_map_is_refused():
    index = empty("IVF4,Flat")
    index.make_direct_map()
    with pytest.raises(InvalidInputError, match="set_direct_map_type"):
        prepared(index)


def test_an_ivf_index_with_a_hash_table_for_a_direct_map_removes():
    index = empty("IVF4,Flat")
    index.set_direct_map_type(faiss.DirectMap.Hashtable)
    source = prepared(index)
    add(source, range(20))
    remove(source, range(5))
    assert index.ntotal == 15
    assert contents(source) == list(range(5, 20))


class GpuIndexFlat(faiss.IndexFlatIP):
    """Stands for one on a GPU."""


def test_an_index_on_a_gpu_is_not_written_to():
    with pytest.raises(InvalidInputError, match="on a GPU"):
        prepared(GpuIndexFlat(D))


@pytest.mark.parametrize("kept", [documents(3), dict(enumerate(documents(3)))])
def test_documents_that_are_not_in_sqlite_cannot_be_written(kept):
    source = FaissSource(built("Flat", 3), kept)
    for call in (
        source.content_ids,
        source.complete,
        lambda: source.prepare(embedder_name=NAME, dimension=D),
        lambda: add(source, [1]),
        lambda: remove(source, [1]),
    ):
        with pytest.raises(InvalidInputError, match=r"SQLiteDocuments.*save\(folder\).*load"):
            call()


def test_a_source_in_memory_can_be_written_to():
    source = prepared(empty("IDMap2,Flat"))
    add(source, range(10))
    remove(source, [3])
    source.complete()
    assert contents(source) == [i for i in range(10) if i != 3]


def test_a_users_own_index_and_file_are_taken_over(tmp_path):
    path = tmp_path / "docs.sqlite"
    kept = SQLiteDocuments(path)
    kept.update(zip([5, 9, 20], documents(3), strict=True))
    source = FaissSource(built("IDMap,Flat", 3, ids=[5, 9, 20]), kept, embedder_name=NAME)
    add(source, range(3, 6))
    again = FaissSource.load(path)
    assert contents(again) == contents(source) == list(range(6))
    assert list(kept) == [5, 9, 20, 21, 22, 23]
    add(again, [6])
    again.complete()
    assert contents(FaissSource.load(path)) == list(range(7))
    assert len(os.listdir(tmp_path)) == 2


def test_what_a_dead_process_left_beside_a_documents_file_is_deleted(tmp_path):
    path = tmp_path / "docs.sqlite"
    source = FaissSource(empty("IDMap2,Flat"), SQLiteDocuments(path), embedder_name=NAME)
    add(source, range(3))
    stray = tmp_path / "docs.sqlite.index-0123456789ab.faiss"
    kept = {"docs.sqlite.index-mine.faiss", "docs2sqlite.index-0123456789ab.faiss"}
    for name in (stray.name, *kept):
        (tmp_path / name).write_bytes(b"half")
    add(source, [3])
    source.complete()
    assert not stray.exists()
    assert kept < set(os.listdir(tmp_path))
    assert len(os.listdir(tmp_path)) == 4
    assert contents(FaissSource.load(path)) == [0, 1, 2, 3]


def test_what_another_writes_while_an_index_is_taken_over_is_noticed(tmp_path, monkeypatch):
    kept = SQLiteDocuments(tmp_path / "docs.sqlite")
    kept.update(enumerate(documents(3)))
    sources = [
        FaissSource(built("IDMap2,Flat", 3, ids=range(3)), kept, embedder_name=NAME)
        for _ in range(2)
    ]
    write_index = faiss.write_index

    def interfering(index, writer):
        monkeypatch.setattr(faiss, "write_index", write_index)
        add(sources[0], [3])
        write_index(index, writer)

    monkeypatch.setattr(faiss, "write_index", interfering)
    with pytest.raises(CandidateSourceError, match="changed by something else"):
        add(sources[1], [4])
    assert contents(sources[0]) == contents(FaissSource.load(kept.path)) == [0, 1, 2, 3]


def test_an_index_file_that_another_deleted_before_it_was_in_use_is_noticed(tmp_path, monkeypatch):
    path = tmp_path / "docs.sqlite"
    source = FaissSource(empty("IDMap2,Flat"), SQLiteDocuments(path), embedder_name=NAME)
    add(source, range(3))
    before = only(tmp_path, "*.faiss")
    fsync = os.fsync

    def deleting(descriptor):
        fsync(descriptor)
        for written in set(tmp_path.glob("*.faiss")) - {before}:
            written.unlink()

    monkeypatch.setattr(os, "fsync", deleting)
    with pytest.raises(CandidateSourceError, match="was deleted before it was in use"):
        source.complete()
    assert contents(FaissSource.load(path)) == [0, 1, 2]


def test_a_copy_of_a_documents_file_leaves_the_index_of_the_first(tmp_path):
    path, copy = tmp_path / "docs.sqlite", tmp_path / "copy.sqlite"
    add(FaissSource(empty("IDMap2,Flat"), SQLiteDocuments(path), embedder_name=NAME), range(3))
    shutil.copy(path, copy)
    copied = FaissSource.load(copy)
    add(copied, [3])
    copied.complete()
    assert contents(FaissSource.load(copy)) == [0, 1, 2, 3]
    assert contents(FaissSource.load(path)) == [0, 1, 2]


def test_ids_that_only_the_index_knows_are_not_given_to_documents(tmp_path):
    kept = SQLiteDocuments(tmp_path / "docs.sqlite")
    kept.update(enumerate(documents(6)))
    kept.remove([4, 5])
    source = FaissSource(built("HNSW8,Flat", 6), kept, embedder_name=NAME)
    add(source, [6])
    assert list(kept) == [0, 1, 2, 3, 6]
    assert contents(source) == contents(FaissSource.load(kept.path)) == [0, 1, 2, 3, 6]


def test_ids_of_vectors_without_documents_are_not_given_to_documents(tmp_path):
    kept = SQLiteDocuments(tmp_path / "docs.sqlite")
    kept.update(zip([0, 1, 2, 3, 4], documents(5), strict=True))
    kept.remove([3, 4])
    index = built("IDMap2,HNSW8,Flat", 5, ids=[0, 1, 2, 5, 6])
    source = FaissSource(index, kept, embedder_name=NAME)
    add(source, [7])
    assert list(kept) == [0, 1, 2, 7]
    assert contents(source) == contents(FaissSource.load(kept.path)) == [0, 1, 2, 7]


def test_a_few_deleted_documents_cost_no_second_search():
    index = faiss.IndexHNSWFlat(D, 16, faiss.METRIC_INNER_PRODUCT)
    source = prepared(index)
    add(source, range(300))
    remove(source, range(0, 300, 30))
    searches = recorded(index)
    assert len(source.fetch(elsewhere(), 20)) == 20
    assert searches == [(1, 30)]


def test_documents_without_vectors_are_noticed_before_the_first_write(tmp_path):
    kept = SQLiteDocuments.from_documents(tmp_path / "docs.sqlite", documents(5))
    source = FaissSource(built("Flat", 3), kept, embedder_name=NAME)
    assert contents(source) == [0, 1, 2]
    with pytest.raises(CandidateSourceError, match="document 3 has no vector, nor have 1 others"):
        add(source, [7])


def test_an_index_that_lacks_what_a_source_has_written_is_refused(tmp_path):
    path = tmp_path / "docs.sqlite"
    add(prepared(empty("IDMap2,Flat"), SQLiteDocuments(path)), range(5))
    with pytest.raises(InvalidInputError, match=r"holds 0 vectors of 8 .* 5 documents .*\.load"):
        FaissSource(empty("IDMap2,Flat"), SQLiteDocuments(path))
    with pytest.raises(InvalidInputError, match=r"of 16 dimensions, but .* of 8 dimensions"):
        FaissSource(built("Flat", 5, d=16), SQLiteDocuments(path))


def test_a_death_between_files_leaves_all_or_nothing_of_a_batch(request, tmp_path):
    assert died(request, "add", "Flat", tmp_path=tmp_path)["steps"] > 1


@pytest.mark.parametrize("description", ["Flat", "HNSW8,Flat"])
def test_a_process_killed_at_random_loses_nothing_that_was_reported_as_stored(
    request, tmp_path, description
):
    report = died(request, "kill", description, "12", tmp_path=tmp_path)
    assert report["calls"] > 25
    assert report["files"] == 4


def test_two_processes_that_write_and_load_again_lose_nothing(request, folder):
    saved(folder)
    code = """
import sys
from sift_core.sources import FaissSource
from sift_core.errors import CandidateSourceError
from tests.sources.faiss_corpus import add

for i in range(int(sys.argv[2]), 30, 2):
    while True:
        try:
            add(FaissSource.load(sys.argv[1]), [i])
            break
        except CandidateSourceError as error:
            assert "changed by something else" in str(error) or "is missing" in str(error), error
"""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, folder, str(first)],
            cwd=request.config.rootpath,
            stderr=subprocess.PIPE,
        )
        for first in (0, 1)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()
    assert contents(FaissSource.load(folder)) == list(range(30))


def test_compressed_indexes_grow_too(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        FaissSource(empty("SQ8"), [], embedder_name=NAME).save(folder)
        source = FaissSource.load(folder)
        add(source, range(50))
        remove(source, range(20))
        again = FaissSource.load(folder)
    for one in (source, again):
        assert one.fetch(query(30), 1).document_ids == ("doc-30",)
        assert len(one.fetch(elsewhere(), 100)) == 30
