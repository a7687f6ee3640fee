"""What all tests share: the backend, the small model, and one run of the demo and the examples."""

from __future__ import annotations

import gc

import pytest

from sift_core import load_compiled
from tests.example_runs import ExampleRuns

TOPICS = (
    "stochastic depth",
    "relative position bias",
    "window partition",
    "patch embedding",
    "class token",
    "layer scale",
    "attention pooling",
    "causal mask",
    "feature pyramid",
    "position encoding",
)
PAGE = """# {topic}

How {topic} is computed in an image model, with `{name}(hidden_states, scale)`.

The hidden states are walked once, from the first layer to the last, at most *scale* of them are
changed. The call returns {topic} for each sample of the batch; an empty batch gives an empty
tensor. It raises ValueError where *scale* is negative, and where there are no such states.
"""


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


@pytest.fixture(scope="session")
def example_runs(tmp_path_factory):
    """The demo over ten pages and then every example, started in the background."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "docs").mkdir()
    for topic in TOPICS:
        name = topic.replace(" ", "_")
        page = PAGE.format(topic=topic, name=name)
        (folder / f"docs/{name}.md").write_text(page, encoding="utf-8")
    runs = ExampleRuns(folder)
    yield runs
    runs.stop()
