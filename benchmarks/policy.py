"""Does mode "auto", calibrated on a collection, choose as well as the best way for all questions?

    python -m benchmarks.policy --data FOLDER [--examples N] [--collections NAME …] [--results FILE]
    python -m benchmarks.policy --results FILE [--json FILE] [--markdown FILE] [--plot FILE]

Three collections: first tokens of the mini-Pile's train documents, and 1,000 passages of hotpotqa
and of squad. In each, passages are held back as `sift calibrate` does it, and the same ways are
measured on what no calibration has: halves of test documents, or questions with their gold answer.
A policy that is calibrated on the passages, or on the other half of what is judged, is judged by
bits per byte against the best way for all, and against the best way for each (oracle).

Every example is on disk as soon as it is measured, and the same call goes on from there. Processes
that measure a collection each have a file each, whose rows can be put together; of several cost
models the first counts. The second form measures nothing and makes tables of the rows there are.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from benchmarks.answers_data import N_PASSAGES
from benchmarks.bars import load_bars
from benchmarks.embedding_cache import CACHE
from benchmarks.language_modeling.running import ResultsFile, Row, read_rows
from benchmarks.policy_data import PASSAGES, Collection, embedder, mini_pile, question_set
from benchmarks.policy_judging import draw, judge, judged, tables
from benchmarks.records import write_record
from benchmarks.report import Report
from sift_core.answering import AnswerEngine, LanguageModel, learn_collection
from sift_core.answering.calibrating import AIM_S, Example, held_back, measured, ways_of
from sift_core.answering.cost_model import CostModel
from sift_core.answering.model.bundled import SMOLLM2
from sift_core.errors import InvalidInputError

RESULTS = CACHE.with_name("policy") / "results.jsonl"
PACKAGES = ["numpy", "torch", "transformers", "peft", "onnxruntime", "sift-rerank"]
COLLECTIONS = ["minipile", "hotpotqa", "squad"]
MERGED_IN = "hotpotqa"  # learning a collection takes minutes
SEED = 0


def measure(arguments: argparse.Namespace) -> None:
    """Add to the file the examples that it lacks, the collections in turn."""
    torch.set_num_threads(1)
    model = LanguageModel.from_pretrained(SMOLLM2, device="cpu")
    n = arguments.examples
    collections = [
        mini_pile(arguments.data / "minipile", model, n)
        if name == "minipile"
        else question_set(arguments.data, name, n)
        for name in arguments.collections
    ]
    with ResultsFile(arguments.results) as file:
        dtype = str(model.model.dtype)
        known = next((row for row in file.rows if row["key"] == "cost model"), None)
        if known is None:
            costs = CostModel.measure(model, aim_s=AIM_S)
            file.append({"key": "cost model", "cost_model": asdict(costs), "dtype": dtype})
        elif (found := known.get("dtype", "torch.bfloat16")) != dtype:  # as before it was noted
            raise InvalidInputError(
                f"the rows of {arguments.results} were measured in {found}, this CPU is fastest in "
                f"{dtype}; name another file with --results"
            )
        engines = [_engine(one, model) for one in collections]
        queues = [
            [
                named
                for number, pair in enumerate(_pairs(engine, collection, n))
                for named in zip((PASSAGES, collection.kind), (number, number), pair, strict=True)
            ]
            for collection, engine in zip(collections, engines, strict=True)
        ]
        for turn in zip(*queues, strict=True):
            for collection, engine, named in zip(collections, engines, turn, strict=True):
                _add(file, collection, engine, *named)
            print(f"{len(file.rows) - 1} examples", flush=True)


def _pairs(engine: AnswerEngine, collection: Collection, n: int) -> Iterator[tuple[Example, ...]]:
    return zip(islice(held_back(engine, n, SEED), n), collection.examples[:n], strict=True)


def _add(
    file: ResultsFile, collection: Collection, engine: AnswerEngine, kind: str, n: int, one: Example
) -> None:
    key = f"{collection.name}, {kind}, {n}"
    if key in file.keys:
        return
    ways = ways_of(engine, with_merged=kind != PASSAGES)
    found = measured(engine, one, ways)
    row: Row = {
        "key": key,
        "collection": collection.name,
        "kind": kind,
        "ways": [asdict(way) for way in ways],
        "answer_tokens": engine.language_model.n_tokens(one.answer),
        "example": None if found is None else asdict(found),
    }
    file.append(row)


def _engine(collection: Collection, model: LanguageModel) -> AnswerEngine:
    embedding = embedder()
    adapters = None
    if collection.name == MERGED_IN:
        sample = collection.source.sample(N_PASSAGES, np.random.default_rng(SEED))
        folder = RESULTS.with_name(f"adapters-{collection.name}")
        adapters = learn_collection(model, sample, folder)
    return AnswerEngine(
        language_model=model,
        source=collection.source,
        embedder=embedding,
        adapters=adapters,
        adapter_cache=None,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the corpora; none for the tables")
    parser.add_argument("--examples", type=int, default=40, help="of each kind and collection")
    parser.add_argument(
        "--collections", nargs="+", choices=COLLECTIONS, default=COLLECTIONS, help="to measure"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="where rows are kept")
    parser.add_argument("--json", type=Path, help="where to write the record")
    parser.add_argument("--markdown", type=Path, help="where to write the tables")
    parser.add_argument("--plot", type=Path, help="where to draw gain against seconds (PNG)")
    arguments = parser.parse_args()
    if arguments.data is not None:
        measure(arguments)
    rows = read_rows(arguments.results)
    report = Report(bar_numbers=load_bars("policy"), rows=judged(rows))
    shown = tables(report.rows)
    for one in shown:
        print(f"\n{one.as_text()}")
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(one.as_markdown() for one in shown))
    report.heading("Bars")
    judge(report, report.rows)
    if arguments.plot:
        draw(report.rows, arguments.plot)
    if arguments.json:
        write_record(arguments.json, rows=report.rows, bars=report.bars, packages=PACKAGES)


if __name__ == "__main__":
    main()
