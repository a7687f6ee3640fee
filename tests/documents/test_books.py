"""Books and notebooks as Markdown."""

import json
import zipfile
from io import BytesIO

import pytest

from sift_core.documents.finding import SkipError, SkipReason
from sift_core.documents.office.epub import markdown_of_epub, stated_dates
from sift_core.documents.office.notebook import MAX_OUTPUT, markdown_of_ipynb

CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
)
BOOK = """<?xml version="1.0"?>
<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">
<metadata><dc:title>Pets</dc:title><dc:date>2019-05-01</dc:date>{about}</metadata>
<manifest>
<item id="n" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="a" href="a%20b.xhtml" media-type="application/xhtml+xml"/>
<item id="b" href="text/b.xhtml" media-type="application/xhtml+xml"/>
<item id="c" href="cover.png" media-type="image/png"/>
</manifest>
<spine><itemref idref="c"/><itemref idref="n"/><itemref idref="b"/><itemref idref="a"/></spine>
</package>"""
PAGE = '<html><head><title>Pets</title></head><body epub:type="bodymatter">{}</body></html>'


def epub(first="", second="", about="", **others):
    """Return a book of two chapters; the second comes first in its list of parts."""
    parts = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": CONTAINER,
        "OEBPS/book.opf": BOOK.format(about=about),
        "OEBPS/nav.xhtml": PAGE.format("<nav>Contents</nav>"),
        "OEBPS/a b.xhtml": PAGE.format(second),
        "OEBPS/text/b.xhtml": '<?xml version="1.0"?><!DOCTYPE html>' + PAGE.format(first),
        "OEBPS/cover.png": "picture",
        **{name.replace("__", "/"): content for name, content in others.items()},
    }
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


def test_chapters_follow_in_the_order_of_reading():
    first = "<header><h2>Cats</h2></header><p>At 10<sup>6</sup> cats.</p>"
    first += "<aside>A note.</aside><img src='data:image/png;base64,AAAA' alt=''/>"
    assert markdown_of_epub(epub(first, "<h2>Dogs</h2><p>Bark.</p>")) == (
        "# Pets\n\n## Cats\n\nAt 10^6 cats.\n\nA note.\n\n## Dogs\n\nBark."
    )


@pytest.mark.parametrize(
    "packed", ["Café.xhtml".encode(), "café.xhtml".encode("cp1252"), "cafe\u0301.xhtml".encode()]
)
def test_a_chapter_is_found_however_its_name_was_packed(packed):
    stand_in = "z" * len(packed)
    listed = BOOK.format(about="").replace("text/b.xhtml", "caf%C3%A9.xhtml")
    page = PAGE.format("<p>Tea.</p>")
    book = epub(**{"OEBPS__book.opf": listed, f"OEBPS__{stand_in}": page})
    assert markdown_of_epub(book.replace(stand_in.encode(), packed)) == "# Pets\n\nTea."


def test_a_book_states_when_it_was_changed():
    changed = '<meta property="dcterms:modified">2020-01-02T00:00:00Z</meta>'
    assert stated_dates(epub("x", about=changed)) == ["2020-01-02T00:00:00Z", "2019-05-01"]


def test_a_protected_book_is_left_out_and_one_with_protected_fonts_is_not():
    protected = (
        '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><EncryptedData '
        'xmlns="http://www.w3.org/2001/04/xmlenc#"><CipherData><CipherReference URI="{}"/>'
        "</CipherData></EncryptedData></encryption>"
    )
    part = protected.format("OEBPS/text/b.xhtml")
    book = epub("x", **{"META-INF__encryption.xml": part})
    with pytest.raises(SkipError) as caught:
        markdown_of_epub(book)
    assert caught.value.reason is SkipReason.ENCRYPTED
    part = protected.format("OEBPS/font.otf")
    assert "x" in markdown_of_epub(epub("<p>x</p>", **{"META-INF__encryption.xml": part}))


def test_a_book_of_images_has_no_text():
    with pytest.raises(SkipError) as caught:
        markdown_of_epub(epub('<img src="../cover.png"/>'))
    assert (caught.value.reason, str(caught.value)) == (SkipReason.NO_TEXT, "1 images")


def notebook(*cells, **others):
    return json.dumps({"nbformat": 4, "metadata": {}, "cells": cells, **others}).encode()


def code(source, *outputs):
    return {"cell_type": "code", "source": source, "outputs": outputs}


def test_a_notebook_has_its_text_code_and_outputs():
    table = "<table><tr><th>a</th></tr><tr><td>1</td></tr></table>"
    image = {"image/png": "iVBORw0KGgo", "text/plain": ["<Figure>"]}
    found = markdown_of_ipynb(
        notebook(
            {"cell_type": "raw", "source": "---\ndate: 2024-03-01\n---"},
            {"cell_type": "markdown", "source": ["# Cats\n", "At 10⁶."]},
            code(["x = 1\n", "x"], {"output_type": "execute_result", "data": {"text/plain": "1"}}),
            code("df", {"output_type": "display_data", "data": {"text/html": table}}),
            code("plot()", {"output_type": "display_data", "data": image}),
            code("1 / 0", {"output_type": "error", "ename": "ZeroDivisionError", "evalue": "by 0"}),
            code("p", {"output_type": "stream", "name": "stdout", "text": "\x1b[31mred\x1b[0m\n"}),
            code("w", {"output_type": "stream", "name": "stderr", "text": "warning"}),
            metadata={"language_info": {"name": "python"}},
        )
    )
    assert found == (
        "---\ndate: 2024-03-01\n---\n\n# Cats\nAt 10⁶.\n\n"
        "```python\nx = 1\nx\n```\n\n```\n1\n```\n\n"
        "```python\ndf\n```\n\n| a |\n| --- |\n| 1 |\n\n```python\nplot()\n```\n\n"
        "```python\n1 / 0\n```\n\n```\nZeroDivisionError: by 0\n```\n\n"
        "```python\np\n```\n\n```\nred\n```\n\n```python\nw\n```"
    )


OUTPUTS = [
    ("\x1b]8;;https://example.org\x07a link\x1b]8;;\x1b\\ here", "a link here"),
    ("before\n 10%|#  |\r 50%|## |\r100%|###|\n", "before\n100%|###|"),
    ("one\r\ntwo\r", "one\ntwo"),
]


@pytest.mark.parametrize(("printed", "shown"), OUTPUTS)
def test_what_is_printed_stands_as_a_terminal_shows_it(printed, shown):
    output = {"output_type": "stream", "name": "stdout", "text": printed}
    assert markdown_of_ipynb(notebook(code("y", output))).endswith(f"\n\n```\n{shown}\n```")


def test_a_browser_is_shown_its_text_and_no_class_of_python():
    shown = [
        {"text/html": "<b>Cats</b> purr.", "text/plain": "<IPython.core.display.HTML object>"},
        {"application/json": {"a": 1}, "text/plain": "<IPython.core.display.JSON object>"},
        {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "HBox(children=())"},
        {"text/html": "<b>1</b>", "text/plain": "one"},
    ]
    outputs = [{"output_type": "display_data", "data": data} for data in shown]
    found = markdown_of_ipynb(notebook(code("y", *outputs)))
    assert found == "```python\ny\n```\n\n**Cats** purr.\n\n```\none\n```"


@pytest.mark.parametrize(
    ("metadata", "language"),
    [
        ({"kernelspec": {"language": "R"}}, "R"),
        ({"language_info": {"name": "c++"}, "kernelspec": {"language": "C"}}, "c++"),
        ({"language_info": {"name": "a`\nb"}}, "ab"),
        ({"kernelspec": 3}, "python"),
    ],
)
def test_code_has_the_language_that_the_notebook_states(metadata, language):
    found = markdown_of_ipynb(notebook(code("1"), metadata=metadata))
    assert found == f"```{language}\n1\n```"


def test_an_older_notebook_is_read():
    cells = [
        {"cell_type": "heading", "level": 2, "source": "Cats"},
        {
            "cell_type": "code",
            "input": "1",
            "language": "julia",
            "outputs": [{"output_type": "pyout", "text": ["1"]}],
        },
    ]
    content = json.dumps({"nbformat": 3, "worksheets": [{"cells": cells}]}).encode()
    assert markdown_of_ipynb(content) == "## Cats\n\n```julia\n1\n```\n\n```\n1\n```"


def test_a_log_is_cut_and_closes_no_fence():
    output = {"output_type": "stream", "name": "stdout", "text": "```\n" + "x" * 2 * MAX_OUTPUT}
    found = markdown_of_ipynb(notebook(code("y", output)))
    assert found.count("````") == 2
    assert len(found) < MAX_OUTPUT + 100


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[" * 100_000, SkipReason.BROKEN),
        (b"{}", SkipReason.BROKEN),
        (b'{"cells": 1}', SkipReason.BROKEN),
        (b"\xff\xfe", SkipReason.BROKEN),
        (b'{"cells": [1, {"cell_type": "code", "source": 3, "outputs": [7]}]}', SkipReason.EMPTY),
    ],
)
def test_what_is_no_notebook_is_left_out(content, reason):
    with pytest.raises(SkipError) as caught:
        markdown_of_ipynb(content)
    assert caught.value.reason is reason
