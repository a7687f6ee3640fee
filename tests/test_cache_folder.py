import pytest

from sift_core.cache_folder import default_cache_folder, measured_once
from sift_core.errors import InvalidInputError


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
