from pathlib import Path

import pytest

from benchmarks import language_modeling as benchmark
from benchmarks.bars import load_bars
from benchmarks.report import Report
from sift_core.evaluation.analysis.part_tables import tables_of
from sift_core.evaluation.language_modeling.parts import PARTS, MainSettings
from tests.evaluation.synthetic import prompt, results_of_percents

SETTINGS = MainSettings()
PROMPTS = [prompt("a"), prompt("b"), prompt("c")]
COLUMNS = {
    SETTINGS.learning("SIFT"): [80, 82, 84],
    SETTINGS.learning("NN"): [81, 82, 86],
    SETTINGS.learning("NN-F"): [79, 81, 83],
    SETTINGS.learning("other prompt"): [99, 98, None],
}


def test_a_folder_names_all_three_files():
    arguments = benchmark.parse(["--data", "data"])
    folder = Path("data/minipile")
    assert arguments.train == folder / "train.jsonl.xz"
    assert arguments.test == folder / "test_dev.jsonl.xz"
    assert arguments.near_duplicates == folder / "neardup_test_dev.jsonl"
    assert arguments.source_digits == "89abcdef"  # what examples/tiny_lm was not trained on
    assert arguments.parts == ["main", "context"]


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ([], (10, SETTINGS.n_steps, None)),
        (["--quick"], (1, 10, 25)),
        (["--quick", "--prompts", "3", "--steps", "2"], (3, 2, 25)),
    ],
)
def test_quick_sets_what_was_not_given(options, sizes):
    arguments = benchmark.parse(["--train", "a", "--test", "b", *options])
    assert (arguments.prompts, arguments.steps, arguments.documents) == sizes
    assert benchmark.settings_of(arguments).n_steps == sizes[1]


def test_parts_and_rates_are_lists():
    options = ["--data", "x", "--parts", "all", "--scope-rates", "head=1e-3,top:3=2e-3"]
    arguments = benchmark.parse(options)
    assert arguments.parts == list(PARTS)
    assert benchmark.settings_of(arguments).scope_rates == {"head": 1e-3, "top:3": 2e-3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "pass either --data"),
        (["--data", "x", "--train", "y"], "pass either --data"),
        (["--train", "y"], "go together"),
        (["--data", "x", "--parts", "main,sizes"], "no part 'sizes'"),
        (["--data", "x", "--steps", "0"], "at least 1"),
    ],
)
def test_options_that_do_not_fit_end_the_program(options, message, capsys):
    with pytest.raises(SystemExit):
        benchmark.parse(options)
    assert message in capsys.readouterr().err


def test_differences_are_on_the_prompts_that_both_have():
    rows = benchmark.compare(results_of_percents(PROMPTS, COLUMNS), SETTINGS)
    found = {one["minus"]: (one["value"], one["n_prompts"]) for one in rows}
    assert found == {
        None: (pytest.approx(82), 3),
        "NN-F": (pytest.approx(1), 3),
        "other prompt": (pytest.approx(-17.5), 2),  # (80 - 99 + 82 - 98) / 2
        "NN": (pytest.approx(-1), 3),
    }
    assert all(one["ci"][0] <= one["value"] <= one["ci"][1] for one in rows)


def test_bars_are_held_against_what_was_compared():
    report = Report(bar_numbers=load_bars("language_modeling"))
    rows = benchmark.compare(results_of_percents(PROMPTS, COLUMNS), SETTINGS)
    benchmark.judge_bars(report, rows)
    assert [one["pass"] for one in report.bars] == [True, False, True, True]


def test_without_fine_tuned_rows_there_is_nothing_to_judge():
    results = results_of_percents(PROMPTS, {SETTINGS.reading("SIFT"): [90, 90, 90]})
    assert benchmark.compare(results, SETTINGS) == []


def test_every_line_of_every_table_becomes_a_row():
    shown = tables_of(results_of_percents(PROMPTS, COLUMNS), ["main"])
    rows = benchmark.table_rows(shown)
    assert len(rows) == sum(len(table.rows) for table in shown.all_tables)
    main = next(one for one in rows if one["table"].startswith("Selectors") and one[""] == "All")
    assert main["part"] == "main"
    assert main["n"] == 2  # the control was measured on two of the prompts
