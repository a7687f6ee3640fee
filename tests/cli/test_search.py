import json
import re

import numpy as np
import pytest

from sift_core import (
    ChoiceOptions,
    ContextSelector,
    Document,
    Query,
    SIFTSelector,
    posterior_variances,
)
from sift_core.choice import search
from sift_core.cli.store_addresses import StoreAddress
from sift_core.cli.stores import open_store
from sift_core.cli.streams import one_line
from sift_core.explanation import Pick
from sift_core.sources.multi_query import queries_of

QUESTION = "How do I read a CSV file and compress it?"
FOLDER = "Where does the folder go?"
TEXTS = [
    "gzip.open compresses a file.",
    "gzip.open can compress files.",
    "gzip.open compresses a file!",
    "csv.reader reads rows of a CSV file.",
    "shutil.move moves a folder.",
    "math.sqrt takes a square root.",
]
DOCUMENTS = [
    Document(document_id=f"docs.md#{i}", text=text, metadata={"source": "docs.md", "page": i})
    for i, text in enumerate(TEXTS)
]


@pytest.fixture(scope="module")
def store(tmp_path_factory, fill):
    """A Faiss folder with six texts, three of which say the same."""
    return fill(f"faiss:{tmp_path_factory.mktemp('store') / 'index'}", DOCUMENTS)


@pytest.fixture(autouse=True)
def settings(store, monkeypatch):
    monkeypatch.setenv("SIFT_STORE", store)


def pool_of(store, minilm):
    query = Query(text=QUESTION, embedding=minilm.embed_query(QUESTION), embedder_name=minilm.name)
    with open_store(StoreAddress.parse(store)) as source:
        return query, source.fetch(query, 200)


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ([], {}),
        (["--noise-variance", "0.5"], {"selector": ContextSelector(noise_variance=0.5)}),
        (["--kernel", "linear", "--words", "0"], {"selector": SIFTSelector(), "words": 0}),
        (["--query", QUESTION, "--query", FOLDER], {}),
        (["--newest", "page", "--words", "0"], {"newest": "page", "words": 0}),  # seconds
    ],
    ids=["plain", "noise", "linear", "queries", "newest"],
)
def test_search_prints_what_the_library_chooses(store, minilm, record, flags, options):
    told = record("search", QUESTION, "-n", "4", *flags)
    queries = [QUESTION, FOLDER] if "--query" in flags else [QUESTION]
    with open_store(StoreAddress.parse(store)) as source:
        chosen = search(source, queries_of(queries, minilm), ChoiceOptions(n_select=4, **options))
    asked = {"question": QUESTION, "store": store, "embedder": minilm.name}
    asked |= {"n_candidates": len(TEXTS)} | ({"queries": queries} if len(queries) > 1 else {})
    assert told == asked | json.loads(json.dumps(chosen.as_dict()))


@pytest.mark.parametrize(
    ("filters", "pages"),
    [
        (["page=3"], {3}),
        (["page=3", "page=4"], {3, 4}),
        (["page=3", "source=docs.md"], {3}),
        (["source=docs.md"], set(range(len(TEXTS)))),
    ],
)
def test_a_filter_is_by_metadata(record, filters, pages):
    flags = [flag for one in filters for flag in ("--filter", one)]
    told = record("search", QUESTION, "-n", "9", "--words", "0", *flags)
    assert told["n_candidates"] == len(pages)
    assert {chunk["metadata"]["page"] for chunk in told["chunks"]} <= pages


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("year=3", r"no document .* has the metadata \['year'\]; there are \['page', 'source'\]"),
        ("page=99", "no chunk passes --filter"),
        ("page=007", "no chunk passes --filter"),
        ("page", "--filter must be KEY=VALUE, got 'page'"),
    ],
)
def test_a_filter_that_lets_nothing_pass_says_why(refusal, value, said):
    assert re.search(said, refusal("search", QUESTION, "--filter", value).replace("\n", " "))


def test_adaptive_fetches_beyond_the_copies(record):
    # Of the three nearest two or three say the same; .8 · 3 contents are wanted.
    # By vectors alone, since words find more than these three, and so does a second fetch.
    options = ["-n", "3", "--candidates", "3", "--words", "0"]
    plain = record("search", QUESTION, *options)
    assert plain["n_candidates"] == 3
    adaptive = record("search", QUESTION, *options, "--adaptive")
    assert plain["n_redundant"] > adaptive["n_redundant"] == 0


def test_a_comparison_has_every_method(store, minilm, record):
    arguments = ["search", QUESTION, "-n", "3", "--compare"]
    columns = record(*arguments, "--words", "0")["columns"]
    assert list(columns) == ["nearest", "mmr", "hybrid", "sift"]
    texts = {name: [chunk["text"] for chunk in columns[name]["chunks"]] for name in columns}
    query, pool = pool_of(store, minilm)
    nearest = np.argsort(-pool.similarities, kind="stable")[:3]
    assert texts["nearest"] == [pool.texts[i] for i in nearest]
    assert columns["nearest"]["n_redundant"] > columns["sift"]["n_redundant"] == 0
    # By hand: the largest .7 · similarity - .3 · cosine to the first.
    scores = 0.7 * pool.similarities - 0.3 * (pool.embeddings @ pool.embeddings[nearest[0]])
    scores[nearest[0]] = -np.inf
    assert texts["mmr"][1] == pool.texts[int(np.argmax(scores))]
    with_words = record(*arguments)["columns"]
    for name in ("nearest", "mmr"):  # by embeddings, whatever SIFT goes by
        found = [chunk["text"] for chunk in with_words[name]["chunks"]]
        assert found == texts[name]
    column = columns["mmr"]  # one measure for all three, the paper's
    variances = posterior_variances(query.vector, minilm.embed_documents(texts["mmr"]))
    assert column["question_variances"] == pytest.approx(variances.tolist(), abs=1e-5)


def lines_of(out):
    return [line.rstrip() for line in out.splitlines()]


def test_columns_stand_beside_one_another_where_there_is_room(sift, monkeypatch):
    arguments = ["search", QUESTION, "--compare", "-n", "3", "--words", "0"]
    wide = lines_of(sift(*arguments).out)
    monkeypatch.setenv("COLUMNS", "80")
    narrow = lines_of(sift(*arguments).out)
    titles = ["nearest neighbours", "MMR, weight 0.7", "hybrid, by rank", "SIFT"]
    assert all(title in wide[0] for title in titles)
    assert [line for line in narrow if line in titles] == titles
    assert sum(line.count("σ² 0.") for line in wide) == 4
    assert max(map(len, wide)) <= 120
    assert max(map(len, narrow)) <= 80
    nearest, _, _, chosen = "\n".join(narrow).split("\n\n")[:4]
    assert "+" not in nearest
    assert chosen.count("+0.") == 1  # shutil instead of the third gzip


def test_search_says_why_a_chunk_was_chosen(record, sift):
    told = record("search", QUESTION, "-n", "2", "--candidates", "2")
    out = sift("search", QUESTION, "-n", "2", "--candidates", "2").out
    assert f"    shares: {', '.join(told['chunks'][0]['shares'])}" in out
    hop = told["hop"]
    chosen = f"A second fetch brought {hop['n_new']} candidates, {hop['n_chosen']} of them chosen."
    assert (hop["n_new"] > 1, chosen in out) == (True, True)
    without = sift("search", QUESTION, "--words", "0").out
    assert "shares:" not in without
    assert re.search(r"(?m)^    similarity 0\.\d\d, gain 0\.\d\d$", without)
    pick = {"similarity": 1.0, "score": None, "relevance": 1.0, "redundancy": None}
    pick |= {"gain": 0.5, "variance": 0.5, "shares": ("a\x1b[31m\nb",)}
    reached = Pick(row=0, **pick, reached_from=2, reached_by=("ward",))
    assert one_line(reached.reason) == "shares: a[31m b; reached from 2 by ward"
    question = "Who wrote a letter to Ragna Ostby?"
    assert record("search", question)["missing_names"] == ["ragna ostby"]
    assert "No candidate has: ragna ostby" in sift("search", question).out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--half-life-days", "3"], "needs"),
        (["--max-tokens", "0"], "--max-tokens"),
        (["--compare", "--newest", "day"], "leave out --newest"),
        (["--compare", "--max-per-document", "5"], "leave out --max-per-document"),
        (["--compare", "--merge-neighbors"], "leave out --merge-neighbors"),
        (["--compare", "--query", "x"], "leave out --query"),
        (["--query", " "], "question is empty"),
    ],
)
def test_options_that_cannot_be_or_do_not_go_together_are_named(sift, options, told):
    assert told in sift("search", QUESTION, *options, code=2).err


def test_search_says_what_was_left_out(record, sift):
    left_out = record("search", QUESTION, "-n", "2")["left_out"]
    assert {one["reason"] for one in left_out} == {"near_copy"}
    assert {one["rank"] for one in left_out} <= {1, 2}
    out = sift("search", QUESTION, "-n", "2").out
    assert f"left out: {left_out[0]['source']}" in out
