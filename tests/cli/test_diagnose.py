"""`sift diagnose` over small real indexes, with the real embedding model."""

import json
import logging
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import faiss
import numpy as np
import pytest
from qdrant_client import QdrantClient, models

from sift_core.cli import run
from sift_core.cli.diagnose_command import _quiet_matplotlib
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


class _Checker(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.anchors, self.links = [], set(), set()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors.add(attrs.get("id"))
        self.links.add(attrs.get("href", "#")[1:])
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_copies_are_found_told_and_drawn(monkeypatch, capfd, store, tmp_path):
    page = tmp_path / "new" / "report.html"
    monkeypatch.setenv("COLUMNS", "60")
    code, out, err = sift(monkeypatch, capfd, "--store", store, "--html", str(page))
    assert (code, err) == (0, "")
    said = " ".join(out.split())
    assert said.index("Use SIFT here: of the 10 chunks") < said.index("Why, and what to do")
    assert re.search(r"SIFT would free \d\.\d of 10 places \(90 % interval", said)
    assert "stood in for" in said
    assert "\x1b" not in out
    assert max(map(len, out.splitlines()[:20])) <= 60
    html = page.read_text(encoding="utf-8")
    checker = _Checker()
    checker.feed(html)
    assert checker.open == []
    assert checker.links - {""} <= checker.anchors
    assert html.count("<img ") == 3
    assert html.index("Use SIFT here") < html.index("Contents")
    assert re.search('<span class="mark">(repeat|version)</span>', html)
    assert "http://" not in html.replace("http://www.w3.org", "")


def test_json_is_one_document_and_a_seed_repeats_it(monkeypatch, capfd, store):
    arguments = ("--store", store, "--sample", "8", "--json", "--seed", "3")
    code, out, err = sift(monkeypatch, capfd, *arguments)
    assert (code, err) == (0, "")
    first = json.loads(out)
    second = json.loads(sift(monkeypatch, capfd, *arguments)[1])
    for found in (first, second):
        found["settings"].pop("seconds")
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
        (["--html", "."], "is a folder"),
        (["--store", "faiss:nowhere"], "no index at faiss:nowhere"),
        (["--embedder", "another"], "all-MiniLM-L6-v2"),
    ],
    ids=["empty queries", "no queries", "html", "no store", "embedder"],
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
    assert any("does not name a document" in one for one in json.loads(out)["caveats"])


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


def test_without_matplotlib_the_text_comes_and_a_page_is_refused_before_the_work(
    monkeypatch, capfd, store, tmp_path
):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = sift(monkeypatch, capfd, "--store", store, "--sample", "5")
    assert (code, err) == (0, "")
    assert "--html FILE writes this with figures" in out
    page = tmp_path / "report.html"
    nowhere = ("--store", "faiss:nowhere", "--html", str(page))
    code, out, err = sift(monkeypatch, capfd, *nowhere)
    assert (code, out) == (2, "")
    assert "pip install 'sift-rerank[eval]'" in err
    assert not page.exists()


def test_what_matplotlib_tells_of_its_fonts_stays_out_of_the_way(caplog):
    fonts = logging.getLogger("matplotlib.font_manager")
    with _quiet_matplotlib():
        fonts.warning("Matplotlib is building the font cache; this may take a moment.")
    assert caplog.text == ""
    fonts.warning("as before")
    assert "as before" in caplog.text


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_phone_shows_the_page_without_scrolling_sideways(monkeypatch, capfd, store, tmp_path):
    page = tmp_path / "report.html"
    assert sift(monkeypatch, capfd, "--store", store, "--sample", "5", "--html", str(page))[0] == 0
    # The page itself may run no script: one around it measures it.
    probe = tmp_path / "probe.html"
    probe.write_text(
        '<iframe src="report.html" width="390" height="800" style="border:0"></iframe>'
        "<script>onload = () => { const root = frames[0].document.documentElement;"
        "document.title = `${root.scrollWidth} ${root.clientWidth}`; }</script>"
    )
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    dom = subprocess.run(
        ["chromium", *options, "--virtual-time-budget=3000", "--dump-dom", probe.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    width, room = map(int, re.search(r"<title>(\d+) (\d+)", dom).groups())
    assert width <= room <= 390
