import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest

from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.sources.faiss.sqlite_documents import SQLiteDocuments, content_id
from sift_core.types import Document


def document(i):
    return Document(
        document_id=f"№-{i}",
        text=f"{i}: 漢字, \u0645\u0631, 🙂\n\t\0“ß”",
        metadata={"i": i, "none": None, "list": [1, 2.5, True, {"ключ": "'; DROP TABLE"}]},
    )


def filled(path, n):
    return SQLiteDocuments.from_documents(path, map(document, range(n)))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ö ?#%20 документы.sqlite"


@pytest.fixture
def kept(path):
    with filled(path, 10) as documents:
        yield documents


def other_process(path, code):
    """Run code that has `path` and `SQLiteDocuments` in another process."""
    module = "sift_core.sources.faiss.sqlite_documents"
    start = f"import os, sys; from {module} import SQLiteDocuments; path = sys.argv[1]\n"
    return subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(code), str(path)],
        capture_output=True,
        text=True,
    )


def test_is_a_mapping_that_gives_back_what_was_put_in(kept):
    assert len(kept) == 10
    assert list(kept) == list(range(10))
    assert dict(kept) == dict(kept.items()) == {i: document(i) for i in range(10)}
    assert kept[3] == document(3)
    assert 3 in kept
    assert kept.get(3) == document(3)


@pytest.mark.parametrize("key", [10, -1, 2**63, "3", None, 1.0])
def test_what_is_not_there_is_missing(kept, key):
    assert key not in kept
    with pytest.raises(KeyError):
        kept[key]


def test_many_are_looked_up_in_the_order_asked_for(path):
    with filled(path, 2500) as kept:
        ids = [2400, 3, 9999, 3, *range(2000)]
        found = kept.get_many(ids)
        assert found == [None if i == 9999 else document(i) for i in ids]
        assert kept.get_many([]) == []


def test_ids_may_be_of_ones_own(path):
    with SQLiteDocuments(path) as kept:
        kept.update({2**63 - 1: document(1), 7: document(2)})
        assert list(kept) == [7, 2**63 - 1]
        assert kept[2**63 - 1] == document(1)


def test_without_a_path_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with SQLiteDocuments() as kept:
        kept.update(enumerate([document(0)]))
        assert dict(kept) == {0: document(0)}
        assert kept.path is None
        assert repr(kept) == "SQLiteDocuments(':memory:')"
    assert os.listdir(tmp_path) == []


def test_another_object_reads_the_file(kept, path):
    with SQLiteDocuments(path) as again:
        assert dict(again) == dict(kept)
        again.update({10: document(10)})
    assert len(kept) == 11


def test_equal_ids_are_replaced_and_removed_ones_are_gone(kept):
    kept.update({3: document(33)})
    kept.remove([4, 5, 77])
    assert kept[3] == document(33)
    assert list(kept) == [0, 1, 2, 3, 6, 7, 8, 9]
    assert kept.state().n_removed == 2


def test_content_ids_are_those_of_the_documents(kept):
    assert kept.content_ids() == {content_id(document(i)) for i in range(10)}


def test_a_document_may_be_there_twice(path):
    with SQLiteDocuments.from_documents(path, [document(1), document(1)]) as kept:
        assert dict(kept) == {0: document(1), 1: document(1)}
        assert kept.content_ids() == {content_id(document(1))}


def test_update_stores_whole_batches_until_one_fails(path):
    def broken():
        yield from ((i, document(i)) for i in range(25))
        raise RuntimeError("the iterable broke")

    with SQLiteDocuments(path) as kept:
        with pytest.raises(RuntimeError, match="the iterable broke"):
            kept.update(broken(), batch_size=10)
        assert len(kept) == 20


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ((-1, document(1)), "must be >= 0"),
        (("1", document(1)), "must be a whole number"),
        ((2**63, document(1)), "must fit 64 bits"),
        ((1, "text"), "must be of type Document, got str"),
        ((1, Document(document_id="a", text="b", metadata={"set": {1}})), "JSON"),
        ((1, Document(document_id="a", text="b", metadata={1: 2})), "strings as keys"),
        ((1, Document(document_id="a", text="\ud800")), "UTF-8"),
    ],
)
def test_refuses_what_it_could_not_give_back(path, pair, message):
    with SQLiteDocuments(path) as kept:
        with pytest.raises(InvalidInputError, match=message):
            kept.update([(0, document(0)), pair])
        assert len(kept) == 0


def test_a_new_file_is_not_filled_twice(kept, path):
    with pytest.raises(InvalidInputError, match="holds documents already"):
        filled(path, 3)
    assert len(kept) == 10


def test_memory_is_bounded(path):
    n, text = 8_000, "x" * 1000  # 8 MB of text
    with SQLiteDocuments(path) as kept:
        tracemalloc.start()
        kept.update((i, Document(document_id=str(i), text=text + str(i))) for i in range(n))
        assert sum(len(found.text) for found in kept.values()) > n * 1000
        assert sum(len(found.text) for _, found in kept.items()) > n * 1000
        assert sum(1 for _ in kept) == n
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most < 4e6  # a thousand documents at a time, twice


def test_threads_share_one_object(kept):
    started = threading.Barrier(8)

    def use(number):
        started.wait()
        for i in range(10):
            kept.update({1000 * number + i: document(i)})
            assert kept.get_many([1000 * number + i, 3, 5000_000]) == [
                document(i),
                document(3),
                None,
            ]
        return True

    with ThreadPoolExecutor(8) as executor:
        assert all(executor.map(use, range(1, 9)))
    assert len(kept) == 90


def test_two_processes_write_in_turn(path):
    with closing(filled(path, 1)):
        code = """
            kept = SQLiteDocuments(path)
            for i in range(40):
                kept.update({int(sys.argv[0] == "-c") + i: kept[0]})
        """
        with ThreadPoolExecutor(2) as executor:
            done = list(executor.map(lambda _: other_process(path, code), range(2)))
        assert [process.returncode for process in done] == [0, 0], done[0].stderr
    with SQLiteDocuments(path) as kept:
        assert len(kept) == 41
        assert kept.state().generation == 81


def test_what_a_killed_process_had_not_finished_is_undone(path):
    code = """
        import signal
        kept = SQLiteDocuments(path)
        kept.update({100: kept[0]})
        with kept.transaction() as transaction:
            transaction.insert((i, "content", kept[0]) for i in range(200, 9000))
            os.kill(os.getpid(), signal.SIGKILL)
    """
    with closing(filled(path, 1)):
        assert other_process(path, code).returncode == -signal.SIGKILL
    with SQLiteDocuments(path) as kept:
        assert list(kept) == [0, 100]


def test_an_error_within_a_transaction_undoes_it(kept):
    def insert_and_fail():
        with kept.transaction() as transaction:
            transaction.insert([(50, "content", document(50))])
            transaction.delete([1])
            raise RuntimeError("stop")

    before = kept.state()
    with pytest.raises(RuntimeError, match="stop"):
        insert_and_fail()
    assert kept.state() == before
    assert list(kept) == list(range(10))


def test_a_generation_that_is_not_current_is_refused(kept):
    generation = kept.state().generation
    kept.update({1: document(1)})
    with (
        pytest.raises(CandidateSourceError, match=r"generation 2, known 1\); load .* again"),
        kept.transaction(generation=generation),
    ):
        pass


def test_another_process_that_writes_for_too_long(kept, path, monkeypatch):
    kept._file._connection.execute("PRAGMA busy_timeout = 20")  # not ten seconds
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(CandidateSourceError, match=r"could not write.*locked.*wait") as info:
            kept.update({1: document(1)})
        with pytest.raises(CandidateSourceError, match=r"could not read.*документы.*locked"):
            kept[1]
    assert isinstance(info.value.__cause__, sqlite3.OperationalError)
    assert kept[1] == document(1)


def test_a_disk_that_is_full(kept):
    n_pages = kept._file.pragma("page_count")
    kept._file.read(f"PRAGMA max_page_count = {n_pages}")
    large = Document(document_id="large", text="x" * 1_000_000)
    with pytest.raises(CandidateSourceError, match="full; free some space"):
        kept.update({1: large})
    assert kept[1] == document(1)


def test_a_file_that_may_only_be_read(path):
    with filled(path, 3) as kept:
        kept._file.read("PRAGMA query_only = ON")  # what a file without write permission is to it
        with pytest.raises(CandidateSourceError, match=r"readonly.*writable for this user"):
            kept.update({1: document(2)})
        assert kept[1] == document(1)


@pytest.mark.parametrize("content", [b"no database, but long enough for a header\n" * 100, b"x"])
def test_a_file_of_another_kind(path, content):
    path.write_bytes(content)
    with pytest.raises(CandidateSourceError, match=r"(not a|no) database; is it the right file"):
        SQLiteDocuments(path)
    assert path.read_bytes() == content


def test_a_sqlite_file_of_another_application(path):
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
    before = path.read_bytes()
    with pytest.raises(CandidateSourceError, match="of another application"):
        SQLiteDocuments(path)
    assert path.read_bytes() == before


def test_a_newer_format(path):
    with closing(filled(path, 1)):
        pass
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 2")
    with pytest.raises(
        CandidateSourceError, match=r"has format 2, this version .* reads 1; upgrade"
    ):
        SQLiteDocuments(path)


def test_a_file_that_is_cut_short(path):
    with closing(filled(path, 2000)):
        pass
    os.truncate(path, 100_000)
    with (
        pytest.raises(CandidateSourceError, match=r"malformed.*damaged"),
        SQLiteDocuments(path) as k,
    ):
        dict(k)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(CandidateSourceError, match=r"unable to open.*do its folder and file exist"):
        SQLiteDocuments(tmp_path / "absent" / "d.sqlite")


def test_an_existing_file_is_not_created(path):
    with pytest.raises(CandidateSourceError, match="unable to open"):
        SQLiteDocuments.existing(path)
    assert not path.exists()


def test_an_existing_file_must_not_be_empty(path):
    path.touch()
    with pytest.raises(CandidateSourceError, match="has 0 bytes and is no database"):
        SQLiteDocuments.existing(path)
    assert path.read_bytes() == b""
    assert len(SQLiteDocuments(path)) == 0


def test_nothing_is_written_into_a_file_that_was_replaced(kept, path):
    path.unlink()
    with pytest.raises(CandidateSourceError, match="was replaced or deleted since it was opened"):
        kept.update({1: document(1)})
    with filled(path, 2), pytest.raises(CandidateSourceError, match="load it again"):
        kept.update({1: document(1)})


def test_a_closed_file_says_so(path):
    kept = filled(path, 1)
    kept.close()
    kept.close()
    with pytest.raises(CandidateSourceError, match=r"closed database.*open it again"):
        kept[0]


def test_a_file_that_nobody_closed_is_closed_with_its_object(path):
    kept = filled(path, 1)
    connection = kept._file._connection
    del kept
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def test_what_is_written_is_synced(kept):
    assert kept._file.pragma("synchronous") == 3  # EXTRA
    assert kept._file.read("PRAGMA journal_mode") == [("delete",)]


def test_space_of_a_cleared_log_is_given_back(kept, path):
    with kept.transaction() as transaction:
        transaction.log((i, np.ones(400, dtype=np.float32)) for i in range(2000))
    size = path.stat().st_size
    with kept.transaction() as transaction:
        transaction.clear_log()
    assert path.stat().st_size == size
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM documents").fetchone()
        kept._file._connection.execute("PRAGMA busy_timeout = 20")
        kept.compact()  # somebody reads: not now
        assert path.stat().st_size == size
    kept.compact()
    assert path.stat().st_size < size / 10
    assert dict(kept) == {i: document(i) for i in range(10)}
    kept.update({10: document(10)})
