import io
import json

import pytest

from sift_core import Document
from sift_core.cli.learn import LearningProgress
from sift_core.cli.output import Working

QUESTION = "How do I take books from the shelf?"


@pytest.fixture(autouse=True)
def settings(tmp_path, fill, random_model, monkeypatch):
    """A random model and a store with chunks on two things."""
    documents = [
        Document(document_id=f"{thing}#{n}", text=text.format(n), metadata={"source": thing})
        for thing, text in (("shelf", "shelf.take({}) takes books."), ("boat", "Row {} boats."))
        for n in range(3)
    ]
    monkeypatch.setenv("SIFT_MODEL", str(random_model))
    monkeypatch.setenv("SIFT_STORE", fill(f"faiss:{tmp_path / 'index'}", documents))


def test_what_was_learned_answers_without_reading_and_learning(sift, record, elsewhere):
    told = record("learn", "--chunks", 5)
    assert (told["n_learned"], told["n_stored"]) == (5, 6)
    assert told["adapters"] == ".sift-adapters"
    files = {path.name for path in (elsewhere / ".sift-adapters").rglob("*") if path.is_file()}
    assert files == {"collection.json", "adapter_config.json", "adapter_model.safetensors"}
    answer = record("ask", QUESTION, "--mode", "learned", "--max-new-tokens", 4)
    assert answer["mode"] == "learned"
    assert (answer["chunks"], answer["fine_tuning"]) == ([], None)
    shown = sift("ask", QUESTION, "--mode", "learned", "--max-new-tokens", 4).out
    lines = [line.rstrip() for line in shown.splitlines()]
    assert {"mode      learned", "reasons   it was asked for"} <= set(lines)
    assert "sources: none; the model answered from what it learned beforehand" in shown


def test_it_says_what_it_made_and_what_to_do_next(sift):
    captured = sift("learn", "--adapters", "mine")
    assert captured.out.startswith("Learned 6 chunks into mine; in use that takes")
    assert captured.out.endswith('Next: sift ask "…" --mode learned --adapters mine\n')
    again = json.loads(sift("learn", "--adapters", "mine", "--json").out)
    assert (again["n_learned"], again["n_new"]) == (6, 0)


def test_it_counts_the_chunks_of_the_index_that_the_adapter_has_learned(record):
    assert (first := record("learn", "--chunks", 3))["n_learned"] == first["n_new"] == 3
    more = record("learn", "--chunks", 5)
    assert (more["n_learned"], more["n_new"]) == (5, 2)
    fewer = record("learn", "--chunks", 2)
    assert (fewer["n_learned"], fewer["n_new"]) == (5, 0)


def test_a_mode_that_was_not_learned_for_is_refused(sift):
    told = sift("ask", QUESTION, "--mode", "learned", code=2).err
    assert "nothing was learned at '.sift-adapters'; make it: sift learn" in told


def told_in_a_pipe(monkeypatch, n_steps, seconds):
    """Return what a fine-tuning of so many steps, of so many seconds each, tells in a pipe."""
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    now = [0.0]
    with Working("Fine-tuning …") as status:
        progress = LearningProgress(status=status, n_steps=n_steps, clock=lambda: now[0])
        for _ in range(n_steps):
            now[0] += seconds
            progress.step(2.5)
        line = status.status.plain
    return written.getvalue().splitlines(), line


def test_a_long_fine_tuning_says_so_and_then_every_ten_seconds(monkeypatch):
    lines, last = told_in_a_pipe(monkeypatch, 20, 1.5)
    assert lines == [
        "Fine-tuning in 20 steps: about 28 s.",
        "  step 7 of 20, about 20 s left",
        "  step 14 of 20, about 9 s left",
    ]
    assert last == "Fine-tuning: step 20 of 20, about 0 s left, loss 2.50 nats a token …"
    assert told_in_a_pipe(monkeypatch, 50, 0.1)[0] == []  # a short one


def test_what_the_model_answers_when_it_reads_is_learned_where_that_is_asked_for(sift, record):
    told = sift("learn", "--objective", "distil", code=2).err
    assert "'next-token', 'distill'" in told
    assert record("learn", "--objective", "distill", "--chunks", 2)["objective"] == "distill"
    assert "delete that folder" in sift("learn", "--chunks", 2, code=2).err
