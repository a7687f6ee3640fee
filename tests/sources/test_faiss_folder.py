import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import closing

import numpy as np
import pytest

from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.sources import FaissSource
from sift_core.sources.faiss.sqlite_documents import SQLiteDocuments
from sift_core.types import Document

faiss = pytest.importorskip("faiss")

from sift_core.sources.faiss.folder import folder_lock  # noqa: E402  # needs faiss
from tests.sources.faiss_corpus import (  # noqa: E402
    NAME,
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

FILES = ["documents-*.sqlite", "folder.lock", "index-*.faiss", "manifest.json"]
DEAD = "0123456789ab"  # as the names of files that are not the user's have it


def source_of(n, description="Flat", **options):
    return FaissSource(built(description, n), documents(n), embedder_name=NAME, **options)


def only(folder, pattern):
    """Return the one file of a kind; there must be no other."""
    (path,) = folder.glob(pattern)
    return path


def in_all(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "новая папка ü" / "index %20?"


@pytest.mark.parametrize(
    "description",
    ["Flat", "HNSW8,Flat", "IVF2,Flat", "RR8,Flat", "PQ4x4,RFlat", "NSG8,Flat", "L2norm,IVF2,Flat"],
)
def test_what_was_saved_is_loaded(folder, description):
    before = source_of(150, description)
    before.save(folder)
    after = FaissSource.load(folder)
    assert after.embedder_name == NAME
    for options in ({}, {"filter": lambda metadata: metadata["even"]}):
        expected, pool = (s.fetch(elsewhere(), 20, **options) for s in (before, after))
        assert pool.document_ids == expected.document_ids
        assert pool.texts == expected.texts
        assert pool.metadata == expected.metadata
        np.testing.assert_array_equal(pool.embeddings, expected.embeddings)
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [only(folder, pattern).name for pattern in FILES]
    )


def test_a_lossy_index_warns_again_when_it_is_loaded(folder):
    with pytest.warns(UserWarning, match="IndexScalarQuantizer"):
        source_of(50, "SQ8").save(folder)
    with pytest.warns(UserWarning, match="IndexScalarQuantizer") as caught:
        FaissSource.load(folder)
    assert [warning.filename for warning in caught] == [__file__]


def test_settings_of_the_index_are_kept(folder):
    index = built("IVF10,Flat")
    index.nprobe = 7
    FaissSource(index, documents(100)).save(folder)
    assert len(FaissSource.load(folder).fetch(elsewhere(), 100)) == len(
        FaissSource(index, documents(100)).fetch(elsewhere(), 100)
    )


def test_opposites_are_asked_for_when_loading(folder):
    source_of(50).save(folder)
    pool = FaissSource.load(folder, include_opposite=True).fetch(elsewhere(), 10)
    expected = source_of(50, include_opposite=True).fetch(elsewhere(), 10)
    assert pool.document_ids == expected.document_ids


def test_ids_of_ones_own_and_plain_texts(folder):
    texts = {7: "seven", 3: "three", 99: "not in the index"}
    index = built("IDMap2,Flat", 2, ids=[7, 3])
    FaissSource(index, texts).save(folder)
    pool = FaissSource.load(folder).fetch(query(1), 5)
    assert pool.document_ids == ("3", "7")
    assert pool.texts == ("three", "seven")
    with SQLiteDocuments(only(folder, "documents-*")) as kept:
        assert list(kept) == [3, 7]


def test_an_empty_flat_index_is_saved_so_that_documents_can_be_removed(folder):
    source = saved(folder)
    add(source, range(5))
    remove(source, [0, 1])
    assert contents(source) == contents(FaissSource.load(folder)) == [2, 3, 4]
    source.complete()
    assert faiss.read_index(str(only(folder, "index-*"))).ntotal == 3


def test_a_source_over_sqlite_is_copied_with_its_content_ids(folder, tmp_path):
    first = saved(folder)
    add(first, range(6))
    remove(first, [2])
    first.save(tmp_path / "copy")
    copy = FaissSource.load(tmp_path / "copy")
    assert contents(copy) == [0, 1, 3, 4, 5]
    assert copy.content_ids() == first.content_ids() == {f"content-{i}" for i in (0, 1, 3, 4, 5)}
    add(copy, [6])
    assert contents(FaissSource.load(folder)) == [0, 1, 3, 4, 5]


@pytest.mark.parametrize("description", ["HNSW8,Flat", "PQ4x4,RFlat"])
def test_a_copy_of_an_index_that_cannot_remove_leaves_out_what_was_removed(
    folder, tmp_path, description
):
    first = saved(folder, 30, description)
    first.remove(sorted(first.content_ids())[:10])
    left = contents(first)
    first.save(tmp_path / "copy")
    copy = FaissSource.load(tmp_path / "copy")
    assert contents(copy) == left
    add(copy, [30])
    assert contents(FaissSource.load(tmp_path / "copy")) == [*left, 30]


def test_saving_where_it_was_loaded_from_keeps_the_files_that_it_writes_to(folder):
    source = saved(folder, 3)
    for i in (3, 4):
        add(source, [i])
        source.save(folder)
        assert contents(FaissSource.load(folder)) == list(range(i + 1))
    assert len(os.listdir(folder)) == 4


def test_the_name_of_the_embedder_is_checked(folder):
    source_of(3).save(folder)
    assert FaissSource.load(folder, embedder_name=NAME).embedder_name == NAME
    with pytest.raises(InvalidInputError, match="were made by 'model-a', not by 'model-b'"):
        FaissSource.load(folder, embedder_name="model-b")
    with pytest.raises(InvalidInputError, match="'model-b', the store by 'model-a'"):
        FaissSource.load(folder).fetch(query(embedder_name="model-b"), 1)


def test_a_name_that_was_not_known_can_be_given_when_loading(folder):
    FaissSource(built("Flat", 3), documents(3)).save(folder)
    assert FaissSource.load(folder).embedder_name is None
    source = FaissSource.load(folder, embedder_name="model-b")
    assert source.embedder_name == "model-b"
    add(source, [3])
    assert FaissSource.load(folder).embedder_name == "model-b"


@pytest.mark.parametrize(
    ("metadata", "message"),
    [({"when": object()}, "JSON can hold"), ({1: "one"}, "strings as keys")],
)
def test_metadata_that_json_cannot_hold_is_refused_before_anything_is_written(
    folder, metadata, message
):
    broken = [*documents(2), Document(document_id="broken", text="", metadata=metadata)]
    with pytest.raises(InvalidInputError, match=rf"'broken'.*{message}"):
        FaissSource(built("Flat", 3), broken).save(folder)
    assert not folder.exists()
    source_of(3).save(folder)
    before = in_all(folder)
    with pytest.raises(InvalidInputError, match="'broken'"):
        FaissSource(built("Flat", 3), broken).save(folder)
    assert in_all(folder) == before


def test_an_id_without_a_document_is_refused_before_anything_is_written(folder):
    index = built("IDMap2,Flat", 2, ids=[1, 5])
    with pytest.raises(CandidateSourceError, match="id 5, for which there is no document"):
        FaissSource(index, {1: "one", 2: "two"}).save(folder)
    assert not folder.exists()


class GpuIndexFlat(faiss.IndexFlatIP):
    """Stands for one on a GPU."""


def test_an_index_on_a_gpu_is_to_be_converted_first(folder):
    with pytest.raises(InvalidInputError, match=r"on a GPU.*index_gpu_to_cpu"):
        FaissSource(GpuIndexFlat(8), []).save(folder)


class Unsaveable(Exception):
    """Raised by the test's own documents."""


def test_what_fails_while_saving_leaves_what_was_there(folder):
    class Breaking(list):
        n_asked = 0

        def __getitem__(self, key):
            self.n_asked += 1
            if self.n_asked == 5:  # the content ids are made; two rows remain to be written
                raise Unsaveable
            return super().__getitem__(key)

    source_of(2).save(folder)
    before = in_all(folder)
    with pytest.raises(Unsaveable):
        FaissSource(built("Flat", 3), Breaking(documents(3))).save(folder)
    assert in_all(folder) == before


def test_a_manifest_of_something_else_is_not_overwritten(folder):
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text('{"name": "a web application"}')
    for call in (source_of(3).save, FaissSource.load):
        with pytest.raises(CandidateSourceError, match="no manifest of this library, or damaged"):
            call(folder)
    assert (folder / "manifest.json").read_text() == '{"name": "a web application"}'
    assert sorted(os.listdir(folder)) == ["folder.lock", "manifest.json"]


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("", "damaged"),
        ('{"format": 1, "documents": "documents-', "damaged"),
        ("[1, 2]", "damaged"),
        ('{"format": 2, "documents": "d.sqlite"}', "has format 2, .* reads 1; upgrade"),
        ('{"format": 1, "documents": "../d.sqlite"}', "no file of its folder"),
        ('{"format": 1, "documents": 7}', "no file of its folder"),
    ],
)
def test_a_manifest_that_cannot_be_used(folder, manifest, message):
    source_of(3).save(folder)
    (folder / "manifest.json").write_text(manifest)
    with pytest.raises(CandidateSourceError, match=message):
        FaissSource.load(folder)


def test_a_folder_without_a_source(tmp_path):
    with pytest.raises(CandidateSourceError, match=r"no saved source: it has no manifest\.json"):
        FaissSource.load(tmp_path)
    with pytest.raises(CandidateSourceError, match=r"'.*absent' is missing"):
        FaissSource.load(tmp_path / "absent")


@pytest.mark.parametrize("pattern", ["index-*", "documents-*"])
def test_a_missing_file_is_named(folder, pattern):
    source_of(3).save(folder)
    path = only(folder, pattern)
    path.unlink()
    with pytest.raises(CandidateSourceError, match=f"{path.name}' is missing"):
        FaissSource.load(folder)
    assert not path.exists()


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_an_index_file_that_is_cut_short(folder, share):
    source_of(50).save(folder)
    path = only(folder, "index-*")
    size = path.stat().st_size
    os.truncate(path, int(share * size))
    with pytest.raises(
        CandidateSourceError, match=f"it has {int(share * size)} bytes, {size} were written"
    ):
        FaissSource.load(folder)


def test_an_index_file_with_one_wrong_bit(folder):
    source_of(50).save(folder)
    path = only(folder, "index-*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CandidateSourceError, match=r"its contents differ; .*damaged or swapped"):
        FaissSource.load(folder)


@pytest.mark.parametrize("n", [40, 50, 60])
def test_an_index_file_of_another_source(folder, tmp_path, n):
    source_of(50).save(folder)
    index = faiss.IndexFlatIP(8)
    index.add(vectors(n, seed=3))
    FaissSource(index, documents(n)).save(tmp_path / "other")
    shutil.copy(only(tmp_path / "other", "index-*"), only(folder, "index-*"))
    with pytest.raises(CandidateSourceError, match="not the one that was saved with these doc"):
        FaissSource.load(folder)


def test_a_documents_file_of_another_source(folder, tmp_path):
    source_of(50).save(folder)
    source_of(60).save(tmp_path / "other")
    shutil.copy(only(tmp_path / "other", "documents-*"), only(folder, "documents-*"))
    with pytest.raises(CandidateSourceError, match=r"index-\w+\.faiss' is missing"):
        FaissSource.load(folder)


def test_documents_that_were_added_behind_the_back_of_the_index(folder):
    source_of(50).save(folder)
    with SQLiteDocuments(only(folder, "documents-*")) as kept:
        kept.update({70: document(70), 71: document(71)})
    with pytest.raises(
        CandidateSourceError, match=r"of 50 vectors .* 52 documents: document 70 .* nor have 1 oth"
    ):
        FaissSource.load(folder)


def test_a_documents_file_that_is_damaged(folder):
    source_of(2000).save(folder)
    os.truncate(only(folder, "documents-*"), 50_000)
    with pytest.raises(CandidateSourceError, match=r"malformed.*damaged"):
        FaissSource.load(folder)


def test_what_a_dead_process_left_is_ignored_and_cleaned_up(folder):
    source_of(3).save(folder)
    for name in (
        f"index-{DEAD}.faiss",
        f"documents-{DEAD}.sqlite",
        f"documents-{DEAD}.sqlite-journal",
    ):
        (folder / name).write_bytes(b"half")
    (folder / f"manifest-{DEAD}.json").write_text("{")
    (folder / "README.txt").write_text("the user's own")
    assert contents(FaissSource.load(folder)) == [0, 1, 2]
    source_of(4).save(folder)
    assert contents(FaissSource.load(folder)) == [0, 1, 2, 3]
    assert len(os.listdir(folder)) == 5
    assert (folder / "README.txt").exists()


def test_files_of_the_user_with_names_like_ours_stay(folder):
    names = {"index-hnsw.faiss", "documents-v1.sqlite", "manifest-old.json", "index-0123.faiss"}
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("the user's own")
    source_of(3).save(folder)
    source_of(4).save(folder)
    FaissSource.load(folder).save(folder)
    assert names < set(os.listdir(folder))
    assert len(os.listdir(folder)) == len(names) + 4


def test_a_source_whose_documents_are_in_the_folder_keeps_them(folder):
    folder.mkdir(parents=True)
    path = folder / f"documents-{DEAD}.sqlite"
    kept = SQLiteDocuments.from_documents(path, documents(3))
    source = FaissSource(built("Flat", 3), kept)
    source.save(folder)
    with SQLiteDocuments.existing(path) as again:
        assert len(again) == 3
    assert contents(FaissSource.load(folder)) == [0, 1, 2]


def test_documents_that_a_source_wrote_to_stay_with_their_index_when_it_is_saved(folder):
    saved(folder, 3)
    path = only(folder, "documents-*")
    FaissSource.load(path).save(folder)
    assert contents(FaissSource.load(path)) == contents(FaissSource.load(folder)) == [0, 1, 2]


def test_a_folder_named_from_the_working_folder_is_the_same_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved("index", 3)
    source = FaissSource.load("index")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    add(source, [3])
    source.save(tmp_path / "index")
    assert contents(FaissSource.load(tmp_path / "index")) == [0, 1, 2, 3]


def test_an_empty_documents_file_is_refused_and_stays_empty(folder):
    source_of(3).save(folder)
    path = only(folder, "documents-*")
    os.truncate(path, 0)
    with pytest.raises(CandidateSourceError, match="has 0 bytes and is no database"):
        FaissSource.load(folder)
    assert path.stat().st_size == 0


def test_saving_where_it_was_loaded_from_cleans_up_too(folder):
    source = saved(folder, 3)
    (folder / f"index-{DEAD}.faiss").write_bytes(b"half")
    source.save(folder)
    assert len(os.listdir(folder)) == 4


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs Linux' /proc")
def test_all_that_a_save_wrote_is_synced_before_the_switch(folder, monkeypatch):
    synced, replaced = [], []
    sync, replace = os.fsync, os.replace

    def fsync(descriptor):
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")).split("-")[0])
        sync(descriptor)

    def switch(source, target):
        replaced.append(list(synced))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", switch)
    source_of(3).save(folder)
    before, after = replaced[0], synced[len(replaced[0]) :]
    assert {"index", "manifest"} < set(before)  # SQLite syncs its own file
    assert before[-1] == folder.name  # the new names
    assert after == [folder.name]  # the switch


def test_a_save_waits_for_another_and_gives_up(folder, monkeypatch):
    from sift_core.sources import sqlite_file

    source_of(3).save(folder)
    monkeypatch.setattr(sqlite_file, "_BUSY_TIMEOUT_S", 0.05)
    with folder_lock(folder), pytest.raises(CandidateSourceError, match=r"folder\.lock.*locked"):
        source_of(4).save(folder)
    source_of(4).save(folder)
    assert contents(FaissSource.load(folder)) == [0, 1, 2, 3]


def test_loading_while_others_save_gives_one_state_or_the_other(folder):
    source_of(5).save(folder)
    stop = threading.Event()

    def save_again():
        while not stop.is_set():
            for n in (5, 6):
                source_of(n).save(folder)

    thread = threading.Thread(target=save_again)
    thread.start()
    found, errors = [], []
    try:
        for n_loads in range(1000):
            if n_loads >= 60 and len(set(found)) == 2:  # on a busy machine one may wait for long
                break
            try:
                found.append(len(contents(FaissSource.load(folder))))
            except CandidateSourceError as error:
                errors.append(str(error))
    finally:
        stop.set()
        thread.join()
    assert set(found) == {5, 6}
    assert all("is missing" in error for error in errors)  # replaced twice within one load
    assert len(errors) < 0.2 * len(found)


def test_a_source_that_was_replaced_still_answers(folder):
    source_of(5).save(folder)
    old = FaissSource.load(folder)
    source_of(9).save(folder)
    assert contents(old) == list(range(5))


def died(request, *arguments, tmp_path, timeout=60):
    """Return what `faiss_deaths` reports."""
    folder = tmp_path / "deaths"
    name, *rest = arguments
    process = subprocess.run(
        [sys.executable, "-m", "tests.sources.faiss_deaths", name, folder, *rest],
        cwd=request.config.rootpath,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(request.config.rootpath)},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.parametrize("description", ["Flat", "HNSW8,Flat"])
def test_a_death_at_any_step_of_saving_leaves_the_old_state_or_the_new(
    request, tmp_path, description
):
    report = died(request, "save", description, tmp_path=tmp_path)
    outcomes = report["outcomes"]
    assert outcomes == sorted(outcomes, reverse=True)  # "old" until the switch, "new" after it
    assert outcomes.count("old") > 8
    assert outcomes.count("new") > 3
    assert report["files"] == 4


@pytest.mark.parametrize("description", ["Flat", "HNSW8,Flat"])
def test_a_death_at_any_step_of_completing_loses_nothing(request, tmp_path, description):
    report = died(request, "complete", description, tmp_path=tmp_path)
    assert report["steps"] > 5
    assert report["files"] == 4


def test_a_folder_that_may_not_be_written(request, tmp_path):
    report = died(request, "read-only", "Flat", tmp_path=tmp_path)
    assert report["found"] == [0, 1, 2, 3, 4]
    assert "Permission denied" in report["save"]
    assert "may this user do that?" in report["save"]
    assert "writable for this user" in report["add"]
    assert report["found after"] == [0, 1, 2, 3, 4]


def test_a_disk_that_is_full_leaves_what_was_there(request, tmp_path):
    report = died(request, "full", "Flat", tmp_path=tmp_path)
    assert "File too large" in report["save"]
    assert "disk" in report["add"]
    assert report["found after"] == [0, 1, 2, 3, 4]
    assert report["files"] == 4


def test_a_documents_file_by_itself_can_be_loaded_once_it_was_written_to(tmp_path):
    path = tmp_path / "docs.sqlite"
    with closing(SQLiteDocuments(path)) as kept:
        with pytest.raises(CandidateSourceError, match="belongs to no index yet"):
            FaissSource.load(path)
        source = FaissSource(faiss.IndexIDMap2(faiss.IndexFlatIP(8)), kept)
        source.prepare(embedder_name=NAME, dimension=8)
        add(source, range(4))
        remove(source, [1])
        assert contents(FaissSource.load(path)) == [0, 2, 3]
        source.complete()
    again = FaissSource.load(path)
    assert contents(again) == [0, 2, 3]
    assert again.embedder_name == NAME
    assert len(os.listdir(tmp_path)) == 2
