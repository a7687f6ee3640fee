"""Files and folders become chunks; what does not is listed with the reason."""

import os
import subprocess
from io import BytesIO

import pypdf
import pytest
from pypdf.errors import DependencyError
from pypdf.generic import (
    DecodedStreamObject,
    DictionaryObject,
    NameObject,
    NumberObject,
    StreamObject,
)

from sift_core.documents import Chunker, read_files, read_found
from sift_core.documents.finding import SkipReason, find_files
from sift_core.documents.html import markdown_of_html
from sift_core.errors import InvalidInputError


def pdf(*pages, password=None, owner=None):
    """Return a PDF with a line of text a page; a blank page for "", and a picture for None."""
    writer = pypdf.PdfWriter()
    names = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    font = DictionaryObject({NameObject(key): NameObject(names[key]) for key in names})
    fonts = DictionaryObject({NameObject("/F1"): font})
    for text in pages:
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode() if text else b"")
        page = writer.add_blank_page(300, 300)
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        if text is None:
            page["/Resources"][NameObject("/XObject")] = pictures(writer)
        page[NameObject("/Contents")] = writer._add_object(stream)
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    if owner:
        writer.encrypt("", owner, algorithm="AES-256")
    file = BytesIO()
    writer.write(file)
    return file.getvalue()


def pictures(writer):
    """Return the only picture of a page, one grey dot."""
    dot = StreamObject()
    dot.set_data(b"\x80")
    names = {"/Type": "/XObject", "/Subtype": "/Image", "/ColorSpace": "/DeviceGray"}
    dot.update({NameObject(key): NameObject(name) for key, name in names.items()})
    for key, number in (("/Width", 1), ("/Height", 1), ("/BitsPerComponent", 8)):
        dot[NameObject(key)] = NumberObject(number)
    return DictionaryObject({NameObject("/Im0"): writer._add_object(dot)})


def fill(folder, **files):
    """Write files; "__" in a name is a folder, "_dot_" a dot."""
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def reasons(reading):
    return {path.source: path.reason for path in reading.skipped}


def test_every_kind_of_file_is_read_under_its_path_from_the_base(tmp_path):
    fill(
        tmp_path,
        a_dot_md="# Cats\n\nThey purr.",
        b__c_dot_html="<h1>Dogs</h1><p>They bark.</p>",
        b__d_dot_pdf=pdf("Cows moo."),
        e_dot_rst="Birds\n=====\n\nThey sing.",
        f_dot_py='"""Bees hum."""',
        g_dot_txt="Fish swim.",
    )
    reading = read_files([tmp_path], base=tmp_path)
    assert reading.sources == ("a.md", "e.rst", "f.py", "g.txt", "b/c.html", "b/d.pdf")
    assert [document.document_id for document in reading.documents] == [
        f"{source}#0" for source in reading.sources
    ]
    by_source = {document.metadata["source"]: document for document in reading.documents}
    assert by_source["b/c.html"].metadata["heading"] == ["Dogs"]
    assert by_source["b/c.html"].text == "# Dogs\n\nThey bark."
    assert by_source["b/d.pdf"].text == "Cows moo."
    assert reading.skipped == ()


def test_what_is_not_read_is_listed_with_its_reason(tmp_path):
    fill(
        tmp_path,
        good_dot_md="text",
        _dot_git__config="x",
        _dot_env="x",
        node_modules__x_dot_md="x",
        venv2__pyvenv_dot_cfg="",
        venv2__x_dot_md="x",
        picture_dot_png=b"\x89PNG",
        LICENSE="x",
        binary_dot_txt=b"a\0b",
        wide_dot_txt="a\0b".encode("utf-16"),
        latin_dot_txt="café".encode("latin-1"),
        empty_dot_md="",
        blank_dot_md=" \n\n",
        broken_dot_pdf=b"%PDF-1.4 nonsense",
        scanned_dot_pdf=pdf("", ""),
        secret_dot_pdf=pdf("text", password="secret"),
        shell_dot_html="<html><body><script>app()</script></body></html>",
        deep_dot_html="<div>" * 9_000 + "text",
        large_dot_md="x" * 100_000,
        bad_dot_py="# coding: no-such-codec\n",
        bytes_dot_py="# coding: base64\n",
    )
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "alias.md").symlink_to("good.md")
    (tmp_path / "gone.md").symlink_to(tmp_path / "nowhere.md")
    (tmp_path / "circle.md").symlink_to(tmp_path / "circle.md")
    os.mkfifo(tmp_path / "pipe.txt")
    reading = read_files([tmp_path], base=tmp_path, max_bytes=50_000)
    assert reading.sources == ("good.md",)
    assert reasons(reading) == {
        ".git/": SkipReason.HIDDEN,
        ".env": SkipReason.HIDDEN,
        "node_modules/": SkipReason.CACHE,
        "venv2/": SkipReason.CACHE,
        "loop/": SkipReason.LINK,
        "alias.md": SkipReason.LINK,
        "picture.png": SkipReason.UNKNOWN_SUFFIX,
        "LICENSE": SkipReason.UNKNOWN_SUFFIX,
        "binary.txt": SkipReason.BINARY,
        "wide.txt": SkipReason.BINARY,
        "latin.txt": SkipReason.ENCODING,
        "bad.py": SkipReason.ENCODING,
        "bytes.py": SkipReason.ENCODING,
        "empty.md": SkipReason.EMPTY,
        "blank.md": SkipReason.EMPTY,
        "shell.html": SkipReason.EMPTY,
        "broken.pdf": SkipReason.BROKEN,
        "deep.html": SkipReason.BROKEN,
        "scanned.pdf": SkipReason.NO_TEXT,
        "secret.pdf": SkipReason.ENCRYPTED,
        "large.md": SkipReason.TOO_LARGE,
        "gone.md": SkipReason.LINK,
        "circle.md": SkipReason.LINK,
        "pipe.txt": SkipReason.UNREADABLE,
    }


def test_a_pdf_that_is_only_locked_against_changes_is_read(tmp_path, monkeypatch):
    """Every viewer opens it. AES needs a package of the extra `files`, which an error names."""
    fill(tmp_path, locked_dot_pdf=pdf("Cows moo.", owner="secret"))
    (only,) = read_files([tmp_path], budget=None).documents
    assert only.text == "Cows moo."

    def decrypt(*_):
        raise DependencyError("cryptography is not there")

    monkeypatch.setattr(pypdf.PdfReader, "decrypt", decrypt)
    (skipped,) = read_files([tmp_path], budget=None).skipped
    assert skipped.reason is SkipReason.MISSING_PACKAGE
    assert "`cryptography` could not be imported" in skipped.detail


def test_two_roots_do_not_collide_and_a_file_found_twice_is_read_once(tmp_path, monkeypatch):
    fill(tmp_path, a__x_dot_md="first", b__x_dot_md="second")
    monkeypatch.chdir(tmp_path / "a")
    paths = ["../b", ".", "x.md", tmp_path / "b" / "x.md"]
    assert read_files(paths).sources == ("../b/x.md", "x.md")


@pytest.mark.parametrize("path", ["nowhere", ""])
def test_a_path_without_a_file_is_an_error(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match=r"no file or folder 'nowhere'|must not be empty"):
        find_files([path])


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("mark.txt", b"\xef\xbb\xbfone\r\ntwo", "one\ntwo"),
        ("utf16.txt", "one\ntwo".encode("utf-16"), "one\ntwo"),
        ("mac.txt", b"one\rtwo", "one\ntwo"),
        ("cookie.py", b"# coding: latin-1\nx = '\xe4'\n", "# coding: latin-1\nx = 'ä'"),
    ],
)
def test_encodings_and_line_ends_of_files(tmp_path, name, content, text):
    (tmp_path / name).write_bytes(content)
    (document,) = read_files([tmp_path]).documents
    assert document.text == text


def test_links_and_odd_names_are_read_where_they_are_named_and_never_in_a_folder(tmp_path):
    fill(tmp_path, docs__a_dot_md="text", other__b_dot_md="linked")
    (tmp_path / "docs/link.md").symlink_to("../other/b.md")
    (tmp_path / "link").symlink_to("docs")
    reading = read_files([tmp_path / "docs"], base=tmp_path)
    assert reading.sources == ("docs/a.md",)
    assert reasons(reading) == {"docs/link.md": SkipReason.LINK}
    paths = [tmp_path / "docs/link.md", tmp_path / "link"]
    assert read_files(paths, base=tmp_path).sources == ("docs/link.md", "link/a.md")
    fill(tmp_path, _dot_notes__x_dot_md="hidden", LICENSE="do what you like")  # whatever its name
    paths = [tmp_path / ".notes", tmp_path / "LICENSE"]
    assert read_files(paths, base=tmp_path).sources == (".notes/x.md", "LICENSE")


@pytest.mark.slow
def test_folders_deeper_than_paths_go_are_listed_as_unreadable_folders(tmp_path):
    """Far deeper than Python recurses. What is stored of such a folder stays."""
    fill(tmp_path, z_dot_md="text")
    # More than a path may have; `mkdir -p` makes it in steps, and `shutil.rmtree` would recurse.
    subprocess.run(["mkdir", "-p", "/".join("d" * 2_500)], check=True, cwd=tmp_path)
    with open(f"{tmp_path}/{'/'.join('d' * 1_200)}/x.md", "w") as file:
        file.write("text")
    try:
        reading = read_files([tmp_path], base=tmp_path)
    finally:
        subprocess.run(["rm", "-r", "d"], check=True, cwd=tmp_path)
    assert len(reading.sources) == 2
    (left_out,) = reading.skipped
    assert left_out.reason is SkipReason.UNREADABLE
    assert left_out.source.endswith("/d/")


def test_a_folder_that_vanishes_while_it_is_read_is_listed(tmp_path, monkeypatch):
    fill(tmp_path, a__x_dot_md="text", b__x_dot_md="text", z_dot_md="text")
    scan = os.scandir

    def vanish(path):
        if str(path).endswith("a"):
            (tmp_path / "a/x.md").unlink()
            (tmp_path / "a").rmdir()
        return scan(path)

    monkeypatch.setattr(os, "scandir", vanish)
    reading = read_files([tmp_path], base=tmp_path)
    assert reading.sources == ("z.md", "b/x.md")
    assert reasons(reading) == {"a/": SkipReason.UNREADABLE}


def test_what_becomes_endless_after_it_was_found_is_listed(tmp_path, monkeypatch):
    monkeypatch.setattr("sift_core.documents.file_content.MAX_BYTES", 10)
    fill(tmp_path, a_dot_md="text", b_dot_md="text", c_dot_md="text")
    found = find_files([tmp_path], base=tmp_path)
    (tmp_path / "b.md").write_text("text" * 10)
    (tmp_path / "c.md").unlink()
    os.mkfifo(tmp_path / "c.md")
    reading = read_found(found, Chunker())
    assert reading.sources == ("a.md",)
    assert reasons(reading) == {"b.md": SkipReason.UNREADABLE, "c.md": SkipReason.EMPTY}


@pytest.mark.parametrize("name", ["x" * 300, "é" * 200, "x/" * 3_000, "a\0b"])
def test_a_name_that_cannot_exist_is_an_error_of_ours(tmp_path, name):
    with pytest.raises(InvalidInputError, match="no file or folder"):
        find_files([tmp_path / name])
    fill(tmp_path, a_dot_md="text")
    assert len(read_files([tmp_path], base=tmp_path / name).documents) == 1


def test_a_current_folder_that_was_deleted_is_an_error_of_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InvalidInputError, match="the current folder was deleted"):
        read_files(["x.md"])


def test_chunks_of_a_pdf_know_their_pages(tmp_path):
    fill(tmp_path, a_dot_pdf=pdf("Cats purr at night.", "", "Dogs bark by day."))
    (whole,) = read_files([tmp_path], base=tmp_path).documents
    assert (whole.metadata["page"], whole.metadata["last_page"]) == (1, 3)
    parts = read_files([tmp_path], base=tmp_path, chunker=Chunker(20)).documents
    assert [(part.document_id, part.text, part.metadata["page"]) for part in parts] == [
        ("a.pdf#0", "Cats purr at night.", 1),
        ("a.pdf#1", "Dogs bark by day.", 3),
    ]
    assert parts[1].metadata["last_page"] == 3


def test_pages_that_are_pictures_are_told_of_and_blank_pages_are_not(tmp_path):
    text = "Cats purr at night."
    fill(tmp_path, a_dot_pdf=pdf(text, None, "", None), b_dot_pdf=pdf(None), c_dot_pdf=pdf(text))
    reading = read_files([tmp_path], base=tmp_path)
    assert reading.sources == ("a.pdf", "c.pdf")
    assert reasons(reading) == {"a.pdf": SkipReason.SOME_PAGES, "b.pdf": SkipReason.NO_TEXT}
    assert reading.skipped[0].detail == "pages 2, 4"


PAGE = """<html><head><title>The title</title><style>p {}</style></head><body>
<nav>menu</nav><header>banner</header>{body}<aside>adverts</aside><footer>imprint</footer>
</body></html>"""
BODIES = {
    "main": "<div>around</div><main><nav>on this page</nav><h1>A</h1><p>b</p></main>",
    "role": "<div>around</div><div role=main><h1>A</h1><p>b</p></div>",
    "article": "<div>around</div><article><h1>A</h1><p>b</p></article>",
    "body": "<div><h1>A</h1><p>b</p></div>",
    "several articles": "<article><h1>A</h1></article><article><p>b</p></article>",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_main_content_of_a_page_is_read(body):
    assert markdown_of_html(PAGE.replace("{body}", body).encode()) == "# A\n\nb"


def test_headings_code_and_names_survive_and_addresses_do_not():
    page = (
        '<main><h2>Use it<a class="headerlink" href="#use">¶</a></h2>'
        '<div class="highlight-python"><pre>def index_documents():\n    pass</pre></div>'
        '<p>See <a href="https://example.org/x">the_guide</a><img src="x.png" alt="y">.</p></main>'
    )
    assert markdown_of_html(page.encode()) == (
        "## Use it\n\n```python\ndef index_documents():\n    pass\n```\n\nSee the_guide."
    )


@pytest.mark.parametrize(
    "page",
    [
        '<meta charset="iso-8859-1"><p>café</p>'.encode("latin-1"),
        '<?xml version="1.0" encoding="utf-16"?><p>café</p>'.encode("utf-16"),
        "<p>café</p>".encode(),
        "<p>café</p>".encode("latin-1"),
        '<meta charset="utf-8"><p>café</p>'.encode("latin-1"),
        '<meta http-equiv="Content-Type" content="text/html; charset=shift_jis">猫'.encode("cp932"),
    ],
    ids=["latin-1", "utf-16 with a mark", "bare utf-8", "bare latin-1", "wrong", "shift_jis"],
)
def test_the_encoding_of_a_page_is_respected(page):
    assert markdown_of_html(page) in ("café", "猫")


@pytest.mark.parametrize(
    "page",
    [
        b"<![" * 9,
        b"<!DOCTYPE [<!",
        b"<ol start=" + b"9" * 5_000 + b"><li>x",
        b"<td colspan=" + b"9" * 5_000 + b">x",
    ],
    ids=["marked section", "declaration", "number", "span"],
)
def test_a_page_that_python_cannot_parse_ends_nothing(tmp_path, page):
    fill(tmp_path, odd_dot_html=page, good_dot_md="text")
    reading = read_files([tmp_path], base=tmp_path)
    assert "good.md" in reading.sources
    assert {*reading.sources, *reasons(reading)} == {"good.md", "odd.html"}
    assert not any("\0" in document.text for document in reading.documents)
