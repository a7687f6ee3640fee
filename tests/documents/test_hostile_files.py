"""Files made to hurt who reads them: they are read or left out, and the others are read."""

import os
import sys
from io import BytesIO

import pypdf
import pytest
from pypdf.generic import ArrayObject, DecodedStreamObject, NameObject

from sift_core.documents import read_files
from sift_core.documents.budget import Budget
from sift_core.documents.finding import SkipReason
from tests.documents.test_reading import fill, pdf, reasons

# Pieces that a grammar may take long for where they stand often, between "~".
PIECES = {
    "html": "<div>~<b>~<a b='~<ul><li>~<table><tr><td>~<blockquote>~<!--~<![~&amp;~&#x1F600;~<p>~"
    "<pre>~<h1>x~<td colspan=1000>x</td>~<tr><td>x~<a href='x'>y</a>~</p>~<~<x y=~<svg><math>~"
    "<select><option>~<br>~<td rowspan=65534 colspan=1000>~<ol start=9999999999><li>x~<style>",
    "md": ">~> ~- ~  - x\n~[~![~*~_a_~`~```\n~|~| a ~#~# x\n~[a](~<a ~<~&~\\~1. ~a\n===\n~x~ ~\t~"
    "***a ~[^1]:~<div>\n~[a]: b\n~$$~:~* a\n\n~- a\n\n  ~|-~\n~é~漢",
    "rst": "=~`~|~*~.. ~..\n\n~x\n=\n~::\n\n ~+--~_~  - ~.. |a| ",
    "py": '(~[~{~a=~if x:\n ~f\'{~"""~\\\n~lambda:~-~not ~@a\n~x;',
    "txt": "x~ ~\n~é~e\u0301~\u200b~\U0001f468\u200d~\r~\f~a b~. ~漢",
}
CODECS = "punycode idna rot13 base64 unicode_escape raw_unicode_escape undefined utf-7 utf-16 "
CODECS += "utf-32 zlib hex mbcs oem \0 utf-8-sig bz2_codec quopri uu cp65001 iso2022_jp_2 hz ../x é"
NAMING = {
    "html": ("<meta charset={}><p>", '<?xml version="1.0" encoding="{}"?>'),
    "py": ("# coding: {}\n",),
}
LEFT_OUT = {
    *(SkipReason.TOO_COSTLY, SkipReason.BROKEN, SkipReason.EMPTY, SkipReason.NO_TEXT),
    *(SkipReason.ENCODING, SkipReason.BINARY),
}


def assert_nothing_is_stopped(folder, budget):
    """Read a folder; each file is read or left out for a reason of its own, and good.md is read."""
    fill(folder, good_dot_md="# Cats\n\nCats purr.\n")
    reading = read_files([folder], base=folder, budget=budget)
    assert "good.md" in reading.sources
    assert {*reading.sources, *reasons(reading)} == {*os.listdir(folder)}
    assert {*reasons(reading).values()} <= LEFT_OUT
    assert not any("\0" in document.text for document in reading.documents)


@pytest.mark.skipif(sys.platform == "win32", reason="processor time is not limited there")
@pytest.mark.parametrize("suffix", PIECES)
@pytest.mark.parametrize("n_characters", [1_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_one_piece_many_times_stops_nothing(tmp_path, monkeypatch, suffix, n_characters):
    monkeypatch.setattr("sift_core.documents.budget._SECONDS_A_MEGABYTE", 0)
    for i, piece in enumerate(PIECES[suffix].split("~")):
        text = (piece * n_characters)[:n_characters]
        (tmp_path / f"{i}.{suffix}").write_text(f"x {text}\n\nThe end.\n", encoding="utf-8")
    assert_nothing_is_stopped(tmp_path, Budget(seconds=0.5))


@pytest.mark.parametrize("suffix", NAMING)
def test_a_codec_that_is_rare_wrong_or_none_stops_nothing(tmp_path, suffix):
    text = "Cats purr. " * 9 + "é漢🙂\u202e"
    for i, codec in enumerate(CODECS.split(" ")):
        for j, naming in enumerate(NAMING[suffix]):
            path = tmp_path / f"{i}-{j}.{suffix}"
            path.write_bytes((naming.format(codec) + text).encode())
    assert_nothing_is_stopped(tmp_path, Budget())


def test_bytes_that_are_no_text_of_their_kind_stop_nothing(tmp_path):
    text = "Cats purr. é漢🙂"
    ways = [text.encode(name) for name in ("utf-16", "utf-32", "utf-7", "utf-8-sig", "utf-16-be")]
    ways += [b"\xff\xfe" + b"\x9d" * 99, b"\xef\xbb\xbf" * 99 + ways[0], text.encode()[:-1]]
    for i, content in enumerate(ways):
        for suffix in ("html", "md", "rst", "py", "txt", "pdf"):
            (tmp_path / f"{i}.{suffix}").write_bytes(content)
    assert_nothing_is_stopped(tmp_path, Budget())


def changed_pdf(change):
    """Return a PDF of a page, changed by a function of its writer, its pages and the page."""
    writer = pypdf.PdfWriter(clone_from=pypdf.PdfReader(BytesIO(pdf("Cats purr."))))
    change(writer, writer._root_object["/Pages"], writer.pages[0])
    file = BytesIO()
    writer.write(file)
    return file.getvalue()


def a_tree_of_pages_that_contains_itself(writer, pages, page):
    pages[NameObject("/Kids")] = ArrayObject([pages["/Kids"][0], pages.indirect_reference])


def one_page_listed_often(writer, pages, page):
    pages[NameObject("/Kids")] = ArrayObject([pages["/Kids"][0]] * 100_000)


def much_that_is_packed_small(writer, pages, page):
    stream = DecodedStreamObject()
    stream.set_data(b"BT /F1 12 Tf (Cats purr.) Tj ET\n" * 100_000)
    page[NameObject("/Contents")] = writer._add_object(stream.flate_encode())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="processor time is not limited there")
def test_a_pdf_that_is_small_and_much_or_damaged_stops_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("sift_core.documents.budget._SECONDS_A_MEGABYTE", 0)
    (tmp_path / "loop.pdf").write_bytes(changed_pdf(a_tree_of_pages_that_contains_itself))
    (tmp_path / "packed.pdf").write_bytes(changed_pdf(much_that_is_packed_small))
    (tmp_path / "often.pdf").write_bytes(changed_pdf(one_page_listed_often))
    content = pdf("Cats purr.", "Dogs bark.")
    for i in range(0, len(content), 40):
        damaged = content[:i] + bytes([content[i] ^ 0x55]) + content[i + 1 :]
        (tmp_path / f"damaged {i}.pdf").write_bytes(damaged)
    assert_nothing_is_stopped(tmp_path, Budget(seconds=2))
