"""The main content of an HTML page, as Markdown."""

from __future__ import annotations

import codecs
import re
import warnings
from itertools import islice
from typing import Any

from sift_core.documents.finding import SkipError, SkipReason, broken
from sift_core.documents.html_formulas import write_formulas
from sift_core.documents.html_panels import open_panels
from sift_core.documents.html_tables import level_tables
from sift_core.errors import MissingDependencyError

try:
    import bs4
    from bs4 import element
    from markdownify import MarkdownConverter
except ImportError as error:
    package = "beautifulsoup4" if error.name == "bs4" else "markdownify"
    raise MissingDependencyError(package, extra="files") from error

_NEVER_TEXT = [
    "script",
    "style",
    "template",
    "noscript",
    "svg",
    "iframe",
    "button",
    "rt",
    "rp",
    "rtc",
]
_AROUND = ["nav", "header", "footer", "aside"]  # of a page that marks no main content
# Shown in a line, where they part the words beside them.
_SHOWN = "audio canvas input label meter object output progress textarea video".split()
# Elements of a line of their own, which markdownify joins with their neighbours.
_BLOCKS = (
    "address aside center details dialog fieldset figure footer form header hgroup legend main"
    " option search summary"
).split()
_HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]
_LANGUAGE = re.compile(r"(?:language|lang|highlight(?:-source)?|brush)[-:]\s*([\w+#]+)")


def markdown_of_html(content: bytes, *, is_page: bool = True) -> str:
    r"""Return the main content of a page as Markdown: headings, lists, tables and code stay.

    That is what lies in `<main>`, in an element with the role "main" or in the one `<article>`;
    else in the body without navigation, header, footer and asides. Links and images lose their
    addresses, which say nothing to an embedder. A page without a heading of level 1 begins with its
    title as one.

    Args:
        content: The file. Its encoding is the first that fits: what a byte order mark says, UTF-8,
            what the XML declaration or a `<meta>` says, Windows-1252.
        is_page: Whether it is a page of a site. Otherwise all of its body but navigation is
            content, as in a chapter of a book, and its title is not. Default: True.

    Raises:
        SkipError: If the page is binary, is nested too deeply, cannot be parsed, or has no text.
    """
    with warnings.catch_warnings():
        # XHTML is read as HTML on purpose; a page that looks like a URL or a path is one line.
        warnings.simplefilter("ignore", bs4.XMLParsedAsHTMLWarning)
        warnings.simplefilter("ignore", bs4.MarkupResemblesLocatorWarning)
        try:
            return _markdown(bs4.BeautifulSoup(_decoded(content), "html.parser"), is_page)
        except RecursionError as error:
            raise SkipError(SkipReason.BROKEN, "its elements are nested too deeply") from error
        except SkipError:
            raise
        # Python's parser and codecs raise what they please: AssertionError for "<![", ...
        except Exception as error:
            raise broken(error) from error


def _decoded(content: bytes) -> str:
    """Return the text of a page."""
    if b"\0" in content and not content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise SkipError(SkipReason.BINARY)
    declared = bs4.dammit.EncodingDetector.find_declared_encoding(content, is_html=True)
    # Browsers read Latin-1 as Windows-1252, which adds the quotation marks that people type.
    others = [] if declared in (None, "iso-8859-1", "latin-1", "ascii") else [declared]
    found = bs4.UnicodeDammit(content, user_encodings=["utf-8", *others, "windows-1252"])
    text = found.unicode_markup or content.decode("cp1252", "replace")
    return text.replace("\0", "")  # no store takes it, and a codec may make it


def _markdown(page: bs4.BeautifulSoup, is_page: bool) -> str:
    title = page.title.get_text(" ", strip=True) if page.title and is_page else ""
    main = _main(page) if is_page else _body(page)
    for mark in main.find_all("a"):  # the ¶ or # beside a heading
        if mark.find_parent(_HEADINGS) and len(mark.get_text(strip=True)) <= 1:
            mark.decompose()
    for caption in main.select("table > caption"):  # else the first row is no header
        caption.name = "div"
        caption.parent.insert_before(caption)
    level_tables(main)
    for line_end in main.select("pre br"):
        line_end.replace_with("\n")
    for block in main.find_all(_BLOCKS):
        block.name = "div"
    for shown in main.find_all(_SHOWN):
        if not shown.find_parent("pre"):
            shown.insert_before(" ")
            shown.insert_after(" ")
    text = _CONVERTER.convert_soup(main).strip()
    if not text:
        raise SkipError(SkipReason.EMPTY, "a page without text; made by JavaScript?")
    if title and not main.find("h1"):
        text = f"# {title}\n\n{text}"
    return re.sub(r"\n{3,}", "\n\n", text)


def _clean(page: bs4.BeautifulSoup) -> None:
    """Write formulas in one line and take out what is never read."""
    write_formulas(page)
    open_panels(page)
    for unread in page.find_all(lambda tag: tag.name in _NEVER_TEXT or tag.has_attr("hidden")):
        _leave_out(unread)
    for text in page.find_all(string=True):  # comments and the like of `<?xml ...?>` are no text
        if isinstance(text, element.PreformattedString) and not isinstance(text, element.CData):
            text.extract()


def _body(page: bs4.BeautifulSoup) -> Any:
    """Return the body of a chapter, without what is never read."""
    _clean(page)
    body = page.body or page
    for unread in body.find_all("nav"):
        _leave_out(unread)
    if page.title:
        page.title.extract()
    return body


def _main(page: bs4.BeautifulSoup) -> Any:
    """Return the element with the main content of a page, without what is never read."""
    _clean(page)
    articles = page.find_all("article")
    marked = page.find("main") or page.find(role="main")
    if marked is None and len(articles) == 1:
        marked = articles[0]
    if marked is not None and marked.get_text(strip=True):
        for unread in marked.find_all("nav"):
            _leave_out(unread)
        return marked
    body = page.body or page
    for unread in body.find_all(_AROUND):
        _leave_out(unread)
    if page.title:
        page.title.extract()
    return body


def _leave_out(unread: Any) -> None:
    """Take an element out. The words around one that is shown stay apart."""
    if unread.name in ("button", *_AROUND) and not unread.find_parent("pre"):
        unread.insert_before(" ")
    unread.extract()


def _language(pre: Any) -> str:
    """Return the language of a code block, from the classes of it, what is in it and around it."""
    for one in filter(None, [pre.find("code"), pre, *islice(pre.parents, 2)]):
        match = _LANGUAGE.search(" ".join(one.get("class") or []))
        if match and match[1] not in ("default", "none", "notranslate"):
            return match[1]
    return ""


_CONVERTER = MarkdownConverter(
    heading_style="ATX",
    bullets="-",
    strip=["a", "img"],
    escape_asterisks=False,
    escape_underscores=False,
    escape_misc=False,
    table_infer_header=True,
    code_language_callback=_language,
)
