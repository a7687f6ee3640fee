"""The four distributions agree in versions, ranges, addresses and probes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    pytest.skip("reads TOML, which Python 3.10 cannot", allow_module_level=True)

import tomllib
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PLACEHOLDER = "https://sift-rerank.example"  # as in .ci/releasable.py
ADDRESS = "https://repository.test/sift"
FOLDERS = {
    "sift-rerank": ROOT,
    "langchain-sift": ROOT / "integrations/langchain-sift",
    "llama-index-postprocessor-sift": ROOT / "integrations/llama-index-postprocessor-sift",
    "sift-haystack": ROOT / "integrations/sift-haystack",
}
PLUGINS = [name for name in FOLDERS if name != "sift-rerank"]
PROBES = ROOT / "integrations/matrix/probes"


def text_of(name):
    return (FOLDERS[name] / "pyproject.toml").read_text(encoding="utf-8")


def project_of(name):
    return tomllib.loads(text_of(name))["project"]


VERSION = project_of("sift-rerank")["version"]


def releasable(root, tag):
    """Return the lines that `.ci/releasable.py` prints for a tag, and its exit code."""
    command = [sys.executable, root / ".ci/releasable.py", tag]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stderr.splitlines(), done.returncode


@pytest.fixture
def tree(tmp_path):
    """A copy of what is released, at an address of its own, with a section for its version."""
    for path in (
        *(folder / "pyproject.toml" for folder in FOLDERS.values()),
        *(ROOT / name for name in (".ci/releasable.py", "CITATION.cff", "CHANGELOG.md")),
    ):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8")
        if path.name == "pyproject.toml":
            text = text.replace(project_of("sift-rerank")["urls"]["Homepage"], ADDRESS)
        copy.write_text(re.sub(r"^## \[Unreleased\]", f"## [{VERSION}]", text, flags=re.MULTILINE))
    return tmp_path


def test_the_four_have_one_version():
    assert len({project_of(name)["version"] for name in FOLDERS}) == 1


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_takes_this_minor_version_and_no_other(name):
    version = Version(VERSION)
    needed = [Requirement(line) for line in project_of(name)["dependencies"]]
    (range_,) = [one.specifier for one in needed if one.name == "sift-rerank"]
    assert version in range_
    assert Version(f"{version.major}.{version.minor}.99") in range_
    assert Version(f"{version.major}.{version.minor + 1}") not in range_
    assert Version(f"{version.major}.{version.minor - 1}") not in range_


@pytest.mark.parametrize("name", FOLDERS)
def test_the_classifiers_name_the_pythons_that_are_allowed(name):
    project = project_of(name)
    named = [line.rpartition(" ")[2] for line in project["classifiers"] if ":: 3." in line]
    assert f">={named[0]}" == project["requires-python"]
    assert named == [f"3.{minor}" for minor in range(int(named[0][2:]), 15)]


@pytest.mark.parametrize("name", FOLDERS)
def test_the_addresses_are_those_that_a_release_replaces(name):
    addresses = project_of(name)["urls"]
    assert {"Homepage", "Documentation", "Source", "Issues", "Changelog"} <= set(addresses)
    ours = {label: url for label, url in addresses.items() if label != "Paper"}
    root = addresses["Homepage"]
    assert all(url.startswith(root) for url in ours.values()), ours
    for path in re.findall(rf"{re.escape(root)}/blob/main/(\S+)\"", text_of(name)):
        assert (ROOT / path).is_file()


@pytest.mark.parametrize("name", FOLDERS)
def test_each_extra_has_a_probe(name):
    extras = {"base", *project_of(name).get("optional-dependencies", ())}
    probes = {path.stem.removeprefix("probe_") for path in (PROBES / name).glob("*.py")}
    assert probes == extras


def test_a_tag_of_the_version_can_be_released_and_another_cannot(tree):
    assert releasable(tree, f"v{VERSION}") == ([], 0)
    said, status = releasable(tree, "v999.0.0")
    assert status == 1
    wrong = ["CHANGELOG.md", "CITATION.cff", *(f"integrations/{name}/" for name in PLUGINS)]
    assert all(any(line.startswith(name) for line in said) for name in [*wrong, "pyproject.toml"])


def test_nothing_is_released_that_names_the_placeholder(tree):
    path = tree / "integrations/sift-haystack/pyproject.toml"
    path.write_text(path.read_text().replace(ADDRESS, PLACEHOLDER))
    said, status = releasable(tree, f"v{VERSION}")
    assert status == 1
    assert said == [
        f"integrations/sift-haystack/pyproject.toml names {PLACEHOLDER}; "
        "put in the repository's address"
    ]


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("vendor.github-workflows", ".github/workflows/*.yml"),
        ("vendor.citation-file-format", "CITATION.cff"),
    ],
)
def test_workflows_and_citation_follow_their_schemas(schema, pattern):
    pytest.importorskip("check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema]
    done = subprocess.run(
        [*command, *ROOT.glob(pattern)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_actions_are_pinned_to_a_commit():
    used = re.findall(
        r"uses: (\S+)",
        "\n".join(path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml")),
    )
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action) for action in used), used


def test_the_release_publishes_each_distribution():
    workflow = (ROOT / ".github/workflows/release.yml").read_text()
    assert re.findall(r"project: (\S+), files: (\S+)}", workflow) == [
        (name, name.replace("-", "_")) for name in FOLDERS
    ]
