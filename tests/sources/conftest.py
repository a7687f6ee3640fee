"""The stores as fixtures."""

import pytest

pytest.importorskip("faiss")
pytest.importorskip("qdrant_client")

from tests.sources import stores
from tests.sources.qdrant_rest import serving


@pytest.fixture(scope="session")
def corpus():
    return stores.make_corpus()


@pytest.fixture(scope="session")
def reference(corpus):
    return stores.in_memory(corpus)


@pytest.fixture(scope="session", params=stores.KINDS)
def store(request, corpus, tmp_path_factory):
    """The corpus in one kind of store after another; opened once, as sources only read."""
    with stores.opened(request.param, corpus, tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture(
    scope="module",
    params=[
        "in memory, called",
        "faiss IVF, all lists, called",
        "faiss HNSW, called",
        "qdrant memory, called",
        "qdrant REST, called",
    ],
)
def concurrent_store(request, corpus, tmp_path_factory):
    """The corpus in the kinds of store that differ in what many threads at once do to them."""
    with stores.opened(request.param, corpus, tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture
def qdrant(corpus):
    """A filled in-memory client of one's own."""
    with stores.qdrant_in_memory(corpus) as client:
        yield client


@pytest.fixture
def rest_server(qdrant):
    """A server of one's own."""
    with serving(qdrant) as server:
        yield server


@pytest.fixture
def refill(corpus):
    """A function that makes the corpus's collection anew."""
    return lambda client, **options: stores.filled(client, corpus, **options)
