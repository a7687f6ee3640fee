"""The demo keeps to the pace of its machine: parts of an index, and stages that fit a minute."""

import importlib
import json
import math
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("qdrant_client")
from qdrant_client import QdrantClient

from sift_core import Document
from sift_core.sources import QdrantSource
from sift_core.testing import HashingEmbedder

EXAMPLES = str(Path(__file__).parents[1] / "examples")


@pytest.fixture
def pace_module(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("demo_pace")


def test_a_stage_takes_a_half_or_a_quarter_of_what_does_not_fit(pace_module):
    fits = pace_module.count_that_fits
    assert fits(10, lambda n: 6.0 * n, 60) == 10
    assert fits(10, lambda n: 7.0 * n, 60) == 5
    assert fits(10, lambda n: 20.0 * n, 60) == 2
    assert fits(10, lambda n: 1000.0, 60) == 1  # one at least, however long it takes


def test_a_pace_is_measured_once_for_a_model(pace_module, tmp_path, random_model):
    from sift_core.answering import LanguageModel

    model = LanguageModel.from_pretrained(random_model, device="cpu", dtype="float32")
    path = tmp_path / "pace.json"
    first = pace_module.Pace.kept(path, model)
    assert first.read_s > 0
    assert pace_module.Pace.kept(path, model) == first
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "key": ["another", "machine"]}))
    assert pace_module.Pace.kept(path, model) is not None
    assert json.loads(path.read_text())["key"] == kept["key"]  # measured and kept anew
    path.write_text("damaged")
    pace_module.Pace.kept(path, model)
    assert json.loads(path.read_text())["key"] == kept["key"]


class Encoder(HashingEmbedder):
    """What the demo embeds with, and how many texts it has embedded."""

    n_embedded = 0

    def load_index_model(self):
        pass

    def embed_documents(self, texts):
        self.n_embedded += len(texts)
        return super().embed_documents(texts)


@pytest.fixture
def demo(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    demo = importlib.import_module("demo")
    monkeypatch.setattr(demo, "LEAST_INDEXING_S", 0)
    monkeypatch.setattr(demo, "N_EMBEDDED_AT_ONCE", 4)
    return demo


@pytest.fixture
def indexed(demo, tmp_path, monkeypatch, capsys):
    """Return a function that indexes documents until a moment, and what it printed."""
    client = QdrantClient(path=str(tmp_path / "qdrant"))
    encoder = Encoder(16)
    source = QdrantSource(client, "demo", embedder_name=encoder.name)

    pages = tmp_path / "pages"

    def call(documents, until):
        written = "".join(sorted({one.text for one in documents}))
        if not pages.exists() or pages.read_text() != written:  # the demo looks at size and time
            pages.write_text(written)
        corpus = demo.Corpus(name="texts", files=[pages], read=lambda _: list(documents))
        demo.index(client, source, encoder, corpus, tmp_path, until=until)
        return capsys.readouterr().out, len(source.content_ids()), encoder.n_embedded

    yield call
    client.close()


def documents(n):
    return [Document(document_id=str(i), text=f"text {i}") for i in range(n)]


def test_indexing_stops_in_time_and_goes_on_in_the_next_run(demo, indexed, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(demo.time, "monotonic", lambda: next(clock))
    printed, n_stored, _ = indexed([*documents(10), *documents(2)], 7)  # two come twice
    assert 0 < n_stored < 10
    assert f"{n_stored} of 10 chunks are indexed" in printed
    before = n_stored
    printed, n_stored, n_embedded = indexed([*documents(10), *documents(2)], math.inf)
    assert f"10 chunks, {10 - before} of them new." in printed
    assert n_stored == n_embedded == 10  # none was embedded twice
    printed, _, n_embedded = indexed(documents(10), math.inf)
    assert "10 chunks are indexed already." in printed
    assert n_embedded == 10


def test_what_is_no_longer_there_is_deleted_once_all_is_read(indexed):
    assert indexed(documents(6), math.inf)[1] == 6
    printed, n_stored, _ = indexed(documents(5), -math.inf)  # only a part is read in time
    assert "of 5 chunks are indexed" in printed
    assert n_stored == 6
    printed, n_stored, n_embedded = indexed(documents(5), math.inf)
    assert "5 chunks, 0 of them new." in printed
    assert (n_stored, n_embedded) == (5, 6)
