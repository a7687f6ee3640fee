"""Links of the pages lead somewhere in a clone, where nobody has built the site."""

import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

markdown_it = pytest.importorskip("markdown_it")
slugs = pytest.importorskip("pymdownx.slugs")

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "integrations").glob("*/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
PARSER = markdown_it.MarkdownIt("commonmark").enable("table")
UNRESOLVED = re.compile(r"\[[^\]^]+\]\[[^\]]*\]")  # a reference that only the site knows
slug_of = slugs.slugify(case="lower")  # as mkdocs.yml has it, and GitHub


@cache
def tokens_of(page):
    return PARSER.parse(page.read_text(encoding="utf-8"))


@cache
def anchors_of(page):
    """Names that `#` can lead to."""
    tokens = tokens_of(page)
    headings = [
        "".join(part.content for part in text.children if part.type in ("text", "code_inline"))
        for opening, text in pairwise(tokens)
        if opening.type == "heading_open"
    ]
    return {slug_of(heading, "-") for heading in headings}


def parts_of(page):
    """Return the pieces of all paragraphs, headings and cells."""
    return [part for token in tokens_of(page) for part in token.children or ()]


def addresses_of(page):
    return [
        str(part.attrGet("href") or part.attrGet("src"))
        for part in parts_of(page)
        if part.type in ("link_open", "image")
    ]


def dead_links(page):
    """Return each link of a page that leads to no file, or to no heading of one."""
    dead = [
        found
        for part in parts_of(page)
        if part.type == "text"
        for found in UNRESOLVED.findall(part.content)
    ]
    for address in addresses_of(page):
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        is_dead = not target.exists()
        if not is_dead and parts.fragment:
            is_dead = target.suffix != ".md" or unquote(parts.fragment) not in anchors_of(target)
        if is_dead:
            dead.append(address)
    return dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    assert dead_links(page) == []


def test_a_dead_link_of_each_kind_is_found(tmp_path):
    (tmp_path / "other.md").write_text("# `select`: σ² of *two*\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n\n[a](other.md) [b](other.md#select-σ²-of-two) [c](#here) [d](https://x.invalid/e)\n"
        "```\n[e](nowhere.md)\n```\n"
        "[f](nowhere.md) [g](other.md#here) [h](#gone) ![i](none.png) [j][sift_core.select]\n\n"
        "| a | b |\n|---|---|\n| [k](folder/) | `[l](no_link.md)` |\n"
    )
    assert dead_links(page) == [
        "[j][sift_core.select]",
        *("nowhere.md", "other.md#here", "#gone", "none.png", "folder/"),
    ]
