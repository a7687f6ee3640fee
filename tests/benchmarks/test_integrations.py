import asyncio

import pytest

pytest.importorskip("llama_index.postprocessor.sift")
pytest.importorskip("langchain_sift")

from benchmarks.bars import load_bars
from benchmarks.integrations_engines import (
    N_CHOSEN,
    question,
)
from benchmarks.integrations_load import Effort, at_once, measure, measure_memory, text_of
from benchmarks.report import Report


def test_a_load_counts_texts_of_others_and_missing_answers():
    async def ask(text):
        number = next(i for i in range(4) if question(i) == text)
        if number == 3:
            return []
        owners = [number] * (N_CHOSEN - 1) + [0]  # the last is question 0's
        return [text_of(owner, i) for i, owner in enumerate(owners)]

    found = asyncio.run(at_once(ask, 4))
    assert (found.foreign, found.unanswered) == (2, 1)


@pytest.mark.slow
def test_a_small_load_is_answered_by_every_way_and_judged():
    report = Report(bar_numbers=load_bars("integrations"))
    effort = Effort(rounds=1, n_at_once=3, n_candidates=12, n_memory=2, memory_candidates=12)
    measure(report, effort)
    measure_memory(report, effort)
    ways = {row["method"] for row in report.rows if "foreign" in row}
    assert ways >= {"SIFTReranker", "SIFTRetriever", "SIFTRetriever, async client"}
    wrong = [bar for bar in report.bars if bar["bar"] == 0]
    assert [bar["pass"] for bar in wrong] == [True, True]
