import io
import json
import signal

import pytest

from sift_core import Document
from tests.cli.test_application import python

QUESTION = "How do I take books from the shelf?"
SHORT = ["--max-new-tokens", "4", "--steps", "2"]


@pytest.fixture(scope="module")
def store(tmp_path_factory, fill):
    """A Faiss folder with six short texts."""
    documents = [
        Document(
            document_id=f"shelf.md#{n}",
            text=f"shelf.take({n}) takes {n} books from the shelf.",
            metadata={"source": "shelf.md"},
        )
        for n in range(6)
    ]
    return fill(f"faiss:{tmp_path_factory.mktemp('store') / 'index'}", documents)


@pytest.fixture(autouse=True)
def settings(store, random_model, monkeypatch):
    """The random model and this store."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("SIFT_MODEL", str(random_model))
    monkeypatch.setenv("SIFT_STORE", store)


@pytest.fixture
def typed(monkeypatch):
    """Return a function that puts lines on stdin."""
    return lambda *lines: monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines) + "\n"))


@pytest.fixture
def ask(sift):
    """Return a function that asks for a short answer."""
    return lambda *arguments, code=0: sift("ask", *arguments, *SHORT, code=code)


@pytest.fixture
def answered(ask):
    """Return a function that returns the answers to a question, or to those of a chat."""

    def call(*arguments, code=0):
        out = ask(*arguments, "--json", code=code).out
        lines = out.splitlines() if "--chat" in arguments else [out]
        answers = [json.loads(line) for line in lines]
        return answers if "--chat" in arguments else answers[0]

    return call


@pytest.mark.parametrize(
    ("mode", "n_steps", "n_read"),
    [("base", None, 0), ("context", None, 3), ("fine_tune", 2, 0), ("both", 2, 3)],
)
def test_a_mode_answers_from_what_it_reads_and_learns(
    answered, random_model, mode, n_steps, n_read
):
    record = answered(QUESTION, "--mode", mode, "-n", "3")
    assert (record["question"], record["model"]) == (QUESTION, str(random_model))
    assert record["mode"] == mode
    assert sum(chunk["is_read"] for chunk in record["chunks"]) == n_read
    assert sum(chunk["n_times_learned"] for chunk in record["chunks"]) == (n_steps or 0)
    assert (record["fine_tuning"] or {}).get("n_steps") == n_steps
    assert ("fine_tune" in record["timings"]) == (n_steps is not None)
    assert (record["store"] is None) == (mode == "base")
    assert record["first_token_s"] > 0
    assert record["tokens_per_s"] > 0


def test_an_answer_is_printed_with_its_timings(ask):
    captured = ask(QUESTION, "--mode", "fine_tune")
    text, about = captured.out.split("\n\nsources\n")
    assert text
    assert captured.err == ""
    assert "timings   embed " in about
    for stage in ("embed", "fetch", "select", "fine_tune", "generate"):  # as in the JSON
        assert f"{stage} " in about
    assert "speed     first token after " in about
    assert " tokens a second" in about


@pytest.mark.parametrize("mode", ["auto", "context"])
def test_a_filter_that_lets_nothing_pass_says_why(refusal, mode):
    error = refusal("ask", QUESTION, "--mode", mode, "--filter", "page=3")
    assert "has the metadata ['page']; there are ['source']" in error
    error = refusal("ask", QUESTION, "--mode", mode, "--filter", "source=none.md")
    assert "no chunk passes --filter" in error


@pytest.mark.parametrize("option", [("--filter", "source=none.md"), ("--query", "A boat?")])
@pytest.mark.parametrize("mode", ["base", "learned"])
def test_what_is_for_a_search_is_refused_where_nothing_is_searched(refusal, mode, option):
    error = refusal("ask", QUESTION, "--mode", mode, *option)
    assert f"{option[0]} is for a search, and mode '{mode}' searches nothing" in error


def test_the_number_of_chunks_has_the_name_that_search_uses(answered):
    by_either = [
        answered(QUESTION, "--mode", "context", flag, "1") for flag in ("--n-context", "--n-select")
    ]
    assert [len(answer["chunks"]) for answer in by_either] == [1, 1]


def test_text_comes_before_the_model_has_written_all(sift, monkeypatch):
    pieces = []

    class Recorder(io.StringIO):
        def write(self, text):
            pieces.append(text)
            return len(text)

    monkeypatch.setattr("sys.stdout", Recorder())
    sift("ask", QUESTION, "--mode", "base", "--max-new-tokens", "16")
    end = next(i for i, piece in enumerate(pieces) if piece == "\n\n")
    assert len([piece for piece in pieces[:end] if piece]) > 4


def test_a_chat_answers_one_question_a_line(ask, typed):
    typed(QUESTION, "", "/sources", QUESTION, "/nonsense", "/reset", "/sources", QUESTION, "/quit")
    captured = ask("--chat", "--json", "--mode", "context")
    first, second, third = [json.loads(line) for line in captured.out.splitlines()]
    assert first["question"] == QUESTION
    # What was said before stands in the prompt, until it is forgotten.
    assert second["n_prompt_tokens"] > first["n_prompt_tokens"] == third["n_prompt_tokens"]
    assert first["text"] == third["text"]
    assert "There is no command /nonsense." in captured.err
    assert "shelf.take" in captured.err  # the sources
    assert "There is no answer yet." in captured.err


def test_a_chat_says_what_a_follow_up_was_searched_for(ask, answered, typed):
    joined = f"And two? {QUESTION}"
    typed(QUESTION, "And two?")
    first, second = answered("--chat", "--mode", "context")
    assert (first["searched_for"], second["searched_for"]) == ([QUESTION], [joined, "And two?"])
    typed(QUESTION, "And two?")
    out = ask("--chat", "--mode", "context").out
    assert out.count("searched for: ") == 1
    assert f"searched for: {joined} | And two?" in out.replace("\n", " ")
    typed(QUESTION, "And two?")
    _, second = answered("--chat", "--mode", "context", "--query-rewriting", "off")
    assert second["searched_for"] == ["And two?"]


def test_a_question_comes_from_stdin_and_a_query_in_its_place(ask, answered, typed):
    typed("Tell me all.")
    mode = ["--mode", "context", "-n", "1"]
    asked = answered("-", *mode, "--query", QUESTION)
    assert (asked["question"], asked["queries"]) == ("Tell me all.", [QUESTION])
    assert asked["chunks"] == answered(QUESTION, *mode)["chunks"]
    assert "searched for" not in ask("Tell me.", *mode, "--query", QUESTION).out
    base = answered(QUESTION, "--mode", "base", "--store", "faiss:nowhere")
    assert (base["store"], base["chunks"]) == (None, [])


def test_a_long_chat_forgets_its_oldest_turns_and_goes_on_where_a_question_fails(ask, typed):
    typed(*["book " * 400] * 3, "book " * 3000, QUESTION)
    captured = ask("--chat", "--json", "--mode", "base", code=2)
    *_, failed, record = [json.loads(line) for line in captured.out.splitlines()]
    assert "oldest turns take too much of the window" in captured.err
    assert "do not fit into the model's window" in failed["error"]
    assert record["question"] == QUESTION


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is no question; pass one in quotes"),
        (["-", "--chat"], "all of stdin is questions"),
        (["--chat", "--query", "a part"], "--query is for one question"),
        ([QUESTION, "--mode", "base", "--max-new-tokens", "5000"], "window of 1024"),
    ],
)
def test_what_cannot_be_asked_is_one_clear_line(refusal, arguments, message):
    assert message in refusal("ask", *arguments)


class InterruptedOnce(io.StringIO):
    """A terminal whose user presses Ctrl-C when the first word comes."""

    is_over = False

    def write(self, text):
        written = super().write(text)
        if not self.is_over and not text.startswith("? "):  # not the echoed question
            self.is_over = True
            signal.raise_signal(signal.SIGINT)
        return written


def test_an_interrupt_ends_the_answer(monkeypatch, sift):
    stdout = InterruptedOnce()
    monkeypatch.setattr("sys.stdout", stdout)
    options = ["--mode", "base", "--max-new-tokens", "900"]
    assert sift("ask", QUESTION, *options, code=130).err == "\nstopped\n"
    assert "sources" not in stdout.getvalue()
    assert len(stdout.getvalue().split()) < 50


def test_an_interrupt_ends_an_answer_and_not_the_chat(monkeypatch, sift, typed):
    typed("What is a book?")
    stdout = InterruptedOnce()
    monkeypatch.setattr("sys.stdout", stdout)
    options = ["--chat", "--mode", "base", "--max-new-tokens", "100"]
    assert sift("ask", QUESTION, *options).err == "\nstopped\n"
    asked = (f"? {QUESTION}\n", "? What is a book?\n")
    assert [stdout.getvalue().count(line) for line in asked] == [1, 1]
    assert stdout.getvalue().count("sources: none") == 1


@pytest.mark.slow
def test_an_interrupt_while_learning_ends_the_command_without_a_traceback():
    program = (
        "import os, signal, sys\n"
        "from rich.status import Status\n"
        "from sift_core.cli import main\n"
        "def interrupt(self, text): 'loss' in text and os.kill(os.getpid(), signal.SIGINT)\n"
        "Status.update = interrupt\n"
        f"sys.argv = ['sift', 'ask', {QUESTION!r}, '--mode', 'fine_tune', '--steps', '3000']\n"
        "main()"
    )
    done = python(program, code=130)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_what_the_index_does_not_tell_is_refused_unless_the_model_may_answer(ask, answered):
    off_topic = "Quinoa vxzq?"
    out = ask(off_topic).out
    assert out.startswith("The documents say nothing about that.")
    assert "--mode context answers from the nearest chunks all the same" in out
    assert "\nnearest\n" in out
    refused = answered(off_topic)
    assert refused["is_refusal"]
    similarities = [one["similarity"] for one in refused["nearest"]]
    assert similarities == sorted(similarities, reverse=True)
    assert 0 < len(similarities) <= 3
    allowed = answered(off_topic, "--on-off-topic", "base")
    assert (allowed["is_refusal"], allowed["mode"]) == (False, "base")


def test_an_answer_says_which_names_of_the_question_no_candidate_has(ask, answered):
    question = "Which books did Ragna Ostby take from the shelf?"
    read = ["--mode", "context"]
    assert "ragna ostby: no candidate has it" in ask(question, *read).out
    assert answered(question, "--mode", "base")["missing_names"] == []


@pytest.fixture
def api():
    pytest.importorskip("openai", reason="needs the extra openai")
    from tests.answering.openai_double import Api, serving_api

    with serving_api(Api()) as api:
        yield api


def test_a_server_writes_the_answer(sift, record, api, monkeypatch):
    monkeypatch.setenv("SIFT_GENERATOR_API_KEY", "secret")
    there = ["--generator", api.base_url.removesuffix("/v1"), "--generator-model", "small"]
    told = record("ask", QUESTION, *there, "--cite", "-n", "3")
    assert (told["text"], told["mode"], told["model"]) == (
        "Fold the sheet [1].",
        "context",
        "small",
    )
    assert [one["mark"] for one in told["citations"]] == [1]
    assert api.headers[0]["authorization"] == "Bearer secret"
    assert "secret" not in json.dumps(told)
    assert "SIFT_ASK_GENERATOR_WINDOW" in sift("ask", "--help").out.replace("\n", " ")
    monkeypatch.setenv("SIFT_ASK_GENERATOR_WINDOW", "200")
    assert "window of 200" in sift("ask", QUESTION * 20, *there, code=2).err


def test_a_chat_with_a_server_remembers(sift, api, typed):
    typed("How do I fold it?", "And then?", "/quit")
    there = ["--generator", api.base_url, "--generator-model", "small", "--mode", "base"]
    assert sift("ask", "--chat", *there).out.count("Fold the sheet") == 2
    assert [len(body["messages"]) for body in api.bodies] == [1, 3]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--generator", "URL"], "--generator-model NAME; there are: other, small"),
        (["--generator-model", "small"], "--generator-model needs --generator"),
        (["--generator", "nowhere", "--generator-model", "x"], "must begin with http"),
        (["--generator", "URL", "--generator-model", "x", "--mode", "both"], "context"),
        (["--generator", "URL", "--generator-model", "x", "--mode", "learned"], "learns nothing"),
        (["--generator", "URL", "--generator-model", "smal"], "there are other, small"),
    ],
)
def test_what_a_server_cannot_do_is_said(refusal, api, arguments, told):
    arguments = [api.base_url if one == "URL" else one for one in arguments]
    assert told in refusal("ask", QUESTION, *arguments)
