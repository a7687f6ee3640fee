"""The part of a report about retrieval: tables, figures and a sentence from the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from sift_core.evaluation.figures.retrieval import (
    best_of_families,
    copies_curve,
    metric_title,
    n_copies,
    of_full_conditions,
    retrieval_dots,
)
from sift_core.evaluation.report.html import Section, figure_html, scrolling
from sift_core.evaluation.retrieval.run import OURS, Row
from sift_core.evaluation.retrieval.tables import retrieval_tables

RETRIEVAL_COMMAND = "sift eval retrieval"
METRICS = ("recall@10", "all_gold@10")


def retrieval_section(rows: Sequence[Row]) -> Section:
    """Return figures and tables of `METRICS`, as far as the rows have them.

    Args:
        rows: At least one.

    Raises:
        InvalidInputError: If some rows have a metric and others lack it.
    """
    metrics = _measured(rows)
    content = [figure_html(retrieval_dots(rows, metric)) for metric in metrics]
    if len({n for row in rows if (n := n_copies(row)) is not None}) > 1:
        content += [figure_html(copies_curve(rows, metric)) for metric in metrics[:1]]
    for metric in metrics:
        for table in retrieval_tables(rows, metric):
            content.append(scrolling(table.as_html(), f"Table: {table.title}"))
    return Section(
        anchor="retrieval",
        title="Retrieval: how much of what answers a question was found",
        reading="Higher is better; the further right a mark is, the more of the passages that a "
        "question needs are among the first ones chosen.",
        content="".join(content),
    )


def retrieval_summary(rows: Sequence[Row]) -> list[str]:
    """Return a paragraph with the means over sets of each condition that has "sift"."""
    sentences = []
    for metric in _measured(rows)[:1]:
        for condition in dict.fromkeys(str(row["condition"]) for row in of_full_conditions(rows)):
            those = [row for row in rows if row["condition"] == condition]
            methods = best_of_families(those, metric)
            if OURS not in methods:
                continue
            means = {method: _mean_of(those, method, metric) for method in methods}
            others = sorted(set(methods) - {OURS}, key=means.__getitem__, reverse=True)
            against = (
                f", the best other method ({others[0]}) {means[others[0]]:.1f} %" if others else ""
            )
            sentences.append(f"“{condition}” {OURS} {means[OURS]:.1f} %{against}")
    if not sentences:
        return []
    n_sets = len({row["set"] for row in rows})
    return [
        f"Retrieval, {metric_title(_measured(rows)[0])} as a mean over {n_sets} "
        f"{'set' if n_sets == 1 else 'sets'}: {'; '.join(sentences)}."
    ]


def _measured(rows: Sequence[Row]) -> list[str]:
    return [metric for metric in METRICS if any(metric in row for row in rows)]


def _mean_of(rows: Iterable[Row], method: str, metric: str) -> float:
    return 100 * float(np.mean([row[metric] for row in rows if row["method"] == method]))
