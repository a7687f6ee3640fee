import gzip
import json

import pytest

from benchmarks import oversampling, oversampling_plot
from benchmarks.oversampling_sizes import (
    MEASURES,
)
from benchmarks.report import Report
from benchmarks.retrieval import read_set
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.sources import oversampling as rule
from sift_core.testing import HashingEmbedder

WORDS = "ant bee cat dog elk fox gnu hen ibis jay kite lark mole newt owl pig ray seal toad".split()


@pytest.fixture
def cache(tmp_path):
    return EmbeddingCache(tmp_path / "cache", "hashing-64", HashingEmbedder)


@pytest.fixture
def questions(tmp_path, cache):
    folder = tmp_path / "animals"
    folder.mkdir()
    corpus = [{"id": word, "title": word, "text": f"One {word}. And a pet."} for word in WORDS]
    queries = [{"question": f"Where is the {word}?", "gold": [word]} for word in WORDS]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        with gzip.open(folder / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return read_set(
        folder / "corpus.jsonl.gz", folder / "queries.jsonl.gz", at_most=None, seed=0, cache=cache
    )


# Data


# Sizes


# Rows and bars


@pytest.mark.slow
def test_measures_a_set_in_every_condition_by_every_policy(questions, cache):
    sizes = oversampling.Sizes()
    rows = oversampling.measure_set(questions, cache, quick=True, seed=0, sizes=sizes)
    cases = {(row["condition"], row["policy"], row["n_select"]) for row in rows}
    assert len(cases) == len(rows) == 5 * (3 * 3 + 1)
    assert len(sizes.helped) == 5 * len(WORDS)
    for row in rows:
        assert 0 <= row["all_gold"] <= row["recall"] <= 1
        if row["policy"] == "200":
            assert (row["candidates"], row["fetches"]) == (200, 1)
        assert row["n_queries"] == len(WORDS)
    assert {row["measure"] for row in oversampling.rows_of_sizes(sizes)} == set(MEASURES)


def test_another_rule_holds_inside_its_block_alone():
    before = rule.MORE_FETCHES
    with oversampling.other_rule({"MORE_FETCHES": 9}):
        assert rule.MORE_FETCHES == 9
    assert rule.MORE_FETCHES == before
    for numbers in oversampling.OTHER_RULES.values():
        assert all(hasattr(rule, name) for name in numbers)


def policy_row(condition, policy, recall, name="s", n_select=20, candidates=200.0, fetches=1.0):
    return {
        "part": "policies",
        "set": name,
        "condition": condition,
        "policy": policy,
        "n_select": n_select,
        "recall": recall,
        "all_gold": recall,
        "candidates": candidates,
        "fetches": fetches,
        "count_ms": 1.0,
        "select_ms": 1.0,
    }


def test_bars_compare_means_over_the_sets(capsys):
    numbers = {
        "over_few": 0.0,
        "over_many": -0.5,
        "redundant_over_few": 3.0,
        "redundant_candidates": 1500,
        "fetches_as_is": 1.02,
    }
    rows = [
        policy_row(condition, policy, recall + shift, name)
        for name, shift in (("s", 0.1), ("t", -0.1))
        for condition, recalls in (
            ("as is", {"200": 0.7, "1000": 0.71, "adaptive": 0.7}),
            ("duplicates 32", {"200": 0.6, "1000": 0.7, "adaptive": 0.64}),
        )
        for policy, recall in recalls.items()
    ]
    report = Report(bar_numbers=numbers, rows=rows)
    oversampling.judge(report)
    passed = {bar["name"]: (round(bar["value"], 6), bar["pass"]) for bar in report.bars}
    assert passed == {
        "as is, 20 chosen: points of recall over 200": (0.0, True),
        "as is, 20 chosen: points of recall over 1000": (-1.0, False),
        "as is, 20 chosen: fetches": (1.0, True),
        "duplicates 32, 20 chosen: points of recall over 200": (4.0, True),
        "duplicates 32, 20 chosen: points of recall over 1000": (-6.0, False),
        "duplicates 32, 20 chosen: candidates": (200.0, True),
    }
    assert len(report.bars) == 7  # the gain with 32 copies is held against two bars


def test_the_plot_has_a_line_a_policy(tmp_path):
    rows = [
        policy_row(condition, policy, recall, name)
        for condition, recall in (("duplicates 8", 0.5), ("as is", 0.75), ("uneven", 0.1))
        for policy in ("200", "adaptive")
        for name in ("s", "t")
    ]
    assert oversampling_plot.curve(rows[:8], "recall") == ([1, 8], [75.0, 50.0])
    path = tmp_path / "plots" / "plot.png"
    oversampling_plot.draw(rows, path)
    assert path.stat().st_size > 0
