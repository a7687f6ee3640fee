import gzip
import lzma
import re

import pytest

from sift_core import InvalidInputError
from sift_core.evaluation.json_lines import read_json_lines

TEXT = '{"id": "α"}\n\n{"id": 2}\n'
WRITERS = {
    "rows.jsonl": lambda data: data,
    "rows.jsonl.gz": gzip.compress,
    "rows.jsonl.xz": lzma.compress,
}


@pytest.mark.parametrize("name", WRITERS)
def test_lines_come_in_order_with_their_numbers(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(WRITERS[name](TEXT.encode()))
    found = [(line.number, line.values) for line in read_json_lines(path)]
    assert found == [(1, {"id": "α"}), (3, {"id": 2})]


@pytest.mark.parametrize("name", WRITERS)
def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(WRITERS[name](TEXT.encode("utf-8-sig")))
    assert [line.identifier("id") for line in read_json_lines(path)] == ["α", "2"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.jsonl", b'{"id": 1}\n{"id": ', "a.jsonl, line 2: no JSON"),
        ("a.jsonl", b"[1]\n", "a.jsonl, line 1: must be a JSON object, got '[1]"),
        ("a.jsonl", b"\xff\xfe\n", "a.jsonl cannot be read after line 0"),
        ("a.jsonl.gz", b"no gzip", "a.jsonl.gz cannot be read after line 0"),
        ("a.jsonl.gz", gzip.compress(TEXT.encode(), mtime=0)[:-9], "cannot be read after line"),
        ("a.jsonl.xz", b"no xz", "a.jsonl.xz cannot be read after line 0"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(tmp_path, name, data, message):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        list(read_json_lines(path))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match=r"there is no file .*none\.jsonl"):
        list(read_json_lines(tmp_path / "none.jsonl"))
