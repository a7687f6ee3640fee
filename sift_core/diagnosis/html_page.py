"""A diagnosis as one HTML page that needs nothing beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from sift_core.diagnosis.definitions import DEFINITIONS
from sift_core.diagnosis.duplicates import Pair
from sift_core.diagnosis.figures import (
    copies_histogram,
    places_bars,
    pools_dots,
    trial_differences,
)
from sift_core.diagnosis.measuring import Diagnosis
from sift_core.diagnosis.pool_measures import N_SELECT, PoolMeasures, TopTen
from sift_core.diagnosis.recommendation import Recommendation
from sift_core.diagnosis.tables import tables_of
from sift_core.diagnosis.verdict import RULES, counts_versions, wasted_places
from sift_core.evaluation.analysis.table import Table
from sift_core.evaluation.report.html import (
    Section,
    document,
    facts_table,
    figure_html,
    scrolling,
)

_CSS = """
header p { font-size: 1.15rem; font-weight: 600; }
caption { max-width: min(44rem, calc(100vw - 2rem)); }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr));
  gap: 0 2.5rem; max-width: 72rem; }
.pair h4 { margin: .8rem 0 .3rem; }
.chunks { padding-left: 1.8rem; font-size: .9rem; line-height: 1.45; }
.chunks li { margin-bottom: .5rem; overflow-wrap: anywhere; }
.chunks code { color: var(--soft); }
.mark { background: var(--shade); border: 1px solid var(--rule); border-radius: .3rem;
  padding: 0 .35rem; }
dt { margin-top: .8rem; }
dd { margin-left: 1.2rem; }
"""


def html_report(
    diagnosis: Diagnosis, recommendation: Recommendation, facts: Mapping[str, Any], *, title: str
) -> str:
    """Return the whole page, which needs nothing beside it. Takes some two seconds, for drawing.

    Args:
        diagnosis: What was measured.
        recommendation: What it means.
        facts: Settings of the run, for the last section.
        title: The heading; any text.

    Raises:
        MissingDependencyError: If matplotlib is not installed.
    """
    shown = tables_of(diagnosis)
    sections = [_what_to_do(recommendation)]
    if diagnosis.pools:
        sections += [_places(diagnosis, shown["places"]), _pools(diagnosis, shown["pools"])]
    if diagnosis.duplicates is not None:
        sections.append(_copies(diagnosis, shown["copies"]))
    sections.append(_fine_tuning(diagnosis, recommendation, shown.get("trial")))
    sections.append(_definitions())
    sections.append(
        Section(
            anchor="settings",
            title="Settings of this run",
            reading="What it was made with.",
            content=scrolling(facts_table(facts, "Settings"), "Settings"),
        )
    )
    page = document(title=title, summary=[recommendation.headline], sections=sections)
    return page.replace("</style>", f"{_CSS}</style>", 1)


def _what_to_do(recommendation: Recommendation) -> Section:
    content = _listed(recommendation.reasons)
    if recommendation.caveats:
        content += "<h3>What limits this</h3>\n" + _listed(recommendation.caveats)
    return Section(
        anchor="what-to-do",
        title="Why, and what to do",
        reading="The words are explained under Rules and definitions.",
        content=content,
    )


def _places(diagnosis: Diagnosis, table: Table) -> Section:
    by_versions = counts_versions(diagnosis)

    def n_freed(pool: PoolMeasures) -> int:
        before = wasted_places(pool.nearest, by_versions=by_versions)
        return before - wasted_places(pool.sift, by_versions=by_versions)

    return Section(
        anchor="places",
        title="What SIFT would change",
        reading="Ten chunks for a prompt, once the nearest and once chosen by SIFT; the further "
        "left the bars of one stand, the fewer of its places are wasted.",
        content=figure_html(places_bars(diagnosis))
        + scrolling(table.as_html(), table.title)
        + _example(max(diagnosis.pools, key=n_freed), by_versions=by_versions),
    )


def _pools(diagnosis: Diagnosis, table: Table) -> Section:
    return Section(
        anchor="candidates",
        title="What there is to choose from",
        reading="Where the marks are far below the dashed line, the candidates of a question are "
        "few texts in many versions.",
        content=figure_html(pools_dots(diagnosis)) + scrolling(table.as_html(), table.title),
    )


def _copies(diagnosis: Diagnosis, table: Table) -> Section:
    assert diagnosis.duplicates is not None
    examples = "".join(map(_pair, diagnosis.duplicates.examples))
    return Section(
        anchor="copies",
        title="Copies in the collection",
        reading="For random chunks: how close the nearest other chunk is, whatever is asked.",
        content=figure_html(copies_histogram(diagnosis.duplicates))
        + scrolling(table.as_html(), table.title)
        + (f"<h3>Some of the copies</h3>\n{examples}" if examples else ""),
    )


def _fine_tuning(
    diagnosis: Diagnosis, recommendation: Recommendation, table: Table | None
) -> Section:
    content = _listed(recommendation.fine_tuning)
    if diagnosis.trial is not None and table is not None:
        content += figure_html(trial_differences(diagnosis.trial))
        content += scrolling(table.as_html(), table.title)
    return Section(
        anchor="fine-tuning",
        title="Would fine-tuning pay?",
        reading="A model can read the chosen chunks in its prompt, or be fine-tuned on them for "
        "one question.",
        content=content,
    )


def _definitions() -> Section:
    terms = "".join(
        f"<dt><strong>{escape(term)}</strong></dt>\n<dd>{_prose(meaning)}</dd>\n"
        for term, meaning in DEFINITIONS.items()
    )
    rules = _listed([f"{name}: {rule}." for _, name, rule in RULES], tag="ol")
    return Section(
        anchor="definitions",
        title="Rules and definitions",
        reading="The recommendation is the first of these rules that holds.",
        content=f"{rules}<h3>Definitions</h3>\n<dl>\n{terms}</dl>\n",
    )


def _example(pool: PoolMeasures, *, by_versions: bool) -> str:
    columns = "".join(
        f"<div><h4>{escape(name)}: {wasted_places(ten, by_versions=by_versions)} of "
        f'{len(ten.chunks)} wasted</h4>\n<ol class="chunks">\n'
        f"{_items(ten, by_versions=by_versions)}</ol></div>\n"
        for name, ten in ((f"nearest {N_SELECT}", pool.nearest), ("SIFT", pool.sift))
    )
    return (
        f"<h3>The question where SIFT frees most</h3>\n<p>{escape(pool.question)}</p>\n"
        f'<div class="pair">\n{columns}</div>\n'
        f'<p class="note">Numbers are cosines to the question.</p>\n'
    )


def _items(ten: TopTen, *, by_versions: bool) -> str:
    word = "version" if by_versions else "repeat"
    lines = []
    for chunk in ten.chunks:
        is_wasted = chunk.is_version if by_versions else chunk.is_redundant
        mark = f' <span class="mark">{word}</span>' if is_wasted else ""
        lines.append(
            f"<li>{chunk.cosine:.2f}{mark} <code>{escape(chunk.document_id)}</code><br>"
            f"{escape(chunk.opening)}</li>\n"
        )
    return "".join(lines)


def _pair(pair: Pair) -> str:
    texts = ((pair.first_document, pair.first), (pair.second_document, pair.second))
    items = "".join(
        f"<li><code>{escape(name)}</code><br>{escape(text)}</li>\n" for name, text in texts
    )
    return f'<p>Cosine {pair.cosine:.3f}:</p>\n<ul class="chunks">\n{items}</ul>\n'


def _listed(sentences: Sequence[str], *, tag: str = "ul") -> str:
    items = "\n".join(f"<li>{_prose(sentence)}</li>" for sentence in sentences)
    return f"<{tag}>\n{items}\n</{tag}>\n"


def _prose(text: str) -> str:
    """Escaped text in which a per cent sign stands apart from its number and on its line."""
    return re.sub(r" ?%", "\N{NO-BREAK SPACE}%", escape(text))
