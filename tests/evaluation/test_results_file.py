import gzip
import json
import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest

from sift_core.errors import ExperimentError, InvalidInputError
from sift_core.evaluation.running.results_file import ResultsFile

EXPERIMENT = {"kind": "experiment", "experiment": "1f0c", "configuration": {"prompt_tokens": 512}}


def result(key, **fields):
    return {"kind": "result", "key": key, "experiment": "1f0c", **fields}


@pytest.fixture
def file(tmp_path):
    return ResultsFile(tmp_path / "rows.jsonl")


def python(program, *args):
    """Start another process that writes to a results file."""
    start = "import sys\nfrom sift_core.evaluation.running.results_file import ResultsFile\n"
    return subprocess.Popen(
        [sys.executable, "-c", start + program, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_rows_come_back_in_the_order_in_which_they_were_appended(file):
    rows = [EXPERIMENT, result("b", bits_per_byte=[2.5, 1e-300]), result("a", selector=None)]
    assert [file.append(row) for row in rows] == [True, True, True]
    assert file.rows() == ResultsFile(file.path).rows() == rows
    assert file.keys() == {"a", "b"}
    assert file.path.read_bytes().count(b"\n") == 3


def test_a_file_that_does_not_exist_has_no_rows_and_is_not_made_by_reading(file):
    assert (file.rows(), file.keys()) == ([], set())
    assert not file.path.exists()


def test_the_folder_is_made_by_the_first_row(tmp_path):
    path = tmp_path / "new" / "folder" / "rows.jsonl"
    ResultsFile(path).append(result("a"))
    assert path.exists()


@pytest.mark.parametrize("held", [True, False], ids=["in-with", "row-by-row"])
def test_a_row_that_is_there_is_not_written_again(file, held):
    file.append(EXPERIMENT)
    file.append(result("a", n=1))
    before = file.path.read_bytes()
    if held:
        with file:
            assert not file.append(result("a", n=2))
            assert not file.append(EXPERIMENT)
    else:
        assert not file.append(result("a", n=2))
    assert file.path.read_bytes() == before


def test_of_two_rows_with_one_key_the_first_counts(file):
    lines = [result("a", n=1), result("b", n=2), result("a", n=3), EXPERIMENT, EXPERIMENT]
    file.path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert file.rows() == [result("a", n=1), result("b", n=2), EXPERIMENT]


@pytest.mark.parametrize(
    "text", ["Größe", "漢字 🎲", "two\nlines\r\u2028\x85\x00", "half of one: \ud83c", '"\\', ""]
)
def test_any_text_comes_back(file, text):
    file.append(result(text, chosen=[text], **{text or "name": 1}))
    file.append(result("after"))
    assert file.rows()[0] == result(text, chosen=[text], **{text or "name": 1})
    assert file.keys() == {text, "after"}


def test_a_row_that_others_wrote_in_utf_8_is_read(file):
    file.path.write_text(json.dumps(result("漢字"), ensure_ascii=False), encoding="utf-8")
    assert file.keys() == {"漢字"}


LINE = json.dumps(result("last", chosen=["漢字"], bits=[1.5, 2.25])).encode() + b"\n"


@pytest.mark.parametrize("n_bytes", range(len(LINE)))
def test_a_row_that_was_cut_anywhere_is_dropped_and_can_be_written_again(file, n_bytes):
    file.append(result("first"))
    before = file.path.read_bytes()
    file.path.write_bytes(before + LINE[:n_bytes])
    is_whole = n_bytes == len(LINE) - 1  # all but the end of the line
    assert file.keys() == ({"first", "last"} if is_whole else {"first"})
    assert file.path.read_bytes() == before + LINE[:n_bytes], "reading changed the file"
    assert file.append(json.loads(LINE)) is not is_whole
    assert file.path.read_bytes() == before + LINE


@pytest.mark.parametrize(
    "damaged",
    [
        b'{"key": "b", "n"',
        b'{"key": "b"} {"key": "c"}',
        b"\x00\x00",
        b'{"key": "\xff"}',
        b'{"key": "b", "n": NaN}',
        b"[1]",
        b'{"key": 3}',
        b'{"kind": "result"}',
        b"[" * 100_000,
    ],
    ids=["cut", "two", "zeros", "no-utf-8", "NaN", "list", "number", "no-name", "deep"],
)
@pytest.mark.parametrize("use", ["rows", "keys", "append"])
def test_a_damaged_line_in_the_middle_is_named(file, damaged, use):
    content = json.dumps(result("a")).encode() + b"\n" + damaged + b"\n" + LINE
    file.path.write_bytes(content)
    call = getattr(file, use)
    with pytest.raises(InvalidInputError, match=rf"line 2 of '{re.escape(str(file.path))}'"):
        call(result("z")) if use == "append" else call()
    assert file.path.read_bytes() == content


def test_another_kind_of_file_is_left_alone(file):
    file.path.write_text("my notes, without a line's end")
    with pytest.raises(InvalidInputError, match=r"line 1 .* Is it a results file\?"):
        file.append(result("a"))
    assert file.path.read_text() == "my notes, without a line's end"


def test_empty_lines_are_no_damage(file):
    file.path.write_bytes(b"\n" + LINE.replace(b"\n", b"\r\n") + b"\n\n" + b'{"key": "b"}')
    assert file.keys() == {"last", "b"}


@pytest.mark.parametrize(
    ("row", "named"),
    [
        (result("a", bits=[1.0, float("nan")]), r"`bits\[1\]` .* got nan"),
        (result("a", seconds={"select": float("inf")}), r"`seconds\.select` .* got inf"),
        (result("a", n=-np.float64("inf")), r"`n` .* got -inf"),
        (result("a", n=[1, np.float32(1)]), r"`n\[1\]` .* of type float32"),
        (result("a", chosen=np.arange(2)), r"`chosen` .* of type ndarray"),
        (result("a", chosen={1}), r"`chosen` .* of type set"),
        ({"key": 3}, "'key' 3"),
        ({"key": None, "experiment": "1f0c"}, "'key' None"),
        ({"kind": "experiment"}, "'experiment' None"),
        ([1], "got list"),
    ],
)
def test_what_cannot_be_a_row_is_refused_by_name(file, row, named):
    file.append(result("before"))
    with pytest.raises(InvalidInputError, match=named):
        file.append(row)
    assert file.keys() == {"before"}


def test_compressed_rows_are_read_and_not_written(tmp_path):
    file = ResultsFile(tmp_path / "rows.jsonl.gz")
    file.path.write_bytes(gzip.compress(LINE + json.dumps(EXPERIMENT).encode()))
    assert file.rows() == [json.loads(LINE), EXPERIMENT]
    before = file.path.read_bytes()
    with pytest.raises(InvalidInputError, match=r"is compressed.*unpack it"):
        file.append(result("a"))
    assert file.path.read_bytes() == before


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b[:30] + b"zz" + b[32:], bytes])
def test_a_damaged_compressed_file_is_named(tmp_path, damage):
    file = ResultsFile(tmp_path / "rows.jsonl.gz")
    content = LINE if damage is bytes else damage(gzip.compress(LINE))
    file.path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"rows\.jsonl\.gz' is no whole gzip file"):
        file.rows()


def test_a_second_writer_is_refused_and_a_reader_is_not(file):
    with file:
        file.append(result("a"))
        other = ResultsFile(file.path)
        assert other.keys() == {"a"}
        with pytest.raises(ExperimentError, match="another run is writing to the results file"):
            other.append(result("b"))
        file.append(result("c"))
    assert other.append(result("b"))
    assert [row["key"] for row in file.rows()] == ["a", "c", "b"]


def test_another_process_is_refused_until_the_first_is_killed(file):
    holder = python(
        "file = ResultsFile(sys.argv[1])\n"
        "with file:\n"
        "    file.append({'key': 'theirs'})\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n",
        file.path,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ExperimentError, match="another run"):
            file.append(result("ours"))
        assert file.keys() == {"theirs"}
    finally:
        holder.kill()
        holder.communicate()
    assert file.append(result("ours"))


def test_taking_the_file_reads_what_others_wrote_meanwhile(file):
    file.append(result("a"))
    ResultsFile(file.path).append(result("b"))
    with file, file:
        assert file.keys() == {"a", "b"}
        assert not file.append(result("b"))


FULL = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
file = ResultsFile(sys.argv[1])
with file:
    for i in range(100):
        try:
            file.append({"key": str(i), "text": "x" * 1000})
        except Exception as error:
            print(type(error).__name__, i, error)
            break
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    file.append({"key": "after"})
"""


@pytest.mark.parametrize("limit", [5_000, 5_125], ids=["in-a-row", "between-rows"])
def test_a_full_disk_loses_no_earlier_row(file, limit):
    pytest.importorskip("resource")
    n_bytes = len(json.dumps({"key": "0", "text": "x" * 1000})) + 1  # 1025
    n_rows = limit // n_bytes
    out, errors = python(FULL, file.path, limit).communicate(timeout=60)
    assert out.startswith(f"ExperimentError {n_rows} could not write to the results file"), errors
    assert "go on" in out or "goes on" in out
    assert file.keys() == {*map(str, range(n_rows)), "after"}
    assert file.path.read_bytes().endswith(b'{"key": "after"}\n')


def test_a_path_that_cannot_be_written_is_an_error_of_ours(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "rows.jsonl", tmp_path):
        with pytest.raises(ExperimentError, match="could not write to the results file"):
            ResultsFile(path).append(result("a"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_that_cannot_be_written_is_an_error_of_ours(file):
    file.path.parent.chmod(0o500)
    try:
        with pytest.raises(ExperimentError, match="Permission denied"):
            file.append(result("a"))
    finally:
        file.path.parent.chmod(0o700)


def test_a_process_that_is_killed_while_it_writes_leaves_whole_rows(file):
    writer = python(
        "with ResultsFile(sys.argv[1]) as file:\n"
        "    for i in range(10**9):\n"
        "        file.append({'key': str(i), 'text': 'x' * 20_000})\n",
        file.path,
    )
    deadline = time.monotonic() + 30
    while len(file.keys()) < 20 and time.monotonic() < deadline:
        time.sleep(0.005)  # read all the time: half a row must never be seen as damage
    writer.kill()
    writer.communicate()
    n_rows = len(file.keys())
    assert n_rows >= 20
    assert file.append(result("after"))
    assert file.keys() == {*map(str, range(n_rows)), "after"}


def test_ten_thousand_rows(file, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # the disk's time, not ours
    rows = [result(str(i), bits_per_byte=[i / 7] * 9) for i in range(10_000)]
    with file:
        assert all(file.append(row) for row in rows)
    assert file.rows() == rows
