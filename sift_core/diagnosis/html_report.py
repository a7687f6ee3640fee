"""A diagnosis as one HTML page that needs nothing beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from sift_core.diagnosis.definitions import DEFINITIONS
from sift_core.diagnosis.diagnose import Diagnosis
from sift_core.diagnosis.duplicates import Pair
from sift_core.diagnosis.figures import (
    copies_histogram,
    places_bars,
    pools_dots,
    trial_differences,
)
from sift_core.diagnosis.pool_measures import PoolMeasures, TopTen
from sift_core.diagnosis.recommendation import Recommendation
from sift_core.diagnosis.tables import tables
from sift_core.diagnosis.verdict import RULES
from sift_core.evaluation.analysis.table import Table
from sift_core.evaluation.report.html import (
    Section,
    document,
    facts_table,
    figure_html,
    scrolling,
)


def html_report(
    diagnosis: Diagnosis, recommendation: Recommendation, facts: Mapping[str, Any], *, title: str
) -> str:
    """Return the whole page. Takes some two seconds, for drawing.

    Args:
        diagnosis: What was measured.
        recommendation: What it means.
        facts: Settings of the run, for the last section.
        title: The heading; any text.

    Raises:
        MissingDependencyError: If matplotlib is not installed.
    """
    shown = tables(diagnosis)
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
    return document(title=title, summary=[recommendation.headline], sections=sections)


def _what_to_do(recommendation: Recommendation) -> Section:
    content = _listed(recommendation.reasons)
    if recommendation.caveats:
        content += "<h3>What limits this</h3>\n" + _listed(recommendation.caveats)
    return Section(
        anchor="what-to-do",
        title="What it rests on, and what to do",
        reading="Every sentence has the number that it rests on; the rules stand further below.",
        content=content,
    )


def _places(diagnosis: Diagnosis, table: Table) -> Section:
    telling = max(
        diagnosis.pools, key=lambda pool: pool.nearest.n_redundant - pool.sift.n_redundant
    )
    return Section(
        anchor="places",
        title="What SIFT would change",
        reading="Ten chunks for a prompt, chosen by nearest neighbours and by SIFT; the further "
        "left the bars of one stand, the fewer of its places are wasted.",
        content=figure_html(places_bars(diagnosis))
        + scrolling(table.as_html(), table.title)
        + _example(telling),
    )


def _pools(diagnosis: Diagnosis, table: Table) -> Section:
    return Section(
        anchor="candidates",
        title="What there is to choose from",
        reading="Where the marks are far below the dashed line, the candidates of a question are "
        "few contents in many versions.",
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
        + (f"<h3>Near-duplicates that were found</h3>\n{examples}" if examples else ""),
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
        title="Would fine-tuning pay",
        reading="Chunks can be put into the prompt, or a model can be fine-tuned on them for one "
        "question.",
        content=content,
    )


def _definitions() -> Section:
    terms = "".join(
        f"<dt><strong>{escape(term)}</strong></dt>\n<dd>{_prose(meaning)}</dd>\n"
        for term, meaning in DEFINITIONS.items()
    )
    rules = _listed([f"{verdict.value}: {rule}." for verdict, rule in RULES], tag="ol")
    return Section(
        anchor="definitions",
        title="Rules and definitions",
        reading="The verdict is the first of these rules that holds.",
        content=f"{rules}<h3>Definitions</h3>\n<dl>\n{terms}</dl>\n",
    )


def _example(pool: PoolMeasures) -> str:
    heads = (f"nearest neighbours, {_n_marked(pool.nearest)}", f"SIFT, {_n_marked(pool.sift)}")
    columns = "".join(
        f"<h4>{escape(head)}</h4>\n<ol>\n{_items(ten)}</ol>\n"
        for head, ten in zip(heads, (pool.nearest, pool.sift), strict=True)
    )
    return (
        f"<h3>The question where SIFT frees most</h3>\n<p>{escape(pool.question)}</p>\n{columns}"
        f'<p class="note">≈ marks a chunk that is redundant. Numbers are cosines to the '
        f"question.</p>\n"
    )


def _n_marked(ten: TopTen) -> str:
    return f"{ten.n_redundant} of {len(ten.chunks)} redundant"


def _items(ten: TopTen) -> str:
    return "".join(
        f"<li>{'≈ ' if chunk.is_redundant else ''}{chunk.cosine:.2f} "
        f"<code>{escape(chunk.document_id)}</code> {escape(chunk.opening)}</li>\n"
        for chunk in ten.chunks
    )


def _pair(pair: Pair) -> str:
    return (
        f"<p>Cosine {pair.cosine:.3f}:</p>\n<ul>\n"
        f"<li><code>{escape(pair.first_document)}</code> {escape(pair.first)}</li>\n"
        f"<li><code>{escape(pair.second_document)}</code> {escape(pair.second)}</li>\n</ul>\n"
    )


def _listed(sentences: Sequence[str], *, tag: str = "ul") -> str:
    items = "\n".join(f"<li>{_prose(sentence)}</li>" for sentence in sentences)
    return f"<{tag}>\n{items}\n</{tag}>\n"


def _prose(text: str) -> str:
    """Escaped text in which a per cent sign stands apart from its number and on its line."""
    return re.sub(r" ?%", "\N{NO-BREAK SPACE}%", escape(text))
