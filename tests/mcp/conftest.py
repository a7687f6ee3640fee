"""Small stores of every kind, filled and empty."""

import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")
pytest.importorskip("fastapi", reason="needs the extra mcp")

from tests.mcp.asking import documents, opened


@pytest.fixture(params=["faiss", "qdrant"])
def filled(request, tmp_path):
    with opened(f"{request.param}:{tmp_path / 'store'}", documents()) as collection:
        yield collection


@pytest.fixture(params=["faiss", "qdrant"])
def empty(request, tmp_path):
    with opened(f"{request.param}:{tmp_path / 'notes'}") as collection:
        yield collection
