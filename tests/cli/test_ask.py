import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sift_core import Answer, AnswerMode, Document
from sift_core.cli import run
from sift_core.cli.application import app
from sift_core.cli.ask_printing import print_about
from sift_core.cli.showing_text import stdout_console
from sift_core.cli.stores import StoreAddress, create_or_open_store, load_embedder
from sift_core.documents import index_documents

TINY_LM = str(Path(__file__).parents[2] / "examples/tiny_lm")
QUESTION = "How do I take books from the shelf?"
SHORT = ["--max-new-tokens", "4", "--steps", "2"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A Faiss folder with six short texts."""
    address = f"faiss:{tmp_path_factory.mktemp('store') / 'index'}"
    embedder = load_embedder("all-MiniLM-L6-v2")
    documents = [
        Document(
            document_id=f"shelf.md#{n}",
            text=f"shelf.take({n}) takes {n} books from the shelf.",
            metadata={"source": "shelf.md"},
        )
        for n in range(6)
    ]
    where = StoreAddress.parse(address)
    with create_or_open_store(where, embedder_name=embedder.name, dimension=384) as source:
        index_documents(source, documents, embedder, progress=False)
    return address


@pytest.fixture(autouse=True)
def settings(store, monkeypatch, tmp_path):
    """The toy model and this store, and no settings of whoever runs the tests."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("SIFT_MODEL", TINY_LM)
    monkeypatch.setenv("SIFT_STORE", store)
    for name in ("SIFT_EMBEDDER", "SIFT_CONFIG", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def typed(monkeypatch):
    """Return a function that puts lines on stdin."""
    return lambda *lines: monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines) + "\n"))


def sift(*arguments):
    return run(lambda: app(["ask", *arguments]))


def answered(capsys, *arguments):
    assert sift(*arguments, *SHORT, "--json") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


@pytest.mark.parametrize(
    ("mode", "n_steps", "n_read"),
    [("base", None, 0), ("context", None, 3), ("fine_tune", 2, 0), ("both", 2, 3)],
)
def test_a_mode_answers_from_what_it_reads_and_learns(capsys, mode, n_steps, n_read):
    record = answered(capsys, QUESTION, "--mode", mode, "-n", "3")
    assert (record["question"], record["mode"]) == (QUESTION, mode)
    assert record["reasons"] == ["it was asked for"]
    chunks = record["chunks"]
    assert len({chunk["document_id"] for chunk in chunks}) == len(chunks)
    assert sum(chunk["is_read"] for chunk in chunks) == n_read
    assert sum(chunk["n_times_learned"] for chunk in chunks) == (n_steps or 0)
    assert all("shelf.take" in chunk["text"] for chunk in record["chunks"])
    assert (record["fine_tuning"] or {}).get("n_steps") == n_steps
    assert (record["standard_deviation"] is None) == (mode == "base")
    assert (record["store"] is None) == (mode == "base")
    assert record["n_new_tokens"] == 4
    assert record["finish_reason"] == "length"
    assert ("fine_tune" in record["timings"]) == (n_steps is not None)
    assert record["model"] == TINY_LM


def test_auto_gives_the_reasons_for_its_choice(capsys):
    record = answered(capsys, QUESTION)
    assert record["mode"] == "context"
    assert "% of the variance" in record["reasons"][0]


def test_an_answer_is_printed_with_sources_decision_certainty_and_timings(capsys):
    assert sift(QUESTION, "--mode", "fine_tune", *SHORT) == 0
    captured = capsys.readouterr()
    text, about = captured.out.split("\n\nsources\n")
    assert text
    assert captured.err == ""
    assert "shelf.md#" in about
    assert "mode      fine_tune: it was asked for" in about
    assert "learning  2 steps, learned now; loss" in about
    assert "σ²        1.00 → 0." in about
    assert "% of what is uncertain about the question\n" in about
    for stage in ("embedding", "retrieval", "selection", "fine-tuning", "generation"):
        assert f"{stage} " in about
    assert "cut at 4 tokens; --max-new-tokens allows more" in about
    assert "\x1b" not in captured.out


def test_a_time_stays_beside_its_unit_however_narrow_the_terminal_is(capsys, monkeypatch):
    answer = Answer(
        text="", mode=AnswerMode.BASE, reasons=("why",), timings={"embed": 0.5, "generate": 1.25}
    )
    for width in range(40, 60):
        monkeypatch.setenv("COLUMNS", str(width))
        print_about(stdout_console(), answer)
        shown = capsys.readouterr().out
        assert "embedding 0.50 s," in shown
        assert "1.25 s" in shown
        assert "\u00a0" not in shown


def test_text_comes_before_the_model_has_written_all(monkeypatch):
    pieces = []

    class Recorder(io.StringIO):
        def write(self, text):
            pieces.append(text)
            return len(text)

    monkeypatch.setattr("sys.stdout", Recorder())
    assert sift(QUESTION, "--mode", "base", "--max-new-tokens", "16") == 0
    end = next(i for i, piece in enumerate(pieces) if piece == "\n\n")
    assert len([piece for piece in pieces[:end] if piece]) > 4


def test_base_mode_needs_no_index(capsys):
    record = answered(capsys, QUESTION, "--mode", "base", "--store", "faiss:nowhere")
    assert record["chunks"] == []


def test_a_question_may_come_from_stdin(capsys, typed):
    typed(QUESTION)
    assert answered(capsys, "-", "--mode", "base")["question"] == QUESTION


def test_a_chat_answers_one_question_a_line(capsys, typed):
    typed("What is a shelf?", "", "/sources", "Who takes books?", "/nonsense", "/quit", "Unasked?")
    assert sift("--chat", "--json", "--mode", "context", *SHORT) == 0
    captured = capsys.readouterr()
    records = [json.loads(line) for line in captured.out.splitlines()]
    assert [record["question"] for record in records] == ["What is a shelf?", "Who takes books?"]
    # What was said before stands in the prompt.
    assert records[1]["n_prompt_tokens"] > records[0]["n_prompt_tokens"]
    assert "There is no command /nonsense." in captured.err
    assert "shelf.take" in captured.err  # the sources


def test_a_piped_chat_shows_each_question_with_its_answer(capsys, typed):
    typed(QUESTION, "Who?")
    assert sift("--chat", "--mode", "base", *SHORT) == 0
    questions = [line for line in capsys.readouterr().out.splitlines() if line.startswith("? ")]
    assert questions == [f"? {QUESTION}", "? Who?"]


def test_reset_forgets_what_was_said(capsys, typed):
    typed(QUESTION, "/reset", "/sources", QUESTION)
    assert sift("--chat", "--json", "--mode", "context", *SHORT) == 0
    captured = capsys.readouterr()
    first, second = [json.loads(line) for line in captured.out.splitlines()]
    assert first["n_prompt_tokens"] == second["n_prompt_tokens"]
    assert first["text"] == second["text"]
    assert "There is no answer yet." in captured.err


def test_kept_documents_are_chosen_and_learned_once(capsys, typed):
    typed("And other books?")
    options = ["--chat", "--keep-documents", "--json", "--mode", "fine_tune", *SHORT]
    assert sift(QUESTION, *options) == 0
    first, second = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "fine_tune" in first["timings"]
    assert "fine_tune" not in second["timings"]
    assert second["chunks"] == first["chunks"]


def test_a_long_chat_forgets_its_oldest_turns(capsys, typed):
    long = "book " * 400
    typed(long, long, long)
    assert sift("--chat", "--json", "--mode", "base", *SHORT) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 3
    assert "oldest turns take too much of the window" in captured.err


def test_a_question_that_fails_ends_no_chat(capsys, typed):
    typed("book " * 3000, QUESTION)
    assert sift("--chat", "--json", "--mode", "base", *SHORT) == 2
    captured = capsys.readouterr()
    failed, record = [json.loads(line) for line in captured.out.splitlines()]
    assert "do not fit into the model's window" in failed["error"]
    assert record["question"] == QUESTION


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is no question; pass one in quotes"),
        (["  "], "the question is empty"),
        (["-", "--chat"], "all of stdin is questions"),
        ([QUESTION, "--keep-documents"], "--keep-documents is for --chat"),
        ([QUESTION, "--seconds", "0"], "--seconds must be > 0"),
        ([QUESTION, "--store", "faiss:nowhere"], "no index at faiss:nowhere; make one"),
        ([QUESTION, "--embedder", "other"], "was made with the embedder 'all-MiniLM-L6-v2'"),
        ([QUESTION, "--mode", "base", "--model", ""], "no model was named; pass --model"),
        ([QUESTION, "--mode", "base", "--model", "./nowhere"], "no model folder './nowhere'"),
        ([QUESTION, "--mode", "base", "--model", "a b"], "neither a folder nor an id"),
        ([QUESTION, "--mode", "base", "--device", "toaster"], "must be one of cpu"),
        ([QUESTION, "--mode", "base", "--max-new-tokens", "5000"], "window of 1024"),
        ([QUESTION, "--store", "qdrant:http://127.0.0.1:9"], "127.0.0.1:9"),
    ],
)
def test_what_cannot_be_asked_is_one_clear_line(capsys, arguments, message):
    assert sift(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_an_unknown_mode_is_a_usage_error(capsys):
    assert sift(QUESTION, "--mode", "oracle") == 2
    assert "oracle" in capsys.readouterr().err


def test_a_device_that_is_not_there_is_said_to_be_so(capsys):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert sift(QUESTION, "--mode", "base", "--device", "cuda") == 2
    assert "there is no device 'cuda' here" in capsys.readouterr().err


def test_a_model_that_is_neither_here_nor_on_the_hub_is_refused_at_once(capsys, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    started = time.monotonic()
    assert sift(QUESTION, "--mode", "base", "--model", "Qwen/Qwen-typo") == 2
    assert "'Qwen/Qwen-typo' is no folder here and was not downloaded" in capsys.readouterr().err
    assert time.monotonic() - started < 30  # transformers itself tries for most of a minute


class InterruptedOnce(io.StringIO):
    """A terminal whose user presses Ctrl-C when the first word comes."""

    is_over = False

    def write(self, text):
        written = super().write(text)
        if not self.is_over and not text.startswith("? "):  # not the echoed question
            self.is_over = True
            signal.raise_signal(signal.SIGINT)
        return written


def test_an_interrupt_ends_the_answer(monkeypatch, capsys):
    stdout = InterruptedOnce()
    monkeypatch.setattr("sys.stdout", stdout)
    assert sift(QUESTION, "--mode", "base", "--max-new-tokens", "900") == 130
    assert capsys.readouterr().err == "\nstopped\n"
    assert "sources" not in stdout.getvalue()
    assert len(stdout.getvalue().split()) < 50


def test_an_interrupt_ends_an_answer_and_not_the_chat(monkeypatch, capsys, typed):
    typed("What is a book?")
    stdout = InterruptedOnce()
    monkeypatch.setattr("sys.stdout", stdout)
    assert sift(QUESTION, "--chat", "--mode", "base", "--max-new-tokens", "100") == 0
    assert capsys.readouterr().err == "\nstopped\n"
    assert stdout.getvalue().count("sources: none") == 1


def test_the_command_ends_by_an_interrupt_without_a_traceback():
    command = [sys.executable, "-m", "sift_core.cli", "ask", QUESTION, "--steps", "3000"]
    process = subprocess.Popen(
        [*command, "--mode", "fine_tune"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(8)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr
