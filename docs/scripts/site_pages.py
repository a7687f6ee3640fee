"""MkDocs hook: shows what lives outside of docs/, and finds what strict mode does not look for.

Pages such as CONTRIBUTING.md stand in the site without a copy in docs/. Links to other files of
the repository lead to copies of those files, so that the site needs no other host.
"""

from __future__ import annotations

import logging
import posixpath
import re
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {  # of the site: where in the repository they come from
    "benchmark-log.md": "benchmarks/LOG.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "integrations/haystack.md": "integrations/sift-haystack/README.md",
    "integrations/langchain.md": "integrations/langchain-sift/README.md",
    "integrations/llama-index.md": "integrations/llama-index-postprocessor-sift/README.md",
}
PAGE_OF = {source: page for page, source in PAGES.items()}
SHOWN_BY_BROWSERS = {".json", ".png", ".svg", ".txt"}
FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,}).*?^ {0,3}\2\s*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?P<text>!?\[[^\]]*\])\((?P<path>[^)#\s]+)(?P<anchor>#[^)\s]+)?\)")

log = logging.getLogger("mkdocs.hooks.site_pages")  # its warnings end a strict build


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that live elsewhere."""
    for page, source in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with its links out of docs/ led to what the site has of them."""
    here = page.file.src_uri
    source = PurePosixPath(PAGES.get(here, f"docs/{here}"))

    def replaced(link: re.Match[str]) -> str:
        path, anchor = link["path"], link["anchor"] or ""
        if ":" in path:
            return link[0]
        target = posixpath.normpath(f"{source.parent}/{path}")
        if (ROOT / target).is_dir():
            return link["text"][1:-1]
        shown = uri_of(target, config, files)
        if shown is None:  # MkDocs will say so
            return link[0]
        return f"{link['text']}({posixpath.relpath(shown, posixpath.dirname(here) or '.')}{anchor})"

    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(replaced, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, LINK.sub(replaced, markdown[end:])])


def uri_of(target: str, config: MkDocsConfig, files: Files) -> str | None:
    """Return where the site has a file of the repository, adding it where it is missing."""
    if target in PAGE_OF:
        return PAGE_OF[target]
    if target.startswith("docs/"):
        uri = target.removeprefix("docs/")
        file = files.get_file_from_path(uri)
        if file is not None and file.inclusion.is_excluded():  # no more than INFO to MkDocs
            log.warning("a link leads to %s, which the site leaves out", uri)
        return uri
    if not (ROOT / target).is_file():
        return None
    # Browsers would save what they have no view for instead of showing it.
    suffix = "" if PurePosixPath(target).suffix in SHOWN_BY_BROWSERS else ".txt"
    uri = f"repository/{target}{suffix}"
    if files.get_file_from_path(uri) is None:
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / target)))
    return uri


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Warn of images without a description and of anything that is fetched from elsewhere."""
    finder = DefectFinder()
    finder.feed(output)
    for defect in finder.defects:
        log.warning("%s: %s", page.file.src_uri, defect)
    return output


class DefectFinder(HTMLParser):
    """Collects what is wrong with a built page in `defects`."""

    def __init__(self) -> None:
        super().__init__()
        self.defects: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at one tag: only `a` may name another host."""
        values = dict(attrs)
        if tag == "img" and not (values.get("alt") or "").strip():
            self.defects.append(f"no alternative text: {values.get('src')}")
        for name in ("href", "src", "srcset", "data", "poster"):
            value = values.get(name) or ""
            if tag != "a" and re.match(r"(https?:)?//", value):
                self.defects.append(f"<{tag}> loads from another host: {value}")
