import gzip
import json
import re

import pytest

from sift_core import InvalidInputError
from sift_core.evaluation.data import (
    Passage,
    RetrievalSet,
    read_corpus,
    read_questions,
    read_retrieval_set,
)

CORPUS = [
    Passage(passage_id="a", title="A title", text="A text."),
    Passage(passage_id="b", title="", text="B text."),
]


def written(path, rows):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_a_corpus_is_read_in_its_order(tmp_path, name):
    rows = [{"id": "a", "title": "A title", "text": "A text."}, {"id": "b", "text": "B text."}]
    assert read_corpus(written(tmp_path / name, rows)) == CORPUS


def test_the_title_is_embedded_where_there_is_one():
    assert [passage.to_embed for passage in CORPUS] == ["A title\nA text.", "B text."]


def questions_of(tmp_path, *rows):
    return read_questions(written(tmp_path / "q.jsonl", rows), CORPUS)


def test_gold_is_the_distinct_rows(tmp_path):
    (found,) = questions_of(tmp_path, {"question": "?", "gold": ["b", "a", "b"]})
    assert found.gold == {0, 1}
    assert found.grades == {0: 1.0, 1: 1.0}


def test_a_question_without_an_id_is_called_by_its_place(tmp_path):
    found = questions_of(
        tmp_path, {"question": "?", "gold": ["a"], "id": 7}, {"question": "!", "gold": ["a"]}
    )
    assert [one.question_id for one in found] == ["7", "2"]


def test_ids_may_be_numbers(tmp_path):
    corpus = written(tmp_path / "corpus.jsonl", [{"id": 1, "text": "A text."}])
    queries = written(tmp_path / "queries.jsonl", [{"question": "?", "gold": [1]}])
    found = read_retrieval_set(corpus, queries)
    assert found.passages[0].passage_id == "1"
    assert found.questions[0].gold == {0}


def test_a_set_is_named_after_the_folder_of_its_corpus(tmp_path):
    corpus = written(tmp_path / "corpus.jsonl", [{"id": "a", "text": "A text."}])
    queries = written(tmp_path / "queries.jsonl", [{"question": "?", "gold": ["a"]}])
    assert read_retrieval_set(corpus, queries).name == tmp_path.name
    assert read_retrieval_set(corpus, queries, name="mine").name == "mine"


PASSAGE = {"id": "a", "text": "A text."}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "has no passages"),
        ([PASSAGE, PASSAGE], "line 2: two passages have one id, 'a'"),
        ([PASSAGE, {"text": "?"}], "line 2: needs an id under 'id', got None"),
        ([{"id": "", "text": "?"}], "line 1: needs an id under 'id', got ''"),
        ([{"id": True, "text": "?"}], "line 1: needs an id under 'id', got True"),
        ([{"id": "a"}], "line 1: needs a text under 'text', got None"),
        ([{**PASSAGE, "title": 3}], "line 1: needs a text under 'title', got 3"),
    ],
)
def test_a_corpus_that_cannot_be_used_is_refused(tmp_path, rows, message):
    path = written(tmp_path / "corpus.jsonl", rows)
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        read_corpus(path)


QUESTION = {"id": "q", "question": "?", "gold": ["a"]}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "has no questions"),
        ([QUESTION, QUESTION], "line 2: two questions have one id, 'q'"),
        ([{**QUESTION, "gold": []}], "line 1: needs the ids of at least one passage"),
        ([{**QUESTION, "gold": "a"}], "line 1: needs the ids of at least one passage"),
        ([{"question": "?"}], "line 1: needs the ids of at least one passage"),
        ([{**QUESTION, "gold": ["a", None]}], "line 1: needs an id under 'gold', got None"),
        ([{**QUESTION, "gold": ["a", "c"]}], "not in the corpus: ['c']"),
        ([{"gold": ["a"]}], "line 1: needs a text under 'question', got None"),
    ],
)
def test_questions_that_cannot_be_used_are_refused(tmp_path, rows, message):
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        questions_of(tmp_path, *rows)


def test_a_sample_of_the_questions_is_seeded_and_in_order(tmp_path):
    found = questions_of(tmp_path, *({"question": f"{i:02}", "gold": ["a"]} for i in range(50)))
    whole = RetrievalSet(name="s", passages=CORPUS, questions=found)

    def texts(*arguments):
        return [question.text for question in whole.sample(*arguments).questions]

    some = texts(10, 1)
    assert some == texts(10, 1) == sorted(some)
    assert some != texts(10, 2)
    assert len(some) == 10
    assert whole.sample(99) is whole
    with pytest.raises(InvalidInputError, match="`n` must be"):
        whole.sample(0)
