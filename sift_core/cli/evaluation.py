"""The commands of `sift eval`; torch and matplotlib are loaded by those that need them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from sift_core.cli.evaluation_language_modeling import language_modeling_command
from sift_core.cli.evaluation_retrieval import read_record, retrieval_command
from sift_core.cli.printing import (
    form_of,
    part_names,
    print_json,
    print_results,
    refuse_unwritable,
)
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.evaluation.running.results_file import ResultsFile, Row

try:
    import typer
except ImportError as error:
    raise MissingDependencyError("typer", extra="cli") from error

app = typer.Typer(
    name="eval",
    help="Measure what the paper measured, on your data; show it as tables and figures.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command(
    "language-modeling",
    epilog="Example: sift eval language-modeling --data-space train.jsonl --prompts test.jsonl "
    "--model gpt2 --parts main,context --workers 2 --results results.jsonl",
)(language_modeling_command)
app.command(
    "retrieval",
    epilog="Example: sift eval retrieval --beir scifact --metrics ndcg@10,recall@10 "
    "--results retrieval.json",
)(retrieval_command)


@app.command("tables", epilog="Example: sift eval tables results.jsonl --parts main,context")
def tables_command(
    results: Annotated[
        list[Path], typer.Argument(help="Files that `sift eval language-modeling` wrote")
    ],
    parts: Annotated[
        str, typer.Option(help="Which tables, with commas; all: those that have rows")
    ] = "all",
    experiment: Annotated[
        str | None, typer.Option(help="Of a file with several: its 16 hex digits")
    ] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Print the tables of results that were measured before."""
    from sift_core.evaluation.analysis.part_tables import tables_of
    from sift_core.evaluation.analysis.rows import Results

    form = form_of(as_markdown=as_markdown, as_json=as_json)
    names = part_names(parts)
    found = Results.from_rows(_rows_in(results), experiment)
    shown = tables_of(found, names)
    absent = shown.not_measured
    if absent and (parts != "all" or not shown.tables):
        raise InvalidInputError(
            f"there are no rows for the part {absent[0]!r}: {shown.missing[absent[0]][0]}"
        )
    print_results(found, shown, form, files=results)


@app.command(
    "report",
    epilog="Example: sift eval report results.jsonl --retrieval retrieval.json "
    "--output report.html --figures figures",
)
def report_command(
    output: Annotated[Path, typer.Option(help="The HTML file to write")],
    results: Annotated[
        list[Path] | None, typer.Argument(help="Files that `sift eval language-modeling` wrote")
    ] = None,
    retrieval: Annotated[
        Path | None, typer.Option(help="File that `sift eval retrieval --results` wrote")
    ] = None,
    experiment: Annotated[
        str | None, typer.Option(help="Of a file with several: its 16 hex digits")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for the figures as PNG files, too")
    ] = None,
    title: Annotated[str, typer.Option(help="The report's heading")] = "Evaluation of SIFT",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Write one HTML file with the tables and figures of what was measured."""
    from sift_core.evaluation.analysis.rows import Results
    from sift_core.evaluation.figures.saved import save_figures
    from sift_core.evaluation.report.write import write_report

    found = Results.from_rows(_rows_in(results), experiment) if results else None
    record = read_record(retrieval) if retrieval else {}
    rows = record.pop("rows", None)
    if found or rows:
        refuse_unwritable("--output", output)
    path = write_report(found, output, rows, title=title, retrieval_configuration=record or None)
    saved = save_figures(figures, found, rows) if figures else []
    if as_json:
        print_json({"report": str(path), "figures": [str(figure) for figure in saved]})
        return
    typer.echo(f"Report: {path}")
    if figures:
        typer.echo(f"Figures: {len(saved)} in {figures}")


def _rows_in(paths: list[Path]) -> list[Row]:
    """Return the rows of results files, one after the other."""
    rows: list[Row] = []
    for path in paths:
        if not path.exists():
            raise InvalidInputError(
                f"there is no results file {path}; `sift eval language-modeling` writes one"
            )
        rows += ResultsFile(path).rows()
    return rows
