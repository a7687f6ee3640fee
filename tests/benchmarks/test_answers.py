import gzip
import json
import math

import pytest

from benchmarks import answers
from benchmarks.answers_data import read_collection
from benchmarks.answers_tables import ARMS, summary, tables
from benchmarks.language_modeling.running import ResultsFile, read_rows
from sift_core.answering import InContextAnswerer, LanguageModel
from sift_core.answering.model.training import TokenWindow, window_loss
from sift_core.errors import InvalidInputError
from sift_core.types import Query
from tests.benchmarks.conftest import WORDS
from tests.random_model import save_random_model


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    folder = save_random_model(tmp_path_factory.mktemp("model"))
    return LanguageModel.from_pretrained(folder, device="cpu", dtype="float32")


@pytest.fixture
def collection(data, cache):
    rows = [
        {"id": word, "question": f"Where is the {word}?", "gold": [word], "answers": ["the house"]}
        for word in WORDS
    ]
    with gzip.open(data / "dev/animals/queries.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return read_collection(data, "animals", cache)


def measured(collection, language_model, path, n):
    with ResultsFile(path) as file:
        file.append(answers.record_of(collection, language_model))
        answers.measure([collection], answers.Reader(language_model), file, n_questions=n)
    return read_rows(path)


def test_every_question_gets_a_row_an_arm_and_a_second_run_goes_on(
    collection, language_model, tmp_path
):
    path = tmp_path / "answers.jsonl"
    first = measured(collection, language_model, path, 1)
    assert len(first) == 1 + len(ARMS)
    path.write_bytes(path.read_bytes()[:-200])  # as a kill leaves it
    rows = measured(collection, language_model, path, 2)
    assert rows[: len(ARMS) + 1] == first
    assert len({row["key"] for row in rows[1:]}) == len(rows) - 1 == 2 * len(ARMS)
    assert [len(table.rows) for table in tables(rows)] == [len(ARMS)] * 3
    means = {one["arm"]: one for one in summary(rows)}
    bits = [row["bits"] for row in rows[1:] if row["key"].endswith("|redundant|sift|5")]
    assert means["redundant, 5: sift"]["bits"] == pytest.approx(sum(bits) / 2, abs=1e-3)
    assert (means["gold alone"]["gold"], means["no context"]["gold"]) == (100, 0)


def test_bits_are_those_of_the_whole_prompt_with_the_answer(collection, language_model):
    chunks = collection.chunks([0, 1, len(collection.passages) + 1])
    row = answers.Reader(language_model).read("Where is the bee?", ["the house", "home"], chunks)
    answerer = InContextAnswerer(language_model=language_model, max_new_tokens=16)
    query = Query(text=answers.INSTRUCTION.format("Where is the bee?"))
    ids = language_model.prompt_ids(answerer.prompt(query, chunks))
    targets = language_model.token_ids("the house")
    window = TokenWindow(inputs=[*ids, *targets[:-1]], targets=targets)
    nats = window_loss(language_model.layers, window)
    assert row["bits"] == pytest.approx(nats / math.log(2), abs=1e-3)
    assert row["answer"] == answerer.answer(query, chunks).text
    assert (row["read"], row["tokens"], row["bytes"]) == (3, len(ids), len("the house"))


def test_a_copy_is_another_text_and_finds_the_same_gold(collection):
    n = len(collection.passages)
    gold = next(iter(collection.questions[0].gold))
    plain, copy = collection.chunks([gold, gold + n]).texts
    assert plain != copy
    assert collection.gold_found(0, [gold + n]) == 1.0
    for (form, _, _), rows in collection.contexts(0).items():
        assert any(row >= n for row in rows) == (form == "redundant")


def test_scores_are_those_of_squad():
    # "a tower of london" → tower of london; London → 1 common word of 3 and 1: 2·1/4
    assert answers.scores("A tower of London.", ["Paris", "London"]) == {
        "exact": 0.0,
        "f1": 0.5,
        "holds": 1.0,
    }
    assert answers.scores("the LONDON!", ["London"]) == {"exact": 1.0, "f1": 1.0, "holds": 1.0}
    assert answers.scores("", ["London"]) == {"exact": 0.0, "f1": 0.0, "holds": 0.0}
    assert answers.scores("Londonderry", ["London"])["holds"] == 0.0


def test_a_file_of_another_setting_is_refused(collection, language_model):
    record = answers.record_of(collection, language_model)
    answers.check_setting([record], record)
    other = {**record, "experiment": "0", "instruction": "?"}
    with pytest.raises(InvalidInputError, match="'instruction'"):
        answers.check_setting([other], record)


def test_tables_need_a_whole_question():
    with pytest.raises(InvalidInputError, match="no question"):
        tables([])
