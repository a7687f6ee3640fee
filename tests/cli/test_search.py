import io

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
from sift_core.cli.output import reason_of
from sift_core.cli.stores import StoreAddress, open_store
from sift_core.explanation import Pick
from sift_core.sources.multi_query import fetch_for_all, queries_of

QUESTION = "How do I read a CSV file and compress it?"
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


@pytest.mark.parametrize("words", ["0", "0.7"])
@pytest.mark.parametrize(
    ("options", "selector"),
    [
        ([], ContextSelector()),
        (["--noise-variance", "0.5"], ContextSelector(noise_variance=0.5)),
        (["--kernel", "linear"], SIFTSelector()),
    ],
)
def test_search_prints_what_the_selector_chooses(store, minilm, record, options, selector, words):
    told = record("search", QUESTION, "-n", "4", *options, "--words", words)
    query, pool = pool_of(store, minilm)
    choice = ChoiceOptions(n_select=4, selector=selector, words=float(words))
    with open_store(StoreAddress.parse(store)) as source:
        expected = search(source, query, choice)
    chosen = expected.chunks
    if words == "0":
        alone = selector.select(query.vector, pool.embeddings, 4).positions
        assert chosen.document_ids == pool.take(alone).document_ids
    assert [chunk["document_id"] for chunk in told["chunks"]] == list(chosen.document_ids)
    assert [chunk["text"] for chunk in told["chunks"]] == list(chosen.texts)
    for chunk, pick in zip(told["chunks"], expected.picks, strict=True):
        assert {key: chunk[key] for key in pick.numbers} == pytest.approx(pick.numbers)
        assert chunk.items() >= pick.words.items()
    assert told["variances"] == pytest.approx(expected.variances.tolist())
    variances = posterior_variances(query.vector, chosen.embeddings)
    assert told["question_variances"] == pytest.approx(variances.tolist())
    assert told["explained"] == pytest.approx(1 - variances[-1] / variances[0])
    assert told["stop_reason"] == "n_select"
    assert (told["store"], told["embedder"]) == (store, minilm.name)
    assert (told["question"], told["n_candidates"]) == (QUESTION, len(TEXTS))


def test_search_chooses_copies_last_and_marks_them(sift, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{QUESTION}\n"))
    out = sift("search", "-").out
    lines = out.splitlines()
    assert "gzip" in lines[1] or "csv" in lines[1]
    heads = [line for line in lines if line[:3].strip().isdigit()]
    assert len(heads) == 6
    assert sum("≡" in line or "≈" in line for line in heads) == 2
    assert "6 chunks, 1 copy ≡, 1 alike ≈, chosen from 6 candidates." in out
    assert "σ² at the question █" in out
    assert "\x1b" not in out


def test_each_query_has_its_turns_in_place_of_the_question(sift, store, minilm, record):
    parts = [QUESTION, "Where does the folder go?"]
    options = ["--query", parts[0], "--query", parts[1]]
    told = record("search", "Both?", *options, "-n", "4")
    queries = queries_of(parts, minilm)
    with open_store(StoreAddress.parse(store)) as source:
        pool = fetch_for_all(source, queries, 200)
        chosen = search(source, queries, ChoiceOptions(n_select=4))
    assert [one["document_id"] for one in told["chunks"]] == list(chosen.chunks.document_ids)
    assert "docs.md#4" in chosen.chunks.document_ids[:2]  # the second query's turn
    alone = record("search", "Both?", *options, "-n", "4", "--words", "0")["chunks"]
    rows = ContextSelector().select(queries.vectors, pool.embeddings, 4).positions
    assert [one["document_id"] for one in alone] == [pool.document_ids[i] for i in rows]
    assert (told["question"], told["queries"]) == ("Both?", parts)
    assert "leave out --query" in sift("search", "Both?", *options, "--compare", code=2).err
    assert "question is empty" in sift("search", "Both?", "--query", " ", code=2).err


def test_adaptive_fetches_beyond_the_copies(record):
    # Of the three nearest two or three say the same; .8 · 3 contents are wanted.
    # By vectors alone, since words find more than these three, and so does a second fetch.
    options = ["-n", "3", "--candidates", "3", "--words", "0"]
    plain = record("search", QUESTION, *options)
    assert plain["n_candidates"] == 3
    adaptive = record("search", QUESTION, *options, "--adaptive")
    assert plain["n_redundant"] > adaptive["n_redundant"] == 0


def test_a_comparison_has_the_nearest_neighbours_mmr_and_sift(store, minilm, record):
    arguments = ["search", QUESTION, "-n", "3", "--compare"]
    columns = record(*arguments, "--words", "0")["columns"]
    assert list(columns) == ["nearest", "mmr", "sift"]
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
    # One measure for all three, the paper's.
    for name, column in columns.items():
        variances = posterior_variances(query.vector, minilm.embed_documents(texts[name]))
        assert column["question_variances"] == pytest.approx(variances.tolist(), abs=1e-5)


def lines_of(out):
    return [line.rstrip() for line in out.splitlines()]


def test_columns_stand_beside_one_another_where_there_is_room(sift, monkeypatch):
    wide = lines_of(sift("search", QUESTION, "--compare").out)
    monkeypatch.setenv("COLUMNS", "80")
    narrow = lines_of(sift("search", QUESTION, "--compare").out)
    titles = ["nearest neighbours", "MMR, weight 0.7", "SIFT"]
    assert all(title in wide[0] for title in titles)
    assert [line for line in narrow if line in titles] == titles
    assert sum(line.count("σ² 0.") for line in wide) == 3
    assert max(map(len, wide)) <= 120
    assert max(map(len, narrow)) <= 80


def test_what_the_nearest_neighbours_lack_is_marked(sift, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = lines_of(sift("search", QUESTION, "--compare", "-n", "3", "--words", "0").out)
    nearest, _, chosen = "\n".join(lines).split("\n\n")[:3]
    assert "+" not in nearest
    assert chosen.count("+0.") == 1  # shutil instead of the third gzip


def test_search_says_which_words_a_chunk_shares(sift, record):
    picks = record("search", QUESTION)["chunks"]
    lines = lines_of(sift("search", QUESTION).out)
    assert picks[0]["shares"]
    for pick in picks:
        line = f"    shares: {', '.join(pick['shares'])}" if "shares" in pick else None
        assert line is None or any(one.startswith(line) for one in lines)
    assert "shares:" not in sift("search", QUESTION, "--words", "0").out


@pytest.fixture(scope="module")
def pages(tmp_path_factory, fill):
    """A Faiss folder: a page with an answer's first half, one with its second, and many others."""
    animals = "fox owl hare stork heron badger otter lynx stoat weasel vole newt".split()
    tools = "hammer saw plane chisel file drill".split()
    texts = [
        "The duke of Ostermark handed the sealed letter to Brunhild Kessler.",
        "Brunhild Kessler works in ward 17, behind the laundry.",
        *(
            f"The {animal} number {i} keeps a {tool} in the shed."
            for i, animal in enumerate(animals)
            for tool in tools
        ),
    ]
    documents = [Document(document_id=f"{i}.md", text=text) for i, text in enumerate(texts)]
    return fill(f"faiss:{tmp_path_factory.mktemp('pages') / 'index'}", documents)


LETTER = "To whom did the duke of Ostermark hand the sealed letter?"


def test_search_says_what_led_to_a_chunk_and_what_a_second_fetch_brought(
    sift, record, pages, monkeypatch
):
    arguments = ["search", LETTER, "--store", pages, "-n", "3"]
    [reached] = [one for one in record(*arguments)["chunks"] if one["document_id"] == "1.md"]
    assert reached["reached_from"] == 1
    assert set(reached["reached_by"]) == {"brunhild", "kessler"}
    line = f"reached from 1 by {', '.join(reached['reached_by'])}"
    out = sift(*arguments).out
    assert any(one.endswith(line) for one in lines_of(out))
    assert "A second fetch" not in out  # the first one fetched everything

    few = [*arguments, "--candidates", "3"]
    hop = record(*few)["hop"]
    assert hop["n_new"] > 0
    chosen = f"A second fetch brought {hop['n_new']} candidates, {hop['n_chosen']} of them chosen."
    assert chosen in sift(*few).out
    assert "A second fetch" not in sift(*few, "--hops", "0").out
    monkeypatch.setenv("COLUMNS", "30")
    narrow = [one for one in lines_of(sift(*arguments).out) if one.startswith("    shares: ")]
    assert narrow
    assert max(map(len, narrow)) <= 30


def test_search_names_what_no_candidate_has(record, sift):
    question = "Who wrote a letter to Ragna Ostby?"
    assert record("search", question)["missing_names"] == ["ragna ostby"]
    assert "No candidate has: ragna ostby" in sift("search", question).out
    assert "No candidate has" not in sift("search", QUESTION).out


def test_words_that_explain_a_choice_cannot_steer_the_terminal():
    pick = Pick(
        row=0,
        similarity=1.0,
        score=None,
        relevance=1.0,
        redundancy=None,
        gain=0.5,
        variance=0.5,
        shares=("a\x1b[31m\nb",),
    )
    assert "\n" not in reason_of(pick)
    assert "\x1b" not in reason_of(pick)


def test_every_kind_of_store_finds_the_same(record, fill):
    fill("qdrant:index", DOCUMENTS)
    texts = [[c["text"] for c in record("search", QUESTION, "--store", address)["chunks"]]
             for address in ("qdrant:index", fill("faiss:other", DOCUMENTS))]  # fmt: skip
    assert texts[0] == texts[1]


def test_search_takes_the_newest_of_near_duplicates(record, sift):
    search = ["search", QUESTION, "-n", "2", "--words", "0"]
    first = record(*search)["chunks"]
    newest = record(*search, "--newest", "page")["chunks"]  # seconds
    assert "docs.md#0" in [one["document_id"] for one in first]
    assert "docs.md#2" in [one["document_id"] for one in newest]
    assert "needs" in sift("search", QUESTION, "--half-life-days", "3", code=2).err
    assert "--newest" in sift("search", QUESTION, "--newest", "day", "--compare", code=2).err


@pytest.mark.parametrize("option", ["--max-tokens", "--max-per-document"])
def test_limits_that_cannot_be_are_usage_errors(sift, option):
    assert option in sift("search", QUESTION, option, "0", code=2).err
    for rule in (["--merge-neighbors"], [option, "5"]):
        assert "--compare" in sift("search", QUESTION, *rule, "--compare", code=2).err
