"""The core imports NumPy alone; a missing vendor is named with the extra that brings it."""

import importlib.util
import json
import subprocess
import sys

import pytest

HEAVY = [
    "faiss",
    "langchain_core",
    "llama_index",
    "peft",
    "qdrant_client",
    "semantic_text_splitter",
    "sentence_transformers",
    "torch",
    "transformers",
    "typer",
]


def run(program):
    """Return what a fresh interpreter prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


NEW_PACKAGES = """
import json, sys
before = set(sys.modules)
import {module}
new = {{name.partition(".")[0] for name in set(sys.modules) - before}}
# Cython puts names without a file there, which nobody imports.
new = {{n for n in new if n not in sys.modules or getattr(sys.modules[n], "__file__", "namespace")}}
new = {{n for n in new if hasattr(sys.modules.get(n), "__spec__") and sys.modules[n].__spec__}}
print(json.dumps(sorted(new - set(sys.stdlib_module_names) - {{"sift_core"}})))
"""


@pytest.fixture(scope="module")
def imported_by_the_core():
    return run(NEW_PACKAGES.format(module="sift_core; from sift_core import *"))


@pytest.mark.parametrize("heavy", HEAVY)
def test_importing_the_core_does_not_import(imported_by_the_core, heavy):
    assert heavy not in imported_by_the_core


def test_importing_the_core_imports_nothing_before_a_name_is_asked_for():
    assert run(NEW_PACKAGES.format(module="sift_core")) == []


def test_the_core_has_its_names_and_modules_without_importing_them_first():
    program = """
import json, sift_core
listed = set(sift_core.__all__) <= set(dir(sift_core))
homes = {name for names in sift_core._NAMES_OF_MODULE.values() for name in names}
from sift_core import selection
same = sift_core.select is selection.select.select and sift_core.selection is selection
print(json.dumps([listed, homes == set(sift_core.__all__), same]))
"""
    assert run(program) == [True, True, True]


def test_the_core_refuses_other_names():
    import sift_core

    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = sift_core.no_such_name


def test_importing_the_core_imports_numpy_alone(imported_by_the_core):
    assert imported_by_the_core == ["numpy"]


@pytest.mark.parametrize(
    "module",
    [
        "sift_core.selection.sift",
        "sift_core.sources",
        "sift_core.diagnosis",
        "sift_core.testing",
    ],
)
def test_these_modules_import_numpy_alone(module):
    assert run(NEW_PACKAGES.format(module=module)) == ["numpy"]


@pytest.mark.skipif(importlib.util.find_spec("faiss") is None, reason="needs Faiss")
def test_the_probe_would_notice_a_heavy_import():
    assert "faiss" in run(NEW_PACKAGES.format(module="sift_core.sources.faiss.index"))


def test_importing_the_core_leaves_the_process_alone():
    program = """
import json, logging, os, random, sys, warnings
import numpy as np
def state():
    return [dict(os.environ), logging.root.level, len(logging.root.handlers), warnings.filters[:],
            str(np.geterr()), str(random.getstate()), str(np.random.get_state())]
before = state()
import sift_core
print(json.dumps(before == state()))
"""
    assert run(program) is True


MISSING = """
import json, sys
sys.modules[{vendor!r}] = None
import sift_core, sift_core.sources
try:
    {statement}
except sift_core.MissingDependencyError as error:
    print(json.dumps([str(error), isinstance(error, ImportError), repr(error.__cause__)]))
"""


@pytest.mark.parametrize(
    ("vendor", "statement", "package", "extra"),
    [
        ("faiss", "from sift_core.sources import FaissSource", "faiss-cpu", "faiss"),
        ("faiss", "sift_core.sources.FaissSource", "faiss-cpu", "faiss"),
        ("faiss", "import sift_core.sources.faiss.index", "faiss-cpu", "faiss"),
        (
            "qdrant_client",
            "from sift_core.sources import QdrantSource",
            "qdrant-client",
            "qdrant",
        ),
        ("grpc", "import sift_core.sources.qdrant.source", "qdrant-client", "qdrant"),
        (
            "sentence_transformers",
            "from sift_core.embedders import SentenceTransformerEmbedder",
            "sentence-transformers",
            "demo",
        ),
        (
            "onnxruntime",
            "from sift_core.embedders import OnnxEmbedder",
            "onnxruntime and tokenizers",
            "demo",
        ),
        ("torch", "import sift_core.selection.torch_batch", "torch", "fine-tune"),
        ("httpx", "import sift_core.answering.vllm", "httpx", "vllm"),
        (
            "semantic_text_splitter",
            "from sift_core.documents import Chunker",
            "semantic-text-splitter",
            "index",
        ),
    ],
)
def test_a_missing_vendor_is_named_with_its_extra(vendor, statement, package, extra):
    message, is_import_error, cause = run(MISSING.format(vendor=vendor, statement=statement))
    assert f"`{package}` could not be imported" in message
    assert f"pip install 'sift-rerank[{extra}]'" in message
    assert is_import_error
    assert "ModuleNotFoundError" in cause


def test_an_unknown_name_is_an_attribute_error():
    import sift_core.sources

    with pytest.raises(AttributeError, match="has no attribute 'ChromaSource'"):
        _ = sift_core.sources.ChromaSource
