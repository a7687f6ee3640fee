"""The demo: what it counts, prints, answers and indexes. tests/test_examples.py runs it whole."""

import gc
import importlib
import json
import math
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("sentence_transformers", reason="needs the extra demo")
import huggingface_hub.constants
from qdrant_client import QdrantClient

from sift_core import CandidatePool, Query
from sift_core.cli import run
from sift_core.cli.models import load_embedder
from sift_core.cli.output import Terminal
from sift_core.documents import read_files
from sift_core.documents.chunk_length import chunker_for

ROOT = Path(__file__).parents[1]
PAGES = {
    "berths/berth-2.md": "# Berth 2\n\nThe crane Hulda\nstands there.",
    "cranes/hulda.md": "# Hulda\n\nShe lifts 40.5 t and is looked after by Anton Brack.",
    "cranes/grete.md": "# Grete\n\nShe lifts 12 t and is looked after by Tilda Moor.",
    "office.md": "# Office\n\nIt is open from 6 to 22.",
}
TWO_HOPS = {
    "id": "q1",
    "kind": "two hops",
    "question": "Who looks after the crane at berth 2, and what does it lift?",
    "facts": [
        {"page": "berths/berth-2.md", "text": "The crane Hulda stands"},
        {"page": "cranes/hulda.md", "text": "lifts 40.5 t"},
    ],
    "answers": [["Anton Brack", "Brack"], ["40.5 t", "40.5"]],
}
NO_ANSWER = {
    "id": "q2",
    "kind": "unanswerable",
    "question": "How many tugs are there?",
    "facts": [],
    "answers": [],
}


@pytest.fixture
def parts(monkeypatch):
    """Return the demo's modules."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    names = ("", "_answers", "_harbour", "_methods", "_picture", "_report", "_store")
    return SimpleNamespace(
        **{name[1:] or "demo": importlib.import_module(f"demo{name}") for name in names}
    )


@pytest.fixture
def questions(parts, tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text(f"{json.dumps(TWO_HOPS)}\n{json.dumps(NO_ANSWER)}\n", encoding="utf-8")
    return parts.harbour.read_questions(path)


@pytest.fixture
def docs(tmp_path):
    folder = tmp_path / "docs"
    for name, text in PAGES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def pool(*pages):
    """Return chunks: these pages whole."""
    texts = [PAGES[page] for page in pages]
    return CandidatePool(
        document_ids=[f"{page}#0" for page in pages],
        texts=texts,
        embeddings=np.eye(len(pages), 4, dtype=np.float32),
        similarities=np.ones(len(pages), dtype=np.float32),
        metadata=[{"source": page} for page in pages],
    )


class TestMeasure:
    def test_a_fact_stands_in_a_chunk_of_its_page_whatever_the_blanks(self, questions):
        question = questions[0]
        assert question.found(pool("berths/berth-2.md", "cranes/grete.md")) == [True, False]
        assert question.found(pool("cranes/hulda.md")) == [False, True]
        elsewhere = pool("cranes/hulda.md")
        elsewhere.metadata[0]["source"] = "cranes/grete.md"
        assert question.found(elsewhere) == [False, False]

    @pytest.mark.parametrize(
        ("answer", "is_right"),
        [
            ("anton\nbrack; it lifts 40.5 t.", True),
            ("Brack, and 40.5.", True),
            ("Anton Brack.", False),  # one part of two
            ("Bracken, 40.5 t", False),
            ("Brack, 140.5 t", False),
            ("Brack, 40.55 t", False),
            ("Brack, 40 t", False),
        ],
    )
    def test_an_answer_has_each_part_as_whole_words(self, questions, answer, is_right):
        assert questions[0].is_right(answer) is is_right

    @pytest.mark.parametrize(
        ("answer", "is_right"),
        [
            ("I do not know.", True),
            ("The texts don't say how many.", True),
            ("There is no information about tugs.", True),
            ("There are two tugs.", False),
            ("There are no tugs.", False),
            ("", False),
        ],
    )
    def test_without_an_answer_it_is_right_not_to_know(self, questions, answer, is_right):
        assert questions[1].is_right(answer) is is_right

    def test_every_fact_of_the_handbook_stands_in_a_chunk(self, parts):
        pages = parts.harbour.PAGES
        chunker = chunker_for(load_embedder(parts.store.EMBEDDER))
        chunks = read_files([pages], chunker=chunker, base=pages).documents
        for question in parts.harbour.read_questions():
            for fact in question.facts:
                stands = [fact.stands_in(one.metadata["source"], one.text) for one in chunks]
                assert any(stands), (question.question_id, fact)


class TestComparison:
    @pytest.fixture
    def compared(self, parts, questions):
        """Return a comparison in which SIFT finds both facts, and MMR one at two weights."""
        methods = parts.methods
        one = methods.Choice(chunks=pool("berths/berth-2.md", "office.md"))
        both = methods.Choice(chunks=pool("berths/berth-2.md", "cranes/hulda.md"))
        none = methods.Choice(chunks=pool("office.md", "cranes/grete.md"))
        others = {methods.NEAREST: none, methods.HYBRID: one}
        others |= {methods.SIFT: both, methods.NEWEST: both}
        of_weights = [none] * len(methods.MMR_WEIGHTS)
        of_weights[0] = of_weights[-1] = one  # 0.3 and 0.9; the package's own is 0.7
        return methods.Comparison.of(questions, [(others, of_weights)] * 2)

    def test_mmr_has_the_weight_that_finds_most(self, compared):
        assert compared.mmr_weight == 0.9
        found = {name: compared.n_found(name).tolist() for name in compared.chosen}
        assert list(found.values()) == [[0, 0], [1, 0], [1, 0], [2, 0], [2, 0]]

    def test_the_question_shown_is_the_first_that_the_nearest_do_not_answer(
        self, parts, questions, compared
    ):
        two_hops, no_answer = questions
        nearest = compared.chosen["nearest"][0]
        complete = compared.chosen["SIFT"][0]
        again = parts.methods.Comparison(
            questions=[two_hops, no_answer, two_hops, two_hops, no_answer],
            chosen={"nearest": [complete, nearest, nearest, nearest, nearest]},
            mmr_weight=0.7,
        )
        assert again.shown() == [2, 1]

    def test_the_table_counts_by_kind_and_says_what_is_certain(
        self, parts, compared, monkeypatch, capsys
    ):
        monkeypatch.setenv("COLUMNS", "100")
        parts.report.print_facts(Terminal(), compared)
        lines = capsys.readouterr().out.splitlines()
        cells = r"2 +0 . +1 . +1 . +2 +2"
        assert re.match(rf"two hops +{cells}", lines[1])
        assert re.match(rf"all +{cells}", lines[2])
        assert max(map(len, lines)) <= 100
        assert not any("unanswerable" in line for line in lines)
        # One question has no interval.
        assert "↓" not in lines[1] + lines[2]

    def test_a_sign_says_that_a_difference_is_certain(self, parts):
        counts = {"SIFT": np.array([2, 2, 2, 1]), "a": np.array([1, 1, 1, 0])}
        counts |= {"b": np.array([2, 3, 1, 1]), "c": counts["SIFT"] + 1}
        signs = [parts.report.sign(counts, name, range(4)) for name in ("a", "b", "c", "SIFT")]
        assert signs == ["↓", " ", "↑", " "]

    def test_where_sift_does_not_lead_is_said(self, parts):
        counts = {"SIFT": np.array([1, 0]), "nearest": np.array([0, 2]), "MMR": np.array([0, 0])}
        rows_of = {"one": [0], "two": [1], "all": [0, 1]}
        text = parts.report.verdict(counts, rows_of)
        assert "-1 [-4, +2] against nearest, +1 [+0, +2] against MMR." in text
        assert text.endswith("does not lead in: two (nearest, MMR); all (nearest).")

    def test_a_question_in_full_has_facts_and_reasons_in_the_width_of_a_terminal(
        self, parts, questions, compared, monkeypatch, capsys
    ):
        monkeypatch.setenv("COLUMNS", "80")
        chosen = {name: compared.chosen[name][0] for name in parts.methods.METHODS}
        parts.report.print_choices(Terminal(), questions[0], chosen)
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 80
        assert "SIFT: 2 of 2 facts" in lines
        assert re.match(r" ✓ cranes/hulda.md.* lifts 40.5 t", lines[-1])
        assert re.match(r"   office.md.* It is open from 6 to 22.", lines[-4])

    def test_the_picture_is_drawn(self, parts, compared, tmp_path):
        path = tmp_path / "new/picture.png"
        parts.picture.draw(compared, path)  # a warning would be an error
        assert path.read_bytes().startswith(b"\x89PNG")


class TestAnswers:
    @pytest.fixture
    def answers(self, parts, questions, random_model):
        """Return answers of a small random model; two methods chose alike."""
        from sift_core.answering import LanguageModel
        from sift_core.answering.in_context import InContextAnswerer

        near, far = (
            parts.methods.Choice(chunks=pool(*pages))
            for pages in (["berths/berth-2.md"], ["office.md", "cranes/hulda.md"])
        )
        chosen = {"nearest": near, "MMR": near, "hybrid": far, "SIFT": far}
        model = LanguageModel.from_pretrained(random_model, device="cpu", dtype="float32")
        return parts.answers.Answers(
            answerer=InContextAnswerer(language_model=model, max_new_tokens=3),
            compared=parts.methods.Comparison(
                questions=questions,
                chosen={name: [one, one] for name, one in chosen.items()},
                mmr_weight=0.7,
            ),
            queries=[
                Query(text=one.text, embedding=np.eye(4, dtype=np.float32)[0]) for one in questions
            ],
        )

    def test_each_method_answers_from_its_chunks_and_equal_chunks_are_read_once(
        self, parts, answers
    ):
        written = {name: answers.of(0, name) for name in parts.methods.METHODS}
        assert len(answers.kept) == 2
        for name, text in written.items():
            choice = answers.compared.chosen[name][0]
            assert text == answers.answerer.answer(answers.queries[0], choice.chunks).text

    def test_right_answers_are_counted_until_the_limit(self, parts, answers, capsys):
        two_hops = answers.compared.questions[0]
        for name, text in {"SIFT": "Brack and 40.5 t", "nearest": "Brack"}.items():
            chunks = answers.compared.chosen[name][0].chunks
            answers.kept[(two_hops.text, *chunks.texts)] = text
        parts.answers.count_answers(Terminal(), answers, until=-math.inf)
        printed = capsys.readouterr().out
        assert re.search(r"two hops +1 +0 +0 +1 +1", printed)
        assert re.search(r"all +1 +0 +0 +1 +1", printed)
        assert "unanswerable" not in printed
        assert "as many as fit into 150 s" in " ".join(printed.split())
        parts.answers.count_answers(Terminal(), answers, until=math.inf)
        printed = capsys.readouterr().out
        assert re.search(r"unanswerable +1 +0 +0 +0 +0", printed)
        assert "to all questions" in " ".join(printed.split())

    def test_questions_are_answered_in_turns(self, parts):
        rows_of = {"a": [0, 1, 4], "b": [2], "c": [3, 5]}
        assert parts.answers.in_turns(rows_of) == [0, 2, 3, 1, 5, 4]


@pytest.fixture
def run_demo(parts, monkeypatch, capsys):
    """Return a function that runs the demo in this process."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)

    def call(*arguments):
        returncode = run(lambda: parts.demo.app(list(arguments)))
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, returncode, printed.out, printed.err)

    return call


def assert_one_clear_error(finished, message):
    assert finished.returncode == 2, finished.stdout + finished.stderr
    assert "Traceback" not in finished.stderr
    error = " ".join(finished.stderr.split())
    assert "error: " in error
    assert message in error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--docs", "empty"], "no file below"),
        (["--docs", "bare"], "nothing to read in"),
        (["--docs", "nowhere"], "nowhere"),
        (["--question", "  "], "the question is empty"),
        (["--cache", "/dev/null/cache"], "cannot open Qdrant"),
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


def test_a_folder_without_a_question_is_one_clear_error(run_demo, docs):
    assert_one_clear_error(run_demo("--docs", str(docs)), "pass --question too")


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


@pytest.mark.slow
def test_only_what_changed_is_indexed_again(parts, docs, tmp_path):
    def index():
        with parts.store.open_qdrant(tmp_path / "qdrant") as client:
            report = parts.store.index_folder(client, docs)
            return report.n_documents, report.n_added, report.n_deleted

    assert index() == (4, 4, 0)
    assert index() == (4, 0, 0)
    (docs / "office.md").write_text("# Office\n\nIt is open from 7 to 21.\n", encoding="utf-8")
    assert index() == (4, 1, 1)


@pytest.mark.slow
def test_sift_reaches_the_second_page_in_a_real_collection(parts, docs, questions, tmp_path):
    methods = parts.methods
    parts.demo.index(Terminal(), tmp_path / "qdrant", docs)
    with parts.store.open_qdrant(tmp_path / "qdrant") as client:
        compared, queries = parts.demo.compare(Terminal(), client, questions)
    assert [one.text for one in queries] == [one.text for one in questions]
    for name in (*methods.METHODS, methods.NEWEST):
        chunks = compared.chosen[name][0].chunks
        assert sorted(one["source"] for one in chunks.metadata) == sorted(PAGES)  # there are four
    assert all(one.reason for one in compared.chosen["SIFT"][0].picks[:2])
    assert compared.n_found("SIFT").tolist() == [2, 0]
