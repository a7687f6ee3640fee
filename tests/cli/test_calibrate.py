import json

import pytest

from sift_core import Document

QUESTION = "How many books has row 3?"


@pytest.fixture(autouse=True)
def settings(tmp_path, fill, random_model, monkeypatch):
    """A random model and a store with chunks on two things."""
    documents = [
        Document(
            document_id=f"shelf#{n}",
            text=" ".join(f"Row {n * i % 17} has {i * (n + 3) % 23} books." for i in range(12)),
            metadata={"source": f"{n}.md"},
        )
        for n in range(14)
    ]
    monkeypatch.setenv("SIFT_MODEL", str(random_model))
    monkeypatch.setenv("SIFT_STORE", fill(f"faiss:{tmp_path / 'index'}", documents))


def unwrapped(text):
    """What was printed, wherever the paths in it broke the lines."""
    return " ".join(text.split())


@pytest.fixture
def answered(tmp_path):
    path = tmp_path / "answered.jsonl"
    lines = [{"question": f"Which row is {n}?", "answer": f"row {n}"} for n in range(9)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.slow
def test_what_is_calibrated_is_what_auto_goes_by(sift, record, tmp_path):
    before = record("ask", QUESTION, "--max-new-tokens", 2)
    assert "that the window has left" in before["reasons"][-1]
    printed = sift("calibrate", "--examples", 8, "--effort", "quick").out
    out = unwrapped(printed)
    assert out.startswith("8 passages in ")
    for told in ("base", "context", "fine_tune, 5 steps", "both, 5 steps", "Mode auto takes "):
        assert told in out
    path = tmp_path / "index-calibration"
    assert f"Keptin{path},which" in "".join(printed.split())  # a long path is broken, too
    assert "tokens it reads what fits: passages say nothing of those" in out
    after = record("ask", QUESTION, "--max-new-tokens", 2)
    assert "no question as short as this one" in after["reasons"][-1]
    after = record("ask", f"{QUESTION} " * 12, "--max-new-tokens", 2)
    assert "on 8 examples of the calibration" in " ".join(after["reasons"])


@pytest.mark.slow
def test_questions_of_ones_own_and_a_file_of_ones_own(sift, record, answered, elsewhere):
    sift("learn")
    told = record("calibrate", "--questions", answered, "--effort", "quick", "--calibration", "it")
    assert (told["n_examples"], told["calibration"]) == (9, "it")
    modes = [one["mode"] for one in told["strategies"]]
    assert set(modes) == {
        "base",
        "context",
        "fine_tune",
        "both",
        "learned",
    }  # also what was learned
    assert (elsewhere / "it").is_file()
    answer = record("ask", QUESTION, "--calibration", "it", "--max-new-tokens", 2)
    assert "on 9 examples" in " ".join(answer["reasons"])


def test_one_that_cannot_be_used_is_told_and_one_that_was_named_is_refused(sift, record, tmp_path):
    path = tmp_path / "index-calibration"
    path.write_text("no calibration", encoding="utf-8")
    told = unwrapped(sift("ask", QUESTION, "--max-new-tokens", 2).err)
    assert "of no use" in told
    assert "Mode auto reads what fits" in told
    refused = sift("ask", QUESTION, "--calibration", path, code=2)
    assert "of no use" in unwrapped(refused.err)
    refused = sift("ask", QUESTION, "--calibration", "no", code=2)
    assert "make one: sift calibrate" in unwrapped(refused.err)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("why?", "line 1"),
        ('{"question": "why?"}', "needs a text under 'answer'"),
        ('{"question": "why?", "answer": "so"}', "at least 8 pairs"),
    ],
)
def test_questions_that_are_none_are_refused(sift, tmp_path, line, told):
    path = tmp_path / "bad.jsonl"
    path.write_text(line, encoding="utf-8")
    assert told in unwrapped(sift("calibrate", "--questions", path, code=2).err)


@pytest.mark.slow
def test_too_few_passages_are_told(sift, fill, tmp_path, monkeypatch):
    few = [Document(document_id=str(n), text=f"Row {n}.", metadata={}) for n in range(9)]
    monkeypatch.setenv("SIFT_STORE", fill(f"faiss:{tmp_path / 'few'}", few))
    told = unwrapped(sift("calibrate", code=2).err)
    assert "needs 8 examples; no more passages could be used after 0" in told
