"""Rows of a made-up experiment, as `sift eval` writes them."""

from __future__ import annotations

from sift_core.evaluation.analysis.rows import Results
from sift_core.evaluation.language_modeling.arms import BASE


def prompt(name, domain="books", *, n_bytes=100, near_duplicate=None):
    return {"id": name, "domain": domain, "n_bytes": n_bytes, "near_duplicate": near_duplicate}


def row(of, arm, bits, *, steps=None, chosen=(), variances=(), experiment="e1"):
    """Return one result row; `bits` is one number or one a step."""
    bits = list(bits) if isinstance(bits, (list, tuple)) else [bits]
    return {
        "kind": "result",
        "key": f"{experiment} {arm} {of['id']}",
        "experiment": experiment,
        "prompt": of,
        "arm": arm.as_record(),
        "steps": list(range(len(bits))) if steps is None else list(steps),
        "bits_per_byte": bits,
        "chosen": list(chosen),
        "similarities": [0.5] * len(chosen),
        "variances": list(variances),
        "seconds": {"select": 0.01, "measure": 1.0},
        "report": None,
    }


def rows_of_percents(prompts, columns, *, base=2.0):
    """Return a base row a prompt and a row an arm with the given per cents of it."""
    rows = [row(of, BASE, base) for of in prompts]
    for arm, percents in columns.items():
        for of, percent in zip(prompts, percents, strict=True):
            if percent is not None:
                rows.append(row(of, arm, [base, base * percent / 100], steps=[0, 2]))
    return rows


def results_of_percents(prompts, columns, **settings):
    return Results.from_rows(rows_of_percents(prompts, columns, **settings))


def shown(table, line, head):
    """Return the text of a cell."""
    return cell(table, line, head).text


def cell(table, line, head):
    names = [cells[0].text.strip() for cells in table.rows]
    return table.rows[names.index(line)][table.heads.index(head)]
