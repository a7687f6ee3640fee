"""A service over a small store and a small random model, called over real connections."""

from __future__ import annotations

import httpx
import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")

from sift_core.service import ServiceSettings, create_app
from sift_core.testing import HashingEmbedder
from tests.service.servers import PATIENCE_S, SETTINGS, serving, small_store, tiny_engine


@pytest.fixture(scope="session")
def embedder():
    return HashingEmbedder(64)


@pytest.fixture(scope="session")
def source(embedder):
    return small_store(embedder)


@pytest.fixture(scope="session")
def ranking_url(source, embedder):
    """A service without a language model."""
    settings = ServiceSettings(max_body_bytes=8 << 20)
    with serving(create_app(source=source, embedder=embedder, settings=settings)) as url:
        yield url


@pytest.fixture
def http(ranking_url):
    with httpx.Client(base_url=ranking_url, timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture(scope="session")
def engine(source, embedder, random_model):
    return tiny_engine(random_model, source, embedder)


@pytest.fixture(scope="session")
def url(engine):
    """A whole service: store, embedder and language model."""
    with serving(create_app(engine, settings=SETTINGS)) as address:
        yield address
