"""What all tests share: the backend and the small model."""

from __future__ import annotations

import gc

import pytest

from sift_core import load_compiled


def pytest_collection_finish():
    """Keep what collecting imported from every later collection of garbage: it takes a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def one_backend():
    """The compiled loops where they are, for all tests: results differ in the last digits."""
    load_compiled()


@pytest.fixture(scope="session")
def random_model(tmp_path_factory):
    """Folder of a small random language model, which answers at once, and nonsense."""
    pytest.importorskip("torch", reason="needs the extra fine-tune")
    from tests.random_model import save_random_model

    return save_random_model(tmp_path_factory.mktemp("random_model"))


@pytest.fixture
def traces():
    """The spans of a test, with a tracer provider in place."""
    pytest.importorskip("opentelemetry.sdk", reason="needs the extra otel")
    from tests.traces import PROVIDER, Traces, provided

    found = Traces()
    found.clear()
    with provided(PROVIDER):
        yield found
    found.clear()
