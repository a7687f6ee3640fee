import pytest

from benchmarks import oversampling, oversampling_plot
from benchmarks.bars import load_bars
from benchmarks.oversampling_sizes import MEASURES
from benchmarks.report import Report
from benchmarks.retrieval import parse, read_sets


@pytest.mark.slow
def test_a_set_is_measured_in_every_condition_by_every_policy_judged_and_drawn(data, cache):
    (questions,) = read_sets(parse(["--data", str(data)]), cache)
    n_questions = len(questions.questions)
    sizes = oversampling.Sizes()
    rows = oversampling.measure_set(questions, cache, quick=True, seed=0, sizes=sizes)
    cases = {(row["condition"], row["policy"], row["n_select"]) for row in rows}
    assert len(cases) == len(rows) == 5 * (3 * 3 + 1)
    for row in rows:
        assert 0 <= row["all_gold"] <= row["recall"] <= 1
        if row["policy"] == "200":
            assert (row["candidates"], row["fetches"]) == (200, 1)
        assert row["n_queries"] == n_questions
    assert len(sizes.helped) == 5 * n_questions
    assert {row["measure"] for row in oversampling.rows_of_sizes(sizes)} == set(MEASURES)
    report = Report(bar_numbers=load_bars("oversampling"), rows=rows)
    oversampling.judge(report)
    assert report.bars
    oversampling_plot.draw(rows, data / "plot.png")
    assert (data / "plot.png").stat().st_size > 0
