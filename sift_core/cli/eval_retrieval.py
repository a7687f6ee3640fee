"""`sift eval retrieval`: methods that choose passages for questions, compared on a data set."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from sift_core.cli.models import load_embedder
from sift_core.cli.options import DEFAULT_EMBEDDER, JsonOption
from sift_core.cli.output import Terminal, print_json, print_table
from sift_core.errors import ExperimentError, InvalidInputError
from sift_core.evaluation.data import RetrievalSet, read_beir, read_retrieval_set
from sift_core.evaluation.embedding_cache import EmbeddingCache, version_of
from sift_core.evaluation.metrics import METRICS, check_metric
from sift_core.evaluation.retrieval import (
    CONDITIONS,
    OURS,
    Row,
    default_methods,
    evaluate_retrieval,
)
from sift_core.evaluation.statistics import Estimate
from sift_core.selection.backend import load_compiled

TABLES_OF = "recall@10,all_gold@10"

# Compiling takes 20 s, and saves 1 ms of each of four selections a question. With fewer questions
# the selectors take the compiled loops only if they are on disk.
_COMPILING_PAYS = 5_000  # questions

app: typer.Typer = typer.Typer(
    name="eval",
    help="Measure how much of what answers a question is among the chosen, on your data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def _group() -> None:
    """Keep `retrieval` a command of its own: Typer would run an app's only one without a name."""


@app.command(
    "retrieval",
    epilog="Example: sift eval retrieval --beir scifact --metrics ndcg@10,recall@10 "
    "--results retrieval.json",
)
def retrieval_command(
    beir: Annotated[
        Path | None, typer.Option(help="Folder of one set in BEIR's form, with qrels/")
    ] = None,
    split: Annotated[str, typer.Option(help="Of the BEIR set")] = "test",
    corpus: Annotated[
        Path | None, typer.Option(help="Instead: JSON lines of {id, title, text}")
    ] = None,
    queries: Annotated[
        Path | None, typer.Option(help="... and JSON lines of {question, gold}, ids in gold")
    ] = None,
    conditions: Annotated[
        str,
        typer.Option(help="With commas, of as-is and duplicates (4 noisy copies of everything)"),
    ] = "as-is,duplicates",
    methods: Annotated[
        str, typer.Option(help="With commas, of nn, sift, sift_paper, mmr-.5, mmr-.7, mmr-.9")
    ] = "all",
    candidates: Annotated[int, typer.Option(help="K, the nearest to choose from")] = 200,
    max_queries: Annotated[
        int | None, typer.Option(help="How many random questions; all if left out")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of that choice and of noise")] = 0,
    embedder: Annotated[
        str, typer.Option(help="A sentence-transformers model: name on the hub, or folder")
    ] = DEFAULT_EMBEDDER,
    metrics: Annotated[
        str,
        typer.Option(help="A table each: recall@n, all_gold@n, ndcg@n, alpha_ndcg@n; any n >= 1"),
    ] = TABLES_OF,
    results: Annotated[Path | None, typer.Option(help="Where to write the rows (JSON)")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how much of what answers a question is among the first ones chosen."""
    every = default_methods()
    tables_of = list(dict.fromkeys(word.strip() for word in metrics.split(",")))
    for name in tables_of:
        check_metric(name)
    compared = list(every) if methods == "all" else _chosen("--methods", methods, every)
    measured_in = _chosen("--conditions", conditions, CONDITIONS)
    retrieval_set = _read_set(beir, split, corpus, queries)
    if results:
        _write(results, "", "a")  # better refused now than after an hour
    if max_queries is not None:
        retrieval_set = retrieval_set.sample(max_queries, seed)
    if len(retrieval_set.questions) >= _COMPILING_PAYS:
        load_compiled()
    rows = evaluate_retrieval(
        retrieval_set,
        cache=EmbeddingCache(
            model=embedder,
            make_embedder=partial(load_embedder, embedder),
            version=version_of(embedder),
        ),
        methods={name: every[name] for name in compared},
        conditions=measured_in,
        metrics=list(dict.fromkeys([*METRICS, *tables_of])),
        n_candidates=candidates,
        seed=seed,
    )
    record = {
        "rows": rows,
        "configuration": {
            "set": retrieval_set.name,
            "split": split if beir else None,
            "passages": len(retrieval_set.passages),
            "questions": len(retrieval_set.questions),
            "questions_without_gold": retrieval_set.n_without_gold,
            "judgements_left_out": retrieval_set.n_skipped,
            "embedder": embedder,
            "candidates": candidates,
            "seed": seed,
        },
        "versions": {one: version(one) for one in ("numpy", "sift-rerank")},
    }
    if results:
        _write(results, json.dumps(record, indent=2) + "\n", "w")
    if as_json:
        print_json(record)
        return
    console = Terminal()
    for metric in tables_of:
        _print_metric(console, rows, metric)
    console.say(
        f"{rows[0]['n_queries']:,} questions of {retrieval_set.name}. In square brackets: 90 % "
        f"bootstrap interval over them. *: the largest of its column."
    )
    if retrieval_set.n_skipped:
        console.say(
            f"{retrieval_set.n_skipped:,} judgements were left out: their passage or query is "
            f"missing, is the question itself, or was judged before."
        )
    if results:
        console.say(f"Rows: {results}")


def _read_set(
    beir: Path | None, split: str, corpus: Path | None, queries: Path | None
) -> RetrievalSet:
    if beir is not None and corpus is None and queries is None:
        return read_beir(beir, split)
    if beir is None and corpus is not None and queries is not None:
        return read_retrieval_set(corpus, queries)
    raise InvalidInputError("pass either --beir FOLDER, or --corpus FILE with --queries FILE")


def _print_metric(console: Terminal, rows: Sequence[Row], metric: str) -> None:
    """Print a column a condition and a line a method, then the differences of "sift"."""
    best: dict[str, float] = {}
    lines: dict[str, list[str]] = {}
    for row in rows:
        best[row["condition"]] = max(row[metric], best.get(row["condition"], 0.0))
    for row in rows:
        mark = "*" if row[metric] == best[row["condition"]] else ""
        cell = mark + _points(row[metric], row["ci"].get(metric))
        lines.setdefault(row["method"], [row["method"]]).append(cell)
    print_table(console, ("method", *best), lines.values(), title=f"{metric} in points")
    console.print()
    rivals = {row["condition"]: row["differences"] for row in rows if row.get("differences")}
    if rivals:
        heads = ("condition", *next(iter(rivals.values())))
        differences = [
            [condition, *(_points(**one[metric], sign="+") for one in of_each.values())]
            for condition, of_each in rivals.items()
        ]
        title = f"{OURS} minus its rivals on the same questions, {metric} in points"
        print_table(console, heads, differences, title=title)
        console.print()


def _points(mean: float, ci: Sequence[float] | None = None, sign: str = "") -> str:
    """Return a fraction and its interval in points."""
    low, high = (100 * end for end in ci or (math.nan, math.nan))
    estimate = Estimate(value=100 * mean, standard_error=math.nan, low=low, high=high, n=1)
    return estimate.text(sign=sign)


def _chosen(option: str, text: str, names: Iterable[str]) -> list[str]:
    """Return the names that a list with commas has, each once; "mmr-.5" is "mmr .5"."""
    by_word = {name.replace(" ", "-"): name for name in names}
    words = list(dict.fromkeys(word.strip() for word in text.split(",")))
    unknown = [word for word in words if word not in by_word]
    if unknown:
        raise InvalidInputError(f"{option}: no {unknown[0]!r}; there are {', '.join(by_word)}")
    return [by_word[word] for word in words]


def _write(path: Path, text: str, mode: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ExperimentError(f"{path} could not be written: {error.strerror or error}") from error
