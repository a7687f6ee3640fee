import io
import json
import shutil

import numpy as np
import pytest

from sift_core import ContextSelector, Document, Query, SIFTSelector, posterior_variances
from sift_core.cli import run
from sift_core.cli.application import app
from sift_core.cli.stores import StoreAddress, create_or_open_store, load_embedder, open_store
from sift_core.documents import index_documents

QUESTION = "How do I read a CSV file and compress it?"
TEXTS = [
    "gzip.open compresses a file.",
    "gzip.open can compress files.",
    "gzip.open compresses a file!",
    "csv.reader reads rows of a CSV file.",
    "shutil.move moves a folder.",
    "math.sqrt takes a square root.",
]


@pytest.fixture(scope="module")
def embedder():
    return load_embedder("all-MiniLM-L6-v2")


@pytest.fixture(scope="module")
def store(tmp_path_factory, embedder):
    """A Faiss folder with six texts, three of which say the same."""
    address = f"faiss:{tmp_path_factory.mktemp('store') / 'index'}"
    fill(address, embedder)
    return address


@pytest.fixture(autouse=True)
def wide(monkeypatch, tmp_path):
    """A terminal of 120 columns, and no settings of whoever runs the tests."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("SIFT_STORE", "SIFT_EMBEDDER", "SIFT_CONFIG", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def fill(address, embedder):
    documents = [
        Document(document_id=f"docs.md#{i}", text=text, metadata={"source": "docs.md", "page": i})
        for i, text in enumerate(TEXTS)
    ]
    where = StoreAddress.parse(address)
    with create_or_open_store(where, embedder_name=embedder.name, dimension=384) as source:
        index_documents(source, documents, embedder, progress=False)


def sift(*arguments):
    return run(lambda: app(["search", *arguments]))


def searched(capsys, *arguments):
    assert sift(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def pool_of(store, embedder, n_candidates=200):
    query = Query(
        text=QUESTION, embedding=embedder.embed_query(QUESTION), embedder_name=embedder.name
    )
    with open_store(StoreAddress.parse(store)) as source:
        return query, source.fetch(query, n_candidates)


@pytest.mark.parametrize(
    ("options", "selector"),
    [
        ([], ContextSelector()),
        (["--noise-variance", "0.5"], ContextSelector(noise_variance=0.5)),
        (["--kernel", "linear"], SIFTSelector()),
    ],
)
def test_search_prints_what_the_selector_chooses(store, embedder, capsys, options, selector):
    record = searched(capsys, QUESTION, "--store", store, "-n", "4", *options)
    query, pool = pool_of(store, embedder)
    expected = selector.select(query.embedding, pool.embeddings, 4)
    chosen = pool.take(expected.positions)
    assert [chunk["document_id"] for chunk in record["chunks"]] == list(chosen.document_ids)
    assert [chunk["text"] for chunk in record["chunks"]] == list(chosen.texts)
    assert record["variances"] == pytest.approx(expected.variances.tolist())
    question_variances = posterior_variances(query.embedding, chosen.embeddings)
    assert record["question_variances"] == pytest.approx(question_variances.tolist())
    assert record["stop_reason"] == "n_select"
    assert (record["store"], record["embedder"]) == (store, embedder.name)
    assert (record["question"], record["n_candidates"]) == (QUESTION, len(TEXTS))


def test_search_chooses_copies_last_and_marks_them(store, capsys):
    assert sift(QUESTION, "--store", store) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert "gzip" in lines[1] or "csv" in lines[1]
    assert sum("≡" in line or "≈" in line for line in lines[:12]) == 2
    assert "6 chunks, 1 copy ≡, 1 alike ≈, chosen from 6 candidates." in out
    assert "σ² at the question █" in out
    assert "\x1b" not in out


def test_an_option_limits_the_candidates(store, capsys):
    options = ["--store", store, "-n", "2", "--candidates", "3"]
    assert searched(capsys, QUESTION, *options)["n_candidates"] == 3


def test_adaptive_fetches_beyond_the_copies(store, capsys):
    # Of the three nearest two or three say the same; .8 · 3 contents are wanted.
    options = ["--store", store, "-n", "3", "--candidates", "3"]
    plain = searched(capsys, QUESTION, *options)
    adaptive = searched(capsys, QUESTION, *options, "--adaptive")
    assert plain["n_redundant"] > adaptive["n_redundant"] == 0


def test_a_comparison_has_the_nearest_neighbours_mmr_and_sift(store, embedder, capsys):
    record = searched(capsys, QUESTION, "--store", store, "-n", "3", "--compare")
    assert list(record["columns"]) == ["nearest", "mmr", "sift"]
    query, pool = pool_of(store, embedder)
    for name, column in record["columns"].items():
        texts = [chunk["text"] for chunk in column["chunks"]]
        embeddings = embedder.embed_documents(texts)
        variances = posterior_variances(query.embedding, embeddings)
        assert column["question_variances"] == pytest.approx(variances.tolist(), abs=1e-5), name
        assert column["explained"] == pytest.approx(1 - variances[-1] / variances[0], abs=1e-5)
    nearest = record["columns"]["nearest"]
    assert [chunk["text"] for chunk in nearest["chunks"]] == [
        pool.texts[i] for i in nearest_neighbors_of(pool)
    ]
    assert nearest["n_redundant"] > record["columns"]["sift"]["n_redundant"] == 0
    second = record["columns"]["mmr"]["chunks"][1]["text"]
    # By hand: the largest .7 · similarity - .3 · cosine to the first.
    first = np.argmax(pool.similarities)
    scores = 0.7 * pool.similarities - 0.3 * (pool.embeddings @ pool.embeddings[first])
    scores[first] = -np.inf
    assert second == pool.texts[int(np.argmax(scores))]


def nearest_neighbors_of(pool):
    return np.argsort(-pool.similarities, kind="stable")[:3]


def test_columns_stand_beside_one_another_where_there_is_room(store, capsys, monkeypatch):
    options = [QUESTION, "--store", store, "--compare"]
    assert sift(*options) == 0
    wide = capsys.readouterr().out.splitlines()
    monkeypatch.setenv("COLUMNS", "80")
    assert sift(*options) == 0
    narrow = capsys.readouterr().out.splitlines()
    titles = ["nearest neighbours", "MMR, weight 0.7", "SIFT"]
    assert all(title in wide[0] for title in titles)
    assert [line for line in narrow if line in titles] == titles
    assert sum(line.count("σ² 0.") for line in wide) == 3
    assert max(len(line.rstrip()) for line in wide) <= 120
    assert max(len(line.rstrip()) for line in narrow) <= 80


def test_what_the_nearest_neighbours_lack_is_marked(store, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert sift(QUESTION, "--store", store, "--compare", "-n", "3") == 0
    nearest, _, sift_column = capsys.readouterr().out.split("\n\n")[:3]
    assert "+" not in nearest
    assert sift_column.count("+0.") == 1  # shutil instead of the third gzip


def test_full_prints_whole_texts(store, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    assert sift(QUESTION, "--store", store, "--full") == 0
    out = capsys.readouterr().out
    assert all(text in out for text in TEXTS)


def test_a_question_may_come_from_stdin(store, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{QUESTION}\n"))
    assert searched(capsys, "-", "--store", store)["question"] == QUESTION


@pytest.mark.parametrize("kind", ["faiss", "qdrant"])
def test_every_kind_of_store_finds_the_same(kind, store, embedder, capsys, tmp_path):
    address = f"{kind}:{tmp_path / 'index'}"
    fill(address, embedder)
    texts = [c["text"] for c in searched(capsys, QUESTION, "--store", address)["chunks"]]
    assert texts == [c["text"] for c in searched(capsys, QUESTION, "--store", store)["chunks"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([""], "the question is empty"),
        (["  "], "the question is empty"),
        ([QUESTION, "--store", "faiss:nowhere"], "no index at faiss:nowhere; make one: sift index"),
        ([QUESTION, "--embedder", "other"], "was made with the embedder 'all-MiniLM-L6-v2'"),
        ([QUESTION, "--noise-variance", "0"], "`noise_variance` must be"),
        ([QUESTION, "--candidates", "5"], "--candidates must be >= --n-select, got 5 and 10"),
        ([QUESTION, "--compare", "--full"], "--compare prints no texts"),
        ([QUESTION, "--store", "qdrant:http://127.0.0.1:9"], "127.0.0.1:9"),
    ],
)
def test_what_cannot_be_searched_is_one_clear_line(store, capsys, arguments, message):
    options = [] if "--store" in arguments else ["--store", store]
    assert sift(*arguments, *options) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_a_question_that_is_missing_or_an_unknown_kernel_is_a_usage_error(store, capsys):
    assert sift("--store", store) == 2
    assert "QUESTION" in capsys.readouterr().err
    assert sift(QUESTION, "--store", store, "--kernel", "cubic") == 2
    assert "cubic" in capsys.readouterr().err


def test_a_damaged_index_is_one_clear_line(store, capsys, tmp_path):
    folder = tmp_path / "damaged"
    shutil.copytree(store.removeprefix("faiss:"), folder)
    for path in folder.iterdir():
        if path.suffix in (".faiss", ".index") or "index" in path.name:
            path.write_bytes(b"damaged")
    assert sift(QUESTION, "--store", f"faiss:{folder}") == 2
    assert capsys.readouterr().err.count("\n") == 1
