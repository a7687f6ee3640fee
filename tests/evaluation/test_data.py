import gzip
import json
import lzma
import re

import pytest

from sift_core import InvalidInputError
from sift_core.evaluation.data import read_json_lines, read_retrieval_set

TEXT = '{"id": "α"}\n\n{"id": 2}\n'
WRITERS = {
    "rows.jsonl": lambda data: data,
    "rows.jsonl.gz": gzip.compress,
    "rows.jsonl.xz": lzma.compress,
}
CORPUS = [{"id": "a", "title": "A title", "text": "A text."}, {"id": "b", "text": "B text."}]
QUESTION = {"id": "q", "question": "?", "gold": ["a"]}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("name", WRITERS)
def test_lines_come_in_order_with_their_numbers(tmp_path, name, encoding):
    path = tmp_path / name
    path.write_bytes(WRITERS[name](TEXT.encode(encoding)))
    found = [(line.number, line.identifier("id")) for line in read_json_lines(path)]
    assert found == [(1, "α"), (3, "2")]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.jsonl", b'{"id": 1}\n{"id": ', "a.jsonl, line 2: no JSON"),
        ("a.jsonl", b"[1]\n", "a.jsonl, line 1: must be a JSON object, got '[1]"),
        ("a.jsonl", b"\xff\xfe\n", "a.jsonl cannot be read after line 0"),
        ("a.jsonl.gz", b"no gzip", "a.jsonl.gz cannot be read after line 0"),
        ("a.jsonl.gz", gzip.compress(TEXT.encode(), mtime=0)[:-9], "cannot be read after line"),
        ("a.jsonl.xz", b"no xz", "a.jsonl.xz cannot be read after line 0"),
        ("none.jsonl", None, "there is no file"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(tmp_path, name, data, message):
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        list(read_json_lines(path))


def read(folder, questions, corpus=CORPUS, **options):
    paths = folder / "corpus.jsonl.gz", folder / "queries.jsonl.gz"
    for path, rows in zip(paths, (corpus, questions), strict=True):
        path.write_bytes(gzip.compress("".join(json.dumps(one) + "\n" for one in rows).encode()))
    return read_retrieval_set(*paths, **options)


def test_a_set_has_its_passages_and_questions_in_order(tmp_path):
    found = read(tmp_path, [{"question": "?", "gold": ["b", "a", "b"], "id": 7}, QUESTION])
    assert found.name == tmp_path.name
    assert [one.passage_id for one in found.passages] == ["a", "b"]
    assert [one.to_embed for one in found.passages] == ["A title\nA text.", "B text."]
    assert [one.question_id for one in found.questions] == ["7", "q"]
    assert found.questions[0].grades == {0: 1.0, 1: 1.0}  # the distinct rows
    assert found.questions[0].gold == {0, 1}
    assert read(tmp_path, [QUESTION], name="mine").name == "mine"
    unnamed = {"question": "?", "gold": [1]}  # called by its place
    found = read(tmp_path, [{**unnamed, "id": "q"}, unnamed], [{"id": 1, "text": "A text."}])
    assert found.passages[0].passage_id == "1"
    assert [(one.question_id, one.gold) for one in found.questions] == [("q", {0}), ("2", {0})]


@pytest.mark.parametrize(
    ("corpus", "questions", "message"),
    [
        ([], [QUESTION], "has no passages"),
        ([CORPUS[0], CORPUS[0]], [QUESTION], "line 2: two passages have one id, 'a'"),
        ([CORPUS[0], {"text": "?"}], [QUESTION], "line 2: needs an id under 'id', got None"),
        ([{"id": True, "text": "?"}], [QUESTION], "line 1: needs an id under 'id', got True"),
        ([{"id": "a"}], [QUESTION], "line 1: needs a text under 'text', got None"),
        ([{**CORPUS[0], "title": 3}], [QUESTION], "line 1: needs a text under 'title', got 3"),
        (CORPUS, [], "has no questions"),
        (CORPUS, [QUESTION, QUESTION], "line 2: two questions have one id, 'q'"),
        (CORPUS, [{**QUESTION, "gold": []}], "line 1: needs the ids of at least one passage"),
        (CORPUS, [{"question": "?"}], "line 1: needs the ids of at least one passage"),
        (CORPUS, [{**QUESTION, "gold": ["a", None]}], "line 1: needs an id under 'gold', got None"),
        (CORPUS, [{**QUESTION, "gold": ["a", "c"]}], "not in the corpus: ['c']"),
        (CORPUS, [{"gold": ["a"]}], "line 1: needs a text under 'question', got None"),
    ],
)
def test_a_set_that_cannot_be_used_is_refused(tmp_path, corpus, questions, message):
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        read(tmp_path, questions, corpus)


def test_a_sample_of_the_questions_is_seeded_and_in_order(tmp_path):
    whole = read(tmp_path, [{"question": f"{i:02}", "gold": ["a"]} for i in range(50)])

    def texts(*arguments):
        return [question.text for question in whole.sample(*arguments).questions]

    some = texts(10, 1)
    assert some == texts(10, 1) == sorted(some)
    assert some != texts(10, 2)
    assert len(some) == 10
    assert whole.sample(99) is whole
    with pytest.raises(InvalidInputError, match="`n` must be"):
        whole.sample(0)
