"""Which chunks help a language model most, and is it better to learn them or to read them?

    python -m benchmarks.language_modeling --data FOLDER [--quick] [--parts main,context,...]
    python -m benchmarks.language_modeling --train T --test T [--near-duplicates F] ...
    python -m benchmarks.language_modeling --results FILE

The paper's tables (sections 5 and 6, appendices) on the mini-Pile of a data folder:
prompts of the test documents, chunks of the train documents, 256 tokens each and two a
document. Rows go to a results file as they come; the same command goes on from there. Without
data, the tables are of all the rows that the file has. `--quick` is for seeing that all modes and
selectors work: a prompt a domain, 10 chunks to learn, 25 documents a domain to choose from; its
numbers say little. The JSON has SIFT against the base model and each rival, --markdown the tables.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import get_args

from benchmarks.embedding_cache import CACHE
from benchmarks.language_modeling.arms import PARTS, Arm, MainSettings, arms_of
from benchmarks.language_modeling.reading_tables import context_table
from benchmarks.language_modeling.results import Results, results_of
from benchmarks.language_modeling.running import read_rows
from benchmarks.language_modeling.statistics import difference
from benchmarks.language_modeling.tables import main_table, without_near_duplicates
from benchmarks.options import count, names, options
from benchmarks.report import Report
from benchmarks.table import Table
from sift_core.answering.model.bundled import SMOLLM2
from sift_core.answering.model.loading import NumberType
from sift_core.errors import InvalidInputError
from sift_core.evaluation.statistics import mean
from sift_core.processor import usable_cpus

PACKAGES = ["numpy", "torch", "transformers", "peft", "sentence-transformers", "sift-rerank"]
RESULTS = CACHE.with_name("language_modeling") / "results.jsonl"
USUAL = {"prompts": 10, "steps": MainSettings().n_steps, "documents": None}
QUICK = {"prompts": 1, "steps": 10, "documents": 25}
MEASURED = ["main", "context"]
SHOWN = [part for part in PARTS if part != "pair"]  # its tables are those of "main"
RIVALS = ("NN-F", "other prompt", "NN", "US", "HullFT")
BARS = {
    None: "sift_percent_of_base",
    "NN-F": "sift_over_nn_f",
    "other prompt": "sift_over_other_prompt",
    "NN": "sift_over_nn",
}
MakeTable = Callable[[Results], Table]
MAIN: tuple[MakeTable, ...] = (main_table, without_near_duplicates)
TABLES: dict[str, tuple[MakeTable, ...]] = {
    "main": MAIN,
    "pair": MAIN,
    "context": (context_table,),
}


def measure(arguments: argparse.Namespace, arms: Sequence[Arm]) -> Results:
    """Return the results of the arms; what the results file lacks is measured."""
    from benchmarks.language_modeling.experiment import (
        LanguageModelingExperiment,
        run_language_modeling,
    )

    experiment = LanguageModelingExperiment(
        data_space=arguments.train,
        prompts=arguments.test,
        base_model=arguments.model,
        documents_per_domain=arguments.documents,
        prompts_per_domain=arguments.prompts,
        skipped_per_domain=arguments.skip,
        near_duplicates=arguments.near_duplicates,
        near_copies=arguments.near_copies,
        dtype=arguments.dtype,
    )
    rows = run_language_modeling(
        experiment,
        arms,
        path=arguments.results,
        cache_folder=CACHE,
        workers=arguments.workers,
    )
    return results_of(rows, arms=[arm.as_record() for arm in arms])


def tables_of(results: Results, parts: Iterable[str]) -> list[Table]:
    """Return the tables of parts; one for which there are no rows is left out and said to be."""
    made = []
    for part in parts:
        for make in TABLES[part]:
            try:
                made.append(make(results))
            except InvalidInputError as error:
                print(f"{part}: {error}")
    return made


def compare(report: Report, results: Results) -> None:
    """Add SIFT in % of the base model, and SIFT minus each rival on the same prompts, in points."""
    tuned = results.where(mode="fine_tune")
    main = results.main_arms() if len(tuned) else {}
    if "SIFT" not in main:
        return
    ours = results.percent[main["SIFT"]].dropna()
    found = {None: mean(ours)}
    for rival in RIVALS:
        if rival in main:
            found[rival] = difference(ours, results.percent[main[rival]])
    for minus, one in found.items():
        # JSON has no form for NaN, which intervals of one prompt are.
        spread = [None if math.isnan(x) else x for x in (one.standard_error, one.low, one.high)]
        row = {"method": "SIFT", "minus": minus, "value": one.value, "standard_error": spread[0]}
        report.add(**row, ci=spread[1:], n_prompts=one.n)
        if minus in BARS:
            name = f"SIFT minus {minus}, points" if minus else "SIFT in % of the base model"
            report.judge(name, one.value, BARS[minus], "lower")


def main(given: Sequence[str] | None = None) -> None:
    """Measure, and print and write what is asked for."""
    arguments = parse(given)
    if arguments.train:
        parts = arguments.parts or MEASURED
        results = measure(arguments, arms_of(parts, MainSettings(n_steps=arguments.steps)))
    else:
        parts = arguments.parts or SHOWN
        results = results_of(read_rows(arguments.results), arguments.experiment)
    tables = tables_of(results, parts)
    for table in tables:
        table.show()
    report = Report(section="language_modeling")
    compare(report, results)
    print(f"\nRows: {arguments.results}, experiment {results.experiment}")
    if arguments.markdown:
        arguments.markdown.parent.mkdir(parents=True, exist_ok=True)
        arguments.markdown.write_text("\n".join(table.as_markdown() for table in tables))
    if arguments.plot:
        from benchmarks.language_modeling.figures import save_learning_curves

        save_learning_curves(arguments.plot, results)
    report.finish(arguments.json, PACKAGES)


def parse(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options, those of the command line if None; exit where they do not fit."""
    parser = options(__doc__, quick="a prompt a domain and 10 chunks")
    data = parser.add_argument_group("data: a folder, or files; none for the rows that are there")
    data.add_argument("--data", type=Path, help="has the folder minipile")
    data.add_argument("--train", type=Path, help="documents to choose from, JSON lines")
    data.add_argument("--test", type=Path, help="documents to be scored, of other sources")
    data.add_argument("--near-duplicates", type=Path, help="rows of {id, gram8_covered}")
    data.add_argument("--documents", type=count, help="of --train a domain; all, quick: 25")
    data.add_argument("--prompts", type=count, help="of --test a domain; 10, quick: 1")
    data.add_argument("--skip", type=int, default=0, help="so many of each domain before those")
    data.add_argument("--near-copies", action="store_true", help="prompts with a near copy only")
    data.add_argument("--experiment", help="of a file of rows with several: its 16 hex digits")
    parser.add_argument("--model", default=SMOLLM2, help="name on the hub, or folder")
    parser.add_argument("--parts", type=_parts, help=", ".join(PARTS))
    parser.add_argument("--steps", type=count, help="chunks; 50, quick: 10")
    parser.add_argument(
        "--dtype",
        default="auto",
        choices=get_args(NumberType),
        help="what the model computes in; auto: what the CPU is fastest in",
    )
    parser.add_argument("--workers", type=count, default=min(2, usable_cpus()))
    parser.add_argument("--results", type=Path, default=RESULTS, help="where rows are kept")
    parser.add_argument("--markdown", type=Path, help="where to write the tables")
    parser.add_argument("--plot", type=Path, help="where to draw bits per byte by steps (PNG)")
    arguments = parser.parse_args(given)
    if (arguments.train is None) != (arguments.test is None) or (
        arguments.data and arguments.train
    ):
        parser.error("pass either --data, or --train with --test")
    if arguments.data:
        folder = arguments.data / "minipile"
        arguments.train = folder / "train.jsonl.xz"
        arguments.test = folder / "test_dev.jsonl.xz"
        arguments.near_duplicates = arguments.near_duplicates or folder / "neardup_test_dev.jsonl"
    for name, value in (QUICK if arguments.quick else USUAL).items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    return arguments


def _parts(text: str) -> list[str]:
    parts = list(PARTS) if text == "all" else names(text)
    unknown = set(parts) - set(PARTS)
    if unknown:
        raise argparse.ArgumentTypeError(f"no part {min(unknown)!r}; there are {', '.join(PARTS)}")
    return parts


if __name__ == "__main__":
    main()
