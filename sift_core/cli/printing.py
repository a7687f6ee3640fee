"""What the commands of `sift eval` have in common: lists in options, and tables on stdout."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sift_core.errors import ExperimentError, InvalidInputError, MissingDependencyError
from sift_core.evaluation.language_modeling.parts import PARTS

if TYPE_CHECKING:
    from sift_core.evaluation.analysis.part_tables import PartTables
    from sift_core.evaluation.analysis.rows import Results
    from sift_core.evaluation.analysis.table import Table

try:
    import typer
except ImportError as error:
    raise MissingDependencyError("typer", extra="cli") from error


class Form(Enum):
    """How numbers are printed."""

    TEXT = "text"
    MARKDOWN = "Markdown"
    JSON = "JSON"


def form_of(*, as_markdown: bool, as_json: bool) -> Form:
    """Return what two options ask for.

    Raises:
        InvalidInputError: If they ask for both.
    """
    if as_markdown and as_json:
        raise InvalidInputError("--markdown and --json exclude each other; pass one of them")
    if as_markdown:
        return Form.MARKDOWN
    return Form.JSON if as_json else Form.TEXT


def list_of(option: str, text: str) -> list[str]:
    """Return the entries of a list with commas, each once.

    Raises:
        InvalidInputError: If there is none.
    """
    entries = [entry.strip() for entry in text.split(",")]
    found = list(dict.fromkeys(entry for entry in entries if entry))
    if not found:
        raise InvalidInputError(f"{option} must be a list with commas, got {text!r}")
    return found


def part_names(text: str) -> list[str]:
    """Return the parts of the experiment that `--parts` names; "all" has every one.

    Raises:
        InvalidInputError: If there is no such part.
    """
    found = list_of("--parts", text)
    if found == ["all"]:
        return list(PARTS)
    unknown = [part for part in found if part not in PARTS]
    if unknown:
        raise InvalidInputError(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}, and all")
    return found


def refuse_unwritable(option: str, path: Path) -> None:
    """Make the folder of a file that is written when all is measured; leave no file there.

    Raises:
        InvalidInputError: If the file could not be written: better now than after an hour.
    """
    is_there = path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass
        if not is_there:
            path.unlink()
    except OSError as error:
        raise InvalidInputError(
            f"{option} {path} cannot be written: {error.strerror or error}; name another file"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a file.

    Raises:
        ExperimentError: If the system cannot, on a full disk for instance.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ExperimentError(f"{path} could not be written: {error.strerror or error}") from error


def print_results(
    results: Results,
    shown: PartTables,
    form: Form,
    *,
    files: Sequence[Path],
    further: Sequence[str] = (),
) -> None:
    """Print the tables of an experiment, and what is not there.

    Args:
        results: Of one experiment.
        shown: Its tables.
        form: How.
        files: Where the rows are.
        further: Lines for a reader, which go to stderr where stdout has JSON or Markdown.
    """
    if form is Form.JSON:
        print_json(
            {
                "experiment": results.experiment,
                "results": [str(path) for path in files],
                **dict(results.configuration),
                "n_prompts": len(results.prompts),
                "parts": {
                    part: records_of(tables) for part, tables in sorted_by_part(shown).items()
                },
                "missing": {part: list(why) for part, why in shown.missing.items()},
            }
        )
    else:
        print_tables(shown.all_tables, form)
    absent = shown.not_measured
    lines = [f"No rows for: {', '.join(absent)}."] if absent else []
    for part, why in shown.missing.items():
        lines += [f"{part}: {one}" for one in why if part in shown.tables]
    for line in [*lines, *further]:
        typer.echo(line, err=form is not Form.TEXT)


def sorted_by_part(shown: PartTables) -> dict[str, tuple[Table, ...]]:
    """Return the tables by part, in the order of `PARTS`."""
    return {part: shown.tables[part] for part in PARTS if part in shown.tables}


def print_tables(tables: Iterable[Table], form: Form) -> None:
    """Print tables as text or Markdown."""
    for table in tables:
        typer.echo(table.as_markdown() if form is Form.MARKDOWN else table.as_text())


def records_of(tables: Iterable[Table]) -> list[dict[str, Any]]:
    """Return tables for JSON: title, rows and note of each."""
    return [
        {"title": table.title, "rows": table.as_records(), "note": table.note} for table in tables
    ]


def print_json(record: Any) -> None:
    """Print a record as JSON."""
    typer.echo(json.dumps(record, indent=2))
