"""No claim without a source: what a section says in numbers stands in a page that it links to.

So a result that was measured anew shows which pages still tell the old one.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CHECKED = [
    "index.md",
    "faq.md",
    "guides/choosing.md",
    "guides/context-or-fine-tuning.md",
    "guides/scaling.md",
]
# No measurements: versions, names of papers, what the reader sets, and code.
NOT_CLAIMED = re.compile(r"```.*?^```$|`[^`\n]+`|arXiv \S+|!\[.*?\]|λ = [.\d]+", re.DOTALL | re.M)
NUMBER = re.compile(r"(?<![\w.])\d*\.\d+(?![\w.]*\w)")
LINK = re.compile(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)")


def sections(page):
    text = page.read_text(encoding="utf-8")
    return [part for part in re.split(r"^#+ ", text, flags=re.MULTILINE) if part.strip()]


def sources_of(page, section):
    for target in LINK.findall(section):
        path = (page.parent / target).resolve()
        if path.exists():
            yield path.read_text(encoding="utf-8")


def numbers(text):
    return {found.lstrip("0") for found in NUMBER.findall(text)}


def unfounded(page, section, header):
    """Numbers of a section that none of its sources has; those of the page's head count too."""
    known = set().union(*(numbers(text) for text in sources_of(page, f"{header}\n{section}")))
    return numbers(NOT_CLAIMED.sub("", section)) - known


@pytest.mark.parametrize("name", CHECKED)
def test_every_number_stands_in_a_page_that_its_section_links_to(name):
    page = DOCS / name
    header, *rest = sections(page)
    found = {part.splitlines()[0]: unfounded(page, part, header) for part in [header, *rest]}
    assert {heading: wrong for heading, wrong in found.items() if wrong} == {}


def test_a_number_without_a_source_is_found():
    page = DOCS / "guides/choosing.md"
    assert unfounded(page, "Recall is 98.76 ([results](../results.md)).", "") == {"98.76"}
