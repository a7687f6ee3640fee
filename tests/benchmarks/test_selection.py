import numpy as np
import pytest

from benchmarks import selection_gpu
from benchmarks.bars import load_bars
from benchmarks.report import Report
from benchmarks.selection_data import LEVELS, fetch_all, indexed
from benchmarks.selection_rivals import algorithm_1
from sift_core import SIFTSelector


@pytest.mark.parametrize("kind", LEVELS)
def test_the_oracle_chooses_what_the_selector_chooses(kind):
    index, points = indexed(kind, 500, 32, 3)
    for problem in fetch_all(index, points, 60):
        ours = SIFTSelector.for_fine_tuning().select(problem.query, problem.pool, 20)
        assert ours.positions.tolist() == algorithm_1(problem.query, problem.pool, 20)


def test_the_oracle_by_hand():
    # Looks at e1 leave its variance at 1/101, 1/201, ...; none informs about e2, where the
    # query has its smaller part: .8²·(1/101)²/(1/101 + .01) = .0032 < .36/1.01.
    basis = np.eye(2)
    assert algorithm_1(np.array([0.8, 0.6]), basis, 2) == [0, 1]
    assert algorithm_1(np.array([1.0, 0.0]), basis, 3) == [0, 0, 0]


def test_without_a_gpu_the_report_says_so(capsys, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    report = Report(bar_numbers=load_bars("selection"))
    selection_gpu.measure(report)
    assert report.bars == []
    assert "skipped" in report.rows[0]
    assert "skipped" in capsys.readouterr().out


def test_positions_of_a_batch_are_compared_in_whatever_form_they_come():
    torch = pytest.importorskip("torch")
    queries, candidates = selection_gpu.problems(torch, "cpu", n_queries=3, d=16, n_candidates=20)
    selector = SIFTSelector.for_fine_tuning()
    found = [
        selector.select(query.numpy(), rows.numpy(), 5)
        for query, rows in zip(queries, candidates, strict=True)
    ]
    assert selection_gpu.same_as_cpu(found, queries, candidates, 5) == 3
    positions = torch.tensor(np.stack([one.positions for one in found]))
    assert selection_gpu.same_as_cpu(positions, queries, candidates, 5) == 3
    positions[1, 0] += 1
    assert selection_gpu.same_as_cpu(positions, queries, candidates, 5) == 2
