"""Presentations as Markdown, by python-pptx: one text for each slide."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from sift_core.documents.finding import SkipError, broken
from sift_core.documents.office.diagrams import diagram_texts
from sift_core.documents.office.omml import MATH, line_of_omml
from sift_core.documents.office.package import (
    etree,
    no_text,
    open_package,
    parse_xml,
    rewritten,
    title_of,
)
from sift_core.documents.scripts import in_one_line
from sift_core.documents.tables import Cell, markdown_table, table_with_header, text_cell
from sift_core.errors import MissingDependencyError

try:
    import pptx
    from pptx.enum.shapes import PP_PLACEHOLDER
except ImportError as error:
    raise MissingDependencyError("python-pptx", extra="office") from error

_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_A14 = "{http://schemas.microsoft.com/office/drawing/2010/main}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"

_REPEATED = {
    PP_PLACEHOLDER.DATE,
    PP_PLACEHOLDER.FOOTER,
    PP_PLACEHOLDER.HEADER,
    PP_PLACEHOLDER.SLIDE_NUMBER,
}
_LISTS = {PP_PLACEHOLDER.BODY, PP_PLACEHOLDER.OBJECT, PP_PLACEHOLDER.VERTICAL_BODY}


def markdown_of_pptx(content: bytes) -> list[str]:
    """Return the text of each slide as Markdown: its title as a heading, lists, tables, notes.

    Superscripts become "^6" and formulas one line. Charts become tables, and the texts of SmartArt
    a list. Speaker notes follow their slide. Left out are the texts of hidden slides, footers,
    comments and images. The first text begins with the title of the presentation.

    Args:
        content: The file.

    Raises:
        SkipError: If it is encrypted, broken, no presentation, or has no text.
    """
    package = open_package(content, ".pptx")
    try:
        presentation = pptx.Presentation(rewritten(package, _prepared))
        slides = ["\n\n".join(_slide(slide)) for slide in presentation.slides]
    except SkipError:
        raise
    except Exception as error:  # python-pptx raises whatever a broken file leads to
        raise broken(error) from error
    if not any(slides):
        raise no_text(package)
    title = title_of(package)
    if title and not slides[0].startswith("# "):
        slides[0] = f"# {title}\n\n{slides[0]}".rstrip()
    return slides


def _prepared(name: str, part: bytes) -> bytes:
    """Return a part of a presentation in which formulas are text and no shape has alternatives."""
    if not name.startswith(("ppt/slides/slide", "ppt/notesSlides/notesSlide")):
        return part
    root = parse_xml(part)
    for alternatives in list(root.iter(f"{_MC}AlternateContent")):
        parent = alternatives.getparent()
        shown = alternatives.find(f"{_MC}Choice")
        at = parent.index(alternatives)
        parent[at : at + 1] = [] if shown is None else list(shown)
    for formula in list(root.iter(f"{_A14}m")):
        run = etree.Element(f"{_A}r")
        lines = [line_of_omml(one) for one in formula.iter(f"{{{MATH}}}oMath")]
        etree.SubElement(run, f"{_A}t").text = " ".join(lines)
        formula.getparent().replace(formula, run)
    return bytes(etree.tostring(root, encoding="utf-8", xml_declaration=True))


def _slide(slide: Any) -> Iterator[str]:
    """Yield the parts of a slide's text, in the order of its shapes, its title first."""
    if slide.element.get("show") == "0":
        return
    title = slide.shapes.title
    if title is not None and (text := " ".join(_line(title.text_frame).split())):
        is_first = title.placeholder_format.type == PP_PLACEHOLDER.CENTER_TITLE
        yield f"{'#' if is_first else '##'} {text}"
    for shape in slide.shapes:
        if title is None or shape.shape_id != title.shape_id:
            yield from _shape(shape, slide.part)
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        notes = "\n\n".join(_paragraphs(slide.notes_slide.notes_text_frame, is_list=False))
        if notes:
            yield f"Notes: {notes}"


def _shape(shape: Any, part: Any) -> Iterator[str]:
    """Yield the texts of a shape."""
    kind = shape.placeholder_format.type if shape.is_placeholder else None
    if kind in _REPEATED:
        return
    if hasattr(shape, "shapes"):
        for inner in shape.shapes:
            yield from _shape(inner, part)
    elif shape.has_text_frame:
        text = _joined(_paragraphs(shape.text_frame, is_list=kind in _LISTS))
        if text:
            yield text
    elif shape.has_table:
        rows = [
            {i: _cell(cell) for i, cell in enumerate(row.cells) if not cell._tc.hMerge}
            for row in shape.table.rows
        ]
        if any(cell.text for row in rows for cell in row.values()):
            yield table_with_header(rows, range(len(shape.table.columns)))
    elif shape.has_chart:
        with suppress(AttributeError, LookupError, TypeError, ValueError):
            yield from list(_chart(shape.chart))  # python-pptx does not know all kinds of chart
    else:
        yield from _diagram(shape, part)


def _diagram(shape: Any, part: Any) -> Iterator[str]:
    for diagram in shape.element.iter(f"{_DIAGRAM}relIds"):
        data = part.related_part(diagram.get(f"{_RELATION}dm")).blob
        if texts := diagram_texts(data):
            yield "\n".join(f"- {text}" for text in texts)


def _cell(cell: Any) -> Cell:
    """Return a cell; one that is merged over rows has its text in each of them."""
    return text_cell(_text_of(cell), n_columns=cell._tc.gridSpan, is_repeated=bool(cell._tc.vMerge))


def _text_of(cell: Any) -> str:
    """Return the text of a cell, or of the one above that is merged with it."""
    if cell.is_spanned and cell._tc.vMerge and not cell._tc.hMerge:
        row, column = cell._tc.row_idx, cell._tc.col_idx
        while row and cell._tc.tbl.tc(row, column).vMerge:
            row -= 1
        return _line_of(cell._tc.tbl.tc(row, column).findall(f"{_A}txBody/{_A}p"))
    return _line(cell.text_frame)


def _chart(chart: Any) -> Iterator[str]:
    """Yield a chart's title, and its numbers as a table of series by categories."""
    if chart.has_title and chart.chart_title.has_text_frame:
        yield _line(chart.chart_title.text_frame)
    for plot in chart.plots:
        names = [" ".join(map(str, labels)) for labels in plot.categories.flattened_labels]
        series = [(one.name, tuple(one.values)) for one in plot.series]
        length = max([len(names), *(len(values) for _, values in series)])
        if length:
            yield markdown_table(
                [
                    ["", *(name for name, _ in series)],
                    *(
                        [
                            names[i] if i < len(names) else "",
                            *(_number(values, i) for _, values in series),
                        ]
                        for i in range(length)
                    ),
                ]
            )


def _number(values: tuple[float | None, ...], i: int) -> str:
    value = values[i] if i < len(values) else None
    return "" if value is None else f"{value:.15g}"


def _paragraphs(frame: Any, *, is_list: bool) -> Iterator[str]:
    """Yield the paragraphs of a text frame; those with a bullet or a number as items of a list."""
    for paragraph in frame.paragraphs:
        text = " ".join(_line_of([paragraph._p]).split())
        if not text:
            continue
        properties = paragraph._p.pPr
        marks = {etree.QName(one).localname for one in ([] if properties is None else properties)}
        if (is_list or marks & {"buChar", "buAutoNum", "buBlip"}) and "buNone" not in marks:
            yield f"{'  ' * paragraph.level}- {text}"
        else:
            yield text


def _joined(paragraphs: Iterator[str]) -> str:
    """Return paragraphs, with items of a list on lines of their own and the others apart."""
    text, was_item = "", False
    for paragraph in paragraphs:
        is_item = paragraph.lstrip().startswith("- ")
        between = "\n" if is_item and was_item else "\n\n"
        text, was_item = f"{text}{between if text else ''}{paragraph}", is_item
    return text


def _line(frame: Any) -> str:
    """Return the text of a frame in one line."""
    return _line_of([paragraph._p for paragraph in frame.paragraphs])


def _line_of(paragraphs: list[Any]) -> str:
    return " ".join(in_one_line(_runs(paragraph)) for paragraph in paragraphs).strip()


def _runs(paragraph: Any) -> Iterator[tuple[str, float]]:
    """Yield each run of a paragraph, and how far it is raised, in thousandths of a percent."""
    for run in paragraph:
        name = etree.QName(run).localname
        if name in ("r", "fld"):
            properties = run.find(f"{_A}rPr")
            raised = 0 if properties is None else int(properties.get("baseline", "0").rstrip("%"))
            yield run.findtext(f"{_A}t") or "", raised
        elif name == "br":
            yield " ", 0
