"""Books as Markdown: the chapters of an EPUB, in the order of reading."""

from __future__ import annotations

import posixpath
import unicodedata
import zipfile
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from sift_core.documents.finding import SkipError, SkipReason
from sift_core.documents.html import markdown_of_html
from sift_core.documents.office.package import no_text, open_package, parse_xml, read_part

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_CHAPTERS = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")
_DC = "{http://purl.org/dc/elements/1.1/}"
_OPF = "{http://www.idpf.org/2007/opf}"
_IS_UTF8 = 0x800  # flag of an entry of a zip archive whose name is in UTF-8


def markdown_of_epub(content: bytes) -> str:
    """Return the text of a book as Markdown, in the order of reading, below its title.

    Left out are the table of contents and images. Chapters that cannot be read are left out if
    others can.

    Args:
        content: The file.

    Raises:
        SkipError: If it is broken, protected from copying, no book, or has no text.
    """
    book = open_package(content, ".epub")
    path, root = _opened(book)
    protected, names = _protected(book), _names(book)
    parts: list[str] = []
    error: SkipError | None = None
    for name in _chapters(path, root):
        if name in protected:
            raise SkipError(SkipReason.ENCRYPTED, "protected from copying (DRM)")
        try:
            chapter = read_part(book, name) or read_part(book, names.get(_spelled(name), name))
            parts.append(markdown_of_html(chapter or b"", is_page=False))
        except SkipError as skipped:
            error = error if skipped.reason is SkipReason.EMPTY else skipped
    if not parts:
        raise error or no_text(book)
    text = "\n\n".join(parts)
    title = " ".join((root.findtext(f".//{_DC}title") or "").split())
    return f"# {title}\n\n{text}" if title and f"# {title}\n" not in text else text


def stated_dates(content: bytes) -> list[str]:
    """Return when a book says that it was changed and published, in this order."""
    _, root = _opened(open_package(content, ".epub"))
    changed = [
        one.text
        for one in root.iter("{*}meta")
        if one.get("property") == "dcterms:modified" and one.text
    ]
    dates = [(one.get(f"{_OPF}event"), one.text) for one in root.iter(f"{_DC}date") if one.text]
    dates.sort(key=lambda date: date[0] != "modification")
    return [*changed, *(text for _, text in dates)]


def _opened(book: zipfile.ZipFile) -> tuple[str, Any]:
    """Return where the list of a book's parts is, and its root element."""
    container = read_part(book, _CONTAINER)
    for file in parse_xml(container).iter("{*}rootfile") if container else ():
        path = file.get("full-path", "")
        if package := read_part(book, path):
            return path, parse_xml(package)
    raise SkipError(SkipReason.BROKEN, "no book inside; is its suffix right?")


def _chapters(path: str, root: Any) -> list[str]:
    """Return the names of a book's chapters, in order, each once."""
    items = {item.get("id"): item for item in root.iter("{*}item")}
    found = [items.get(one.get("idref")) for one in root.iter("{*}itemref")]
    return list(
        dict.fromkeys(
            posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(item.get("href"))))
            for item in found
            if item is not None
            and item.get("media-type") in _CHAPTERS
            and item.get("href")
            and "nav" not in item.get("properties", "").split()
        )
    )


def _names(book: zipfile.ZipFile) -> dict[str, str]:
    """Return the names of a book's parts, by how `_spelled` writes them."""
    names: dict[str, str] = {}
    for entry in book.infolist():
        spelled = [entry.filename]
        if not entry.flag_bits & _IS_UTF8:  # `zipfile` has read the name as code page 437
            for encoding in ("cp1252", "utf-8"):
                with suppress(UnicodeError):
                    spelled.append(entry.filename.encode("cp437").decode(encoding))
        names |= {_spelled(name): entry.filename for name in spelled}
    return names


def _spelled(name: str) -> str:
    """Return a name without regard to case and to how accents are composed."""
    return unicodedata.normalize("NFC", name).casefold()


def _protected(book: zipfile.ZipFile) -> set[str]:
    """Return the names of the parts that are encrypted; fonts often are, in books of everybody."""
    encryption = read_part(book, _ENCRYPTION)
    references = parse_xml(encryption).iter("{*}CipherReference") if encryption else ()
    return {unquote(one.get("URI", "")) for one in references}
