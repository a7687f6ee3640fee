"""A service over a small store and a small random model, called over real connections."""

from __future__ import annotations

import httpx
import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")

from sift_core import InMemorySource
from sift_core.service import ServiceSettings, create_app
from sift_core.testing import HashingEmbedder
from tests.service.servers import TEXTS, serving


@pytest.fixture(scope="session")
def embedder():
    return HashingEmbedder(64)


@pytest.fixture(scope="session")
def source(embedder):
    return InMemorySource(
        embedder.embed_documents(TEXTS),
        TEXTS,
        document_ids=[f"doc-{i}" for i in range(len(TEXTS))],
        metadata=[
            {"source": f"guide/{i}.md", "topic": "tea" if i in (4, 5) else "boats"}
            for i in range(len(TEXTS))
        ],
        embedder_name=embedder.name,
    )


@pytest.fixture(scope="session")
def ranking_url(source, embedder):
    """A service without a language model."""
    settings = ServiceSettings(max_body_bytes=8 << 20)
    with serving(create_app(source=source, embedder=embedder, settings=settings)) as url:
        yield url


@pytest.fixture
def http(ranking_url):
    with httpx.Client(base_url=ranking_url, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def engine(source, embedder, random_model):
    from sift_core.answering import AnswerEngine, LanguageModel

    return AnswerEngine(
        language_model=LanguageModel.from_pretrained(random_model, device="cpu"),
        source=source,
        embedder=embedder,
        n_candidates=8,
        n_context=3,
        n_steps=4,
        max_new_tokens=12,
    )


@pytest.fixture(scope="session")
def url(engine):
    """A whole service: store, embedder and language model."""
    settings = ServiceSettings(model_name="tiny", keep_alive_s=0.02, max_new_tokens=256)
    with serving(create_app(engine, settings=settings)) as address:
        yield address
