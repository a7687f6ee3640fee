import gzip
import json
import re

import pytest

from sift_core import InvalidInputError
from sift_core.evaluation.data import read_beir

CORPUS = [
    {"_id": "d1", "title": "A title", "text": "A text.", "metadata": {}},
    {"_id": "d2", "title": "", "text": "B text."},
    {"_id": "d3\u2028\x85", "text": "C text."},  # ends of lines to Unicode, not to a file
]
QUERIES = [{"_id": "q1", "text": "one?"}, {"_id": "q2", "text": "two?"}, {"_id": "q3", "text": "x"}]
HEADER = "query-id\tcorpus-id\tscore\n"
JUDGED = f"q2\td1\t2\nq2\t{CORPUS[2]['_id']}\t1\nq2\td2\t0\nq1\td2\t1\nq3\td1\t-1\n"


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "animals"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(lines(CORPUS), encoding="utf-8")
    (folder / "queries.jsonl").write_text(lines(QUERIES), encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text(HEADER + JUDGED, encoding="utf-8")
    return folder


def test_a_split_has_the_questions_that_it_judges(folder):
    (folder / "qrels" / "dev.tsv").write_text(HEADER + "q3\td2\t1\n", encoding="utf-8")
    found = read_beir(folder, "dev")
    assert found.name == "animals"
    assert [passage.passage_id for passage in found.passages] == [row["_id"] for row in CORPUS]
    assert [(one.question_id, one.text, one.grades) for one in found.questions] == [
        ("q3", "x", {1: 1.0})
    ]


def test_grades_are_kept_and_scores_up_to_zero_are_not_relevant(folder):
    found = read_beir(folder)
    assert {one.question_id: one.grades for one in found.questions} == {
        "q2": {0: 2.0, 2: 1.0},
        "q1": {1: 1.0},
    }
    assert found.questions[0].gold == {0, 2}
    assert found.n_without_gold == 1  # q3


def test_compressed_files_windows_line_ends_and_byte_order_marks_are_read(folder):
    for name in ("corpus", "queries"):
        plain = folder / f"{name}.jsonl"
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    judgements = folder / "qrels" / "test.tsv"
    judgements.write_bytes((HEADER + JUDGED).replace("\n", "\r\n").encode("utf-8-sig"))
    assert len(read_beir(folder).questions) == 2
    with pytest.raises(InvalidInputError, match=r"dev\.tsv; splits there: test"):
        read_beir(folder, "dev")


def test_judgements_that_official_sets_have_in_vain_are_counted(folder):
    queries = [*QUERIES, {"_id": "d2", "text": "B  text."}, {"_id": "d1", "text": "other"}]
    (folder / "queries.jsonl").write_text(lines(queries), encoding="utf-8")
    judged = "q9\td1\t1\nq1\td9\t1\nq1\td1\t1\nq1\td1\t2\nd2\td2\t1\nd2\td1\t1\nd1\td1\t1\n"
    (folder / "qrels" / "test.tsv").write_text(HEADER + judged, encoding="utf-8")
    found = read_beir(folder)
    # no such query, no such passage, judged before, the question itself; "d1" only has its id
    assert found.n_skipped == 4
    assert [(one.question_id, one.grades, one.own_row) for one in found.questions] == [
        ("q1", {0: 2.0}, None),
        ("d2", {0: 1.0}, 1),
        ("d1", {0: 1.0}, None),
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("corpus.jsonl", None, "has no corpus.jsonl or corpus.jsonl.gz"),
        ("corpus.jsonl", lines([{"id": "d1", "text": "?"}]), "line 1: needs an id under '_id'"),
        ("queries.jsonl", "", "has no queries"),
        ("queries.jsonl", lines([*QUERIES, QUERIES[1]]), "line 4: two queries have one id, 'q2'"),
        ("qrels/test.tsv", None, "splits there: none"),
        ("qrels/test.tsv", JUDGED, "the first line must be query-id, corpus-id, score"),
        ("qrels/test.tsv", HEADER, "no query has a relevant passage"),
        ("qrels/test.tsv", HEADER + "q9\td1\t1\n", "no query has a relevant passage"),
        ("qrels/test.tsv", HEADER + "q1\td1\thigh\n", "line 2: must be an id, an id and a number"),
        ("qrels/test.tsv", HEADER + "q1\td1\tnan\n", "line 2: must be an id, an id and a number"),
    ],
)
def test_a_set_that_cannot_be_used_is_refused(folder, name, text, message):
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        read_beir(folder)
