"""Text is read as people search it: exponents, ligatures, hyphens, images, panels."""

import re
from io import BytesIO

import pypdf
import pytest
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from sift_core.documents import read_files
from sift_core.documents.html import markdown_of_html


def read(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return "\n---\n".join(one.text for one in read_files([path]).documents)


# Input, and the text that a reader would type.
PAGES = {
    "exponents": (
        "At 10<sup>6</sup> cells/mL, 2<sup>-30</sup>, 5 m<sup>2</sup>, H<sub>2</sub>O",
        "At 10^6 cells/mL, 2^-30, 5 m^2, H2O",
    ),
    "a footnote's mark": ("25<sup>3</sup> mg.<sup>12</sup>", "25^3 mg.[^12]"),
    "a linked mark": ('holds 25<sup><a href="#n1">1</a></sup> dogs', "holds 25[^1] dogs"),
    "a book's mark": (
        'At H<sub>2</sub>O.<a href="n.xhtml#n1" epub:type="noteref" role="doc-noteref">1</a> mg',
        "At H2O.[^1] mg",
    ),
    "lines of code": ("<pre>x<br>  y</pre>", "```\nx\n  y\n```"),
    "ordinals": ("the 19<sup>th</sup>, 1<sup>er</sup>", "the 19th, 1er"),
    "several terms": ("e<sup>-x<sup>2</sup></sup>, 10<sup>n+1</sup>", "e^(-x^2), 10^(n+1)"),
    "an isotope": ("aged by <sup>14</sup>C", "aged by ^14C"),
    "degrees": ("at 25<sup>o</sup>C", "at 25°C"),
    "indices": ("x<sub>i</sub>, NO<sub>x</sub>, 101<sub>2</sub>", "x_i, NOx, 101_2"),
    "MathML": (
        "<math><msup><mn>10</mn><mn>6</mn></msup><mo>+</mo><msqrt><mi>y</mi></msqrt></math>",
        "10^6+√(y)",
    ),
    "words in MathML": (
        "<math><mrow><mi>x</mi><mtext>if</mtext><msup><mi>y</mi><mn>2</mn></msup><mi>z</mi></mrow>"
        "</math>",
        "x if y^2 z",
    ),
    "a fraction": (
        "<math><mfrac><mrow><mi>a</mi><mo>+</mo></mrow><mn>2</mn></mfrac></math>",
        "(a+)/2",
    ),
    "TeX beside MathML": (
        '<span class="katex"><math><mi>E</mi><annotation encoding="application/x-tex">E=mc^2'
        '</annotation></math></span><span class="katex-html" aria-hidden="true">Emc2</span>',
        "E=mc^2",
    ),
    "ruby": ("<ruby>漢字<rp>(</rp><rt>かんじ</rt><rp>)</rp></ruby>を学ぶ", "漢字を学ぶ"),
    "ruby in parts": ("<ruby>東<rt>とう</rt>京<rt>きょう</rt></ruby>に", "東京に"),
    "ligatures": ("the oﬃce ﬁle, soft&shy;ware", "the office file, software"),
    "Arabic forms": ("ﻣﺮﺣﺒﺎ", "مرحبا"),
}


@pytest.mark.parametrize(("page", "text"), PAGES.values(), ids=PAGES)
def test_formulas_and_forms_of_a_page(tmp_path, page, text):
    assert read(tmp_path, "a.html", f"<p>{page}</p>") == text


@pytest.mark.parametrize("name", ["a.md", "a.txt", "a.rst"])
def test_forms_of_letters_become_letters_and_superscripts_stay(tmp_path, name):
    text = "The oﬃce ﬁle at 10⁶: soft\u00ad\nware \U0001d465 ﻣﺮﺣﺒﺎ"
    assert read(tmp_path, name, text) == "The office file at 10⁶: software x مرحبا"


def test_code_keeps_its_characters(tmp_path):
    assert read(tmp_path, "a.py", "FI = 'ﬁ'") == "FI = 'ﬁ'"


HYPHENS = {
    "an exam-\nple text": "an example text",
    "a well-\nknown text": "a well-known text",
    "e-\nmail, COVID-\n19": "e-mail, COVID-\n19",
    "pre-\nand post-war": "pre-\nand post-war",
    "state-of-\nthe-art": "state-of-\nthe-art",
    "a low-cost one, low-\ncost": "a low-cost one, low-cost",  # seen with its hyphen before
    "über-\nsetzen": "übersetzen",
    "run --dry-\nrun": "run --dry-\nrun",
}


@pytest.mark.parametrize(("text", "whole"), HYPHENS.items())
def test_words_that_a_line_ends_in_are_whole(tmp_path, text, whole):
    assert read(tmp_path, "a.txt", text) == whole


def pdf(stream):
    writer = pypdf.PdfWriter()
    names = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    font = DictionaryObject({NameObject(key): NameObject(names[key]) for key in names})
    fonts = DictionaryObject({NameObject("/F1"): font})
    content = DecodedStreamObject()
    content.set_data(f"BT /F1 12 Tf 20 200 Td {stream} ET".encode())
    page = writer.add_blank_page(300, 300)
    page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    page[NameObject("/Contents")] = writer._add_object(content)
    file = BytesIO()
    writer.write(file)
    return file.getvalue()


def up(text):
    return f"/F1 7 Tf 4 Ts ({text}) Tj 0 Ts /F1 12 Tf"


def test_a_pdf_keeps_exponents_apart_and_words_whole(tmp_path):
    stream = f"(At 10) Tj {up(6)} ( mg.) Tj {up(12)} ( The 19) Tj {up('th')} ( exam-) Tj"
    stream += " 0 -14 Td (ple) Tj"
    assert read(tmp_path, "a.pdf", pdf(stream)) == "At 10^6 mg.[^12] The 19th example"
    # A position of its own, higher by 4, as LaTeX writes it; then one lower by 3.
    moved = (
        "(10) Tj /F1 8 Tf 14 4 Td (6) Tj /F1 12 Tf 6 -4 Td (cells, H) Tj /F1 8 Tf 16 -3 Td (2) Tj"
    )
    assert read(tmp_path, "b.pdf", pdf(moved)) == "10^6 cells, H2"


BASE64 = "iVBORw0KGgoAAAANSUhEUgAA/+" * 400
IMAGES = {
    "a.md": f"Open it. ![the valve](data:image/png;base64,{BASE64}=) Start it.",
    "b.md": f"Open it. ![the valve][i] Start it.\n\n[i]: <data:image/png;base64,{BASE64}>\n",
    "c.md": f'Open it. <img alt="the valve" src="data:image/png;base64,{BASE64}"> Start it.',
    "d.rst": f"Open it. the valve Start it.\n\n.. image:: data:image/png;base64,{BASE64}\n",
    "e.md": "Open it. ![the valve](data:image/svg+xml," + "%3Cpath%20d" * 99 + ") Start it.",
    "f.html": f'Open it. <pre>the valve url("data:image/png;base64,{BASE64}")</pre> Start it.',
    "g.py": f'"""Open it. the valve Start it."""\nICON = "data:image/png;base64,{BASE64}"\n',
}


@pytest.mark.parametrize(("name", "content"), IMAGES.items(), ids=IMAGES)
def test_images_within_a_file_are_not_read(tmp_path, name, content):
    text = read(tmp_path, name, content)
    assert all(words in text for words in ("Open it.", "the valve", "Start it."))
    assert len(text) < 100


def test_a_short_address_in_prose_stays(tmp_path):
    text = "Write `data:text/plain;base64,SGVsbG8=` for a greeting."
    assert read(tmp_path, "a.md", text) == text


PANELS = {
    "questions": (
        '<h3><button aria-controls="a">How?</button></h3><div id="a" hidden>So.</div>'
        "<p><button>Copy</button></p>",
        "### How?\n\nSo.",
    ),
    "until found": ('<p>How?</p><p hidden="until-found">So.</p><p hidden>No</p>', "How?\n\nSo."),
    "details": ("<details><summary>How?</summary>So.</details>", "How?\n\nSo."),
    "a collapse": (
        '<h2><button data-bs-target="#a">How?</button></h2><div id="a" hidden>So.</div>',
        "## How?\n\nSo.",
    ),
    "the next element": (
        '<div><button aria-expanded="false">How</button><div hidden>So.</div></div>',
        "How\n\nSo.",
    ),
    "tabs": (
        '<button role="tab" aria-controls="a">Linux</button><button role="tab" id="b">Mac</button>'
        '<div id="a" role="tabpanel">apt</div>'
        '<div role="tabpanel" aria-labelledby="b" hidden>brew</div>',
        "Linux\n\napt\n\nMac\n\nbrew",
    ),
    "a menu": (
        '<p>x</p><button aria-controls="m">Menu</button>'
        '<div id="m" hidden><a href="/">Us</a></div>',
        "x",
    ),
}


@pytest.mark.parametrize(("page", "text"), PANELS.values(), ids=PANELS)
def test_panels_are_read_with_their_labels_and_menus_are_not(page, text):
    assert markdown_of_html(f"<main>{page}</main>".encode()) == text


@pytest.mark.parametrize(
    "name", ["aside", "footer", "figure", "address", "form", "summary", "option"]
)
def test_blocks_are_not_joined_with_their_neighbours(name):
    page = f"<main>A cat<{name}>a dog.</{name}><{name}>Author's</{name}></main>"
    assert markdown_of_html(page.encode()) == "A cat\n\na dog.\n\nAuthor's"


def test_a_table_without_a_head_takes_its_first_row():
    page = "<table><tr><td>A</td></tr><tr><td>1</td></tr></table>"
    assert markdown_of_html(page.encode()) == "| A |\n| --- |\n| 1 |"


@pytest.mark.parametrize(
    ("page", "right"),
    [
        ("<main>A dog.<button>Buy</button>Author's</main>", "A dog. Author's"),
        ("<body><p>x</p>A dog.<aside>gone</aside>Author's</body>", "x\n\nA dog. Author's"),
        ("<main>A dog.<nav>gone</nav>Author's</main>", "A dog. Author's"),
        ("<main>A dog.<button hidden>gone</button>Author's</main>", "A dog. Author's"),
        ("<main><label>A dog.</label><input><label>Author's</label></main>", "A dog. Author's"),
        ("<main><output>A dog.</output><output>Author's</output></main>", "A dog. Author's"),
        ("<main>A dog.<video>none</video>Author's</main>", "A dog. none Author's"),
        ("<main><h1>A dog.<br>Author's</h1></main>", "# A dog. Author's"),
        ("<main><dl><dt>A dog.</dt><dd>Author's</dd></dl></main>", "A dog.\n:   Author's"),
        # what is not shown parts nothing, and code stays as it is
        ("<main>super<script>1</script>cali<wbr>fragil</main>", "supercalifragil"),
        ("<main><pre><button>Copy</button>  x = 1</pre></main>", "```\n  x = 1\n```"),
        # a caption stands before its table, whose first row is the header
        (
            "<main><table><caption>Prices</caption><tr><th>A</th></tr><tr><td>1</td></tr></table>",
            "Prices\n\n| A |\n| --- |\n| 1 |",
        ),
    ],
)
def test_words_that_a_page_shows_apart_are_not_joined(page, right):
    found = markdown_of_html(page.encode())
    assert re.sub(r"(?<=\S) +", " ", found) == re.sub(r"(?<=\S) +", " ", right)  # however many
