"""Word documents: what a reader of the page sees is read, in Markdown."""

import zipfile
from io import BytesIO

import docx
import pytest
from docx.oxml import parse_xml
from PIL import Image

from sift_core.documents import Chunker, read_files
from sift_core.documents.office.word import markdown_of_docx

SPACES = " ".join(
    f'xmlns:{prefix}="{address}"'
    for prefix, address in {
        "w": "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
        "m": "http://schemas.openxmlformats.org/officeDocument/2006/math",
        "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
        "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
        "v": "urn:schemas-microsoft-com:vml",
        "r": "http://schemas.openxmlformats.org/officeDocument/2006/relationships",
        "dgm": "http://schemas.openxmlformats.org/drawingml/2006/diagram",
        "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
    }.items()
)


def element(text):
    """Return an element of XML, of which the first tag gets its namespaces."""
    name, rest = text[1:].split(">", 1) if ">" in text.split(" ")[0] else text[1:].split(" ", 1)
    join = ">" if ">" in text.split(" ")[0] else " "
    return parse_xml(f"<{name} {SPACES}{join}{rest}")


def run(text, properties=""):
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def saved(document):
    file = BytesIO()
    document.save(file)
    return file.getvalue()


def read(*parts, change=lambda document: None):
    """Return the text of a document of paragraphs, each the XML of what is in it."""
    document = docx.Document()
    for part in parts:
        paragraph = document.add_paragraph()
        for child in element(f"<w:p>{part}</w:p>"):
            paragraph._p.append(child)
    change(document)
    return markdown_of_docx(saved(document))


def math(text):
    return f"<m:r><m:t>{text}</m:t></m:r>"


UP, DOWN = '<w:vertAlign w:val="superscript"/>', '<w:vertAlign w:val="subscript"/>'
POWER = f"<m:sSup><m:e>{math('10')}</m:e><m:sup>{math('6')}</m:sup></m:sSup>"
BOX = f"<w:txbxContent><w:p>{run('in a box')}</w:p></w:txbxContent>"
TEXTS = {
    "exponents and indices": (
        run("10") + run("6", UP) + run(" cells in H") + run("2", DOWN) + run("O"),
        "10^6 cells in H2O",
    ),
    "an exponent of two runs": (run("10") + run("-", UP) + run("3", UP), "10^-3"),
    "a formula in a line": (
        run("Each has ") + f"<m:oMath>{POWER}</m:oMath>" + run(" cells."),
        "Each has 10^6 cells.",
    ),
    "a formula of its own": (
        f"<m:oMathPara><m:oMath><m:f><m:num>{math('a+b')}</m:num><m:den>{math('2')}</m:den></m:f>"
        "</m:oMath></m:oMathPara>",
        "(a+b)/2",
    ),
    "tracked changes": (
        run("Take ")
        + "<w:del w:id='1' w:author='A'><w:r><w:delText>two</w:delText></w:r></w:del>"
        + f"<w:ins w:id='2' w:author='A'>{run('three')}</w:ins>"
        + f"<w:moveFrom w:id='3' w:author='A'>{run('away')}</w:moveFrom>"
        + f"<w:moveTo w:id='4' w:author='A'>{run(' here')}</w:moveTo>",
        "Take three here",
    ),
    "hidden text": (run("seen") + run(" hidden", "<w:vanish/>"), "seen"),
    "text that is not hidden": (run("seen", '<w:vanish w:val="0"/>'), "seen"),
    "a field": (
        '<w:fldSimple w:instr=" DATE ">' + run("today") + "</w:fldSimple>",
        "today",
    ),
    "ruby": (
        "<w:r><w:ruby><w:rt>"
        + run("かんじ")
        + "</w:rt><w:rubyBase>"
        + run("漢字")
        + "</w:rubyBase></w:ruby></w:r>"
        + run("を学ぶ"),
        "漢字を学ぶ",
    ),
    "a text box": (
        "<w:r><mc:AlternateContent><mc:Choice Requires='wps'><w:drawing><wps:txbx>"
        f"{BOX}</wps:txbx></w:drawing></mc:Choice><mc:Fallback><w:pict><v:textbox>{BOX}"
        "</v:textbox></w:pict></mc:Fallback></mc:AlternateContent></w:r>" + run("beside"),
        "beside\n\nin a box",
    ),
    "a text box without an older form": (
        f"<w:r><w:drawing><wps:txbx>{BOX}</wps:txbx></w:drawing></w:r>" + run("beside"),
        "beside\n\nin a box",
    ),
    "an inserted object's words": (
        "<w:sdt><w:sdtContent>" + run("x") + "</w:sdtContent></w:sdt>",
        "x",
    ),
    "marks of HTML": (run("a &lt;b&gt; &amp;amp; c"), "a <b> &amp; c"),
}


@pytest.mark.parametrize(("part", "text"), TEXTS.values(), ids=TEXTS)
def test_a_paragraph_is_read_as_it_is_seen(part, text):
    assert read(part) == text


def test_a_formula_is_written_as_a_page_writes_it():
    root = f"<m:rad><m:radPr/><m:deg/><m:e>{math('y')}</m:e></m:rad>"
    total = (
        f'<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:sub>{math("i=1")}</m:sub>'
        f"<m:sup>{math('n')}</m:sup><m:e><m:sSub><m:e>{math('x')}</m:e><m:sub>{math('i')}</m:sub>"
        "</m:sSub></m:e></m:nary>"
    )
    pair = f"<m:d><m:e>{math('a')}</m:e><m:e>{math('b')}</m:e></m:d>"
    sine = f"<m:func><m:fName>{math('sin')}</m:fName><m:e>{math('x')}</m:e></m:func>"
    parts = [root, total, pair, sine, POWER + math("g")]
    found = read(*(f"<m:oMath>{part}</m:oMath>" for part in parts))
    assert found.split("\n\n") == ["√(y)", "∑_(i=1)^n x_i", "(a|b)", "sin x", "10^6 g"]


def test_headings_lists_and_tables_become_markdown():
    def fill(document):
        document.add_heading("Doses", 1)
        document.add_heading("Children", 2)
        for text in ("First", "Second"):
            document.add_paragraph(text, style="List Number")
        document.add_paragraph("A point", style="List Bullet")
        table = document.add_table(3, 2)
        for i, text in enumerate(["Age", "Dose|mg", "1", "10\n20", "", "30"]):
            table.cell(i // 2, i % 2).text = text
        table.cell(1, 0).merge(table.cell(2, 0))

    assert read(change=fill) == (
        "# Doses\n\n## Children\n\n1. First\n2. Second\n\n- A point\n\n"
        "| Age | Dose\\|mg |\n| --- | --- |\n| 1 | 10 20 |\n| 1 | 30 |"
    )


def test_styles_made_from_those_of_headings_are_headings():
    def fill(document):
        styles = document.styles
        own, derived, circle = (styles.add_style(name, 1) for name in ("Own", "Derived", "Circle"))
        own.base_style, derived.base_style, circle.base_style = styles["Heading 2"], own, circle
        for style in ("Own", "Derived", "Circle"):
            document.add_paragraph(style, style=style)

    assert read(change=fill) == "## Own\n\n## Derived\n\nCircle"


def test_the_styles_of_lists_in_lists_are_levels():
    def fill(document):
        for style in ("Bullet", "Bullet 2", "Bullet 3", "Number", "Number 2", "Bullet 2"):
            document.add_paragraph(f"A {style}", style=f"List {style}")

    assert read(change=fill) == (
        "- A Bullet\n  - A Bullet 2\n    - A Bullet 3\n\n"
        "1. A Number\n   1. A Number 2\n   - A Bullet 2"
    )


def test_a_long_table_has_its_header_in_each_chunk(tmp_path):
    document = docx.Document()
    table = document.add_table(40, 2)
    for i, row in enumerate(table.rows):
        row.cells[0].text, row.cells[1].text = ("Name", "Dose") if i == 0 else (f"n{i}", f"{i} mg")
    (tmp_path / "a.docx").write_bytes(saved(document))
    chunks = read_files([tmp_path / "a.docx"], chunker=Chunker(200)).documents
    assert len(chunks) > 3
    assert all(chunk.text.startswith("| Name | Dose |\n| --- | --- |\n") for chunk in chunks)


def test_what_repeats_or_is_no_text_is_left_out():
    def fill(document):
        section = document.sections[0]
        section.header.paragraphs[0].text = "Company"
        section.footer.paragraphs[0].text = "Page 1"
        document.add_paragraph("Table of Contents", style="TOC Heading")
        document.add_paragraph("Doses\t3", style=document.styles.add_style("toc 1", 1))
        document.add_paragraph("Take two.")
        document.add_comment(document.paragraphs[-1].runs, text="Really?", author="A")

    assert read(change=fill) == "Take two."


def test_the_title_stands_first_where_there_is_no_other():
    def name(document):
        document.core_properties.title = "Doses <2024>"

    assert read(run("Take two."), change=name) == "# Doses <2024>\n\nTake two."
    assert read(run("Take two.")) == "Take two."  # "Word Document" is what python-docx states

    def head(document):
        name(document)
        document.add_paragraph("The doses", style="Title")

    assert read(change=head) == "# The doses"


def test_styles_that_raise_or_hide_count():
    def style(document):
        raised = document.styles.add_style("Hoch", 2)
        raised.font.superscript = True
        hidden = document.styles.add_style("Notiz", 2)
        hidden.font.hidden = True
        paragraph = document.add_paragraph("10")
        paragraph.add_run("6", style="Hoch")
        paragraph.add_run("gone", style="Notiz")

    assert read(change=style) == "10^6"


def packed(content, **parts):
    """Return a document with further parts, and references to them in its relations."""
    file = BytesIO()
    with zipfile.ZipFile(BytesIO(content)) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            part = old.read(name)
            if name == "word/_rels/document.xml.rels":
                relation = f'<Relationship Id="dm1" Type="{DIAGRAM}" Target="diagrams/data1.xml"/>'
                part = part.replace(b"</Relationships>", f"{relation}</Relationships>".encode())
            new.writestr(name, part)
        for name, part in parts.items():
            new.writestr(name, part)
    return file.getvalue()


DIAGRAM = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/diagramData"
SMART_ART = (
    f"<dgm:dataModel {SPACES}><dgm:ptLst>"
    "<dgm:pt modelId='1'><dgm:t><a:p><a:r><a:t>Plan</a:t></a:r></a:p></dgm:t></dgm:pt>"
    "<dgm:pt modelId='2' type='pres'><dgm:t><a:p><a:r><a:t>x</a:t></a:r></a:p></dgm:t></dgm:pt>"
    "<dgm:pt modelId='3'><dgm:t><a:p><a:r><a:t>Act</a:t></a:r></a:p></dgm:t></dgm:pt>"
    "</dgm:ptLst></dgm:dataModel>"
)


def test_footnotes_and_smart_art_are_read():
    document = docx.Document()
    paragraph = document.add_paragraph()
    note = '<w:r><w:footnoteReference w:id="2"/></w:r>'
    art = "<w:r><w:drawing><dgm:relIds r:dm='dm1'/></w:drawing></w:r>"
    for child in element(f"<w:p>{run('Cats purr.')}{note}{art}</w:p>"):
        paragraph._p.append(child)
    notes = f'<w:footnotes {SPACES}><w:footnote w:id="2"><w:p>{run("See below.")}</w:p>'
    parts = {
        "word/footnotes.xml": f"{notes}</w:footnote></w:footnotes>",
        "word/diagrams/data1.xml": SMART_ART,
    }
    assert markdown_of_docx(packed(saved(document), **parts)) == (
        "Cats purr.[^1]\n\nPlan\n\nAct\n\n[^1]: See below."
    )


def test_code_stays_in_its_lines():
    def write(document):
        document.styles.add_style("Source Code", 1)
        for line in ("if x:", "  y()"):
            document.add_paragraph(line, style="Source Code")

    assert read(change=write) == "```\nif x:\n  y()\n```"


def test_an_image_leaves_no_letters():
    document = docx.Document()
    document.add_paragraph("Cats purr.")
    picture = BytesIO()
    Image.new("RGB", (9, 9)).save(picture, "PNG")
    document.add_picture(picture)
    assert markdown_of_docx(saved(document)) == "Cats purr."
