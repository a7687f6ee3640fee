"""The command that a message names suits the environment that runs."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from sift_core.errors import MissingDependencyError
from sift_core.installing import add_command, install_command, pip_install

ROOT = Path(__file__).parents[1]


def asked(home: Path, *, with_pip: bool = False) -> tuple[str, str]:
    """Return a message of an environment at `home`, and its interpreter."""
    venv.create(home, symlinks=True)
    if with_pip:  # no need to install it
        package = next(home.glob("lib/python*/site-packages")) / "pip"
        package.mkdir()
        (package / "__init__.py").touch()
    python = str(home / "bin/python")
    code = (
        f"import sys; sys.path.append({str(ROOT)!r})\n"
        "from sift_core.errors import MissingDependencyError\n"
        "print(MissingDependencyError('faiss-cpu', 'faiss'), end='')"
    )
    done = subprocess.run([python, "-I", "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.partition("install it with ")[2].strip("`"), python


def test_pip_where_the_environment_has_it(tmp_path):
    command, _ = asked(tmp_path / "env", with_pip=True)
    assert command == "pip install 'sift-rerank[faiss]'"


def test_uv_into_this_environment_where_it_has_no_pip(tmp_path):
    command, python = asked(tmp_path / "env")
    assert command == f"uv pip install --python {python} 'sift-rerank[faiss]'"


def test_one_more_option_where_uv_made_the_environment_for_one_run(tmp_path):
    command, _ = asked(tmp_path / "uv/archive-v0/u4h8qCJ657")
    assert command == "uvx --with 'sift-rerank[faiss]'"


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("pipx/venvs/sift-rerank", "pipx inject sift-rerank 'sift-rerank[faiss]'"),
        ("cache/pipx/34c532c90808b1d", "pipx run --with 'sift-rerank[faiss]'"),
    ],
    ids=["installed", "for one run"],
)
def test_pipx_where_it_made_the_environment(tmp_path, place, expected):
    home = tmp_path / place
    home.mkdir(parents=True)
    (home / "pipx_metadata.json").touch()
    command, _ = asked(home)
    assert command == expected


def test_what_is_installed_is_upgraded_if_asked_for():
    assert add_command("numpy", upgrade=True) == f"{pip_install()} --upgrade numpy"


def test_a_command_of_its_own_is_said_as_it_is():
    message = str(MissingDependencyError("gguf", install="make gguf"))
    assert message == "`gguf` could not be imported; install it with `make gguf`"


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


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("uv/archive-v0/u4h8qCJ657", "uvx --with"),
        ("pipx/venvs/sift-rerank", "pipx inject sift-rerank"),
        ("cache/pipx/34c532c90808b1d", "pipx run --with"),
    ],
)
def test_a_clone_completes_environments_of_uv_and_pipx(
    installed, tmp_path, monkeypatch, place, expected
):
    home = tmp_path / place
    home.mkdir(parents=True)
    if "pipx" in place:
        (home / "pipx_metadata.json").touch()
    monkeypatch.setattr(sys, "prefix", str(home))
    installed(f'{{"url": "{tmp_path.as_uri()}", "dir_info": {{}}}}')
    assert install_command("cli", "ours") == f"{expected} '{tmp_path}[cli]'"


def test_a_wheel_of_a_registry_is_completed_from_there(installed):
    installed('{"url": "https://example.org/ours-1.whl", "archive_info": {}}')
    assert install_command(distribution="ours") == "pip install ours"


def test_what_is_not_installed_at_all_is_named_all_the_same():
    assert install_command("cli", "no-such-one") == "pip install 'no-such-one[cli]'"


def test_an_error_has_the_command():
    assert f"`{install_command('fast')}`" in str(MissingDependencyError("numba", extra="fast"))
    assert "`pip install it`" in str(MissingDependencyError("it", install="pip install it"))
