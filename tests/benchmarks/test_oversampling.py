import asyncio
import gzip
import json

import numpy as np
import pytest

from benchmarks import oversampling, oversampling_plot
from benchmarks.oversampling_data import (
    MOST_COPIES,
    RankedSource,
    asked,
    conditions,
    uneven_copies,
)
from benchmarks.oversampling_latency import measure_latency
from benchmarks.oversampling_sizes import (
    MEASURES,
    centred_rank,
    effective_rank,
    participation_ratio,
    separation,
)
from benchmarks.report import Report
from benchmarks.retrieval import read_set
from sift_core import CandidateSource, Query
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.evaluation.redundancy import Versions
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


def test_every_condition_keeps_the_row_of_each_version(questions, cache):
    found = {v.condition: v for v in conditions(questions, cache, n_copies=(2, 3), seed=0)}
    assert list(found) == ["as is", "duplicates 2", "duplicates 3", "uneven", "variants 4"]
    plain = found["as is"].embeddings
    for versions in found.values():
        cosines = np.einsum("nd,nd->n", versions.embeddings, plain[versions.originals])
        assert cosines.min() > 0.5
        assert set(versions.originals) == set(range(len(plain)))


def test_unevenly_many_copies_are_half_alone_and_at_most_so_many():
    plain = Versions(
        condition="as is",
        embeddings=np.eye(4, dtype=np.float32)[np.arange(4000) % 4],
        originals=np.arange(4000),
    )
    counts = np.bincount(uneven_copies(plain, 0).originals)
    assert counts.min() == 1
    assert counts.max() == MOST_COPIES
    for n in (2, 10):  # at least n copies with probability 1/n
        assert np.mean(counts >= n) == pytest.approx(1 / n, abs=0.03)


def test_a_question_is_asked_of_its_exact_ranking(questions, cache):
    versions = next(conditions(questions, cache, n_copies=(), seed=0))
    for i, one in enumerate(asked(questions, versions)):
        assert one.gold == questions.questions[i].gold
        assert (np.diff(one.source.similarities) <= 0).all()
        pool = one.source.fetch(one.query, 5)
        rows = [int(name) for name in pool.document_ids]
        np.testing.assert_array_equal(pool.embeddings, versions.embeddings[rows])
        exact = np.argsort(-(versions.embeddings @ questions.embeddings[i]), kind="stable")
        assert rows == exact[:5].tolist()


def test_a_ranked_source_is_a_source_with_a_record():
    source = RankedSource(
        embeddings=np.eye(3), similarities=np.array([0.9, 0.5, 0.1]), originals=np.array([7, 7, 2])
    )
    assert isinstance(source, CandidateSource)
    query = Query(text="?", embedding=np.ones(3))
    assert source.fetch(query, 2).document_ids == ("7", "7")
    assert asyncio.run(source.afetch(query, 9)).document_ids == ("7", "7", "2")
    assert source.asked == [2, 9]


def test_a_subset_keeps_questions_and_embeddings_together(questions):
    some = oversampling.some_questions(questions, 5, seed=1)
    assert len(some.questions) == len(some.embeddings) == 5
    for question, embedding in zip(some.questions, some.embeddings, strict=True):
        row = questions.questions.index(question)
        np.testing.assert_array_equal(embedding, questions.embeddings[row])
    assert oversampling.some_questions(questions, 99, seed=1) is questions


# Sizes


def test_sizes_by_hand():
    # Two pairs of equal unit rows at right angles: eigenvalues 2, 2, 0, 0.
    rows = np.eye(3)[[0, 0, 1, 1]]
    assert effective_rank(None, rows) == pytest.approx(2)
    assert participation_ratio(None, rows) == pytest.approx(2)
    assert centred_rank(None, rows) == pytest.approx(1)  # ± half their difference
    # Eigenvalues 3, 1: shares .75, .25.
    rows = np.eye(3)[[0, 0, 0, 1]]
    assert participation_ratio(None, rows) == pytest.approx(1 / (0.75**2 + 0.25**2))
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    assert effective_rank(None, rows) == pytest.approx(np.exp(entropy))


def test_sizes_are_the_same_for_more_rows_than_dimensions():
    rows = np.random.default_rng(0).standard_normal((12, 5))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    wide = np.hstack([rows, np.zeros((12, 20))])
    for measure in (effective_rank, participation_ratio, centred_rank):
        assert measure(None, rows) == pytest.approx(measure(None, wide))


def test_separation_by_hand():
    # Helped 1 and 4 against 2, 4: of four pairs 1 < 2, 1 < 4, 4 = 4, 4 > 2: 2.5 / 4.
    sizes = np.array([1.0, 4.0, 2.0, 4.0])
    assert separation(sizes, np.array([True, True, False, False])) == pytest.approx(2.5 / 4)
    assert np.isnan(separation(sizes, np.zeros(4, dtype=bool)))


# Rows and bars


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


def test_fetches_from_a_real_index_are_timed(questions, cache):
    pytest.importorskip("faiss")
    rows = measure_latency(questions, cache, 0)
    assert len(rows) == 6
    assert all(row["ms"] > 0 for row in rows)


@pytest.mark.parametrize(("options", "at_most"), [((), 60), (("--quick",), 10)])
def test_options_have_defaults(options, at_most):
    arguments = oversampling.parse(["--data", "folder", *options])
    assert arguments.max_queries == at_most
    assert oversampling.parse(["--data", "f", *options, "--max-queries", "3"]).max_queries == 3
