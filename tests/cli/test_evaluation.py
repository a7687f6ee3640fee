"""`sift eval`: what it prints, writes and refuses."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sift_core.cli import run
from sift_core.cli.application import app
from sift_core.evaluation.language_modeling.arms import learning, reading
from tests.evaluation.synthetic import prompt, row, rows_of_percents

COMMANDS = ("language-modeling", "tables", "retrieval", "report")
SIFT, NN = learning("SIFT", 0.1), learning("NN")
PROMPTS = [prompt("a1", "law"), prompt("a2", "law"), prompt("b1"), prompt("b2")]
COLUMNS = {SIFT: [80, 81, 90, 91], NN: [84, 86, 95, 96], reading("SIFT", 0.1): [97, 98, 99, 96]}
TOPICS = ("apples", "rivers", "engines", "contracts", "stars", "bread")
RETRIEVAL_ROW = {
    "set": "fruit",
    "condition": "as is",
    "method": "sift",
    "recall@10": 0.6,
    "ci": {"recall@10": [0.5, 0.7]},
    "n_queries": 4,
}


def sift_eval(*arguments):
    return run(lambda: app(["eval", *map(str, arguments)]))


def write_lines(path, rows):
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return path


def rows_of_experiment(name="e1"):
    rows = rows_of_percents(PROMPTS, COLUMNS)
    for one in rows:
        one |= {"experiment": name, "key": f"{name} {one['arm']} {one['prompt']['id']}"}
    configuration = {"base_model": {"name": "tiny_lm"}}
    return [{"kind": "experiment", "experiment": name, "configuration": configuration}, *rows]


@pytest.fixture
def results(tmp_path):
    return write_lines(tmp_path / "results.jsonl", rows_of_experiment())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command, capsys):
    assert sift_eval(command, "--help") == 0
    assert f"Example: sift eval {command}" in capsys.readouterr().out


def test_the_command_starts_without_heavy_packages():
    program = (
        "import sys, sift_core.cli.application; heavy = {'torch', 'matplotlib', 'transformers', "
        "'sentence_transformers', 'ray', 'lm_eval', 'pandas', 'scipy', 'tqdm'}; "
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        (
            "torch",
            [
                "language-modeling",
                "--model=x",
                "--data-space=x",
                "--prompts=x",
                "--results=x.jsonl",
            ],
            "fine-tune",
        ),
        ("matplotlib", ["report", "--output", "x.html"], "eval"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(missing, arguments, extra, tmp_path):
    program = (
        f"import sys; sys.modules[{missing!r}] = None; "
        f"sys.argv = ['sift', 'eval', *{arguments!r}]; "
        "from sift_core.cli import main; main()"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert finished.returncode == 2, finished.stderr
    assert finished.stderr.startswith(f"error: `{missing}")
    assert f"sift-rerank[{extra}]" in finished.stderr


def test_tables_prints_what_the_rows_say(results, capsys):
    assert sift_eval("tables", results, "--parts", "main,context") == 0
    printed = capsys.readouterr().out
    # SIFT: (80 + 81 + 90 + 91) / 4 = 85.5; NN: (84 + 86 + 95 + 96) / 4 = 90.25
    assert "85.5" in printed
    assert "90.2" in printed
    assert "Context against fine-tuning" in printed


def test_tables_of_all_parts_tell_which_were_not_measured(results, capsys):
    assert sift_eval("tables", results) == 0
    told = capsys.readouterr().out.partition("No rows for: ")[2].partition(".")[0]
    assert "learning_rate" in told
    assert "main" not in told
    assert "context" not in told


def test_tables_as_json_have_numbers(results, capsys):
    assert sift_eval("tables", results, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["experiment"] == "e1"
    assert record["configuration"]["base_model"]["name"] == "tiny_lm"
    assert record["n_prompts"] == 4
    main = record["parts"]["main"][0]["rows"]
    assert main[-1][""] == "All"
    assert main[-1]["SIFT(0.1)"] == pytest.approx(85.5)
    assert main[-1]["Δ"] == pytest.approx(85.5 - 90.25)


def test_markdown_on_stdout_is_markdown_alone(results, capsys):
    assert sift_eval("tables", results, "--markdown") == 0
    streams = capsys.readouterr()
    assert "| law | 2 |" in streams.out
    assert "No rows for" not in streams.out
    assert "No rows for" in streams.err


def test_one_of_several_experiments_is_named(tmp_path, capsys):
    first = write_lines(tmp_path / "1.jsonl", rows_of_experiment("e1"))
    second = write_lines(tmp_path / "2.jsonl", rows_of_experiment("e2"))
    assert sift_eval("tables", first, second) == 2
    error = capsys.readouterr().err
    assert "e1 (16 rows)" in error
    assert "e2 (16 rows)" in error
    assert sift_eval("tables", first, second, "--experiment", "e2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["experiment"] == "e2"


MEASURE = ["language-modeling", "--data-space", "none.jsonl", "--prompts", "none.jsonl"]
WRONG = {
    "no results file": (["tables", "none.jsonl"], "there is no results file none.jsonl"),
    "a damaged results file": (["tables", "damaged.jsonl"], "is no row of results"),
    "no such part": (["tables", "results.jsonl", "--parts", "main,sizes"], "no part 'sizes'"),
    "an empty list": (["tables", "results.jsonl", "--parts", ","], "--parts must be a list"),
    "a part without rows": (["tables", "results.jsonl", "--parts", "scope"], "the part 'scope'"),
    "two forms": (["tables", "results.jsonl", "--json", "--markdown"], "exclude each other"),
    "measuring no such part": ([*MEASURE, "--parts", "sizes"], "no part 'sizes'"),
    "no steps": ([*MEASURE, "--steps", "0"], "--steps` must be"),
    "prompts": ([*MEASURE, "--prompts-per-domain", "few"], "at least 1, or all, got 'few'"),
    "rates": ([*MEASURE, "--scope-rates", "head:1"], "must be like head=2e-3"),
    "no data at all": (["retrieval"], "pass either --beir FOLDER, or --corpus"),
    "both kinds of data": (["retrieval", "--beir=x", "--corpus=x"], "pass either --beir"),
    "no such folder": (["retrieval", "--beir", "none"], "none has no corpus.jsonl"),
    "no such method": (["retrieval", "--methods", "best"], "no method 'best'; there are nn"),
    "no such condition": (["retrieval", "--conditions", "hard"], "no condition 'hard'"),
    "no such metric": (["retrieval", "--metrics", "f1"], "no metric 'f1'; there are recall@5"),
    "a report of nothing": (["report", "--output", "x.html"], "needs rows"),
    "no retrieval rows": (
        ["report", "--output", "x.html", "--retrieval", "results.jsonl"],
        "cannot be read as JSON",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_done_gives_one_line_and_exit_code_2(
    results, monkeypatch, capsys, arguments, message
):
    monkeypatch.chdir(results.parent)
    Path("damaged.jsonl").write_text('{"key": 1}\n{"key": "a"}\n', encoding="utf-8")
    own = ["--results", "new.jsonl"] if arguments[0] == "language-modeling" else []
    assert sift_eval(*arguments, *own) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
    assert not Path("new.jsonl").exists()
    assert not Path("x.html").exists()


def test_what_cannot_be_written_is_told_before_the_work(results, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    corpus = write_lines(tmp_path / "corpus.jsonl", [{"id": "a", "text": "a"}])
    queries = write_lines(tmp_path / "queries.jsonl", [{"question": "?", "gold": ["a"]}])
    sets = ["--corpus", corpus, "--queries", queries, "--cache", tmp_path / "cache"]
    for arguments in (
        ["retrieval", *sets, "--results", "corpus.jsonl/rows.json"],
        ["retrieval", *sets, "--results", "."],
        ["report", results, "--output", "corpus.jsonl/report.html"],
        ["report", results, "--output", "."],
    ):
        assert sift_eval(*arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"error: {arguments[-2]} {arguments[-1]} cannot be written: ")
        assert error.count("\n") == 1
    assert not (tmp_path / "cache").exists()


def test_figures_that_cannot_be_written_are_told(results, tmp_path, capsys):
    options = ["--output", tmp_path / "report.html", "--figures", results]
    assert sift_eval("report", results, *options) == 2
    assert "could not be written" in capsys.readouterr().err
    assert (tmp_path / "report.html").exists()


def test_a_report_has_both_experiments_and_its_figures_are_files(results, tmp_path, capsys):
    retrieval = tmp_path / "retrieval.json"
    rows = [RETRIEVAL_ROW, {**RETRIEVAL_ROW, "method": "nn", "recall@10": 0.5}]
    retrieval.write_text(json.dumps({"rows": rows, "commit": "0badc0de"}), encoding="utf-8")
    output, figures = tmp_path / "new/report.html", tmp_path / "figures"
    options = ["--retrieval", retrieval, "--output", output, "--figures", figures]
    assert sift_eval("report", results, *options, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["report"] == str(output)
    assert told["figures"] == [str(figures / Path(name).name) for name in told["figures"]]
    text = output.read_text(encoding="utf-8")
    assert "tiny_lm" in text
    assert "0badc0de" in text
    assert {"main.png", "context.png", "retrieval.png"} <= {path.name for path in figures.iterdir()}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in figures.iterdir())


def test_retrieval_writes_what_a_report_reads(tmp_path, capsys):
    passages = [
        {"id": topic, "title": topic, "text": f"Much is known about {topic}."} for topic in TOPICS
    ]
    questions = [
        {"question": f"What is known about {topic}?", "gold": [topic]} for topic in TOPICS[:3]
    ]
    corpus = write_lines(tmp_path / "corpus.jsonl", passages)
    queries = write_lines(tmp_path / "queries.jsonl", questions)
    results = tmp_path / "new/retrieval.json"
    options = ["--methods", "nn,mmr-.5", "--conditions", "as-is", "--cache", tmp_path / "cache"]
    files = ["--corpus", corpus, "--queries", queries, "--results", results]
    assert sift_eval("retrieval", *files, *options, "--max-queries", "2", "--json") == 0
    streams = capsys.readouterr()
    record = json.loads(streams.out)
    assert json.loads(results.read_text(encoding="utf-8")) == record
    assert [(one["method"], one["condition"]) for one in record["rows"]] == [
        ("nn", "as is"),
        ("mmr .5", "as is"),
    ]
    assert record["rows"][0]["recall@10"] == 1.0  # there are six passages
    assert record["rows"][0]["n_queries"] == 2
    assert record["configuration"]["candidates"] == 200
    assert f"sift eval report --retrieval {results}" in streams.err


def test_tables_ignore_rows_of_other_settings(tmp_path, capsys):
    other = row(PROMPTS[0], learning("SIFT", 0.1, n_steps=3), [2.0, 1.0])
    path = write_lines(tmp_path / "results.jsonl", [*rows_of_experiment(), other])
    assert sift_eval("tables", path, "--parts", "main", "--json") == 0
    main = json.loads(capsys.readouterr().out)["parts"]["main"][0]["rows"]
    assert main[-1]["SIFT(0.1)"] == pytest.approx(85.5)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Twelve short documents, two prompts, and the options that make measuring quick."""
    folder = tmp_path_factory.mktemp("tiny")
    generator = np.random.default_rng(0)
    words = "the a of about near old new small river apple engine star bread judge".split()

    def text(topic):
        return " ".join([f"All about {topic}:", *generator.choice(words, 30)])

    documents = [
        {"id": f"{topic}{i}", "domain": "facts" if i else "tales", "text": text(topic)}
        for topic in TOPICS
        for i in range(2)
    ]
    prompts = [{"id": f"p{i}", "text": text(TOPICS[i])} for i in range(2)]
    return {
        "results": folder / "results.jsonl",
        "options": [
            *("--data-space", write_lines(folder / "space.jsonl", documents)),
            *("--prompts", write_lines(folder / "prompts.jsonl", prompts)),
            *("--results", folder / "results.jsonl", "--cache", folder / "cache"),
            *("--documents-per-domain", "4", "--steps", "2", "--device", "cpu"),
        ],
    }


@pytest.mark.slow
def test_a_measurement_from_end_to_end_and_a_second_one_that_finds_all_done(tiny, capsys):
    measure = ["language-modeling", *tiny["options"], "--parts", "context"]
    assert sift_eval(*measure) == 0
    printed = capsys.readouterr().out
    assert "Context against fine-tuning" in printed
    assert f"Report: sift eval report {tiny['results']} --output report.html" in printed
    content = tiny["results"].read_bytes()
    rows = [json.loads(line) for line in content.splitlines()]
    assert rows[0]["configuration"]["documents_per_domain"] == 4
    assert rows[0]["configuration"]["data_space"]["chunks"] == 8
    assert sorted(one["arm"]["mode"] for one in rows[1:]) == sorted(
        2 * ["base", "both", "context", "context", "context", "fine_tune"]
    )
    assert sift_eval(*measure, "--json") == 0
    again = json.loads(capsys.readouterr().out)
    assert tiny["results"].read_bytes() == content
    assert sift_eval("tables", tiny["results"], "--parts", "context", "--json") == 0
    assert json.loads(capsys.readouterr().out)["parts"] == again["parts"]
