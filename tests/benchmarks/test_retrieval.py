import gzip
import json

import pytest

from benchmarks import retrieval_plot
from benchmarks.retrieval import measure_copies, measure_folder, measure_one, parse
from benchmarks.retrieval_bars import bars_of
from benchmarks.retrieval_methods import methods
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.testing import HashingEmbedder

WORDS = "ant bee cat dog elk fox gnu hen ibis jay kite lark mole newt owl pig ray seal toad".split()


@pytest.fixture
def cache(tmp_path):
    return EmbeddingCache(tmp_path / "cache", "hashing-64", HashingEmbedder)


@pytest.fixture
def folder(tmp_path):
    for name in ("animals", "beasts"):
        corpus = [{"id": word, "title": word, "text": f"One {word}. And a pet."} for word in WORDS]
        queries = [{"question": f"Where is the {word}?", "gold": [word]} for word in WORDS]
        for path, rows in (
            (tmp_path / "corpus" / name / "corpus.jsonl.gz", corpus),
            (tmp_path / "dev" / name / "queries.jsonl.gz", queries),
        ):
            path.parent.mkdir(parents=True)
            with gzip.open(path, "wt", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
    return tmp_path


def of_one_corpus(folder, *options):
    corpus = folder / "corpus" / "animals" / "corpus.jsonl.gz"
    queries = folder / "dev" / "animals" / "queries.jsonl.gz"
    return parse(["--corpus", str(corpus), "--queries", str(queries), *options])


@pytest.mark.parametrize(
    ("options", "condition"),
    [
        ((), "as is"),
        (("--duplicates", "3"), "duplicates 3"),
        (("--duplicate-corpus", "2"), "variants 2"),
    ],
)
def test_one_row_a_method_for_one_corpus(folder, cache, capsys, options, condition):
    rows = measure_one(of_one_corpus(folder, *options, "--max-queries", "5"), cache)
    assert {row["condition"] for row in rows} == {condition}
    assert {row["set"] for row in rows} == {"animals"}
    assert {row["n_queries"] for row in rows} == {5}
    assert len(rows) == len(methods())
    ours = next(row for row in rows if row["method"] == "sift")
    assert {"ndcg@10", "alpha_ndcg@10"} <= set(ours["ci"])
    assert {"nn", "mmr .3", "mmr .9"} <= set(ours["differences"])
    nearest = next(row for row in rows if row["method"] == "nn")
    assert nearest["recall@5"] == nearest["all_gold@5"] == 1.0
    assert f"{condition} (animals, 5 questions, in points)" in capsys.readouterr().out


@pytest.mark.slow
def test_a_folder_is_measured_in_three_conditions_and_drawn(folder, cache):
    plot = folder / "plot.png"
    arguments = parse(
        ["--data", str(folder), "--sets", "beasts", "--max-queries", "2", "--plot", str(plot)]
    )
    rows = measure_folder(arguments, cache)
    assert {row["condition"] for row in rows} == {"as is", "duplicates 4", "variants 4"}
    assert len(bars_of(rows)) == 6  # 2 metrics × 3 conditions
    rows += measure_copies(arguments, cache)
    keys = [(row["set"], row["condition"], row["method"]) for row in rows]
    assert len(keys) == len(set(keys))
    retrieval_plot.draw(rows, plot)
    assert plot.stat().st_size > 0
