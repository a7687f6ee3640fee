"""What a missing part's error says to type."""

import sys

import pytest

from sift_core.errors import MissingDependencyError
from sift_core.install_command import install_command


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Return a function that lets the distribution `ours` be installed from some place."""

    def install(origin):
        folder = tmp_path / "site/ours-1.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text("Name: ours\nVersion: 1\n", encoding="utf-8")
        (folder / "direct_url.json").write_text(origin, encoding="utf-8")
        monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])

    return install


def test_a_clone_is_completed_from_the_clone(installed, tmp_path):
    clone = tmp_path / "my clone"
    clone.mkdir()
    installed(f'{{"url": "{clone.as_uri()}", "dir_info": {{"editable": true}}}}')
    assert install_command("cli", "ours") == f"pip install -e '{clone}[cli]'"
    clone.rmdir()
    assert install_command("cli", "ours") == "pip install 'ours[cli]'"
    assert install_command("cli", "ours", upgrades=True) == "pip install --upgrade 'ours[cli]'"


def test_a_wheel_of_a_registry_is_completed_from_there(installed):
    installed('{"url": "https://example.org/ours-1.whl", "archive_info": {}}')
    assert install_command(distribution="ours") == "pip install ours"


def test_what_is_not_installed_at_all_is_named_all_the_same():
    assert install_command("cli", "no-such-one") == "pip install 'no-such-one[cli]'"


def test_an_error_has_the_command():
    assert f"`{install_command('fast')}`" in str(MissingDependencyError("numba", extra="fast"))
    assert "`pip install it`" in str(MissingDependencyError("it", install="pip install it"))
