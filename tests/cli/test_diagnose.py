"""`sift diagnose` over small real indexes, with the real embedding model."""

import re
import sys
from pathlib import Path

import pytest

from sift_core.installing import install_command
from sift_core.types import Document

SUBJECTS = ["bread", "rain", "chess", "trains", "whales", "glass", "violins", "taxes", "maps"]
VERBS = ["begins", "ends", "changes", "is paid for", "was invented", "is described"]


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
def address(tmp_path_factory, fill):
    return fill(f"faiss:{tmp_path_factory.mktemp('store') / 'index'}", chunks(4))


@pytest.fixture(autouse=True)
def settings(address, monkeypatch):
    monkeypatch.setenv("SIFT_STORE", address)


@pytest.mark.slow
def test_copies_are_found_told_and_drawn(sift, monkeypatch):
    figure = Path("new/figure.svg")
    monkeypatch.setenv("COLUMNS", "60")
    out = sift("diagnose", "--plot", figure).out
    said = " ".join(out.split())
    assert said.index("Use SIFT here: of the 10 chunks") < said.index("Why, and what to do")
    assert re.search(r"SIFT would free \d\.\d of 10 places \(90 % interval", said)
    assert re.search(r"repeats \d\.\d \[\d\.\d, \d\.\d\]", said)
    assert "stood in for" in said
    assert "\x1b" not in out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 60
    assert "<svg" in figure.read_text(encoding="utf-8")


def test_json_is_one_document_and_a_seed_repeats_it(record):
    first, second = (record("diagnose", "--sample", "8", "--seed", "3") for _ in range(2))
    assert first == second
    assert first["verdict"] == "helps"
    assert len(first["questions"]) == 8
    assert first["n_stored"] == 216
    assert first["near_duplicates"]["mean"] > 0.9


def test_questions_of_ones_own_are_asked(record):
    path = Path("questions.txt")
    path.write_text("How did bread begin?\nWho pays for trains?\n")
    found = record("diagnose", "--queries", path)
    assert [one["question"] for one in found["questions"]] == path.read_text().splitlines()
    assert not found["stand_ins"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--queries", "none.txt"], "there is no file"),
        (["--plot", "figure.gif"], "must name a file"),
    ],
    ids=["no queries", "plot"],
)
def test_mistakes_are_named_before_the_work(refusal, arguments, message):
    assert message in refusal("diagnose", *arguments)


def test_without_matplotlib_the_text_comes_and_a_figure_is_refused_before_the_work(
    sift, refusal, monkeypatch
):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "Why, and what to do" in sift("diagnose", "--sample", "5").out
    error = refusal("diagnose", "--store", "faiss:nowhere", "--plot", "figure.png")
    assert install_command("eval") in error


def test_nothing_is_drawn_beside_a_file_that_matplotlib_would_obey(sift, refusal):
    Path("matplotlibrc").write_text("figure.dpi: 1\n", encoding="utf-8")
    assert "which matplotlib obeys" in refusal("diagnose", "--plot", "a.png")
    assert "Why, and what to do" in sift("diagnose", "--sample", "5").out
