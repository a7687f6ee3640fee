import json

import pytest

from sift_core import Document

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
    answer = record("ask", QUESTION, "--mode", "merged", "--max-new-tokens", 4)
    assert answer["mode"] == "merged"
    assert (answer["chunks"], answer["fine_tuning"]) == ([], None)
    shown = sift("ask", QUESTION, "--mode", "merged", "--max-new-tokens", 4).out
    assert "mode      merged: it was asked for" in shown
    assert "sources: none; the model answered from what it learned beforehand" in shown


def test_it_says_what_it_made_and_what_to_do_next(sift):
    captured = sift("learn", "--adapters", "mine")
    assert captured.out.startswith("Learned 6 chunks into mine; in use that takes")
    assert captured.out.endswith('Next: sift ask "…" --mode merged --adapters mine\n')
    again = json.loads(sift("learn", "--adapters", "mine", "--json").out)
    assert again["n_learned"] == 6


def test_a_mode_that_was_not_learned_for_is_refused(sift):
    told = sift("ask", QUESTION, "--mode", "merged", code=2).err
    assert "nothing was learned at '.sift-adapters'; make it: sift learn" in told


def test_what_has_learned_other_chunks_is_not_overwritten(sift):
    sift("learn")
    assert "delete that folder" in sift("learn", "--chunks", 2, code=2).err
