"""Office files made to hurt who reads them: left out for a reason of ours, or read."""

import os
import re
import zipfile
from io import BytesIO

import docx
import openpyxl
import pytest

from sift_core.documents import read_files
from sift_core.documents.budget import Budget
from sift_core.documents.finding import SkipReason
from sift_core.documents.office.package import MAX_UNPACKED
from tests.documents.test_books import epub
from tests.documents.test_slides import new_slide, pptx
from tests.documents.test_word import saved

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
ENTITIES = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'
OUTSIDE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'


def word(text="Cats purr."):
    document = docx.Document()
    document.add_paragraph(text)
    return saved(document)


def sheet(*rows):
    book = openpyxl.Workbook()
    for row in rows or [("Name", "Age"), ("Cat", 3)]:
        book.active.append(row)
    return saved(book)


def slides():
    deck = pptx.Presentation()
    new_slide(deck, "Cats", "They purr.")
    return saved(deck)


FILES = {"docx": (word, "word/document.xml"), "xlsx": (sheet, "xl/workbook.xml")}
FILES |= {"pptx": (slides, "ppt/slides/slide1.xml")}


def changed(content, name=None, change=lambda part: part, **others):
    """Return an archive with one part changed and others added."""
    file = BytesIO()
    with zipfile.ZipFile(BytesIO(content)) as old, zipfile.ZipFile(file, "w", 8) as new:
        for one in old.namelist():
            new.writestr(one, change(old.read(one)) if one == name else old.read(one))
        for one, part in others.items():
            new.writestr(one, part)
    return file.getvalue()


def read(tmp_path, content, suffix, **budget):
    """Return why a file is left out, and the detail; its text where it is read."""
    (tmp_path / f"a.{suffix}").write_bytes(content)
    before = sorted(os.listdir(tmp_path))
    reading = read_files([tmp_path], base=tmp_path, budget=Budget(**budget))
    assert sorted(os.listdir(tmp_path)) == before
    for path in reading.skipped:
        return path.reason, path.detail
    return "\n".join(chunk.text for chunk in reading.documents)


@pytest.mark.parametrize("suffix", FILES)
@pytest.mark.parametrize("declaration", [ENTITIES, OUTSIDE])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_part_that_declares_entities_is_refused(tmp_path, suffix, declaration, encoding):
    make, name = FILES[suffix]

    def declare(part):
        text = part.decode().partition("?>")[2]
        return f'<?xml version="1.0" encoding="{encoding}"?>{declaration}{text}'.encode(encoding)

    reason, detail = read(tmp_path, changed(make(), name, declare), suffix)
    assert (reason, detail) == (SkipReason.BROKEN, f"{name} declares a document type")


WITH_MACROS = {
    "docm": b"application/vnd.ms-word.document.macroEnabled.main+xml",
    "pptm": b"application/vnd.ms-powerpoint.presentation.macroEnabled.main+xml",
    "xlsm": b"application/vnd.ms-excel.sheet.macroEnabled.main+xml",
}


@pytest.mark.parametrize("suffix", WITH_MACROS)
def test_a_file_with_macros_is_read_as_one_without(tmp_path, suffix):
    make, _ = FILES[f"{suffix[:-1]}x"]

    def enable(part):
        main = rb"application/vnd\.openxmlformats-officedocument\.[\w.]+\.main\+xml"
        return re.sub(main, WITH_MACROS[suffix], part)

    macros = {f"{suffix}/vbaProject.bin": ole("Sub AutoOpen()")}
    content = changed(make(), "[Content_Types].xml", enable, **macros)
    assert WITH_MACROS[suffix] in zipfile.ZipFile(BytesIO(content)).read("[Content_Types].xml")
    text = read(tmp_path, content, suffix)
    assert "Cat" in text
    assert "AutoOpen" not in text


def ole(*streams):
    return b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "".join(streams).encode("utf-16-le")


WRONG = {
    "encrypted": (ole("EncryptedPackage"), SkipReason.ENCRYPTED, "needs a password"),
    "older": (ole("WordDocument"), SkipReason.BROKEN, "Office 97-2003 inside; save it as"),
    "text": (b"Cats purr.", SkipReason.BROKEN, "not a whole zip archive"),
    "cut off": (word()[:-500], SkipReason.BROKEN, "was it cut off?"),
    "another archive": (
        changed(word(), "[Content_Types].xml", lambda part: b"<x/>"),
        SkipReason.BROKEN,
        "inside; is its suffix right?",
    ),
}


@pytest.mark.parametrize("suffix", FILES)
@pytest.mark.parametrize(("content", "reason", "detail"), WRONG.values(), ids=WRONG)
def test_what_is_no_such_file_is_left_out_with_the_reason(
    tmp_path, suffix, content, reason, detail
):
    found = read(tmp_path, content, suffix)
    assert found[0] is reason
    assert detail in found[1]


def test_each_kind_under_the_suffix_of_another_is_left_out(tmp_path):
    for suffix, (make, _) in FILES.items():
        for other in {*FILES, "epub"} - {suffix}:
            (tmp_path / f"{suffix}.{other}").write_bytes(make())
    reading = read_files([tmp_path])
    assert not reading.documents
    assert {path.reason for path in reading.skipped} == {SkipReason.BROKEN}
    assert all("inside; is its suffix right?" in path.detail for path in reading.skipped)


@pytest.mark.parametrize("suffix", FILES)
def test_what_lies_outside_of_an_archive_or_runs_is_not_touched(tmp_path, suffix):
    make, _ = FILES[suffix]
    others = {"../../evil.xml": "<x/>", "/tmp/evil.bin": "x", "word/vbaProject.bin": "x"}
    found = read(tmp_path, changed(make(), **others), suffix)
    assert "Cat" in found
    assert not os.path.exists("/tmp/evil.bin")


def test_what_unpacks_to_too_much_is_left_out(tmp_path, monkeypatch):
    content = bytearray(word())
    entry = content.rfind(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = (MAX_UNPACKED + 1).to_bytes(4, "little")  # what it declares
    assert read(tmp_path, bytes(content), "docx")[0] is SkipReason.TOO_LARGE


@pytest.mark.slow
@pytest.mark.parametrize("suffix", FILES)
def test_a_bomb_within_the_limit_ends_in_the_budget(tmp_path, suffix):
    make, name = FILES[suffix]
    bomb = changed(make(), name, lambda part: part + b" " * 900_000_000)
    found = read(tmp_path, bomb, suffix, n_bytes=2**28, seconds=5)
    assert found[0] in (SkipReason.TOO_COSTLY, SkipReason.BROKEN)


def as_strict(part):
    for name in ("spreadsheetml/2006/main", "officeDocument/2006/relationships"):
        own = name.replace("/2006", "").encode()
        part = part.replace(
            b"schemas.openxmlformats.org/" + name.encode(), b"purl.oclc.org/ooxml/" + own
        )
    return part


def test_a_workbook_saved_as_strict_open_xml_is_read(tmp_path):
    content = sheet()
    with zipfile.ZipFile(BytesIO(content)) as archive:
        names = archive.namelist()
    for name in names:
        content = changed(content, name, as_strict)
    assert "| Cat | 3 |" in read(tmp_path, content, "xlsx")


def nested(part):
    deep = b"<w:tbl><w:tr><w:tc>" * 300 + b"<w:p/>" + b"</w:tc></w:tr></w:tbl>" * 300
    return part.replace(b"<w:sectPr", deep + b"<w:sectPr", 1)


def test_tables_nested_too_deeply_are_left_out(tmp_path):
    reason, _ = read(tmp_path, changed(word(), "word/document.xml", nested), "docx")
    assert reason is SkipReason.BROKEN


@pytest.mark.slow
def test_a_cell_of_five_megabytes_is_read_or_left_out(tmp_path):
    cell = b'<c r="A3" t="inlineStr"><is><t>' + b"word " * 1_000_000 + b"</t></is></c>"
    row = b'<row r="3">' + cell + b"</row></sheetData>"

    def grow(part):
        return part.replace(b"</sheetData>", row)

    found = read(tmp_path, changed(sheet(), "xl/worksheets/sheet1.xml", grow), "xlsx")
    assert found[0] is SkipReason.TOO_COSTLY or found.count("wor") >= 999_000


@pytest.mark.parametrize("text", ["", " "])
def test_a_file_without_text_says_whether_it_has_images(tmp_path, text):
    empty = read(tmp_path, word(text), "docx")
    assert empty == (SkipReason.EMPTY, "no text and no image")
    scanned = changed(word(text), **{"word/media/image1.png": b"x"})
    assert read(tmp_path, scanned, "docx") == (SkipReason.NO_TEXT, "1 images")


def test_an_empty_workbook_and_presentation_are_empty(tmp_path):
    assert read(tmp_path, sheet(()), "xlsx")[0] is SkipReason.EMPTY
    os.remove(tmp_path / "a.xlsx")
    assert read(tmp_path, saved(pptx.Presentation()), "pptx")[0] is SkipReason.EMPTY


@pytest.mark.slow
def test_damaged_bytes_stop_nothing(tmp_path):
    contents = {suffix: make() for suffix, (make, _) in FILES.items()} | {"epub": epub("<p>x</p>")}
    for suffix, content in contents.items():
        for i in range(0, len(content), len(content) // 40):
            damaged = content[:i] + bytes([content[i] ^ 0x55]) + content[i + 1 :]
            (tmp_path / f"{i}.{suffix}").write_bytes(damaged)
    (tmp_path / "good.md").write_text("Cats purr.")
    reading = read_files([tmp_path], base=tmp_path)
    assert "good.md" in reading.sources
    allowed = {SkipReason.BROKEN, SkipReason.ENCRYPTED, SkipReason.TOO_LARGE, SkipReason.NO_TEXT}
    allowed |= {SkipReason.EMPTY}
    assert {path.reason for path in reading.skipped} <= allowed


def test_locks_of_office_are_hidden(tmp_path):
    (tmp_path / "~$a.docx").write_bytes(b"x" * 162)
    (tmp_path / "a.docx").write_bytes(word())
    reading = read_files([tmp_path], base=tmp_path)
    assert reading.sources == ("a.docx",)
    assert [(path.source, path.reason) for path in reading.skipped] == [
        ("~$a.docx", SkipReason.HIDDEN)
    ]
