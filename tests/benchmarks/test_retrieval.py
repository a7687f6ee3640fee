import numpy as np
import pytest

from benchmarks import retrieval, retrieval_plot
from benchmarks.retrieval_bars import bars_of
from benchmarks.retrieval_methods import dpp, methods
from sift_core.evaluation.search import Pool, pools


@pytest.mark.parametrize(
    ("options", "condition"),
    [(["--duplicates", "3"], "duplicates 3"), (["--duplicate-corpus", "2"], "variants 2")],
)
def test_one_corpus_gives_one_row_a_method(data, cache, options, condition):
    files = ["--corpus", str(data / "corpus/animals/corpus.jsonl.gz")]
    files += ["--queries", str(data / "dev/animals/queries.jsonl.gz")]
    rows = retrieval.measure_one(retrieval.parse([*files, *options, "--max-queries", "5"]), cache)
    assert [row["method"] for row in rows] == list(methods())
    assert {(row["condition"], row["n_queries"]) for row in rows} == {(condition, 5)}
    nearest = next(row for row in rows if row["method"] == "nn")
    assert nearest["recall@5"] == nearest["all_gold@5"] == 1.0


@pytest.mark.slow
def test_a_folder_is_measured_in_three_conditions_and_drawn(data, cache):
    plot = data / "plot.png"
    arguments = retrieval.parse(["--data", str(data), "--max-queries", "2", "--plot", str(plot)])
    rows = retrieval.measure_folder(arguments, cache)
    assert {row["condition"] for row in rows} == {"as is", "duplicates 4", "variants 4"}
    assert len(bars_of(rows)) == 6  # 2 metrics × 3 conditions
    retrieval_plot.draw([*rows, *retrieval.measure_copies(arguments, cache)], plot)
    assert plot.stat().st_size > 0


def rows(name, condition, **values):
    return [
        {
            "set": name,
            "condition": condition,
            "method": method.replace("_", " "),
            "recall@10": value,
            "all_gold@10": value,
        }
        for method, value in values.items()
    ]


def judged(found):
    return {record["name"]: (record["value"], record["bar"], record["pass"]) for record in found}


def test_as_is_each_set_may_lose_a_point_but_not_the_mean():
    found = bars_of(
        rows("squad", "as is", nn=0.9, sift=0.891) + rows("musique", "as is", nn=0.6, sift=0.589)
    )
    assert judged(found)["squad, as is: recall@10 in points against nn"] == (89.1, 89.0, True)
    assert judged(found)["musique, as is: recall@10 in points against nn"] == (58.9, 59.0, False)
    mean = judged(found)["mean of 2 sets, as is: all_gold@10 in points against nn"]
    assert mean == (pytest.approx(74.0), pytest.approx(75.0), False)


def test_redundant_is_held_against_the_best_mmr_or_dpp_and_not_against_the_others():
    values = {"nn": 0.5, "sift": 0.58, "mmr_.7": 0.55, "dpp_a=8": 0.585, "ssd_.3": 0.7}
    found = judged(bars_of(rows("musique", "duplicates 4", **values)))
    case = "musique, duplicates 4: recall@10 in points against"
    assert found[f"{case} dpp a=8"] == (58.0, 58.0, True)
    assert found[f"{case} nn"] == (58.0, 58.0, True)
    assert len(found) == 3  # all_gold@10 is not held against nn


def pool_of(similarities, rows):
    rows = np.array(rows, dtype=np.float32)
    similarities = np.array(similarities, dtype=np.float32)
    return Pool(
        query=rows[0], embeddings=rows, similarities=similarities, rows=np.arange(len(rows))
    )


@pytest.mark.parametrize("a", [0, 4, 8])
def test_dpp_equals_the_greedy_by_determinants(a):
    rows = np.random.default_rng(a).standard_normal((61, 16), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    pool = next(pools(rows[:1], rows[1:]))
    weights = np.exp(a * pool.similarities.astype(np.float64))
    rows = pool.embeddings.astype(np.float64)
    matrix = weights[:, None] * (rows @ rows.T) * weights
    chosen = []
    for _ in range(10):
        free = [i for i in range(len(rows)) if i not in chosen]
        determinants = [np.linalg.det(matrix[np.ix_([*chosen, i], [*chosen, i])]) for i in free]
        chosen.append(free[int(np.argmax(determinants))])
    assert dpp(pool, 10, sharpness=a).tolist() == chosen


def test_dpp_ends_where_only_copies_are_left():
    one = pool_of([0.9, 0.9, 0.1], [[1, 0], [1, 0], [0, 1]])
    assert dpp(one, 3, sharpness=4).tolist() == [0, 2]
