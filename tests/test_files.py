"""Files are whole or not there, and made by one process at a time."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from sift_core.errors import InvalidInputError
from sift_core.files import (
    default_cache_folder,
    lock,
    make_once,
    measured_once,
    seal,
    unseal,
    write_whole,
)


def test_the_default_folder_follows_xdg(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_folder() == tmp_path / "sift-rerank"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the specification
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_cache_folder() == tmp_path / "home" / ".cache" / "sift-rerank"


def test_an_account_without_a_home_is_told_what_to_set(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(InvalidInputError, match="XDG_CACHE_HOME"):
        default_cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert str(default_cache_folder()) == "/caches/sift-rerank"


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "sift-rerank/measured"


def test_a_number_is_measured_once_for_its_circumstances(cache):
    numbers = iter([1.5, 2.5, 3.5])

    def measure():
        return next(numbers)

    assert [measured_once("speed", ["a", "b"], measure) for _ in range(2)] == [1.5, 1.5]
    assert measured_once("speed", ["a", "c"], measure) == 2.5
    assert measured_once("other", ["a", "b"], measure) == 3.5
    assert measured_once("speed", ["a", "b"], measure) == 1.5


@pytest.mark.parametrize("text", [b"", b"{}", b"\xff", b'{"name": "speed"}'])
def test_a_damaged_number_is_measured_again(cache, text):
    measured_once("speed", [], lambda: 1.5)
    (file,) = cache.iterdir()
    file.write_bytes(text)
    assert measured_once("speed", [], lambda: 2.5) == 2.5
    assert measured_once("speed", [], lambda: 3.5) == 2.5


def test_where_nothing_can_be_kept_it_is_measured_each_time(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert [measured_once("speed", [], lambda n=n: n) for n in (1.5, 2.5)] == [1.5, 2.5]
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert measured_once("speed", [], lambda: 3.5) == 3.5


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_and_no_draft_is_left(tmp_path):
    path = tmp_path / "a.json"
    for content in (b"old", b"new"):
        write_whole(path, content)
        assert path.read_bytes() == content
    assert names_in(tmp_path) == ["a.json"]


def test_a_write_that_fails_leaves_what_was_there_and_no_draft(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_whole(path, b"old")
    for error in (OSError(28, "No space left on device"), KeyboardInterrupt()):

        def fail(*arguments, error=error):
            raise error

        for owner, name in ((os, "replace"), (Path, "write_bytes")):
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, fail)
                with pytest.raises(type(error)):
                    write_whole(path, b"new")
            assert path.read_bytes() == b"old"
            assert names_in(tmp_path) == ["a.json"]


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "link").symlink_to("mine.txt")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert not (tmp_path / "link").is_symlink()


def test_a_sealed_value_opens_under_its_name_alone():
    sealed = seal({"a": [1, 2.5, None]}, "one")
    assert unseal(sealed, "one") == {"a": [1, 2.5, None]}
    for text, name in [(sealed, "two"), (sealed.replace(b"2.5", b"2.6"), "one"), (b"[1]", "one")]:
        with pytest.raises(ValueError, match=r"none of ours|another one"):
            unseal(text, name)


def test_what_takes_long_is_made_once_and_others_wait(tmp_path):
    path, made = tmp_path / "new" / "folder", []

    def make(draft):
        made.append(draft)
        draft.mkdir()
        time.sleep(0.05)
        (draft / "whole").touch()

    def use(_):
        make_once(path, make)
        return names_in(path)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(use, range(4))) == [["whole"]] * 4
    assert len(made) == 1
    assert names_in(path.parent) == ["folder", "folder.lock"]


def test_a_lock_is_held_until_it_is_closed(tmp_path):
    path = tmp_path / "lock"
    with closing(lock(path)), pytest.raises(TimeoutError):
        lock(path, wait_s=0)
    lock(path, wait_s=0).close()
    with pytest.raises(OSError, match="unable to open"):
        lock(tmp_path / "none" / "lock", wait_s=0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_that_ends_does_not_release_its_parents_lock(tmp_path):
    path = tmp_path / "lock"
    with closing(lock(path)) as held:
        child = os.fork()
        if child == 0:
            held.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(TimeoutError):
            lock(path, wait_s=0)
