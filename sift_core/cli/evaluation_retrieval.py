"""`sift eval retrieval`: methods that choose passages for questions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sift_core.cli.printing import (
    Form,
    form_of,
    list_of,
    print_json,
    print_tables,
    refuse_unwritable,
    write_text,
)
from sift_core.errors import InvalidInputError, MissingDependencyError

if TYPE_CHECKING:
    from sift_core.evaluation.embedding_cache import EmbeddingCache
    from sift_core.evaluation.retrieval.data import RetrievalSet
    from sift_core.evaluation.retrieval.methods import Method
    from sift_core.evaluation.retrieval.run import Condition

try:
    import typer
except ImportError as error:
    raise MissingDependencyError("typer", extra="cli") from error

PACKAGES = ("numpy", "torch", "sentence-transformers", "sift-rerank")
TABLES_OF = "recall@10,all_gold@10"


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
        typer.Option(
            help="With commas, of as-is, duplicates (4 noisy copies of every embedding) and "
            "variants (4 versions of every text: three times more to embed)"
        ),
    ] = "as-is,duplicates",
    methods: Annotated[
        str, typer.Option(help="With commas, of nn, sift, sift_paper, us, mmr-.5, mmr-.7, mmr-.9")
    ] = "all",
    candidates: Annotated[int, typer.Option(help="K, the nearest to choose from")] = 200,
    max_queries: Annotated[
        int | None, typer.Option(help="A random choice of so many questions; all if left out")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of that choice, of noise and of variants")] = 0,
    embedder: Annotated[
        str, typer.Option(help="A sentence-transformers model: name on the hub, or folder")
    ] = "all-MiniLM-L6-v2",
    metrics: Annotated[
        str,
        typer.Option(help="A table each: recall@n and all_gold@n of 5, 10, 20; ndcg@10, ..."),
    ] = TABLES_OF,
    results: Annotated[
        Path | None, typer.Option(help="Where to write the rows (JSON), for a report")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Where embeddings are kept; the library's folder")
    ] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON")] = False,
) -> None:
    """Measure how much of what answers a question is among the first ones chosen."""
    from sift_core.evaluation.environment import environment
    from sift_core.evaluation.retrieval.run import evaluate_retrieval
    from sift_core.evaluation.retrieval.tables import retrieval_tables

    form = form_of(as_markdown=as_markdown, as_json=as_json)
    shown = _known_metrics(metrics)
    compared = _methods(methods)
    asked = _conditions(conditions)
    retrieval_set = _read_set(beir, split, corpus, queries)
    if results:
        refuse_unwritable("--results", results)
    if max_queries is not None:
        retrieval_set = retrieval_set.sample(max_queries, seed)
    rows = evaluate_retrieval(
        retrieval_set,
        cache=_cache(embedder, cache),
        methods=compared,
        conditions=asked,
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
            "embedder": embedder,
            "candidates": candidates,
            "seed": seed,
        },
        **environment(PACKAGES, folder=Path.cwd()),
    }
    if results:
        write_text(results, json.dumps(record, indent=2) + "\n")
    if form is Form.JSON:
        print_json(record)
    else:
        tables = [table for metric in shown for table in retrieval_tables(rows, metric)]
        print_tables(tables, form)
    if results:
        typer.echo(
            f"Rows: {results}\nReport: sift eval report --retrieval {results} --output report.html",
            err=form is not Form.TEXT,
        )


def read_record(path: Path) -> dict[str, Any]:
    """Return what `sift eval retrieval --results` wrote.

    Raises:
        InvalidInputError: If the file cannot be read, or is another one.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path} cannot be read as JSON: {error}") from error
    rows = record.get("rows") if isinstance(record, dict) else None
    needed = {"set", "condition", "method", "n_queries"}
    is_record = isinstance(rows, list) and all(
        isinstance(row, dict) and needed <= set(row) for row in rows
    )
    if not rows or not is_record:
        raise InvalidInputError(
            f"{path} has no rows of retrieval; `sift eval retrieval --results FILE` writes them"
        )
    return dict(record)


def _read_set(
    beir: Path | None, split: str, corpus: Path | None, queries: Path | None
) -> RetrievalSet:
    from sift_core.evaluation.retrieval.beir import read_beir
    from sift_core.evaluation.retrieval.data import read_retrieval_set

    if beir is not None and corpus is None and queries is None:
        return read_beir(beir, split)
    if beir is None and corpus is not None and queries is not None:
        return read_retrieval_set(corpus, queries)
    raise InvalidInputError("pass either --beir FOLDER, or --corpus FILE with --queries FILE")


def _cache(embedder: str, folder: Path | None) -> EmbeddingCache:
    from sift_core.evaluation.embedding_cache import EmbeddingCache, embeddings_folder

    return EmbeddingCache(
        folder=folder or embeddings_folder(),
        model=embedder,
        make_embedder=partial(_make_embedder, embedder),
    )


def _make_embedder(name: str) -> Any:
    from sift_core.embedders import SentenceTransformerEmbedder

    return SentenceTransformerEmbedder(name)


def _methods(text: str) -> Mapping[str, Method]:
    from sift_core.evaluation.retrieval.methods import default_methods

    known = default_methods()
    names = [name.replace("-", " ") for name in list_of("--methods", text)]
    if names == ["all"]:
        return known
    unknown = [name for name in names if name not in known]
    if unknown:
        there = ", ".join(name.replace(" ", "-") for name in known)
        raise InvalidInputError(f"no method {unknown[0]!r}; there are {there}, and all")
    return {name: known[name] for name in names}


def _conditions(text: str) -> list[Condition]:
    from sift_core.evaluation.retrieval.run import CONDITIONS

    asked = [name.replace("-", " ") for name in list_of("--conditions", text)]
    known: dict[str, Condition] = {condition: condition for condition in CONDITIONS}
    unknown = [name for name in asked if name not in known]
    if unknown:
        there = ", ".join(name.replace(" ", "-") for name in known)
        raise InvalidInputError(f"no condition {unknown[0]!r}; there are {there}")
    return [known[name] for name in asked]


def _known_metrics(text: str) -> list[str]:
    from sift_core.evaluation.retrieval.metrics import METRICS

    asked = list_of("--metrics", text)
    unknown = [metric for metric in asked if metric not in METRICS]
    if unknown:
        raise InvalidInputError(f"no metric {unknown[0]!r}; there are {', '.join(METRICS)}")
    return asked
