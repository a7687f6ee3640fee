"""`sift diagnose` over small real indexes, with the real embedding model."""

import json
import re
import sys
from pathlib import Path

import faiss
import numpy as np
import pytest
from qdrant_client import QdrantClient, models

from sift_core.cli import run
from sift_core.documents import index_documents
from sift_core.embedders import SentenceTransformerEmbedder
from sift_core.sources import FaissSource
from sift_core.types import Document

SUBJECTS = ["bread", "rain", "chess", "trains", "whales", "glass", "violins", "taxes", "maps"]
VERBS = ["begins", "ends", "changes", "is paid for", "was invented", "is described"]


@pytest.fixture(scope="module")
def embedder():
    return SentenceTransformerEmbedder()


def chunks(n_copies):
    for subject in SUBJECTS:
        for verb in VERBS:
            sentence = f"This is how the story of {subject} {verb}. " * 4
            text = f"{sentence}It says of {subject} what people know, and how it {verb}."
            for copy in range(n_copies):
                source = f"{subject}-{verb}-{copy}.md"
                body = f"{text} Copy number {copy}." if copy else text
                yield Document(document_id=f"{source}#0", text=body, metadata={"source": source})


@pytest.fixture(scope="module")
def store(tmp_path_factory, embedder):
    folder = tmp_path_factory.mktemp("store")
    FaissSource(faiss.IndexFlatIP(384), [], embedder_name=embedder.name).save(folder)
    index_documents(FaissSource.load(folder), chunks(4), embedder, progress=False)
    return f"faiss:{folder}"


def sift(monkeypatch, capfd, *arguments):
    from sift_core.cli.application import app

    code = run(lambda: app(["diagnose", *arguments]))
    out, err = capfd.readouterr()
    return code, out, err


def test_copies_are_found_told_and_drawn(monkeypatch, capfd, store, tmp_path):
    figure = tmp_path / "new" / "figure.svg"
    monkeypatch.setenv("COLUMNS", "60")
    code, out, _ = sift(monkeypatch, capfd, "--store", store, "--plot", str(figure))
    assert code == 0
    said = " ".join(out.split())
    assert said.index("Use SIFT here: of the 10 chunks") < said.index("Why, and what to do")
    assert re.search(r"SIFT would free \d\.\d of 10 places \(90 % interval", said)
    assert re.search(r"repeats \d\.\d \[\d\.\d, \d\.\d\]", said)
    assert "stood in for" in said
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 60
    assert "<svg" in figure.read_text(encoding="utf-8")


def test_json_is_one_document_and_a_seed_repeats_it(monkeypatch, capfd, store):
    arguments = ("--store", store, "--sample", "8", "--json", "--seed", "3")
    code, out, err = sift(monkeypatch, capfd, *arguments)
    assert (code, err) == (0, "")
    first = json.loads(out)
    second = json.loads(sift(monkeypatch, capfd, *arguments)[1])
    assert first == second
    assert first["verdict"] == "helps"
    assert len(first["questions"]) == 8
    assert first["n_stored"] == 216
    assert first["near_duplicates"]["mean"] > 0.9


def test_questions_of_ones_own_are_asked(monkeypatch, capfd, store, tmp_path):
    path = tmp_path / "questions.txt"
    path.write_text("How did bread begin?\nWho pays for trains?\n")
    code, out, _ = sift(monkeypatch, capfd, "--store", store, "--queries", str(path), "--json")
    found = json.loads(out)
    assert code == 0
    assert [one["question"] for one in found["questions"]] == path.read_text().splitlines()
    assert not found["stand_ins"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--queries", "empty.txt"], "has no question in it"),
        (["--queries", "none.txt"], "cannot be read"),
        (["--plot", "figure.gif"], "must name a file"),
        (["--store", "faiss:nowhere"], "no index at faiss:nowhere"),
        (["--embedder", "another"], "all-MiniLM-L6-v2"),
    ],
    ids=["empty queries", "no queries", "plot", "no store", "embedder"],
)
def test_mistakes_are_named_before_the_work(
    monkeypatch, capfd, store, tmp_path, arguments, message
):
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").write_text("\n")
    code, out, err = sift(monkeypatch, capfd, "--store", store, *arguments)
    assert code == 2
    assert out == ""
    assert message in err


def test_a_foreign_collection_of_qdrant_needs_its_embedder(monkeypatch, capfd, tmp_path, embedder):
    texts = [f"{subject} and how it {verb}." for subject in SUBJECTS for verb in VERBS]
    client = QdrantClient(path=str(tmp_path))
    params = models.VectorParams(size=384, distance=models.Distance.COSINE)
    client.create_collection("sift", vectors_config=params)
    rows = embedder.embed_documents(texts)
    client.upsert("sift", [
        models.PointStruct(id=i, vector=row.tolist(), payload={"text": text})
        for i, (row, text) in enumerate(zip(rows, texts, strict=True))
    ])  # fmt: skip
    client.close()
    code, _, err = sift(monkeypatch, capfd, "--store", f"qdrant:{tmp_path}")
    assert code == 2
    assert "--embedder" in err
    store = ("--store", f"qdrant:{tmp_path}", "--embedder", embedder.name)
    code, out, err = sift(monkeypatch, capfd, *store, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["n_stored"] == len(texts)


def test_nan_in_a_foreign_store_names_the_chunk(monkeypatch, capfd, tmp_path, embedder):
    rows = np.eye(30, 384, dtype=np.float32)
    rows[4] = np.nan
    index = faiss.IndexFlatIP(384)
    index.add(rows)
    documents = [Document(document_id=f"d{i}", text=f"Some text {i}.") for i in range(30)]
    FaissSource(index, documents, embedder_name=embedder.name).save(tmp_path)
    code, _, err = sift(monkeypatch, capfd, "--store", f"faiss:{tmp_path}")
    assert code == 2
    assert "document 'd4' in the Faiss IndexFlatIP holds NaN" in err


def test_without_matplotlib_the_text_comes_and_a_figure_is_refused_before_the_work(
    monkeypatch, capfd, store, tmp_path
):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = sift(monkeypatch, capfd, "--store", store, "--sample", "5")
    assert (code, err) == (0, "")
    assert "Why, and what to do" in out
    figure = tmp_path / "figure.png"
    code, out, err = sift(monkeypatch, capfd, "--store", "faiss:nowhere", "--plot", str(figure))
    assert (code, out) == (2, "")
    assert "pip install 'sift-rerank[eval]'" in err
    assert not figure.exists()
