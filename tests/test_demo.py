"""The demo as its user runs it, on a small folder, with bad input, and a second time.

Its errors are tested in this process; one of them, and one whole run, in one of their own.
"""

import gc
import importlib
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sentence_transformers", reason="needs the extra demo")
import huggingface_hub.constants
from qdrant_client import QdrantClient
from rich.console import Console

from sift_core import CandidatePool, Query
from sift_core.cli import run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
VERBS = ("Read", "Sort", "Merge")


@pytest.fixture
def run_demo(monkeypatch, capsys):
    """Return a function that runs the demo in this process."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    demo = importlib.import_module("demo")
    monkeypatch.setattr(demo, "console", Console(highlight=False, width=140))

    def call(*arguments):
        returncode = run(lambda: demo.app(list(arguments)))
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, returncode, printed.out, printed.err)

    return call


@pytest.fixture
def docs(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    for verb in VERBS:
        page = f"# {verb}\n\n{verb} the rows of a table, from top to bottom.\n"
        (folder / f"{verb}.md").write_text(page, encoding="utf-8")
    return folder


def assert_one_clear_error(finished, message):
    assert finished.returncode == 2, finished.stdout + finished.stderr
    assert "Traceback" not in finished.stderr
    error = " ".join(finished.stderr.split())
    assert "error: " in error
    assert message in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--docs", "empty"], "no file below"),
        (["--docs", "bare"], "nothing to read in"),
        (["--docs", "nowhere"], "nowhere"),
        (["--question", "  "], "the question is empty"),
        (["--qdrant", "http://127.0.0.1:1"], "is the server up"),
        (["--qdrant", "ftp://nowhere"], "Qdrant"),
        (["--cache", "/dev/null/cache"], "cannot open Qdrant"),
        (["--embedder", "no/such"], "the model 'no/such' is no folder here"),
        (["--model", "no/such-model"], "the model 'no/such-model' is no folder here"),
    ],
)
def test_bad_input_is_one_clear_error(run_demo, docs, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "bare"):
        (tmp_path / name).mkdir()
    (tmp_path / "bare/a.md").write_text("\n", encoding="utf-8")
    given = {"--docs": str(docs), "--cache": "cache", "--question": "Sort?"} | dict([options])
    finished = run_demo(*(word for pair in given.items() for word in pair))
    assert_one_clear_error(finished, message)


@pytest.mark.filterwarnings("ignore:unclosed file .*lock:ResourceWarning")  # Qdrant's own
def test_a_folder_in_use_is_one_clear_error(run_demo, docs, tmp_path):
    client = QdrantClient(path=str(tmp_path / "qdrant"))
    arguments = ["--docs", str(docs), "--cache", str(tmp_path), "--question", "Sort?"]
    try:
        finished = run_demo(*arguments)
    finally:
        client.close()
    gc.collect()  # the client that could not be made leaves its lock file open
    assert_one_clear_error(finished, "wait for the other run")


def test_make_passes_the_question_on_as_it_was_typed(tmp_path):
    # `make -n` prints the command; the shell then takes the question from the environment.
    makefile = tmp_path / "Makefile"
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "examples/demo.py" in text
    text = text.replace("$(BIN)/python examples/demo.py", "@printf '%s\\n'")
    makefile.write_text(text.replace("demo: $(FOR_DEMO)", "demo:"), encoding="utf-8")
    question = 'What do $PATH, $(HOME) and `ls` do, isn\'t it "odd"?'
    command = ["make", "--no-print-directory", "-f", str(makefile), "demo", f"QUESTION={question}"]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert finished.stdout.splitlines() == ["--question", question]


def test_only_what_changed_is_indexed_again(run_demo, docs, tmp_path):
    # The chunks are too short to score a model on, which shows after they are indexed.
    arguments = ["--docs", str(docs), "--cache", str(tmp_path / "cache"), "--question", "Sort?"]
    first, second = run_demo(*arguments), run_demo(*arguments)
    assert "3 chunks, 3 of them new" in first.stdout
    assert "3 chunks are indexed already" in second.stdout
    (docs / "Sort.md").write_text("# Sort\n\nOrder the rows of a table.\n", encoding="utf-8")
    third = run_demo(*arguments)
    assert "3 chunks, 1 of them new" in third.stdout
    for finished in (first, second, third):
        assert_one_clear_error(finished, "none of the 3 nearest chunks has 300 bytes")


@pytest.fixture
def compared(monkeypatch):
    """Return what three methods chose: two copies, two copies, and neither."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    report = importlib.import_module("demo_report")
    names = ("SomeModelWithALongNameDropPath", "OtherModelDropPath", "RelativePositionBias")
    embeddings = np.array([[1, 0], [0.9, 0.44], [0.2, 0.98]], dtype=np.float32)
    pool = CandidatePool(
        document_ids=[f"modeling.{name}" for name in names],
        texts=names,
        embeddings=embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True),
        similarities=np.array([0.8, 0.7, 0.5], dtype=np.float32),
        metadata=[{"source": f"some_model_with_a_long_name.{name}"} for name in names],
    )
    question = Query(text="?", embedding=np.array([0.8, 0.6], dtype=np.float32))
    chosen = {"nearest": [0, 1], "MMR": [0, 1], "SIFT": [0, 2]}
    return report, report.Comparison(
        query=question,
        pool=pool,
        chosen={name: np.array(rows) for name, rows in chosen.items()},
        select_s=0.001,
    )


def lines_of(report, compared, width):
    console = Console(highlight=False, width=width)
    with console.capture() as captured:
        report.print_comparison(console, compared)
    return captured.get().splitlines()


def test_three_lists_stand_side_by_side_on_a_terminal_of_80_columns(compared):
    lines = lines_of(*compared, width=80)
    assert re.search("nearest: 1 of 2 repeat.*MMR: 1 of 2 repeat.*SIFT: 0 of 2 repeat", lines[0])
    assert lines[2].split() == [
        *("2", "≈1", "OtherModelDropPath"),
        *("2", "≈1", "OtherModelDropPath"),
        *("2", "Relative…itionBias"),
    ]
    assert "1 of 2 are not among the nearest" in " ".join(lines)
    assert lines_of(*compared, width=70)[2].count("DropPath") == 1


def test_a_question_in_any_script_is_drawn(compared, tmp_path):
    report, one = compared
    odd = replace(one, query=replace(one.query, text="参数 🙂 and $x$, $?"))
    modes = [report.ModeResult(mode="base", bits_per_byte=1.0, seconds=1.0)]
    report.draw(odd, modes, tmp_path / "picture.png")  # a warning would be an error
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_question_is_embedded_once(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    store = importlib.import_module("demo_store")
    path = tmp_path / "cache/questions.npz"
    embedder, again = (store.RememberingEmbedder("all-MiniLM-L6-v2", path) for _ in range(2))
    first = embedder.embed_query("Sort?")
    assert again.embed_query("Sort?").tolist() == first.tolist()
    assert "model" not in vars(again)  # it was not loaded
    assert not np.array_equal(again.embed_query("Merge?"), first)
    path.write_bytes(b"PK damaged")
    assert np.array_equal(store.RememberingEmbedder(again.name, path).embed_query("Sort?"), first)
