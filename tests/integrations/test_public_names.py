"""Integrations use the core by its public names alone."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [
    ROOT / "integrations/langchain-sift/langchain_sift",
    ROOT / "integrations/llama-index-postprocessor-sift/llama_index/postprocessor/sift",
    ROOT / "integrations/sift-haystack/haystack_integrations/components/rankers/sift",
]
MODULES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
PUBLIC_PACKAGES = [
    "sift_core",
    "sift_core.answering",
    "sift_core.answering.chats",
    "sift_core.embedders",
    "sift_core.option_fields",
    "sift_core.options",
    "sift_core.pacing",
    "sift_core.places",
    "sift_core.plugins",
    "sift_core.selection.scores",
    "sift_core.sources",
    "sift_core.sources.faiss",
    "sift_core.sources.qdrant",
    "sift_core.vector_cache",
]


def imports_of_the_core(source):
    """Yield package and name of each import of the core; a whole module has the name "*"."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [(alias.name, "*") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [(node.module, alias.name) for alias in node.names]
        else:
            continue
        yield from (pair for pair in names if pair[0].split(".")[0] == "sift_core")


def private_imports(source):
    """Return what `source` imports of the core that is not public."""
    return [
        (package, name)
        for package, name in imports_of_the_core(source)
        if package not in PUBLIC_PACKAGES or name not in importlib.import_module(package).__all__
    ]


def test_all_packages_are_looked_at_and_use_the_core():
    for package in PACKAGES:
        sources = [path.read_text(encoding="utf-8") for path in package.rglob("*.py")]
        assert any(list(imports_of_the_core(source)) for source in sources), package


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_module_imports_public_names_of_the_core_alone(path):
    assert private_imports(path.read_text(encoding="utf-8")) == []
