"""The three distributions, built and installed as a user would, into an empty environment."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DISTRIBUTIONS = {
    "sift-rerank": (ROOT, "sift_core"),
    "langchain-sift": (ROOT / "integrations/langchain-sift", "langchain_sift"),
    "llama-index-postprocessor-sift": (
        ROOT / "integrations/llama-index-postprocessor-sift",
        "llama_index.postprocessor.sift",
    ),
}

pytestmark = [pytest.mark.network, pytest.mark.slow]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """A folder with the wheels of all three, each built through its source distribution."""
    folder = tmp_path_factory.mktemp("wheels")
    for source, _ in DISTRIBUTIONS.values():
        command = [sys.executable, "-m", "build", "--outdir", str(folder), str(source)]
        subprocess.run(command, check=True, capture_output=True)
    return folder


def test_each_wheel_is_complete(wheels):
    names = {path.name.split("-")[0] for path in wheels.glob("*.whl")}
    assert names == {name.replace("-", "_") for name in DISTRIBUTIONS}
    listing = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", str(next(wheels.glob("sift_rerank*.whl")))],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "sift_core/py.typed" in listing
    assert "licenses/LICENSE" in listing
    assert "tests/" not in listing


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_it_installs_into_an_empty_environment_and_imports(name, wheels, tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env/bin/python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--find-links", str(wheels)]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*install, *constraints, name], check=True, capture_output=True)
    module = DISTRIBUTIONS[name][1]
    probe = f"import {module} as m; print(sorted(m.__all__), m.__file__)"
    finished = subprocess.run(
        [str(python), "-W", "error", "-c", probe],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert finished.returncode == 0, finished.stderr
    assert "SIFT" in finished.stdout
    assert "site-packages" in finished.stdout
    if name == "sift-rerank":
        listed = subprocess.run(
            [str(python), "-m", "pip", "list", "--format=freeze"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        installed = {line.split("==")[0] for line in listed.split()}
        assert installed - {"pip", "setuptools"} == {"sift-rerank", "numpy"}
