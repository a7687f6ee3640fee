"""Presentations: each slide's title, lists, tables and notes, with its number."""

from io import BytesIO

import pptx
from lxml import etree
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.opc.package import Part
from pptx.opc.packuri import PackURI
from pptx.util import Inches

from sift_core.documents import Chunker, read_files
from sift_core.documents.office.slides import markdown_of_pptx
from tests.documents.test_word import SMART_ART, SPACES

SIZE = (0, 0, Inches(3), Inches(1))


def new_slide(deck, title, *texts, layout=1):
    slide = deck.slides.add_slide(deck.slide_layouts[layout])
    slide.shapes.title.text = title
    if texts:
        slide.placeholders[1].text = "\n".join(texts)
    return slide


def read(deck):
    file = BytesIO()
    deck.save(file)
    return markdown_of_pptx(file.getvalue())


def add_run(paragraph, text, baseline=None):
    run = paragraph.add_run()
    run.text = text
    if baseline:
        run.font._element.set("baseline", str(baseline))


def test_titles_lists_tables_and_notes_become_markdown():
    deck = pptx.Presentation()
    new_slide(deck, "Doses", "A study", layout=0)
    slide = new_slide(deck, "Children", "First", "Second")
    paragraph = slide.placeholders[1].text_frame.add_paragraph()
    paragraph.text, paragraph.level = "Inner", 1
    table = slide.shapes.add_table(3, 2, *SIZE).table
    for i, text in enumerate(["Age", "mg|d", "1", "10", "", "20"]):
        table.cell(i // 2, i % 2).text = text
    table.cell(1, 0).merge(table.cell(2, 0))
    slide.notes_slide.notes_text_frame.text = "Speak slowly."
    first, second = read(deck)
    assert first == "# Doses\n\nA study"
    assert second == (
        "## Children\n\n- First\n- Second\n  - Inner\n\n"
        "| Age | mg\\|d |\n| --- | --- |\n| 1 | 10 |\n| 1 | 20 |\n\nNotes: Speak slowly."
    )


def test_a_header_of_two_rows_becomes_one():
    deck = pptx.Presentation()
    table = new_slide(deck, "Doses").shapes.add_table(3, 3, *SIZE).table
    texts = {(0, 0): "Town", (0, 1): "2023", (1, 1): "mg", (1, 2): "ml", (2, 0): "Ulm"}
    for place, text in texts.items():
        table.cell(*place).text = text
    table.cell(0, 0).merge(table.cell(1, 0))
    table.cell(0, 1).merge(table.cell(0, 2))
    (slide,) = read(deck)
    assert slide.endswith("\n\n| Town | 2023 mg | 2023 ml |\n| --- | --- | --- |\n| Ulm |  |  |")


def test_superscripts_and_formulas_stay_apart():
    deck = pptx.Presentation()
    slide = new_slide(deck, "Doses")
    paragraph = slide.placeholders[1].text_frame.paragraphs[0]
    for text, baseline in (("10", None), ("6", 30_000), (" cells in H", None), ("2", -25_000)):
        add_run(paragraph, text, baseline)
    add_run(paragraph, "O")
    box = slide.shapes.add_textbox(*SIZE)
    box.text_frame.text = "Each has "
    formula = (
        f'<a14:m {SPACES} xmlns:a14="http://schemas.microsoft.com/office/drawing/2010/main">'
        "<m:oMath><m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r>"
        "</m:sup></m:sSup></m:oMath></a14:m>"
    )
    box.text_frame.paragraphs[0]._p.append(etree.fromstring(formula))
    # PowerPoint writes a shape with a formula and, for older programs, one with its picture.
    space = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
    both = etree.Element(f"{space}AlternateContent")
    tree = box._element.getparent()
    etree.SubElement(both, f"{space}Choice", Requires="a14").append(box._element)
    etree.SubElement(both, f"{space}Fallback")
    tree.append(both)
    assert read(deck) == ["## Doses\n\n- 10^6 cells in H2O\n\nEach has x^2"]


def test_charts_groups_and_diagrams_have_their_texts():
    deck = pptx.Presentation()
    slide = new_slide(deck, "Doses")
    data = CategoryChartData()
    data.categories = ["2023", "2024"]
    data.add_series("mg", (1.5, 2))
    slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *SIZE, data)
    group = slide.shapes.add_group_shape()
    group.shapes.add_textbox(*SIZE).text_frame.text = "in a group"
    (text,) = read(deck)
    assert "|  | mg |\n| --- | --- |\n| 2023 | 1.5 |\n| 2024 | 2 |" in text
    assert text.endswith("in a group")


def test_a_chart_of_an_unknown_kind_leaves_the_rest():
    deck = pptx.Presentation()
    slide = new_slide(deck, "Doses", "x")
    data = CategoryChartData()
    data.categories = ["2023"]
    data.add_series("mg", (1.5,))
    chart = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *SIZE, data).chart
    for bars in list(chart._chartSpace.iter("{*}barChart")):
        bars.tag = bars.tag.replace("barChart", "surface3DChart")
    assert read(deck) == ["## Doses\n\n- x"]


def test_smart_art_is_a_list():
    deck = pptx.Presentation()
    slide = new_slide(deck, "Doses")
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/diagramData"
    data = Part(PackURI("/ppt/diagrams/data1.xml"), "application/xml", slide.part.package)
    data._blob = SMART_ART.encode()
    relation = slide.part.relate_to(data, kind)
    table = slide.shapes.add_table(1, 1, *SIZE)._element
    (graphic,) = table.iter("{http://schemas.openxmlformats.org/drawingml/2006/main}graphicData")
    graphic[:] = [etree.fromstring(f"<dgm:relIds {SPACES} r:dm='{relation}'/>")]
    graphic.set("uri", "http://schemas.openxmlformats.org/drawingml/2006/diagram")
    assert read(deck) == ["## Doses\n\n- Plan\n- Act"]


def test_hidden_slides_and_footers_are_left_out():
    deck = pptx.Presentation()
    new_slide(deck, "Seen", "x")
    new_slide(deck, "Hidden", "y").element.set("show", "0")
    new_slide(deck, "Seen too", "z")
    assert read(deck) == ["## Seen\n\n- x", "", "## Seen too\n\n- z"]


def test_a_chunk_states_its_slides_and_its_title(tmp_path):
    deck = pptx.Presentation()
    deck.core_properties.title = "Study"
    for title in ("Cats", "Dogs"):
        new_slide(deck, title, f"{title} are pets that many people know.")
    deck.save(tmp_path / "a.pptx")
    first, second = read_files([tmp_path / "a.pptx"], chunker=Chunker(70)).documents
    assert first.text.startswith("# Study\n\n## Cats")
    assert second.metadata["heading"] == ["Study", "Dogs"]
    assert (second.metadata["page"], second.metadata["last_page"]) == (2, 2)
    (whole,) = read_files([tmp_path / "a.pptx"]).documents
    assert (whole.metadata["page"], whole.metadata["last_page"]) == (1, 2)
