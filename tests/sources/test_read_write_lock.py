import threading
import time

import pytest

from sift_core.errors import InvalidInputError
from sift_core.sources.faiss.read_write_lock import ReadWriteLock


def started(function):
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def until(is_so):
    while not is_so():
        time.sleep(0.001)


def test_readers_run_side_by_side():
    lock, both = ReadWriteLock(), threading.Barrier(2)

    def read():
        with lock.reading():
            both.wait(60)

    threads = [started(read) for _ in range(2)]
    for thread in threads:
        thread.join(60)
    assert not both.broken


def test_a_writer_is_alone():
    lock, log = ReadWriteLock(), []

    def write(name):
        with lock.writing():
            log.append(name)
            time.sleep(0.01)
            log.append(name)

    def read():
        with lock.reading():
            log.append("reader")

    threads = [started(lambda name=name: write(name)) for name in "abc"]
    threads += [started(read) for _ in range(3)]
    for thread in threads:
        thread.join(60)
    writes = [name for name in log if name != "reader"]
    assert writes[::2] == writes[1::2]
    for name in "abc":
        first = log.index(name)
        assert log[first + 1] == name
    assert log.count("reader") == 3


def test_a_waiting_writer_goes_before_later_readers():
    lock, log = ReadWriteLock(), []
    release = threading.Event()

    def read_long():
        with lock.reading():
            release.wait(60)

    def write():
        with lock.writing():
            log.append("writer")

    def read():
        with lock.reading():
            log.append("reader")

    threads = [started(read_long)]
    until(lambda: lock._readings)
    threads.append(started(write))
    until(lambda: lock._n_writers_waiting)
    threads.append(started(read))
    assert log == []
    release.set()
    for thread in threads:
        thread.join(60)
    assert log == ["writer", "reader"]


def test_reading_may_be_nested_while_a_writer_waits():
    lock = ReadWriteLock()

    def write():
        with lock.writing():
            pass

    with lock.reading():
        thread = started(write)
        until(lambda: lock._n_writers_waiting)
        with lock.reading():
            assert thread.is_alive()
        assert thread.is_alive()  # the outer reading still counts
    thread.join(60)
    assert not thread.is_alive()


def test_a_reader_cannot_become_a_writer():
    lock = ReadWriteLock()
    with lock.reading(), pytest.raises(InvalidInputError, match="write after"), lock.writing():
        pass
    with lock.writing():
        pass


def test_an_error_lets_go():
    lock = ReadWriteLock()
    for held in (lock.reading, lock.writing):
        with pytest.raises(KeyError), held():
            raise KeyError
    with lock.writing():
        pass
