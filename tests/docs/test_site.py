"""The site builds without a warning, needs no other host, and shows every public name."""

import importlib
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("mkdocstrings")

ROOT = Path(__file__).parents[2]
PUBLIC = [
    "sift_core",
    "sift_core.answering",
    "sift_core.sources",
    "sift_core.documents",
    "sift_core.diagnosis",
    "sift_core.documents",
    "sift_core.selection",
]
FRAMEWORKS = ["langchain_sift", "llama_index.postprocessor.sift"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A strict build, as `make docs` makes it: docs/scripts/site_pages.py looks at every page."""
    folder = tmp_path_factory.mktemp("site")
    finished = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return folder


@pytest.fixture(scope="module")
def documented(site):
    """Names that the reference has an anchor for."""
    inventory = (site / "objects.inv").read_bytes()
    text = zlib.decompress(inventory[inventory.index(b"zlib.\n") + 6 :]).decode()
    return {line.split(" ")[0] for line in text.splitlines()}


@pytest.mark.parametrize("package", [*PUBLIC, *FRAMEWORKS])
def test_every_public_name_is_in_the_reference(package, documented):
    module = pytest.importorskip(package)
    short = {name.rsplit(".", 1)[-1] for name in documented}
    assert set(module.__all__) - short == set()


def test_names_are_shown_as_they_are_imported(documented):
    for package in [*PUBLIC[1:], *FRAMEWORKS]:
        names = importlib.import_module(package).__all__
        assert {f"{package}.{name}" for name in names} <= documented


def test_no_page_loads_anything_from_elsewhere(site):
    # What the hook looks for in HTML is looked for in style sheets here.
    sheets = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert sheets
    assert [found for css in sheets for found in re.findall(r"url\((?:https?:)?//\S+", css)] == []


def test_the_checks_of_a_page_find_what_they_look_for(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs/scripts")
    hook = importlib.import_module("site_pages")
    finder = hook.DefectFinder()
    finder.feed('<a href="https://a.b">x</a><img src="x.png"><script src="//c.d/e.js"></script>')
    assert finder.defects == [
        "no alternative text: x.png",
        "<script> loads from another host: //c.d/e.js",
    ]
