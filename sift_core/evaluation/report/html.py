"""HTML of a report: one document that needs nothing beside it and cannot run anything.

Every text passes `html.escape`; figures stand in `img` elements as data, so that identifiers
of two drawings never meet; a content security policy forbids scripts and any load.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from sift_core.evaluation.figures.style import DPI, CaptionedFigure, as_bytes

# An SVG up to this size is sharp at every zoom and cheap; beyond it (many points) a PNG is.
_MAX_SVG_BYTES = 100_000

_CSS = """
:root { color-scheme: light dark; --ink: #1d1d1f; --soft: #5a5a60; --paper: #ffffff;
  --shade: #f4f4f6; --rule: #d4d4da; --link: #0059a8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8ec; --soft: #a9a9b2;
  --paper: #17181b; --shade: #222428; --rule: #3c3e45; --link: #7cbcff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", sans-serif;
  overflow-wrap: break-word; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 3rem 0 .5rem; padding-top: .8rem;
  border-top: 1px solid var(--rule); }
h3 { font-size: 1.05rem; margin: 1.8rem 0 .4rem; }
nav h2 { border: 0; margin: 1.5rem 0 .3rem; padding: 0; font-size: 1rem; }
nav ol { margin: 0; padding-left: 1.6rem; columns: 22rem 2; column-gap: 3rem;
  max-width: 60rem; }
p, figcaption, li, dd { max-width: 44rem; }
a { color: var(--link); }
code, pre { font: .9em/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
pre { background: var(--shade); padding: .6rem .8rem; margin: .4rem 0 1rem; overflow-x: auto;
  border-radius: .3rem; }
.scroll { overflow-x: auto; margin: 1rem 0 1.5rem; }
.scroll:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
table { border-collapse: collapse; font-size: .84375rem; line-height: 1.35;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: .4rem; max-width: 44rem; }
th, td { padding: .3rem .7rem .3rem 0; text-align: right; vertical-align: baseline;
  border-bottom: 1px solid var(--rule); white-space: nowrap; }
th { font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
tr > th:first-child { position: sticky; left: 0; background: var(--paper); }
tbody th { font-weight: 400; }
.note { color: var(--soft); font-size: .875rem; margin: .6rem 0 0; position: sticky; left: 0; }
table.facts th, table.facts td { text-align: left; white-space: normal;
  overflow-wrap: anywhere; }
table.facts th { color: var(--soft); white-space: nowrap; }
figure { margin: 1.5rem 0; }
figure .card { background: #ffffff; padding: .6rem; border-radius: .3rem; overflow-x: auto;
  width: fit-content; max-width: 100%; border: 1px solid var(--rule); }
figure img { display: block; width: 44rem; min-width: 32rem; max-width: 100%; height: auto; }
figcaption { color: var(--soft); font-size: .9rem; margin-top: .5rem; }
@media (max-width: 40rem) { body { padding-top: 1rem; } h1 { font-size: 1.45rem; }
  table.facts th { white-space: normal; } nav ol { columns: auto; } }
@media print { :root { --ink: #000; --soft: #333; --paper: #fff; --shade: #f2f2f2;
  --rule: #bbb; --link: #000; } body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; } h2, h3 { break-after: avoid; } figure, tr { break-inside: avoid; }
  .scroll, figure .card { overflow: visible; border: 0; } table { font-size: 8pt; }
  figure img { min-width: 0; } }
"""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of a report.

    Args:
        anchor: Identifier in the document, of letters, digits and hyphens.
        title: Text.
        reading: How to read what follows, in a sentence.
        content: HTML.
    """

    anchor: str
    title: str
    reading: str
    content: str


def document(*, title: str, summary: Sequence[str], sections: Sequence[Section]) -> str:
    """Return the whole HTML document.

    Args:
        title: Text.
        summary: Texts of the paragraphs below the title.
        sections: In order; all are in the table of contents.
    """
    contents = "\n".join(
        f'<li><a href="#{escape(one.anchor)}">{escape(one.title)}</a></li>' for one in sections
    )
    paragraphs = "\n".join(f"<p>{_prose(text)}</p>" for text in summary)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{escape(title)}</title>
<style>{_CSS}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
{paragraphs}
</header>
<nav aria-label="Contents">
<h2>Contents</h2>
<ol>
{contents}
</ol>
</nav>
<main>
{"".join(map(_section, sections))}</main>
</body>
</html>
"""


def figure_html(figure: CaptionedFigure) -> str:
    """Return the figure as an element with its caption; an SVG where that is small, else a PNG."""
    content, kind = as_bytes(figure, "svg"), "svg+xml"
    if len(content) > _MAX_SVG_BYTES:
        content, kind = as_bytes(figure, "png"), "png"
    data = base64.b64encode(content).decode("ascii")
    width, height = (round(DPI * inches) for inches in figure.get_size_inches())
    return (
        f'<figure>\n<div class="card" tabindex="0" role="group" aria-label="Figure">'
        f'<img src="data:image/{kind};base64,{data}" width="{width}" height="{height}" '
        f'alt="{escape(figure.alt)}"></div>\n'
        f"<figcaption>{_prose(figure.caption)}</figcaption>\n</figure>\n"
    )


def scrolling(table: str, label: str) -> str:
    """Return HTML of a table in a frame that scrolls sideways where the window is narrow.

    Args:
        table: HTML of a table.
        label: What a screen reader calls the frame.
    """
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">\n'
        f"{table}\n</div>\n"
    )


def facts_table(facts: Mapping[str, Any], caption: str) -> str:
    """Return nested settings as a table of two columns; inner names are joined by dots.

    Args:
        facts: As in the results file.
        caption: Text.
    """
    lines = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
        for name, value in _flat(facts)
    )
    return (
        f'<table class="facts">\n<caption>{escape(caption)}</caption>\n'
        f'<thead><tr><th scope="col">setting</th><th scope="col">value</th></tr></thead>\n'
        f"<tbody>\n{lines}\n</tbody>\n</table>"
    )


def _flat(facts: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            pairs.extend(_flat(value, f"{prefix}{name}."))
        elif isinstance(value, (list, tuple)):
            pairs.append((f"{prefix}{name}", ", ".join(map(str, value))))
        else:
            pairs.append((f"{prefix}{name}", "not set" if value is None else str(value)))
    return pairs


def _prose(text: str) -> str:
    """Escaped text in which a per cent sign does not part from its number."""
    return escape(text).replace(" %", "\N{NO-BREAK SPACE}%")


def _section(section: Section) -> str:
    return (
        f'<section id="{escape(section.anchor)}">\n<h2>{escape(section.title)}</h2>\n'
        f"<p>{_prose(section.reading)}</p>\n{section.content}</section>\n"
    )
