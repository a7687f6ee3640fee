import pytest

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.part_tables import TABLES, results_of_arms, tables_of
from sift_core.evaluation.language_modeling.arms import learning, reading
from sift_core.evaluation.language_modeling.parts import PARTS
from tests.evaluation.synthetic import prompt, results_of_percents, rows_of_percents

SIFT, NN = learning("SIFT", 0.1), learning("NN")
OTHER_RATE = learning("SIFT", 0.1, learning_rate=2e-3)
PROMPTS = [
    prompt(name, near_duplicate=share) for name, share in zip("abcd", (0, 0, 0.5, 1), strict=True)
]
COLUMNS = {SIFT: [80, 81, 90, 91], NN: [84, 86, 95, 96]}


def test_every_part_has_tables():
    assert list(TABLES) == list(PARTS)


def test_prompts_with_and_without_near_duplicates_have_tables_where_that_is_known():
    titles = [
        table.title
        for table in tables_of(results_of_percents(PROMPTS, COLUMNS), ["main"]).all_tables
    ]
    assert sum(title.startswith("Selectors, prompts with") for title in titles) == 2
    unknown = [prompt(name) for name in "abcd"]
    titles = [
        table.title
        for table in tables_of(results_of_percents(unknown, COLUMNS), ["main"]).all_tables
    ]
    assert not any(title.startswith("Selectors, prompts with") for title in titles)


def test_what_has_no_rows_is_told():
    shown = tables_of(results_of_percents(PROMPTS, COLUMNS), ["main", "order"])
    assert list(shown.tables) == ["main"]
    assert shown.not_measured == ["order"]
    assert "differ in order" in shown.missing["order"][0]


def test_a_part_that_is_none_is_refused():
    with pytest.raises(InvalidInputError, match="no part 'sizes'; there are main, context"):
        tables_of(results_of_percents(PROMPTS, COLUMNS), ["sizes"])


def test_only_the_arms_that_were_asked_for_are_kept():
    rows = rows_of_percents(PROMPTS, {**COLUMNS, OTHER_RATE: [1, 1, 1, 1]})
    results = results_of_arms(rows, [NN, OTHER_RATE, reading("NN")])
    assert [arm["mode"] for arm in results.arms] == ["base", "fine_tune", "fine_tune"]
    assert results.percent_of_base(OTHER_RATE)["a"] == pytest.approx(1)
    with pytest.raises(InvalidInputError, match="no row of the arm"):
        results.rows_of(SIFT)
