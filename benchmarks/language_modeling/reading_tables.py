"""Tables of reading, learning and both, by size of context.

A line has arms that are equal in all else, compared on the prompts that all of its columns
have; it says how many these are. The tag `evidence-2026-11b` has the table of the best mode, too.
"""

from __future__ import annotations

import pandas as pd

from benchmarks.language_modeling.results import Results, settings_without
from benchmarks.language_modeling.tables import (
    BOLD_NOTE,
    CELL_NOTE,
    count,
    paired,
    percent_cells,
)
from benchmarks.table import Cell, Table, word
from sift_core.errors import InvalidInputError

OF_READING = ("mode", "learning_rate", "context_tokens")
CHOSEN_BY = ("SIFT", "NN", "SIFT context")  # the last is read alone


def context_table(results: Results) -> Table:
    """Return what is read, learned and both in % of the base model, a line a size of context.

    The paper's table "gpt2_ttft", by context.
    """
    by_room = _by_room(results)
    names = list(dict.fromkeys(name for columns in by_room.values() for name in columns))
    rows = []
    for room, columns in by_room.items():
        line = paired(columns.reindex(columns=names))
        rows.append((_size(room), count(len(line)), *percent_cells(line)))
    return Table(
        title="Reading the chunks, learning them, or both",
        heads=("tokens to read", "n", *names),
        rows=tuple(rows),
        note=f"{CELL_NOTE} {BOLD_NOTE} Whole chunks are read, in order of choice, as many as fit; "
        "what is learned is the same in every line.",
    )


def _by_room(results: Results) -> dict[int | None, pd.DataFrame]:
    """Return by size of context the columns "context SIFT", "fine_tune SIFT", "both SIFT", ….

    Raises:
        InvalidInputError: If nothing was read.
    """
    main = results.main_arms()
    rest = settings_without(results.arms, OF_READING)
    tuned = {name: main[name] for name in CHOSEN_BY if name in main}
    found: dict[int | None, pd.DataFrame] = {}
    readers = results.where(mode="context")
    for room in sorted(set(readers["context_tokens"]), key=lambda one: one or 10**9):
        columns: dict[str, pd.Series] = {}
        for name in CHOSEN_BY:
            for mode in ("context", "both"):
                arms = results.where(mode=mode, selector=name, context_tokens=room)
                if name in tuned:
                    arms = arms[rest[arms.index] == rest[tuned[name]]]
                if len(arms):
                    columns[f"{mode} {_label(name)}"] = results.percent[arms.index[0]]
            if name in tuned:
                columns[f"fine_tune {_label(name)}"] = results.percent[tuned[name]]
        found[room] = pd.DataFrame(columns, index=results.prompts.index)
    if not found:
        raise InvalidInputError("no arm of mode 'context' beside fine-tuning")
    return found


def _label(selector: str) -> str:
    return "default" if selector == "SIFT context" else selector


def _size(room: int | None) -> Cell:
    return word("as many as fit") if room is None else Cell(text=f"{room:,}", value=room)
