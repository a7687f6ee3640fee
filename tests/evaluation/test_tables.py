from __future__ import annotations

import json
import math
import re

import pytest

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis import ablation_tables, tables
from sift_core.evaluation.analysis.rows import Results
from sift_core.evaluation.analysis.table import Cell, Table, count, difference, word
from sift_core.evaluation.language_modeling.arms import BASE, learning, reading
from sift_core.evaluation.statistics import Estimate
from tests.evaluation.synthetic import (
    cell,
    prompt,
    results_of_percents,
    row,
    rows_of_percents,
    shown,
)

SIFT = learning("SIFT", 0.1)
NN, NN_F, US, HULL = (learning("NN"), learning("NN-F"), learning("US", 0.1), learning("HullFT"))
OTHER = learning("other prompt", 0.1)
BOOKS = [prompt("b1"), prompt("b2", n_bytes=300), prompt("b3")]
CODE = [prompt("c1", "code"), prompt("c2", "code")]


def main_results():
    return results_of_percents(
        BOOKS + CODE,
        {
            US: [98, 98, 98, 90, 90],
            NN: [90, 92, 94, 80, 80],
            NN_F: [120, 130, 110, 99, 99],
            SIFT: [91, 92, 93, 60, 70],
            HULL: [95, 96, 97, 79, 83],
            OTHER: [50, 50, 50, 50, 50],
        },
    )


def test_a_cell_of_the_main_table_is_a_mean_with_its_standard_error():
    table = tables.main_table(main_results())
    assert table.heads == (
        *("", "n", "base", "US", "NN", "NN-F", "HullFT", "SIFT(0.1)", "other prompt", "Δ"),
    )
    # 90, 92, 94: mean 92, SE = 2 / sqrt(3) = 1.15.
    assert shown(table, "books", "NN") == "92.0 (1.2)"
    assert cell(table, "books", "NN").standard_error == pytest.approx(2 / math.sqrt(3))
    assert shown(table, "books", "n") == "3"
    assert cell(table, "All", "NN").value == pytest.approx((90 + 92 + 94 + 80 + 80) / 5)


def test_what_diverged_is_told_below_the_table():
    rows = rows_of_percents(BOOKS, {NN: [90, 91, 92], SIFT: [100, 95, 100]})
    assert "Diverged" not in tables.main_table(Results.from_rows(rows)).note
    for one in rows:
        if one["arm"]["selector"] == "SIFT" and one["prompt"]["id"] != "b2":
            one["report"] = {"stop_reason": "diverged", "n_refused": 0}
    results = Results.from_rows(rows)
    told = "Diverged, so that the base model's 100 % stands for it: SIFT(0.1), all, rate 0.0005: 2"
    assert f"{told} of 3." in tables.main_table(results).note


@pytest.mark.parametrize("form", ["as_text", "as_markdown", "as_html"])
def test_a_domain_s_name_stays_on_its_line_and_gives_a_terminal_no_orders(form):
    of = prompt("p", "two\nlines\t\x1b[31mred\x1b[0m\u202e\r")
    text = getattr(tables.main_table(results_of_percents([of], {NN: [90.0], SIFT: [80.0]})), form)()
    assert "two lines [31mred[0m" in text
    assert not set("\x1b\t\r\u202e") & set(text)


def test_delta_is_sift_minus_the_strongest_baseline_and_sorts_the_domains():
    table = tables.main_table(main_results())
    # code: SIFT 65; of the baselines NN has 80 and HullFT 81. The control does not count.
    assert cell(table, "code", "Δ").value == pytest.approx(65 - 80)
    assert cell(table, "code", "Δ").low == pytest.approx(-20)  # the pairs differ by -20 and -10
    assert shown(table, "code", "Δ") == "-15.0 [-20.0, -10.0]"
    assert cell(table, "books", "Δ").value == pytest.approx(0)
    assert [cells[0].text for cells in table.rows] == ["code", "books", "All"]


def test_bold_is_what_is_not_worse_than_the_best_on_the_same_prompts():
    columns = {
        SIFT: [50.0, 60.0, 70.0, 80.0, 90.0],
        NN: [51.0, 59.0, 71.0, 79.0, 90.5],  # now better, now worse
        US: [50.5, 60.6, 70.4, 80.5, 90.6],  # always a little worse
        HULL: [70.0, 70.0, 80.0, 90.0, 99.0],
    }
    prompts = [prompt(f"p{i}") for i in range(5)]
    table = tables.main_table(results_of_percents(prompts, columns))
    bold = [head for head, c in zip(table.heads, table.rows[-1], strict=True) if c.is_bold]
    assert bold == ["NN", "SIFT(0.1)"]


def test_base_is_pooled_over_bytes():
    rows = [row(BOOKS[0], BASE, 1.0), row(BOOKS[1], BASE, 2.0)]
    rows += [row(BOOKS[0], NN, [1.0, 1.0]), row(BOOKS[1], NN, [2.0, 2.0])]
    results = Results.from_rows(rows)
    # (100 · 1 + 300 · 2) / 400
    assert tables.pooled_bits_per_byte(results) == pytest.approx(1.75)
    assert shown(tables.main_table(results), "books", "base") == "1.750"


def test_a_line_compares_the_prompts_that_all_its_columns_have():
    results = results_of_percents(
        BOOKS + CODE, {NN: [90, 92, 94, 80, 80], SIFT: [91, None, 93, None, None]}
    )
    table = tables.main_table(results)
    assert shown(table, "books", "n") == "2"
    assert cell(table, "books", "NN").value == pytest.approx(92)
    assert shown(table, "code", "SIFT(0.1)") == "–"
    assert shown(table, "code", "Δ") == "–"
    assert shown(table, "code", "NN").startswith("80.0")
    assert shown(table, "All", "n") == "2"


def test_one_prompt_has_no_error_and_the_best_alone_is_bold():
    table = tables.main_table(results_of_percents([BOOKS[0]], {NN: [90], SIFT: [89]}))
    assert shown(table, "books", "NN") == "90.0 (–)"
    assert shown(table, "books", "Δ") == "-1.0 [–]"
    assert [c.is_bold for c in table.rows[0]].count(True) == 1
    assert cell(table, "books", "NN").standard_error is None


def test_near_duplicates_can_be_left_out_or_alone_shown():
    prompts = [prompt("a", near_duplicate=0.9), prompt("b", near_duplicate=0.1), prompt("c")]
    results = results_of_percents(prompts, {NN: [40, 90, 70], SIFT: [30, 88, 70]})
    without = tables.main_table(results, near_duplicates="without")
    assert shown(without, "All", "NN") == "90.0 (–)"
    assert "below 0.3" in without.title
    only = tables.main_table(results, near_duplicates="only", near_duplicate_share=0.5)
    assert shown(only, "All", "NN") == "40.0 (–)"
    with pytest.raises(InvalidInputError, match="near_duplicates"):
        tables.main_table(results, near_duplicates="none")


def test_small_domains_can_be_left_out_but_count_in_all():
    table = tables.main_table(main_results(), min_prompts=3)
    assert [cells[0].text for cells in table.rows] == ["books", "All"]
    assert shown(table, "All", "n") == "5"


def test_the_noise_variances_shown_can_be_chosen():
    columns = {learning("SIFT", value): [90.0, 80.0] for value in (0.001, 0.01, 0.1, 10.0)}
    results = results_of_percents(BOOKS[:2], {NN: [95.0, 95.0], **columns})
    assert tables.main_table(results).heads[3:] == ("NN", "SIFT(0.001)", "Δ")  # measured first
    both = tables.main_table(results, noise_variances=[0.1, 10.0])
    assert both.heads[4:6] == ("SIFT(0.1)", "SIFT(10)")
    with pytest.raises(InvalidInputError, match=r"\[5.0\].*'noise_variance'"):
        tables.main_table(results, noise_variances=[5.0])


def test_two_arms_of_one_selector_have_columns_of_their_own():
    columns = {US: [90.0], learning("US", 1.0): [80.0], SIFT: [70.0]}
    table = tables.main_table(results_of_percents(BOOKS[:1], columns))
    assert [shown(table, "All", head)[:4] for head in ("US(0.1)", "US(1)")] == ["90.0", "80.0"]
    assert cell(table, "All", "Δ").value == pytest.approx(-10)


def test_arms_with_other_settings_are_not_in_the_main_table():
    columns = {NN: [90.0], SIFT: [80.0], learning("SIFT", 0.1, learning_rate=1e-3): [10.0]}
    table = tables.main_table(results_of_percents(BOOKS[:1], columns))
    assert shown(table, "All", "SIFT(0.1)") == "80.0 (–)"


def test_the_table_of_noise_variances_takes_the_best_of_each_line():
    columns = {
        learning("SIFT", 1.0): [80.0, 90.0, 70.0, 50.0, 50.0],
        learning("SIFT", 0.01): [70.0, 80.0, 60.0, 60.0, 60.0],
        NN: [75.0, 85.0, 65.0, 70.0, 72.0],
        NN_F: [99.0] * 5,
        US: [10.0] * 5,
    }
    table = tables.noise_variance_table(results_of_percents(BOOKS + CODE, columns))
    assert table.heads == ("", "n", "base", "0.01", "1", "NN", "NN-F", "Δ")
    assert cell(table, "books", "Δ").value == pytest.approx(-5)
    assert cell(table, "code", "Δ").value == pytest.approx(-21)
    with pytest.raises(InvalidInputError, match=r"at least 2, got 1.*'noise_variance'"):
        tables.noise_variance_table(main_results())


def test_context_against_fine_tuning_by_hand():
    both = learning("SIFT", 0.1, mode="both")
    columns = {
        reading("SIFT", 0.1): [96.0, 98.0, 97.0],
        reading("NN"): [1.0, 1.0, 1.0],
        reading("US", 0.1, n_candidates=20): [2.0, 2.0, 2.0],
        SIFT: [90.0, 95.0, 94.0],
        NN: [91.0, 91.0, 91.0],
        both: [88.0, 89.0, None],
    }
    table = tables.context_table(results_of_percents(BOOKS, columns))
    assert table.heads == ("", "n", "base", "context", "fine_tune", "both", "context NN", "Δ")
    assert shown(table, "books", "n") == "2"
    assert cell(table, "books", "context").value == pytest.approx(97)
    assert cell(table, "books", "both").value == pytest.approx(88.5)
    assert cell(table, "books", "Δ").value == pytest.approx((-6 - 3) / 2)
    with pytest.raises(InvalidInputError, match=r"beside fine-tuning.*'context'"):
        tables.context_table(main_results())


def test_context_alone_leaves_a_dash_for_both():
    columns = {reading("SIFT", 0.1): [96.0, 98.0, 97.0], SIFT: [90.0, 95.0, 94.0]}
    table = tables.context_table(results_of_percents(BOOKS, columns))
    assert shown(table, "All", "both") == "–"


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (tables.main_table, "main"),
        (tables.context_table, "main"),
        (tables.noise_variance_table, "main"),
        (ablation_tables.steps_table, "main"),
        (ablation_tables.unique_table, "main"),
        (ablation_tables.order_table, "order"),
        (ablation_tables.scope_table, "scope"),
        (ablation_tables.batch_table, "batch"),
        (ablation_tables.learning_rate_table, "learning_rate"),
        (ablation_tables.normalized_table, "normalized"),
        (ablation_tables.candidates_table, "candidates"),
    ],
)
def test_without_fine_tuning_the_part_that_measures_it_is_named(make, part):
    results = results_of_percents(BOOKS, {reading("NN"): [90, 90, 90]})
    with pytest.raises(InvalidInputError, match=f"base, context NN. The part '{part}'"):
        make(results)


def test_no_common_prompt_is_an_error_of_ours():
    results = results_of_percents(BOOKS[:2], {NN: [90, None], SIFT: [None, 90]})
    for make in (tables.main_table, ablation_tables.steps_table):
        with pytest.raises(InvalidInputError, match="no prompt was measured under all of"):
            make(results)


def test_learning_rates_stand_in_order_one_line_a_selector_and_scope():
    columns = {
        learning("NN", learning_rate=1e-3): [80.0, 82.0, 99.0],
        NN: [90.0, 92.0, 94.0],
        learning("NN", learning_rate=5e-5): [95.0, 96.0, None],
        learning("NN", scope="full", learning_rate=5e-5): [85.0, 86.0, 87.0],
        learning("NN", scope="full"): [70.0, 71.0, 72.0],
        SIFT: [90.0, 91.0, 92.0],
    }
    table = ablation_tables.learning_rate_table(results_of_percents(BOOKS, columns))
    assert table.heads == ("", "n", "5e-05", "0.0005", "0.001")
    assert [cells[0].text for cells in table.rows] == ["NN, scope all", "NN, scope full"]
    assert shown(table, "NN, scope all", "n") == "2"
    assert cell(table, "NN, scope all", "0.001").value == pytest.approx(81)
    assert cell(table, "NN, scope all", "0.001").is_bold
    assert shown(table, "NN, scope full", "0.001") == "–"
    assert cell(table, "NN, scope full", "5e-05").value == pytest.approx(86)


@pytest.mark.parametrize(
    ("make", "changed", "heads"),
    [
        (ablation_tables.order_table, {"order": "reversed"}, ("chosen", "reversed")),
        (ablation_tables.batch_table, {"chunks_per_step": 5}, ("1", "5")),
        (ablation_tables.normalized_table, {"is_normalized": False}, ("no", "yes")),
        (ablation_tables.candidates_table, {"n_candidates": 20}, ("20", "200")),
        (ablation_tables.learning_rate_table, {"learning_rate": 1e-3}, ("0.0005", "0.001")),
    ],
)
def test_two_values_have_their_paired_difference(make, changed, heads):
    columns = {SIFT: [90.0, 80.0, 70.0], learning("SIFT", 0.1, **changed): [92.0, 83.0, 71.0]}
    table = make(results_of_percents(BOOKS, columns))
    assert table.heads == ("", "n", *heads, "Δ")
    ascending = heads[0] in ("chosen", "1", "0.0005")
    assert cell(table, "SIFT(0.1)", "Δ").value == pytest.approx(2 if ascending else -2)


def test_an_ablation_by_domain():
    columns = {
        SIFT: [90.0, 80.0, 70.0, 50.0, 40.0],
        learning("SIFT", 0.1, order="reversed"): [92.0, 83.0, 71.0, 49.0, 39.0],
    }
    table = ablation_tables.order_table(results_of_percents(BOOKS + CODE, columns), by_domain=True)
    assert [cells[0].text for cells in table.rows] == ["SIFT(0.1)", "  books", "  code"]
    assert cell(table, "code", "Δ").value == pytest.approx(-1)
    assert shown(table, "code", "n") == "2"


def test_each_scope_has_its_best_learning_rate():
    columns = {
        SIFT: [90.0, 80.0],
        learning("SIFT", 0.1, learning_rate=1e-3): [88.0, 79.0],
        learning("SIFT", 0.1, scope="full", learning_rate=5e-5): [70.0, 71.0],
        learning("SIFT", 0.1, scope="head"): [95.0, 95.0],
    }
    table = ablation_tables.scope_table(results_of_percents(BOOKS[:2], columns))
    assert table.heads == ("", "n", "all", "full", "head")
    assert shown(table, "SIFT(0.1)", "all") == "83.5 (4.5) @0.001 [2]"
    assert cell(table, "SIFT(0.1)", "full").value == pytest.approx(70.5)


def test_steps_by_hand():
    rows = [row(of, BASE, 2.0) for of in BOOKS[:2]]
    rows += [row(of, SIFT, [2.0, 1.6, 1.2], steps=[0, 1, 5]) for of in BOOKS[:2]]
    rows += [row(BOOKS[0], NN, [2.0, 1.9, 1.8], steps=[0, 1, 5])]
    rows += [row(BOOKS[1], NN, [2.0, 1.8], steps=[0, 1])]
    table = ablation_tables.steps_table(Results.from_rows(rows))
    assert [cells[0].text for cells in table.rows] == ["0", "1", "5"]
    assert cell(table, "1", "NN").value == pytest.approx(92.5)
    assert cell(table, "5", "NN").value == pytest.approx(90)  # the second ended at step 1
    assert cell(table, "5", "SIFT(0.1)").value == pytest.approx(60)


def test_gain_by_unique_chunks_by_hand():
    chosen = {"u1": ["x"] * 4, "u2": ["x", "y", "x", "z"], "u3": [f"d{i}" for i in range(30)]}
    prompts = [prompt(name) for name in chosen]
    rows = [row(of, BASE, 2.0) for of in prompts]
    for of, bits in zip(prompts, (1.0, 1.2, 1.5), strict=True):
        rows.append(row(of, SIFT, [2.0, bits], steps=[0, 4], chosen=chosen[of["id"]]))
        rows.append(row(of, NN, [2.0, 1.6], steps=[0, 4], chosen=["x"]))
    table = ablation_tables.unique_table(Results.from_rows(rows))
    assert table.heads == ("unique", "n", "share", "% of NN", "minus NN")
    assert [cells[0].text for cells in table.rows] == ["All", "1", "2–10", "11–25", "> 25"]
    assert cell(table, "1", "% of NN").value == pytest.approx(100 * 1.0 / 1.6)
    assert cell(table, "1", "minus NN").value == pytest.approx(50 - 80)
    assert cell(table, "2–10", "% of NN").value == pytest.approx(75)
    assert shown(table, "11–25", "% of NN") == "–"
    assert shown(table, "> 25", "share") == "0.33"


def test_every_table_fits_a_terminal():
    results = main_results()
    made = [tables.main_table(results), ablation_tables.steps_table(results)]
    made += [ablation_tables.unique_table(results)]
    for table in made:
        assert max(map(len, table.as_text().splitlines())) <= 110


def demo():
    return Table(
        title="A <b> | title",
        heads=("", "a|b", "Δ"),
        rows=(
            (
                word("x & y"),
                Cell(text="1.0 (0.1)", is_bold=True, value=1.0, standard_error=0.1),
                count(1234),
            ),
            (word("z"), Cell(text="22.0 (–)", value=22.0), Cell(text="–")),
        ),
        note="n < 2",
    )


def test_text_is_aligned_with_an_asterisk_for_bold():
    assert demo().as_text() == (
        "A <b> | title\n"
        "\n"
        "             a|b       Δ\n"
        "------------------------\n"
        "x & y  1.0 (0.1)*  1,234\n"
        "z       22.0 (–)       –\n"
        "\n"
        "n < 2\n"
    )


def test_a_letter_with_a_hat_is_one_column_wide():
    table = Table(title="", heads=("", "σ̂_n"), rows=((word("a"), word("1234")),))
    assert table.as_text().splitlines()[2:] == ["    σ̂_n", "-" * 7, "a  1234"]


def test_a_difference_that_rounds_to_nothing_has_no_minus():
    estimate = Estimate(value=-0.01, standard_error=0.1, low=-0.04, high=0.04, n=9)
    assert difference(estimate).text == "+0.0 [+0.0, +0.0]"


def test_text_that_is_too_wide_goes_on_below():
    text = demo().as_text(max_width=18)
    assert text.count("x & y") == 2
    assert max(map(len, text.splitlines())) <= 18


def test_markdown_escapes_bars():
    assert demo().as_markdown() == (
        "**A <b> \\| title**\n"
        "\n"
        "|  | a\\|b | Δ |\n"
        "| :-- | --: | --: |\n"
        "| x & y | **1.0 (0.1)** | 1,234 |\n"
        "| z | 22.0 (–) | – |\n"
        "\n"
        "n < 2\n"
    )


def test_html_is_escaped_and_well_formed():
    from xml.etree import ElementTree

    text = demo().as_html()
    root = ElementTree.fromstring(f"<div>{text}</div>")
    assert root.find("table/caption").text == "A <b> | title"
    assert root.find("table/tbody/tr/th").text == "x & y"
    assert root.find("table/tbody/tr/td/strong").text == "1.0 (0.1)"
    assert root.find("p").text == "n < 2"


def test_records_hold_unrounded_numbers_that_json_can_write():
    records = demo().as_records()
    assert records[0] == {"": "x & y", "a|b": 1.0, "a|b standard error": 0.1, "Δ": 1234}
    assert records[1] == {"": "z", "a|b": 22.0, "Δ": None}
    main = tables.main_table(results_of_percents([BOOKS[0]], {NN: [90], SIFT: [89]}))
    assert "NaN" not in json.dumps(main.as_records())


def test_a_table_with_a_short_row_or_two_equal_heads_is_refused():
    with pytest.raises(InvalidInputError, match="2 cells"):
        Table(title="", heads=("a", "b"), rows=((word("x"),),))
    with pytest.raises(InvalidInputError, match="must differ"):
        Table(title="", heads=("a", "a"), rows=())


def test_the_same_rows_give_the_same_table_in_any_order():
    rows = rows_of_percents(BOOKS, {NN: [90, 92, 94], SIFT: [80, 81, 85]})
    text = tables.main_table(Results.from_rows(rows)).as_text()
    arms_shuffled = rows[:3] + rows[6:] + rows[3:6]
    assert tables.main_table(Results.from_rows(arms_shuffled)).as_text() == text
    assert re.search(r"books +3 +2\.000", text)
