"""`sift eval retrieval`: what it prints, writes and refuses."""

import json

import pytest

from sift_core.cli import run
from sift_core.cli.application import app
from sift_core.cli.eval_retrieval import _print_metric
from sift_core.cli.output import Terminal
from sift_core.evaluation import embedding_cache

TOPICS = ("apples", "rivers", "engines", "contracts", "stars", "bread")


def sift_eval(*arguments):
    return run(lambda: app(["eval", *map(str, arguments)]))


def write_lines(path, rows):
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(embedding_cache, "default_cache_folder", lambda: tmp_path / "cache")
    passages = [{"id": one, "title": one, "text": f"Much is known about {one}."} for one in TOPICS]
    questions = [{"question": f"What is known of {one}?", "gold": [one]} for one in TOPICS[:3]]
    corpus = write_lines(tmp_path / "corpus.jsonl", passages)
    queries = write_lines(tmp_path / "queries.jsonl", questions)
    return ["--corpus", corpus, "--queries", queries]


def test_rows_are_written_and_printed(files, tmp_path, capsys):
    pytest.importorskip("sentence_transformers", reason="embeds with MiniLM")
    results = tmp_path / "new/retrieval.json"
    options = ["--methods", "nn,mmr-.5", "--conditions", "as-is", "--results", results]
    assert sift_eval("retrieval", *files, *options, "--max-queries", "2", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert json.loads(results.read_text(encoding="utf-8")) == record
    assert [(one["method"], one["condition"]) for one in record["rows"]] == [
        ("nn", "as is"),
        ("mmr .5", "as is"),
    ]
    assert record["rows"][0]["recall@10"] == 1.0  # there are six passages
    assert record["rows"][0]["n_queries"] == 2
    assert record["configuration"]["candidates"] == 200
    assert sift_eval("retrieval", *files, *options, "--metrics", "ndcg@10") == 0
    assert "ndcg@10 in points" in capsys.readouterr().out


def test_a_table_marks_the_best_and_another_has_the_differences(capsys):
    kept = {"mean": 0.1, "ci": [0.05, 0.15]}
    rows = [
        {"method": "nn", "recall@10": 0.8, "ci": {"recall@10": [0.75, 0.86]}},
        {"method": "sift", "recall@10": 0.9, "ci": {}, "differences": {"nn": {"recall@10": kept}}},
    ]
    rows = [{"condition": "as is", **row} for row in rows]
    rows.append({"condition": "duplicates 4", "method": "nn", "recall@10": 0.4, "ci": {}})
    _print_metric(Terminal(), rows, "recall@10")
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert printed[:4] == [
        "recall@10 in points",
        "",
        "method as is duplicates 4",
        "nn 80.0 [75.0, 86.0] *40.0 [–]",
    ]
    assert "sift *90.0 [–]" in printed
    assert "as is +10.0 [+5.0, +15.0]" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "pass either --beir FOLDER, or --corpus"),
        (["--beir", "none"], "none has no corpus.jsonl"),
        (["--methods", "best"], "--methods: no 'best'; there are nn"),
        (["--metrics", "f1"], "there is no metric 'f1'; there are recall@n"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments, message, capsys):
    assert sift_eval("retrieval", *arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["corpus.jsonl/rows.json", "."])
def test_a_file_that_cannot_be_written_is_told_before_the_work(files, name, tmp_path, capsys):
    assert sift_eval("retrieval", *files, "--results", tmp_path / name) != 0
    assert "could not be written" in capsys.readouterr().err
