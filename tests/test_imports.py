"""The core imports NumPy alone; a missing vendor is named with the extra that brings it."""

import ast
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import sift_core
from sift_core.installing import install_command
from tests.answering.openai_double import Api, serving_api

HOME = Path(sift_core.__file__).parent
STUBS = sorted(path.relative_to(HOME.parent) for path in HOME.rglob("*.pyi"))


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


def test_importing_the_core_imports_nothing_before_a_name_is_asked_for():
    assert run(NEW_PACKAGES.format(module="sift_core")) == []


def test_the_core_has_its_names_and_modules_without_importing_them_first():
    program = """
import json, sift_core
listed = set(sift_core.__all__) <= set(dir(sift_core))
from sift_core import selection
same = sift_core.select is selection.select.select and sift_core.selection is selection
import sift_core.sources
same = same and sift_core.sources.in_memory.InMemorySource is sift_core.InMemorySource
print(json.dumps([listed, same, "select" in vars(sift_core)]))
"""
    assert run(program) == [True, True, True]


@pytest.mark.parametrize("stub", STUBS, ids=str)
def test_a_stub_is_the_list_of_its_package(stub):
    package = importlib.import_module(".".join(stub.parent.parts))
    names, modules = [], set()
    # A type checker sees the stub alone: another kind of line could hide a wrong type.
    for line in ast.parse((HOME.parent / stub).read_text(encoding="utf-8")).body:
        assert isinstance(line, ast.ImportFrom)
        assert line.module.startswith(f"{package.__name__}.")
        assert [one.asname for one in line.names] == [one.name for one in line.names]
        names += [one.name for one in line.names]
        modules.add(line.module.removeprefix(f"{package.__name__}.").partition(".")[0])
    assert package.__all__ == sorted(set(names)) == sorted(names)
    assert set(names) <= set(dir(package))
    # Importing a module sets it in its package, where it would hide a name that is called alike.
    assert not modules & set(names)


def test_the_names_are_found_where_the_core_is_in_a_zip(tmp_path):
    with zipfile.ZipFile(tmp_path / "core.zip", "w") as archive:
        for path in [*HOME.glob("*.py*"), *HOME.glob("sources/*.py*")]:
            archive.write(path, path.relative_to(HOME.parent))
    program = "from sift_core import SiftError, sources; print(SiftError.__name__, sources.__all__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "core.zip")},
        cwd=tmp_path,
        check=False,
    )
    assert done.stdout.startswith("SiftError ['CombinedSource', "), done.stderr


def test_another_name_is_refused_with_the_one_that_was_meant():
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'") as caught:
        _ = sift_core.no_such_name
    # By these two Python finds the name that was meant.
    assert (caught.value.name, caught.value.obj) == ("no_such_name", sift_core)


def test_importing_the_core_imports_numpy_alone(imported_by_the_core):
    assert imported_by_the_core == ["numpy"]


@pytest.mark.parametrize(
    "module",
    [
        "sift_core.selection.sift",
        "sift_core.sources.in_memory, sift_core.sources.combined, sift_core.sources.oversampling",
        "sift_core.evaluation.verdict, sift_core.evaluation.retrieval",
        "sift_core.testing",
    ],
)
def test_these_modules_import_numpy_alone(module):
    assert run(NEW_PACKAGES.format(module=module)) == ["numpy"]


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
        (
            "openai",
            "from sift_core.answering import OpenAIGenerator",
            "openai and httpx",
            "openai",
        ),
        ("httpx", "import sift_core.answering.servers.vllm", "openai and httpx", "openai"),
        ("tree_sitter_rst", "from sift_core.documents import Chunker", "tree-sitter-rst", "index"),
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
    assert install_command(extra) in message
    assert is_import_error
    assert "ModuleNotFoundError" in cause


WITHOUT_TORCH = """
import json, sys
for name in ("torch", "transformers", "peft", "safetensors", "cachetools", "jinja2"):
    sys.modules[name] = None
from sift_core import InMemorySource
from sift_core.answering import AnswerEngine, OpenAIGenerator
from sift_core.testing import HashingEmbedder
embedder, texts = HashingEmbedder(), ["to fold a boat, fold the sheet"]
source = InMemorySource(embedder.embed_documents(texts), texts)
generator = OpenAIGenerator({url!r}, "small")
engine = AnswerEngine(generator=generator, source=source, embedder=embedder)
answer = engine.answer("to fold a boat, fold what?")
print(json.dumps([answer.mode.value, answer.text]))
"""


def test_an_engine_whose_texts_a_server_writes_needs_no_torch():
    pytest.importorskip("openai", reason="needs the extra openai")
    with serving_api(Api()) as api:
        answer = run(WITHOUT_TORCH.format(url=api.base_url))
    assert answer == ["context", "Fold the sheet [1]."]
