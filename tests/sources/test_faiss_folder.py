"""What `save` writes, what `load` makes of it, and what becomes of it in bad hands."""

import json
import os
import subprocess
import sys
import threading
import warnings
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from sift_core.errors import CandidateSourceError, InvalidInputError, MissingWordsWarning
from sift_core.sources import FaissSource
from sift_core.types import Document

faiss = pytest.importorskip("faiss")

from sift_core.sources.faiss.folder import IndexFolder  # noqa: E402  # needs faiss
from tests.sources.faiss_corpus import (  # noqa: E402
    NAME,
    add,
    built,
    by_words,
    contents,
    documents,
    elsewhere,
    remove,
    saved,
)

FILES = ["documents-*.jsonl", "folder.lock", "index-*.faiss", "manifest.json", "words-*.npz"]
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
    ["Flat", "HNSW8,Flat", "IVF2,Flat", "RR8,Flat", "SQ8,RFlat", "NSG8,Flat", "L2norm,IVF2,Flat"],
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
        only(folder, pattern).name for pattern in FILES
    )


def test_a_lossy_index_warns_again_when_it_is_loaded_once_and_at_the_callers_line(folder):
    with pytest.warns(UserWarning, match="IndexScalarQuantizer"):
        source_of(50, "SQ8").save(folder)
    for call in (FaissSource.load, lambda folder: FaissSource.open(folder, faiss.IndexFlatIP(8))):
        with pytest.warns(UserWarning, match="IndexScalarQuantizer") as caught:
            call(folder)
        assert [warning.filename for warning in caught] == [__file__]


def test_a_source_that_was_changed_is_saved_as_it_is(folder, tmp_path):
    source = source_of(30, "HNSW8,Flat")
    remove(source, range(10))  # ids of another kind: nothing happens
    source.remove(sorted(source.content_ids())[:10])
    add(source, [30])
    source.save(folder)
    assert len(contents(source)) == 21
    copy = FaissSource.load(folder)
    assert contents(copy) == contents(source)
    assert copy.content_ids() == source.content_ids()
    copy.save(tmp_path / "copy")
    add(copy, [31])
    copy.save(folder)
    assert len(contents(FaissSource.load(folder))) == 22
    assert contents(FaissSource.load(tmp_path / "copy")) == contents(source)
    assert len(os.listdir(folder)) == 5


def test_the_name_of_the_embedder_is_checked(folder):
    source_of(3).save(folder)
    assert FaissSource.load(folder, embedder_name=NAME).embedder_name == NAME
    with pytest.raises(InvalidInputError, match=r"'model-a', which cannot be mixed .* 'model-b'"):
        FaissSource.load(folder, embedder_name="model-b")
    FaissSource(built("Flat", 3), documents(3)).save(folder)
    assert FaissSource.load(folder).embedder_name is None
    source = FaissSource.load(folder, embedder_name="model-b")
    add(source, [3])
    source.complete()
    assert FaissSource.load(folder).embedder_name == "model-b"


def test_a_folder_is_opened_or_begun(folder):
    source = FaissSource.open(folder, faiss.IndexFlatIP(8), embedder_name=NAME)
    add(source, range(5))
    remove(source, [0])
    source.complete()
    again = FaissSource.open(folder, faiss.IndexFlatIP(8), embedder_name=NAME)
    assert contents(again) == [1, 2, 3, 4]
    assert faiss.read_index(str(only(folder, "index-*"))).ntotal == 4
    with pytest.raises(InvalidInputError, match="cannot be mixed"):
        FaissSource.open(folder, faiss.IndexFlatIP(8), embedder_name="model-b")
    with pytest.raises(InvalidInputError, match="must hold no vectors, got 3"):
        FaissSource.open(folder / "other", built("Flat", 3))


def test_a_folder_that_another_began_meanwhile_is_loaded(folder, monkeypatch):
    source_of(3).save(folder)
    look, first_looks = IndexFolder.holds_index, [False]  # as before the other had saved
    monkeypatch.setattr(
        IndexFolder, "holds_index", lambda self: first_looks.pop() if first_looks else look(self)
    )
    source = FaissSource.open(folder, faiss.IndexFlatIP(8), embedder_name=NAME)
    assert contents(source) == [0, 1, 2]
    assert not first_looks


def test_what_cannot_be_saved_is_refused_before_anything_is_written(folder):
    broken = Document(document_id="broken", text="", metadata={"when": object()})
    with pytest.raises(InvalidInputError, match=r"'broken'.*JSON can hold"):
        FaissSource(built("Flat", 3), [*documents(2), broken]).save(folder)
    with pytest.raises(CandidateSourceError, match="id 5, for which"):
        FaissSource(built("IDMap2,Flat", 2, ids=[1, 5]), {1: "one", 2: "two"}).save(folder)
    assert not folder.exists()


@pytest.mark.parametrize("n", range(1, 8))
def test_a_disk_that_fails_while_saving_leaves_what_was_there(folder, monkeypatch, n):
    """Three files, the manifest and the folder are synced, then the folder again."""
    source_of(2).save(folder)
    before = in_all(folder)
    calls = []

    def failing(call):
        def fail(*arguments):
            calls.append(call)
            if len(calls) == n:
                raise OSError(28, "No space left on device")
            return call(*arguments)

        return fail

    monkeypatch.setattr(os, "fsync", failing(os.fsync))
    monkeypatch.setattr(os, "replace", failing(os.replace))
    with pytest.raises(CandidateSourceError, match="No space left"):
        source_of(3).save(folder)
    if n < 7:
        assert in_all(folder) == before
        assert calls[-1].__name__ == ("replace" if n == 6 else "fsync")
    assert len(contents(FaissSource.load(folder))) == (2 if n < 7 else 3)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CandidateSourceError, match=r"could not save into '.*file"):
        source_of(3).save(tmp_path / "file")
    with pytest.raises(CandidateSourceError, match="no saved source"):
        FaissSource.load(tmp_path / "file")
    with pytest.raises(CandidateSourceError, match=r"no saved source: it has no manifest\.json"):
        FaissSource.load(tmp_path)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (b"", "damaged"),
        (b'{"name": "a web application"}', "damaged"),
        (b'{"format": 2, "state": {"index": 3}, "sha256": 1}', "its checksum is another"),
        (b"[" * 100_000, "damaged"),
        (b'"\xff\xfe"', "damaged"),
        (b'{"format": 1, "documents": "d.sqlite"}', "has format 1, .* reads 2: index again"),
        (b'{"format": 3}', "upgrade"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_told_and_kept(folder, manifest, message):
    source_of(3).save(folder)
    (folder / "manifest.json").write_bytes(manifest)
    for call in (source_of(3).save, FaissSource.load):
        with pytest.raises(CandidateSourceError, match=message):
            call(folder)
    assert (folder / "manifest.json").read_bytes() == manifest
    assert len(os.listdir(folder)) == 5


def flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [flipped, lambda content: content[:-1], None])
@pytest.mark.parametrize("pattern", ["index-*", "documents-*", "words-*"])
def test_a_damaged_file_is_named(folder, pattern, damage):
    source_of(50).save(folder)
    path = only(folder, pattern)
    if damage is None:
        path.unlink()
        if pattern == "words-*":  # the others are whole
            assert not FaissSource.load(folder).has_words
            return
    else:
        path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CandidateSourceError, match=rf"{path.name}.*; restore it, or index again"):
        FaissSource.load(folder)
    source_of(4).save(folder)  # mends it
    assert contents(FaissSource.load(folder)) == [0, 1, 2, 3]


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there is no such file")
def test_what_is_no_file_is_no_index_of_another_tool(folder):
    """It ended in an IsADirectoryError. Of a link to /dev/zero all was read."""
    (folder / "default__vector_store.json").mkdir(parents=True)
    (folder / "docstore.json").write_text('{"docstore/data": {}}', encoding="utf-8")
    with pytest.raises(CandidateSourceError, match=r"documents of LlamaIndex, .* no Faiss index"):
        FaissSource.load(folder)


def test_a_link_to_what_has_no_end_is_not_read(folder):
    source_of(5).save(folder)
    path = only(folder, "documents-*")
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(CandidateSourceError, match=f"{path.name}' is no regular file; restore it"):
        FaissSource.load(folder)


def test_no_bit_of_the_manifest_can_be_flipped_unnoticed(folder):
    source_of(3).save(folder)
    path = folder / "manifest.json"
    content = path.read_bytes()
    found = contents(FaissSource.load(folder))
    for i in range(len(content)):
        path.write_bytes(content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :])
        try:
            loaded = FaissSource.load(folder)
        except CandidateSourceError:
            continue
        assert (contents(loaded), loaded.embedder_name) == (found, NAME)  # white space


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("documents", b"[0, 1]", "not enough values"),
        ("documents", b"\xff", "UnicodeDecodeError"),
        ("documents", b'[0, "content", 3, "text", {}]', "TypeError"),
        ("documents", b"[" * 100_000, "RecursionError"),
        ("words", b"no archive", "holds other than words"),
    ],
)
def test_contents_that_are_none_are_told(folder, kind, content, message):
    """As another program might write them, with checksums to match."""
    source_of(3).save(folder)
    path = only(folder, f"{kind}-*")
    path.write_bytes(content)
    checksum = sha256(content).hexdigest()
    with_another_state(folder, lambda state: state[kind].update(sha256=checksum))
    with pytest.raises(CandidateSourceError, match=rf"{path.name}.*{message}"):
        FaissSource.load(folder)


def with_another_state(folder, change):
    """Change what the manifest says of a folder's state, with a checksum to match."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest["state"])
    state = json.dumps(manifest["state"], sort_keys=True).encode()
    manifest["sha256"] = sha256(state).hexdigest()
    path.write_text(json.dumps(manifest))


def test_what_a_dead_process_left_is_cleaned_up_and_other_files_stay(folder):
    source_of(3).save(folder)
    left = [f"index-{DEAD}.faiss", f"documents-{DEAD}.jsonl", f"manifest-{DEAD}.json"]
    left.append(f"words-{DEAD}.npz")
    users = ["index.faiss", "index-mine.faiss", "documents-2024.jsonl", "manifest.json.bak"]
    for name in [*left, *users]:
        (folder / name).write_bytes(b"half")
    assert contents(FaissSource.load(folder)) == [0, 1, 2]
    source_of(4).save(folder)
    assert {*users} < {*os.listdir(folder)}
    assert not {*left} & {*os.listdir(folder)}


def test_a_second_writer_is_refused_until_the_first_has_completed(folder, monkeypatch):
    monkeypatch.setattr("sift_core.sources.faiss.folder.LOCK_WAIT_S", 0)
    first = saved(folder, 3)
    second, third = FaissSource.load(folder), FaissSource.load(folder)
    add(first, [3])
    for write in (lambda: add(second, [4]), lambda: source_of(9).save(folder)):
        with pytest.raises(CandidateSourceError, match="another process or source is writing"):
            write()
    first.flush()
    with pytest.raises(CandidateSourceError, match="is writing"):
        add(third, [5])
    first.complete()
    with pytest.raises(CandidateSourceError, match=r"saved anew by something else.*load it again"):
        add(second, [4])
    assert contents(second) == [0, 1, 2]
    second = FaissSource.load(folder)
    add(second, [4])
    second.complete()
    assert contents(FaissSource.load(folder)) == [0, 1, 2, 3, 4]
    with pytest.raises(CandidateSourceError, match="saved anew"):
        add(first, [6])


def test_a_writer_that_is_refused_keeps_nobody_out(folder):
    """Whatever the reason: at the next try it looks again, and others may write."""
    source, other = saved(folder, 3), FaissSource.load(folder)
    manifest = folder / "manifest.json"
    right = manifest.read_bytes()
    manifest.write_bytes(b"damaged")
    for _ in range(2):
        with pytest.raises(CandidateSourceError, match="damaged"):
            add(source, [3])
    manifest.write_bytes(right)
    add(other, [4])
    other.complete()
    with pytest.raises(CandidateSourceError, match="saved anew"):
        add(source, [3])
    assert contents(source) == [0, 1, 2]


def test_a_folder_that_cannot_be_listed_is_saved_all_the_same(folder, monkeypatch):
    source_of(3).save(folder)

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
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
    found = set()
    try:
        for n_loads in range(1000):
            if n_loads >= 60 and len(found) == 2:  # on a busy machine one may wait for long
                break
            with suppress(CandidateSourceError):  # replaced three times within one load
                found.add(len(contents(FaissSource.load(folder))))
    finally:
        stop.set()
        thread.join()
    assert found == {5, 6}


@pytest.mark.slow
@pytest.mark.parametrize("description", ["Flat", "HNSW8,Flat"])
def test_a_death_at_any_step_of_saving_leaves_the_old_state_or_the_new(
    request, tmp_path, description
):
    folder = str(tmp_path / "index")
    run = subprocess.run(
        [sys.executable, "-m", "tests.sources.faiss_deaths", folder, description],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=request.config.rootpath,
    )
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert {"old", "new"} == set(result["outcomes"])
    assert result["files"] == 5


@pytest.mark.parametrize(
    "change",
    [lambda state: state.pop("words"), lambda state: state["words"].update(format=0)],
    ids=["no words", "words of another version"],
)
def test_a_folder_without_words_says_so_once_and_gets_them_by_writing(folder, change):
    source_of(5).save(folder)
    with_another_state(folder, change)
    source = FaissSource.load(folder)
    assert not source.has_words
    assert contents(source) == [0, 1, 2, 3, 4]
    with pytest.warns(MissingWordsWarning, match="run `sift index` again") as caught:
        assert by_words(source, "漢字") == []
    assert [Path(warning.filename).name for warning in caught] == ["faiss_corpus.py"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert by_words(source, "漢字") == []
    source.complete()  # nothing was changed, but words were missing
    for each in (source, FaissSource.load(folder)):
        assert each.has_words
        assert by_words(each, "3") == [3]
    assert len(os.listdir(folder)) == 5


def test_a_folder_with_words_is_read_by_versions_that_know_none(folder):
    """Their manifest has two files; what else is in the state they pass over."""
    source_of(3).save(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["format"] == 2
    assert {"index", "documents", "embedder_name"} < {*manifest["state"]}
