import threading

import pytest

from sift_core.errors import InvalidInputError
from sift_core.sources.faiss.read_write_lock import ReadWriteLock

LIMIT_S = 60


def started(function):
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def test_readers_run_side_by_side():
    lock, both = ReadWriteLock(), threading.Barrier(2)

    def read():
        with lock.reading():
            both.wait(LIMIT_S)

    for thread in [started(read) for _ in range(2)]:
        thread.join(LIMIT_S)
    assert not both.broken


def test_a_waiting_writer_is_alone_goes_before_later_readers_and_not_before_nested_ones():
    lock, log, is_waiting = ReadWriteLock(), [], threading.Event()
    wait_for = lock._left.wait_for

    def waiting(is_so):
        is_waiting.set()
        return wait_for(is_so)

    lock._left.wait_for = waiting

    def write():
        with lock.writing():
            log.append("writer")

    def read():
        with lock.reading():
            log.append("later reader")

    with lock.reading():
        threads = [started(write)]
        assert is_waiting.wait(LIMIT_S)
        threads.append(started(read))
        with lock.reading():
            log.append("nested reader")
        log.append("first reader")
    for thread in threads:
        thread.join(LIMIT_S)
    assert log == ["nested reader", "first reader", "writer", "later reader"]


def test_readers_go_on_while_a_writer_has_its_turn():
    lock, log = ReadWriteLock(), []

    def read():
        with lock.reading():
            log.append("reader")

    with lock.turn():
        started(read).join(LIMIT_S)
        assert log == ["reader"]
        with lock.writing():  # nested, as whoever prepares a change then makes it
            pass


def test_a_reader_cannot_become_a_writer_and_an_error_lets_go():
    lock = ReadWriteLock()
    for held in (lock.turn, lock.writing):
        with lock.reading(), pytest.raises(InvalidInputError, match="write after"), held():
            pass
    for held in (lock.reading, lock.turn, lock.writing):
        with pytest.raises(KeyError), held():
            raise KeyError
    with lock.writing():
        pass
