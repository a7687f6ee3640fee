"""Tables of pages keep their columns in Markdown."""

import pytest

from sift_core.documents.html import markdown_of_html

HEAD = "<tr><th>Name</th><th>Year</th></tr>"
TABLES = {
    "a cell over rows": (
        HEAD + "<tr><td rowspan=2>Ada</td><td>1815</td></tr><tr><td>1852</td></tr>",
        "| Name | Year |\n| --- | --- |\n| Ada | 1815 |\n| Ada | 1852 |",
    ),
    "a last cell over rows": (
        HEAD + "<tr><td>Ada</td><td rowspan=2>1815</td></tr><tr><td>Zoe</td></tr>",
        "| Name | Year |\n| --- | --- |\n| Ada | 1815 |\n| Zoe | 1815 |",
    ),
    "a long cell over rows": (
        HEAD + f"<tr><td rowspan=2>{'x' * 201}</td><td>1</td></tr><tr><td>2</td></tr>",
        f"| Name | Year |\n| --- | --- |\n| {'x' * 201} | 1 |\n| | 2 |",
    ),
    "a marked header of two rows": (
        "<thead><tr><th>Town</th><th colspan=2>Doses</th></tr><tr><th></th><th>mg</th>"
        "<th>m<sup>2</sup></th></tr></thead><tr><td>Ulm</td><td>1</td><td>2</td></tr>",
        "| Town | Doses mg | Doses m^2 |\n| --- | --- | --- |\n| Ulm | 1 | 2 |",
    ),
    "a header of merged cells": (
        "<tr><td rowspan=2>Town</td><td colspan=2>Doses</td></tr><tr><td>2023</td><td>2024</td>"
        "</tr><tr><td>Ulm</td><td>1</td><td>2</td></tr>",
        "| Town | Doses 2023 | Doses 2024 |\n| --- | --- | --- |\n| Ulm | 1 | 2 |",
    ),
    "a title over all columns": (
        f"<tr><th colspan=2>People</th></tr>{HEAD}<tr><td>Ada</td><td>1815</td></tr>",
        "People\n\n| Name | Year |\n| --- | --- |\n| Ada | 1815 |",
    ),
    "headers alone": (
        HEAD + "<tr><th>Ada</th><th>1815</th></tr><tr><th>Zoe</th><th>1852</th></tr>",
        "| Name | Year |\n| --- | --- |\n| Ada | 1815 |\n| Zoe | 1852 |",
    ),
    "a row without cells": (
        f"<thead><tr></tr>{HEAD}</thead><tr><td>Ada</td><td>1815</td></tr>",
        "| Name | Year |\n| --- | --- |\n| Ada | 1815 |",
    ),
    "a bar": (
        HEAD + "<tr><td>a|b</td><td><code>c|d</code></td></tr>",
        "| Name | Year |\n| --- | --- |\n| a\\|b | `c\\|d` |",
    ),
    "a table in another": (
        f"<tr><td>Left</td><td><table>{HEAD}<tr><td>Ada</td><td>1815</td></tr></table></td></tr>",
        "Left\n\n| Name | Year |\n| --- | --- |\n| Ada | 1815 |",
    ),
}


@pytest.mark.parametrize(("table", "text"), TABLES.values(), ids=TABLES)
def test_a_table_keeps_its_columns(table, text):
    found = markdown_of_html(f"<main><table>{table}</table></main>".encode())
    assert found.replace("|  |", "| |") == text


def test_a_cell_over_many_rows_does_not_become_gigabytes():
    wide = "<tr><td rowspan=1000 colspan=1000>x</td></tr>" + "<tr><td>y</td></tr>" * 900
    assert len(markdown_of_html(f"<main><table>{wide}</table></main>".encode())) < 200_000
