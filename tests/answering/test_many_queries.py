"""Several queries' adapters learned in common passes are those learned one after another."""

import math

import pytest
import torch

from sift_core import InvalidInputError
from sift_core.answering import FineTuningSettings, adapt_many, fine_tune
from sift_core.answering.many_queries import _Batch

FAST = FineTuningSettings(rank=8, learning_rate=1e-2)
QUERIES = [
    ["the cat sat on the mat", "a cow ate hay"],
    ["the dog", "sat on the log", "abcdefgh" * 20],  # the last takes three windows
    [],
    ["one text alone"],
]


@pytest.mark.parametrize("shape", ["llama, tied head", "gpt2", "gpt-neox"])
def test_each_query_learns_what_it_learns_alone(make_random_lm, shape):
    together = adapt_many(make_random_lm(shape), QUERIES, FAST)
    lm = make_random_lm(shape)
    for chunks, tuned in zip(QUERIES, together, strict=True):
        alone = fine_tune(lm, chunks, FAST)
        assert tuned.losses == pytest.approx(alone.losses, abs=1e-5)
        assert tuned.report.learned == alone.report.learned
        with lm.adapted(alone.adapter):
            expected = lm.bits_per_byte("the cat ate the log")
        with lm.adapted(tuned.adapter):
            assert lm.bits_per_byte("the cat ate the log") == pytest.approx(expected, abs=1e-5)
    assert len({tuned.adapter.key for tuned in together}) == len(QUERIES)


def test_as_the_first_thing_a_model_does_it_leaves_the_fast_paths_open(make_random_lm):
    lm = make_random_lm()
    adapt_many(lm, QUERIES, FAST)
    assert lm.can_checkpoint


@pytest.mark.parametrize("rows", [1, 2])
def test_fewer_queries_a_pass_give_the_same(make_random_lm, rows):
    lm = make_random_lm()
    few = FineTuningSettings(rank=8, learning_rate=1e-2, rows_per_pass=rows)
    for one, other in zip(adapt_many(lm, QUERIES, FAST), adapt_many(lm, QUERIES, few), strict=True):
        assert one.losses == pytest.approx(other.losses, abs=1e-5)


def test_running_out_of_memory_halves_the_queries_of_a_pass(make_random_lm, monkeypatch):
    original, sizes = _Batch._pass, []

    def fail_above_one(batch, queries, rows):
        sizes.append(len(queries))
        if len(queries) > 1:
            raise torch.OutOfMemoryError("out of memory")
        return original(batch, queries, rows)

    monkeypatch.setattr(_Batch, "_pass", fail_above_one)
    lm = make_random_lm()
    tuned = adapt_many(lm, QUERIES[:2], FAST)
    assert sizes[:3] == [2, 1, 1]
    assert tuned[0].losses == pytest.approx(fine_tune(lm, QUERIES[0], FAST).losses, abs=1e-5)
    assert tuned[0].report.rows_per_pass == 1


def test_a_query_that_is_refused_a_step_does_not_disturb_the_others(make_random_lm, monkeypatch):
    original = _Batch._pass

    def first_is_not_finite(batch, queries, rows):
        losses = original(batch, queries, rows)
        return [
            math.nan if query.row == 0 else loss
            for query, loss in zip(queries, losses, strict=True)
        ]

    lm = make_random_lm()
    expected = fine_tune(lm, QUERIES[1], FAST)
    monkeypatch.setattr(_Batch, "_pass", first_is_not_finite)
    refused, other = adapt_many(lm, QUERIES[:2], FAST)
    assert (refused.report.n_refused, refused.report.n_steps) == (2, 0)
    assert other.losses == pytest.approx(expected.losses, abs=1e-5)


def test_no_query_at_all_gives_no_adapter(make_random_lm):
    assert adapt_many(make_random_lm(), []) == []


def test_other_scopes_are_refused(make_random_lm):
    with pytest.raises(InvalidInputError, match='"all" for several queries'):
        adapt_many(make_random_lm(), QUERIES, FineTuningSettings(scope="head"))
