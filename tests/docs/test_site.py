"""The site builds without a warning, and its reference has every public name."""

import importlib
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("mkdocstrings")

ROOT = Path(__file__).parents[2]
PACKAGES = [
    "sift_core",
    "sift_core.answering",
    "sift_core.documents",
    "sift_core.evaluation",
    "sift_core.sources",
    "sift_core.sources.faiss",
    "sift_core.sources.qdrant",
    "haystack_integrations.components.rankers.sift",
    "langchain_sift",
    "llama_index.postprocessor.sift",
]


@pytest.fixture(scope="module")
def documented(tmp_path_factory):
    """Names that have a place in the site, without what they are imported from."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder]
    subprocess.run(command, check=True, cwd=ROOT)
    inventory = (folder / "objects.inv").read_bytes()
    text = zlib.decompress(inventory[inventory.index(b"zlib.\n") + 6 :]).decode()
    kinds = {"py:class", "py:data", "py:function"}  # no methods: selectors have a `select`
    rows = (line.split(" ")[:2] for line in text.splitlines())
    return {name.rsplit(".", 1)[-1] for name, kind in rows if kind in kinds}


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_reference(package, documented):
    assert set(pytest.importorskip(package).__all__) <= documented


@pytest.mark.slow
def test_the_hook_finds_what_strict_mode_does_not(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs/scripts")
    finder = importlib.import_module("site_pages").DefectFinder()
    finder.feed('<a href="https://a.b">x</a><img src="x.png"><script src="//c.d/e.js"></script>')
    assert finder.defects == [
        "no alternative text: x.png",
        "<script> loads from another host: //c.d/e.js",
    ]
