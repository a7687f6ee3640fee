"""The pages do what they say: the Python of a page runs in order and prints what it prints.

All pages run in this process, so that torch, the frameworks and the embedding model are loaded
once; each in a module and a folder of its own.
"""

import ast
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from sift_core import MissingDependencyError

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OURS = {"sift_core", "langchain_sift"}
NOT_RUN = {"architecture.md"}  # its one block is the flow in three lines, with roles for names


def blocks(page, kind):
    text = page.read_text(encoding="utf-8")
    return [body for name, body in BLOCK.findall(text) if name == kind]


def name_of(page):
    return str(page.relative_to(DOCS))


PAGES = [
    page
    for page in sorted(DOCS.rglob("*.md"))
    if blocks(page, "python") and name_of(page) not in NOT_RUN
]


def code_of(page):
    """The Python of a page at the lines where it stands, so that tracebacks name these."""
    text = page.read_text(encoding="utf-8")
    code = [""] * len(text.splitlines())
    for block in BLOCK.finditer(text):
        if block[1] == "python":
            first = text.count("\n", 0, block.start(2))
            lines = block[2].splitlines()
            code[first : first + len(lines)] = lines
    return "\n".join(code)


def skip_where_something_is_missing(tree):
    """Look for what others have to install; what is ours has to be there."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module]
        for name in names:
            if name.split(".")[0] not in OURS:
                pytest.importorskip(name)


@contextmanager
def closed_at_the_end(module):
    """Stores that a reader would leave open until the interpreter ends."""
    try:
        yield
    finally:
        for value in list(vars(module).values()):
            close = getattr(value, "close", None)
            if callable(close) and not isinstance(value, type | ModuleType):
                close()


def forget_the_tracer_provider(monkeypatch):
    """Let a page set a tracer provider, which the API takes only once, for itself alone."""
    try:
        from opentelemetry import trace
        from opentelemetry.util._once import Once
    except ImportError:
        return
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())


@pytest.fixture
def environment(request, monkeypatch, random_model, tmp_path):
    """Set a model for the pages that want one, and addresses of servers for those that do."""
    monkeypatch.setenv("MODEL", str(random_model))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    if "SIFT_URL" in request.getfixturevalue("page").read_text(encoding="utf-8"):
        pytest.importorskip("fastapi")
        from tests.service.servers import serving, tiny_app

        with serving(tiny_app(random_model)) as url:
            monkeypatch.setenv("SIFT_URL", url)
            yield
        return
    if "SIFT_MCP_URL" in request.getfixturevalue("page").read_text(encoding="utf-8"):
        pytest.importorskip("mcp")
        from tests.mcp.asking import served_memory

        with served_memory(tmp_path) as url:
            monkeypatch.setenv("SIFT_MCP_URL", url)
            yield
        return
    if "QDRANT_URL" not in request.getfixturevalue("page").read_text(encoding="utf-8"):
        yield
        return
    from tests.sources.qdrant_rest import serving

    qdrant_client = pytest.importorskip("qdrant_client")
    client = qdrant_client.QdrantClient(":memory:")
    try:
        with serving(client) as server:
            monkeypatch.setenv("QDRANT_URL", server.url)
            yield
    finally:
        client.close()


@pytest.mark.slow
@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_page_runs_and_prints_what_it_says(page, tmp_path, monkeypatch, capsys):
    tree = ast.parse(code_of(page), filename=str(page))
    skip_where_something_is_missing(tree)
    module = ModuleType(f"page_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # classes look themselves up there
    monkeypatch.chdir(tmp_path)
    forget_the_tracer_provider(monkeypatch)
    with closed_at_the_end(module):
        try:
            exec(compile(tree, str(page), "exec"), vars(module))
        except MissingDependencyError as error:  # of an extra that this environment lacks
            pytest.skip(str(error))
    assert capsys.readouterr().out == "".join(blocks(page, "text"))


def test_every_guide_and_every_start_has_code_that_runs():
    shown = {
        name_of(page) for folder in ("guides", "start") for page in (DOCS / folder).glob("*.md")
    }
    assert shown - {name_of(page) for page in PAGES} <= {"start/command-line.md"}
