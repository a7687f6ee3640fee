import pytest

from sift_core.cache_folder import default_cache_folder
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
