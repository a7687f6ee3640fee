"""Workbooks: each sheet has its name and its tables, with values as they are shown."""

import datetime
from io import BytesIO

import openpyxl
import pytest
import xlsxwriter
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont

from sift_core.documents import Chunker, read_files
from sift_core.documents.office.number_formats import as_shown
from sift_core.documents.office.sheets import markdown_of_xlsx


def saved(book):
    file = BytesIO()
    book.save(file)
    return file.getvalue()


def read(*rows, change=lambda book, sheet: None):
    """Return the text of a workbook with these rows in its only sheet, without the sheet's name."""
    book = openpyxl.Workbook()
    book.active.title = "Doses"
    for row in rows:
        book.active.append(row)
    change(book, book.active)
    text = markdown_of_xlsx(saved(book))
    assert text.startswith("## Doses\n\n")
    return text.removeprefix("## Doses\n\n")


HEAD = ("Name", "Dose")
TOP = "| Name | Dose |\n| --- | --- |"


def test_values_stand_as_they_are_shown():
    noon = datetime.datetime(2024, 3, 1, 12)
    values = [
        1.5,
        10,
        True,
        datetime.date(2024, 3, 1),
        noon,
        datetime.time(9, 30),
        datetime.timedelta(hours=30, minutes=5),
        "a|b\nc",
        0.1 + 0.2,
    ]
    assert read(range(len(values)), values).splitlines()[-1] == (
        "| 1.5 | 10 | TRUE | 2024-03-01 | 2024-03-01 12:00 | 09:30:00 | 30:05:00 | a\\|b c | 0.3 |"
    )


FORMATS = [
    (0.25, "0%", "25%"),
    (0.256, "0.0%", "25.6%"),
    (1234.5, "#,##0.00", "1,234.50"),
    (1234.5, "#,##0.00 €", "1,234.50 €"),
    (1234.5, '"$"#,##0', "$1,235"),
    (1234.5, "[$€-407] #,##0.00", "€ 1,234.50"),
    (-3, "#,##0;(#,##0)", "(3)"),
    (-3, "#,##0.0", "-3.0"),
    (0, '0;-0;"none"', "none"),
    (300_000, "0.00E+00", "3.00E+05"),
    (1_500_000, '0.0,,"M"', "1.5M"),
    (7, "000", "007"),
    (2.5, "0.##", "2.5"),
    (2, "0.##", "2"),
    (3, "General", "3"),
    (1e20, "General", "1e+20"),
    (0.5, "# ?/?", "0.5"),
    (5, "@", "5"),
    (12, '0 "mg"', "12 mg"),
    (1.005, "0.00", "1.01"),
    (-0.5, "[Red]0.0", "-0.5"),
    (5, ";;;", "5"),
    (1e300, "0.00", "1e+300"),
    (0, '#,##0.00 "€";-#,##0.00 "€";"-"?? "€"', "- €"),
    (0, "#,##0", "0"),
]


@pytest.mark.parametrize(("value", "format", "text"), FORMATS)
def test_a_number_is_written_by_its_format(value, format, text):
    assert as_shown(value, format) == text


def write_rich(book, sheet):
    power = TextBlock(InlineFont(vertAlign="superscript"), "6")
    sheet["B2"] = CellRichText("10", power, " cells")


def test_superscripts_stay_apart_in_a_cell():
    assert read(HEAD, ("a", ""), change=write_rich) == f"{TOP}\n| a | 10^6 cells |"
    file = BytesIO()  # Excel and XlsxWriter keep texts in a table of their own
    with xlsxwriter.Workbook(file) as book:
        raised = book.add_format({"font_script": 1})
        lowered = book.add_format({"font_script": 2})
        sheet = book.add_worksheet("Doses")
        sheet.write_row("A1", HEAD)
        sheet.write_rich_string("A2", "H", lowered, "2", "O")
        sheet.write_rich_string("B2", "10", raised, "6", " cells")
    assert markdown_of_xlsx(file.getvalue()).endswith("| H2O | 10^6 cells |")


def test_escaped_control_characters_leave_no_letters():
    file = BytesIO()
    with xlsxwriter.Workbook(file) as book:
        sheet = book.add_worksheet("Doses")
        sheet.write_row("A1", HEAD)
        sheet.write_row("A2", ["one\r\ntwo\x0bthree\ufffe", "_x0041_"])
    assert markdown_of_xlsx(file.getvalue()).endswith("| one two three | _x0041_ |")


def test_a_formula_has_its_last_result():
    file = BytesIO()
    with xlsxwriter.Workbook(file) as book:
        sheet = book.add_worksheet("Doses")
        sheet.write_row("A1", HEAD)
        sheet.write_row("A2", ["a", 2])
        sheet.write_formula("B3", "=B2*2", None, 4)
    assert markdown_of_xlsx(file.getvalue()).endswith("| a | 2 |\n|  | 4 |")


def test_tables_of_a_sheet_have_headers_of_their_own():
    found = read(
        ("Doses of 2024",), HEAD, ("a", 1), (), ("b", 2), (), (), ("Town", "People"), ("Ulm", 3)
    )
    assert found == (
        f"Doses of 2024\n\n{TOP}\n| a | 1 |\n| b | 2 |\n\n"
        "| Town | People |\n| --- | --- |\n| Ulm | 3 |"
    )


def test_a_cell_merged_over_rows_stands_in_each():
    def merge(book, sheet):
        sheet.merge_cells("A2:A3")
        sheet.merge_cells("A4:B4")

    found = read(HEAD, ("a", 1), (None, 2), ("b",), change=merge)
    assert found == f"{TOP}\n| a | 1 |\n| a | 2 |\n| b |  |"


HEADERS = {
    "a corner over rows": ("A1:A2", ("Town", "2023", None, "2024"), (None, 1, 2, 1, 2)),
    "an empty corner": ("F1:G1", (None, "2023", None, "2024"), ("Town", "1", "2", "1", "2")),
}


@pytest.mark.parametrize(("merged", "first", "second"), HEADERS.values(), ids=HEADERS)
def test_a_header_of_two_rows_becomes_one(merged, first, second):
    def merge(book, sheet):
        for cells in ("B1:C1", "D1:E1", merged):
            sheet.merge_cells(cells)

    assert read(first, second, ("Ulm", 5, 6, 7, 8), change=merge) == (
        "| Town | 2023 1 | 2023 2 | 2024 1 | 2024 2 |\n"
        "| --- | --- | --- | --- | --- |\n| Ulm | 5 | 6 | 7 | 8 |"
    )


def test_a_row_below_a_merged_header_that_names_no_column_stays_a_row():
    def merge(book, sheet):
        sheet.merge_cells("B1:C1")

    for row in (("Ulm", 1, 2), ("Ulm", "one", "two")):
        found = read(("Town", "Doses"), row, ("Bonn", 3, 4), change=merge)
        assert found.startswith("| Town | Doses |  |\n| --- | --- | --- |\n| Ulm |")
    found = read((None, "Doses", None, "Age"), ("Ulm", 1, 2, 3), ("Bonn", 3, 4, 5), change=merge)
    assert found.endswith("| --- | --- | --- | --- |\n| Ulm | 1 | 2 | 3 |\n| Bonn | 3 | 4 | 5 |")


def test_hidden_sheets_comments_and_charts_are_left_out():
    def hide(book, sheet):
        book.create_sheet("Secret").append(["secret"])
        book["Secret"].sheet_state = "hidden"
        book.create_sheet("Empty")
        chart = openpyxl.chart.BarChart()
        chart.add_data(openpyxl.chart.Reference(sheet, min_col=2, min_row=1, max_row=2))
        book.create_chartsheet("Chart").add_chart(chart)
        sheet["A1"].comment = openpyxl.comments.Comment("Really?", "A")

    assert read(HEAD, ("a", 1), change=hide) == f"{TOP}\n| a | 1 |"


def test_a_long_sheet_has_its_header_and_name_in_each_chunk(tmp_path):
    book = openpyxl.Workbook()
    book.active.title = "Doses"
    book.properties.title = "Study"
    for row in [HEAD, *((f"name {i}", i) for i in range(99))]:
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    chunks = read_files([tmp_path / "a.xlsx"], chunker=Chunker(200)).documents
    assert len(chunks) > 5
    assert all(TOP in chunk.text for chunk in chunks)
    assert {tuple(chunk.metadata["heading"]) for chunk in chunks[1:]} == {("Study", "Doses")}


def test_a_million_empty_rows_with_a_format_are_passed_over():
    file = BytesIO()
    with xlsxwriter.Workbook(file) as book:
        sheet = book.add_worksheet("Doses")
        sheet.write_row("A1", HEAD)
        sheet.write_row("A1048576", ["a", 1])
    assert markdown_of_xlsx(file.getvalue()).endswith(f"{TOP}\n| a | 1 |")
