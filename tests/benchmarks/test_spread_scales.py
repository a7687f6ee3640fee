from benchmarks.spread_scales import DEFAULT, SCALES, bars_of, measure, rows_of
from benchmarks.words_in_choice import Corpus
from sift_core import Query
from sift_core.evaluation.data import read_retrieval_set
from sift_core.evaluation.search import as_is
from sift_core.selection import spread


def test_every_scale_is_measured_and_the_defaults_come_back(data, cache, monkeypatch):
    corpus, queries = data / "corpus/animals", data / "dev/animals"
    found = read_retrieval_set(corpus / "corpus.jsonl.gz", queries / "queries.jsonl.gz")
    animals = Corpus(found=found, vectors=as_is(found.passages, cache).embeddings, answers={})
    texts = [one.text for one in found.questions[:2]]
    asked = [
        Query(text=text, embedding=row)
        for text, row in zip(texts, cache.embed_queries(texts), strict=True)
    ]
    values = measure(animals, found.questions[:2], asked)
    assert list(values) == list(SCALES)
    assert {tuple(of_each) for of_each in values.values()} == {(1.0, 1.0)}
    assert DEFAULT == (spread.TEMPERATURE, spread.FOLLOWED)
    assert {row["recall@10"] for row in rows_of("animals", "hashing", values)} == {1.0}


def test_the_best_scale_is_held_against_the_default():
    values = {scale: [0.5, 0.5] for scale in SCALES} | {(1.0, 0.5): [0.5, 0.6]}
    (record,) = bars_of({"MiniLM": values})
    # 55 - 50 points
    assert (record["value"], record["pass"]) == (5.0, False)
    assert record["name"] == "MiniLM: T 1.0, α 0.5 over the default, recall@10"
