"""A file that takes too long or too much memory is left out, and the run goes on."""

import os
import sys
from contextlib import closing

import pytest

from sift_core.documents import Chunker, find_files, read_files
from sift_core.documents.budget import Budget, BudgetReader
from sift_core.documents.finding import SkipReason
from sift_core.errors import InvalidInputError
from tests.documents.test_reading import fill, pdf, reasons

PAGE = "<p>" + "some words of a page. " * 1_000
WIDE = b"<table>" + b"<tr><td colspan=1000>x</td><td>y</td></tr>" * 3_000


@pytest.mark.skipif(sys.platform == "win32", reason="processor time is not limited there")
@pytest.mark.slow
def test_what_takes_too_long_is_left_out_and_the_rest_is_read(tmp_path):
    text = "x" + "\n" * 50_000 + "x"  # the grammar of reStructuredText takes about a minute
    fill(tmp_path, a_dot_rst=text)
    fill(tmp_path, b_dot_pdf=pdf("Dogs bark."), c_dot_md="text")
    reading = read_files([tmp_path], base=tmp_path, budget=Budget(seconds=1))
    assert reading.sources == ("b.pdf", "c.md")
    assert reasons(reading) == {"a.rst": SkipReason.TOO_COSTLY}


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
@pytest.mark.slow
def test_what_takes_too_much_memory_is_left_out(tmp_path):
    fill(tmp_path, a_dot_html=WIDE * 2, b_dot_pdf=pdf("Dogs bark."))
    reading = read_files([tmp_path], base=tmp_path, budget=Budget(n_bytes=2**26, seconds=60))
    assert reading.sources == ("b.pdf",)
    (skipped,) = reading.skipped
    assert (skipped.reason, skipped.detail[-6:]) == (SkipReason.TOO_COSTLY, "memory")


def test_what_is_read_in_the_process_equals_what_is_read_here(tmp_path):
    fill(
        tmp_path,
        a_dot_html=PAGE,
        b_dot_pdf=pdf("Cats purr.", "Dogs bark."),
        c_dot_md="# Title\n\nSome words, one by one.\n\n" * 500,
        d_dot_pdf=b"%PDF-1.4 nonsense",
    )
    for chunker in (Chunker(), Chunker(40, size=lambda text: len(text.split()))):
        readings = [
            read_files([tmp_path], base=tmp_path, chunker=chunker, budget=budget)
            for budget in (Budget(), None)
        ]
        assert readings[0] == readings[1]
        assert len(readings[0].sources) == 3


def test_one_process_reads_all_files_of_a_run(tmp_path, monkeypatch):
    from sift_core.documents import budget

    started = []
    popen = budget.subprocess.Popen
    monkeypatch.setattr(
        budget.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1]
    )
    for i in range(5):
        fill(tmp_path, **{f"a{i}_dot_pdf": pdf("Dogs bark."), f"b{i}_dot_md": "text"})
    assert len(read_files([tmp_path], base=tmp_path).sources) == 10
    assert len(started) == 1
    assert started[0].returncode is not None  # and none is left behind


@pytest.mark.skipif(sys.platform == "win32", reason="processor time is not limited there")
def test_small_files_have_a_budget_where_small_ones_can_take_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr("sift_core.documents.budget._SECONDS_A_MEGABYTE", 0)
    fill(tmp_path, a_dot_html="&amp;<td colspan=1000>x</td>" * 280, c_dot_md="Dogs bark.")
    fill(tmp_path, b_dot_rst="*\n" * 3_990)
    for seconds in (0.1, 0):
        reading = read_files([tmp_path], base=tmp_path, budget=Budget(seconds=seconds))
        assert reading.sources == ("c.md",)
        assert reasons(reading) == dict.fromkeys(["a.html", "b.rst"], SkipReason.TOO_COSTLY)
        assert all(path.detail.endswith("s of processor time") for path in reading.skipped)


@pytest.mark.skipif(sys.platform == "win32", reason="no sessions there")
def test_the_process_is_silent_and_hears_no_interrupt(tmp_path, capfd):
    fill(tmp_path, a_dot_pdf=pdf("Dogs bark."))
    (file,) = find_files([tmp_path], base=tmp_path).files
    with closing(BudgetReader([file], Budget())) as reader:
        assert os.getpgid(reader._process.pid) != os.getpgid(0)
        assert [chunk.text for chunk in reader.read(file, Chunker()).chunks] == ["Dogs bark."]
    assert capfd.readouterr() == ("", "")


def test_an_error_of_the_size_comes_through(tmp_path):
    def size(text):
        raise OSError("the tokenizer is away")

    fill(tmp_path, a_dot_html=PAGE)
    with pytest.raises(BaseException, match="the tokenizer is away"):
        read_files([tmp_path], chunker=Chunker(10, size=size))


def test_a_process_that_cannot_start_is_told_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", os.fspath(tmp_path / "away"))
    fill(tmp_path, a_dot_pdf=pdf("Dogs bark."), c_dot_md="text")
    reading = read_files([tmp_path], base=tmp_path)
    assert reading.sources == ("c.md",)
    assert reasons(reading) == {"a.pdf": SkipReason.UNREADABLE}


def test_a_budget_that_is_none_is_refused():
    for wrong in ({"seconds": -1}, {"seconds": float("nan")}, {"seconds": "1"}, {"n_bytes": -1}):
        with pytest.raises(InvalidInputError):
            Budget(**wrong)
