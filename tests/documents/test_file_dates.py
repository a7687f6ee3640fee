"""Dates of files: what they say, Git's last commit, the file's time, in this order."""

import os
import subprocess
from datetime import datetime, timezone

import docx
import openpyxl
import pptx
import pypdf
import pytest

from sift_core.dates import year_of
from sift_core.documents import Chunker, find_files
from sift_core.documents.file_dates import as_iso
from sift_core.documents.reader import read_found

OLD = 1_000_000_000  # 2001-09-09, 01:46:40 UTC
NAMES = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a", "GIT_COMMITTER_NAME": "a"}


def dates(folder):
    """Return date and kind of each file."""
    found = find_files([folder], base=folder)
    documents = read_found(found, Chunker(), budget=None, with_dates=True).documents
    return {
        one.metadata["source"]: (one.metadata["date"], one.metadata["date_kind"])
        for one in documents
    }


def commit(folder, date, *names):
    environment = {**os.environ, **NAMES, "GIT_COMMITTER_EMAIL": "a", "GIT_COMMITTER_DATE": date}
    for command in (["init", "-q"], ["add", *names], ["commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=folder, env=environment, check=True)


@pytest.mark.parametrize(
    ("name", "text", "date"),
    [
        ("a.md", "---\ntitle: x\ndate: 2019-05-01\n---\nText", "2019-05-01"),
        ("a.md", "---\ndate: 2018-05-01\nupdated: '2019-05-01' # late\n---\nText", "2019-05-01"),
        ("a.md", '+++\ndate = "2019-05-01T10:00:00Z"\n+++\nText', "2019-05-01T10:00:00Z"),
        ("a.md", "---\ndate: 2019\n---\nText", "2019-01-01"),
        ("a.md", "---\ntitle:\ndate: 2019-05-01\n---\nText", "2019-05-01"),
        ("a.html", '<meta property="article:published_time" content="2019-05-01">x', "2019-05-01"),
        ("a.html", '<p>x <time datetime="2019-05-01">May</time></p>', "2019-05-01"),
        ("a.html", '<meta name="date" content="soon"><time>2019-05-01</time>x', "2019-05-01"),
    ],
)
def test_what_a_file_says_wins(tmp_path, name, text, date):
    (tmp_path / name).write_text(text)
    commit(tmp_path, "2020-01-01T00:00:00Z", name)
    [(found, kind)] = dates(tmp_path).values()
    assert found == date
    assert kind == ("html" if name.endswith("html") else "front_matter")


def test_properties_of_a_pdf(tmp_path):
    writer = pypdf.PdfWriter()
    page = writer.add_blank_page(200, 200)
    stream = pypdf.generic.DecodedStreamObject()
    stream.set_data(b"BT /F1 12 Tf 20 100 Td (Hello) Tj ET")
    font = pypdf.generic.DictionaryObject(
        {
            pypdf.generic.NameObject(key): pypdf.generic.NameObject(value)
            for key, value in [
                ("/Type", "/Font"),
                ("/Subtype", "/Type1"),
                ("/BaseFont", "/Helvetica"),
            ]
        }
    )
    fonts = pypdf.generic.DictionaryObject({pypdf.generic.NameObject("/F1"): font})
    page[pypdf.generic.NameObject("/Resources")] = pypdf.generic.DictionaryObject(
        {pypdf.generic.NameObject("/Font"): fonts}
    )
    page[pypdf.generic.NameObject("/Contents")] = writer._add_object(stream)
    writer.add_metadata({"/CreationDate": "D:20180501120000Z", "/ModDate": "D:20190501120000Z"})
    writer.write(tmp_path / "a.pdf")
    [(date, kind)] = dates(tmp_path).values()
    assert (date, kind) == ("2019-05-01T12:00:00+00:00", "pdf")


def test_office_files_state_when_they_were_changed(tmp_path):
    when = datetime(2019, 5, 1, 12, tzinfo=timezone.utc)
    document, deck, book = docx.Document(), pptx.Presentation(), openpyxl.Workbook()
    document.add_paragraph("Text")
    deck.slides.add_slide(deck.slide_layouts[0]).shapes.title.text = "Text"
    book.active.append(["Text"])
    document.core_properties.modified = deck.core_properties.modified = when
    book.properties.created = when.replace(tzinfo=None)
    document.save(tmp_path / "a.docx")
    deck.save(tmp_path / "a.pptx")
    book.save(tmp_path / "a.xlsx")
    found = dates(tmp_path)
    assert found["a.docx"] == ("2019-05-01T12:00:00Z", "docx")
    assert found["a.pptx"] == ("2019-05-01T12:00:00Z", "pptx")
    assert (year_of(found["a.xlsx"][0]), found["a.xlsx"][1]) == (datetime.now().year, "xlsx")


def test_the_date_of_a_template_is_none_of_the_file(tmp_path):
    document = docx.Document()  # python-docx states the day of its template, in 2013
    document.add_paragraph("Text")
    document.save(tmp_path / "a.docx")
    os.utime(tmp_path / "a.docx", (OLD, OLD))
    [(_, kind)] = dates(tmp_path).values()
    assert kind == "file"


def test_git_wins_over_the_time_of_a_file(tmp_path):
    for name in ("a.md", "sub/ü b.md", "new.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"Text of {name}")
        os.utime(tmp_path / name, (OLD, OLD))
    commit(tmp_path, "2015-05-05T00:00:00Z", "a.md", "sub/ü b.md")
    (tmp_path / "a.md").write_text("Another text")
    commit(tmp_path, "2016-05-05T00:00:00Z", "a.md")
    assert dates(tmp_path) == {
        "a.md": ("2016-05-05T00:00:00+00:00", "git"),
        "sub/ü b.md": ("2015-05-05T00:00:00+00:00", "git"),
        "new.md": (datetime.fromtimestamp(OLD, timezone.utc).isoformat(), "file"),
    }
    (tmp_path / ".git" / "HEAD").write_text("no repository any more")
    assert {kind for _, kind in dates(tmp_path).values()} == {"file"}


def test_no_program_of_a_received_repository_is_run(tmp_path):
    (tmp_path / "a.md").write_text("Text")
    commit(tmp_path, "2015-05-05T00:00:00Z", "a.md")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch '{tmp_path}/was-run'\n")
    program.chmod(0o755)
    for key in ("gpg.program", "core.fsmonitor", "core.pager", "diff.external", "core.sshCommand"):
        subprocess.run(["git", "config", key, str(program)], cwd=tmp_path, check=True)
    subprocess.run(["git", "config", "log.showSignature", "true"], cwd=tmp_path, check=True)
    assert dates(tmp_path)["a.md"] == ("2015-05-05T00:00:00+00:00", "git")
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize(
    ("value", "iso"),
    [
        ("2019-05-01", "2019-05-01"),
        ("2019/05/01", "2019-05-01"),
        ("2019-05", "2019-05-01"),
        ("Wed, 01 May 2019 10:00:00 +0200", "2019-05-01T10:00:00+02:00"),
        ("2019-13-01", None),
        ("1 Jan 99999999999999999999 00:00:00 +0000", None),
        ("soon", None),
        ("", None),
    ],
)
def test_dates_become_iso(value, iso):
    assert as_iso(value) == iso
    assert year_of(iso) == (None if iso is None else 2019)
