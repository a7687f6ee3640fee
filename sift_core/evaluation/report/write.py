"""One HTML file with the tables and figures of an experiment, for a reader who was not there.

Every number and claim in it is made from the rows. What was not measured is listed with the
command that measures it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from sift_core.errors import ExperimentError, InvalidInputError
from sift_core.evaluation.analysis.rows import Results
from sift_core.evaluation.report.html import (
    Section,
    document,
    facts_table,
    figure_html,
    scrolling,
)
from sift_core.evaluation.report.parts import PARTS, Part
from sift_core.evaluation.report.retrieval import (
    RETRIEVAL_COMMAND,
    retrieval_section,
    retrieval_summary,
)
from sift_core.evaluation.report.summary import language_modeling_summary
from sift_core.evaluation.retrieval.run import Row

_Missing = tuple[str, str, str]  # title, why, command


def write_report(
    results: Results | None,
    path: str | Path,
    retrieval: Sequence[Row] | None = None,
    *,
    title: str = "Evaluation of SIFT",
    retrieval_configuration: Mapping[str, Any] | None = None,
) -> Path:
    """Write one self-contained HTML file and return its path.

    It loads nothing, runs nothing and has every text escaped. The same rows give the same
    bytes. Takes some ten seconds, most of it for drawing.

    Args:
        results: Of language modelling; None where it was not measured.
        path: Of the file to write; folders are made.
        retrieval: Rows of retrieval; None where it was not measured.
        title: The heading.
        retrieval_configuration: What the retrieval's file says of versions and machine.

    Raises:
        InvalidInputError: If there is neither, or the base model was not measured.
        MissingDependencyError: If matplotlib is not installed.
        ExperimentError: If the file cannot be written.
    """
    if results is None and not retrieval:
        raise InvalidInputError("a report needs rows of language modelling or of retrieval")
    sections: list[Section] = []
    missing: list[_Missing] = []
    summary: list[str] = []
    facts: dict[str, Any] = {}
    if results is None:
        missing.append(("Language modelling", "no rows", PARTS[0].command))
    else:
        summary += language_modeling_summary(results)
        facts |= {"experiment": results.experiment, **_without_kind(results.configuration)}
        for part in PARTS:
            section, why = _section_of(part, results)
            sections += [section] if section else []
            missing += [(part.title, one, part.command) for one in why]
    if retrieval:
        summary += retrieval_summary(retrieval)
        sections.append(retrieval_section(retrieval))
        facts |= {"retrieval": retrieval_configuration} if retrieval_configuration else {}
    else:
        missing.append(("Retrieval", "no rows", RETRIEVAL_COMMAND))
    sections += [_missing_section(missing)] if missing else []
    sections.append(_configuration_section(facts))
    path, text = Path(path), document(title=title, summary=summary, sections=sections)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise ExperimentError(f"the report {path} could not be written: {reason}") from error
    return path


def _section_of(part: Part, results: Results) -> tuple[Section | None, list[str]]:
    """The section with what could be made of the rows, and why the rest could not."""
    content: list[str] = []
    why: list[str] = []
    for make_figure in part.figures:
        try:
            content.append(figure_html(make_figure(results)))
        except InvalidInputError as error:
            why.append(str(error))
    for make_table in part.tables:
        try:
            table = make_table(results)
        except InvalidInputError as error:
            why.append(str(error))
        else:
            content.append(scrolling(table.as_html(), f"Table: {table.title}"))
    section = Section(
        anchor=part.anchor, title=part.title, reading=part.reading, content="".join(content)
    )
    return (section if content else None), list(dict.fromkeys(why))


def _missing_section(missing: Iterable[_Missing]) -> Section:
    items = "\n".join(
        f"<li><strong>{escape(title)}</strong>: {escape(why)}.\n"
        f"<pre><code>{escape(command)}</code></pre></li>"
        for title, why, command in missing
    )
    return Section(
        anchor="not-measured",
        title="Not measured",
        reading="Of these there are no rows, or too few; the command adds them to the results "
        "file, where it is named with the same options as before.",
        content=f"<ul>\n{items}\n</ul>\n",
    )


def _configuration_section(facts: Mapping[str, Any]) -> Section:
    if facts:
        content = scrolling(facts_table(facts, "Settings of the run"), "Settings of the run")
    else:
        content = "<p>The results file says nothing of them.</p>\n"
    return Section(
        anchor="configuration",
        title="Configuration, versions and machine",
        reading="What the results file says of how its rows were measured.",
        content=content,
    )


def _without_kind(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("kind", "experiment")}
