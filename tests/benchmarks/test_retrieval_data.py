import gzip
import json

import pytest

from benchmarks.retrieval_data import Passage, read_corpus, read_questions, read_variants

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


def test_two_passages_with_one_id_are_refused(tmp_path):
    path = written(tmp_path / "corpus.jsonl", [{"id": "a", "text": "1"}, {"id": "a", "text": "2"}])
    with pytest.raises(ValueError, match="one id"):
        read_corpus(path)


def test_gold_is_the_distinct_rows(tmp_path):
    path = written(tmp_path / "q.jsonl", [{"question": "?", "gold": ["b", "a", "b"]}])
    assert read_questions(path, CORPUS)[0].gold == {0, 1}


@pytest.mark.parametrize("gold", [[], ["a", "c"]])
def test_gold_must_be_in_the_corpus(tmp_path, gold):
    path = written(tmp_path / "q.jsonl", [{"question": "?", "gold": gold}])
    with pytest.raises(ValueError, match="not in the corpus"):
        read_questions(path, CORPUS)


def test_a_subset_of_the_questions_is_seeded_and_in_order(tmp_path):
    path = written(
        tmp_path / "q.jsonl", [{"question": f"{i:02}", "gold": ["a"]} for i in range(50)]
    )

    def texts(**options):
        return [question.text for question in read_questions(path, CORPUS, **options)]

    some = texts(at_most=10, seed=1)
    assert some == texts(at_most=10, seed=1) == sorted(some)
    assert some != texts(at_most=10, seed=2)
    assert len(some) == 10
    assert len(texts(at_most=99)) == 50


@pytest.mark.parametrize("key", ["duplicate_of", "original", "of"])
def test_variants_name_their_passage(tmp_path, key):
    rows = [{"id": "a", "text": "A text."}, {"id": "v", "text": "B again.", key: "b"}]
    variants, originals = read_variants(written(tmp_path / "v.jsonl", rows), CORPUS)
    assert [variant.text for variant in variants] == ["B again."]
    assert originals == [1]


@pytest.mark.parametrize("row", [{"id": "v", "text": "?"}, {"id": "v", "text": "?", "of": "c"}])
def test_a_variant_of_nothing_is_refused(tmp_path, row):
    with pytest.raises(ValueError, match="no variant"):
        read_variants(written(tmp_path / "v.jsonl", [row]), CORPUS)
