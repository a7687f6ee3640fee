"""The zip archive that an Office file or a book is: checked, read part by part, never unpacked."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any
from xml.parsers import expat

from sift_core.documents.finding import SkipError, SkipReason, broken
from sift_core.errors import MissingDependencyError

try:
    from lxml import etree as etree  # for the others as well
except ImportError as error:
    raise MissingDependencyError("lxml", extra="office") from error

MAX_UNPACKED = 1_000_000_000  # bytes; a workbook of 50 MB, the largest file read, is less

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # Office files before 2007, and encrypted ones since
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_PIECE = 65_536  # bytes fed to a parser at once
_MAIN_PART = {
    ".docx": ("Word document", re.compile(rb"(?:wordprocessingml|ms-word)\.[\w.]*main\+xml")),
    ".pptx": (
        "presentation",
        re.compile(rb"(?:presentationml|ms-powerpoint)\.[\w.]*main\+xml"),
    ),
    ".xlsx": ("workbook", re.compile(rb"(?:spreadsheetml|ms-excel)\.[\w.]*main\+xml")),
}
_XML = (".xml", ".rels", ".vml")
# "Strict Open XML" has names of its own for the same elements.
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"
_CORE = "docProps/core.xml"
_DATES = ("modified", "created")
# What the default templates of python-docx and python-pptx state of themselves.
_OF_TEMPLATES = {"2013-12-23T23:15:00Z", "2013-01-27T09:14:16Z", "2013-01-27T09:15:58Z"}
_NO_TITLES = {"word document", "powerpoint presentation", "presentation", "untitled"}


def open_package(content: bytes, suffix: str) -> zipfile.ZipFile:
    """Return the archive that a file is, after its checks.

    Args:
        content: The file.
        suffix: Of its name, in lower case: ".docx", ".pptx", ".xlsx" or ".epub".

    Raises:
        SkipError: If it is encrypted, of an older format, cut off, no such file, or unpacks to
            more than `MAX_UNPACKED`, or if a part of an Office file declares a document type,
            which none does that an Office program wrote.
    """
    if content.startswith(_OLE):
        if _ENCRYPTED in content:
            raise SkipError(SkipReason.ENCRYPTED, "needs a password")
        raise SkipError(
            SkipReason.BROKEN, f"a file of Office 97-2003 inside; save it as {suffix} in Office"
        )
    try:
        package = zipfile.ZipFile(BytesIO(content))
    except Exception as error:  # ValueError, struct.error, ... of a file made to break it
        raise SkipError(
            SkipReason.BROKEN, f"not a whole zip archive, as {suffix} files are; was it cut off?"
        ) from error
    entries = package.infolist()
    if any(entry.flag_bits & 1 for entry in entries):
        raise SkipError(SkipReason.ENCRYPTED, "needs a password")
    if (n_bytes := sum(entry.file_size for entry in entries)) > MAX_UNPACKED:
        raise SkipError(SkipReason.TOO_LARGE, f"{n_bytes / 1e6:,.0f} MB unpacked")
    if suffix in _MAIN_PART:
        kind, main_part = _MAIN_PART[suffix]
        if not main_part.search(read_part(package, "[Content_Types].xml") or b""):
            raise SkipError(SkipReason.BROKEN, f"no {kind} inside; is its suffix right?")
        for entry in entries:
            if entry.file_size and entry.filename.lower().endswith(_XML):
                each_element(package, entry.filename, _end)  # refuses entities
    return package


def read_part(package: zipfile.ZipFile, name: str) -> bytes | None:
    """Return a part of an archive, or None if there is none of that name.

    Raises:
        SkipError: If the part is damaged.
    """
    try:
        return package.read(name)
    except KeyError:
        return None
    except Exception as error:  # zlib.error, BadZipFile, NotImplementedError, EOFError, ...
        raise broken(error) from error


def parse_xml(content: bytes) -> Any:
    """Return the root element of an XML part. Nothing is fetched and no entity is replaced.

    Raises:
        SkipError: If it is no XML, or is nested deeper than 256 elements.
    """
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        return etree.fromstring(content, parser)
    except etree.XMLSyntaxError as error:
        raise broken(error) from error


def rewritten(
    package: zipfile.ZipFile, change: Callable[[str, bytes], bytes] | None = None
) -> BytesIO:
    """Return an archive in memory, with its parts changed and without its images and media.

    Args:
        package: The archive.
        change: Called with the name and the content of each XML part; returns its new content.
            "Strict Open XML" has become the usual form by then. Default: no further change.
    """
    copy = BytesIO()
    with zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as parts:
        for name in dict.fromkeys(package.namelist()):
            content = b""  # an image: a library may look for the part and never reads it
            if name.lower().endswith(_XML):
                content = _STRICT.sub(_TRANSITIONAL, read_part(package, name) or b"")
                content = change(name, content) if change else content
            parts.writestr(name, content)
    copy.seek(0)
    return copy


def no_text(package: zipfile.ZipFile) -> SkipError:
    """Return what says of a file that it has no text: only images, or nothing at all."""
    endings = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".emf", ".wmf", ".svg")
    names = (name.lower() for name in package.namelist())
    n_images = sum(name.endswith(endings) and not name.startswith("docprops/") for name in names)
    if n_images:
        return SkipError(SkipReason.NO_TEXT, f"{n_images} images")
    return SkipError(SkipReason.EMPTY, "no text and no image")


def title_of(package: zipfile.ZipFile) -> str:
    """Return the title that an Office file states; empty without one, or with a program's own."""
    for found in _properties(package, ("title",)):
        title = " ".join(found.split())
        return "" if title.casefold() in _NO_TITLES else title
    return ""


def stated_dates(content: bytes, suffix: str) -> list[str]:
    """Return when an Office file says that it was changed and made, in this order."""
    return [
        date
        for date in _properties(open_package(content, suffix), _DATES)
        if date not in _OF_TEMPLATES
    ]


def _properties(package: zipfile.ZipFile, names: Iterable[str]) -> list[str]:
    """Return the properties of a file that it states, in the order of their names."""
    core = read_part(package, _CORE)
    if not core:
        return []
    try:
        root = parse_xml(core)
    except SkipError:  # the text may be whole all the same
        return []
    found = {etree.QName(one).localname: (one.text or "").strip() for one in root}
    return [found[name] for name in names if found.get(name)]


def each_element(
    package: zipfile.ZipFile, name: str, on_start: Callable[[str, dict[str, str]], None]
) -> None:
    """Call a function with the name and the attributes of each element of a part, as it begins.

    No tree is built. The name has no prefix. A part that declares a document type, and with it
    entities, is refused.

    Args:
        package: The archive.
        name: Of the part.
        on_start: The function. Raise `StopIteration` in it to end.

    Raises:
        SkipError: If the part declares a document type, is no XML, or is damaged.
    """

    def refuse(*_: object) -> None:
        raise SkipError(SkipReason.BROKEN, f"{name} declares a document type")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = lambda tag, attributes: on_start(
        tag.rpartition(" ")[2], attributes
    )
    parser.StartDoctypeDeclHandler = refuse
    try:
        with package.open(name) as part:
            while piece := part.read(_PIECE):
                parser.Parse(piece)
            parser.Parse(b"", True)
    except StopIteration:
        return
    except SkipError:
        raise
    except Exception as error:  # as in `read_part`, and whatever is no XML
        raise broken(error) from error


def _end(*_: object) -> None:
    raise StopIteration
