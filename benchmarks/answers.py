"""Do chosen contexts help a small model to answer?

    python -m benchmarks.answers --data FOLDER [--sets squad,...] [--questions N] [--results FILE]
    python -m benchmarks.answers --results FILE [--json FILE] [--markdown FILE]

Four methods choose 5 and 10 of 200 candidates from a collection as it is and from one with every
passage in four textual versions, as benchmarks.retrieval makes them. The bundled SmolLM2 reads
them as `AnswerEngine` has it read, and what is measured are the bits of the gold answer (the
first of several; greater is worse), and exact match and F1 (SQuAD's, the best over gold answers)
of what it writes. Bounds: no context, and the gold passages alone.

A row is on disk as soon as it is measured, and the same call goes on from there. Questions come in
turns over the sets, so an interrupted run has a balanced sample. The second form measures nothing
and makes the table of the rows that there are.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from benchmarks.answers_data import (
    BOUNDS,
    COMPARED,
    FORMS,
    SIZES,
    Collection,
    read_collection,
)
from benchmarks.embedding_cache import CACHE, project_cache
from benchmarks.language_modeling.running import ResultsFile, Row, read_rows
from benchmarks.language_modeling.statistics import difference as gap
from benchmarks.options import names, options
from benchmarks.report import Report
from benchmarks.table import Cell, Table, difference, missing, number, word
from sift_core.answering import LanguageModel
from sift_core.answering.in_context import InContextAnswerer
from sift_core.answering.model.training import target_losses
from sift_core.errors import InvalidInputError
from sift_core.evaluation.search import N_CANDIDATES
from sift_core.types import CandidatePool, Query

PACKAGES = ["numpy", "pyversity", "sentence-transformers", "torch", "transformers", "sift-rerank"]
RESULTS = CACHE.with_name("answers") / "results.jsonl"
# Of eight wordings the one with the shortest answers to twelve questions that are not measured.
# With any of them the model often repeats the question before it answers.
INSTRUCTION = "Question: {}\nAnswer with a short phrase only."
MAX_NEW_TOKENS = 16
SETS = ["hotpotqa", "2wikimultihopqa", "musique", "squad"]
QUICK = {"sets": ["squad"], "questions": 2}

NEAREST = COMPARED[0]
SETTINGS = tuple(f"{form}, {n}" for form in FORMS for n in SIZES)
ARMS = (*BOUNDS, *(f"{setting}: {name}" for setting in SETTINGS for name in COMPARED))
DIGITS = {"gold": 1, "bits": 2, "bits_per_byte": 3, "exact": 1, "holds": 1, "f1": 1}
POINTS = ["gold", "exact", "holds", "f1"]  # the others are bits
NOTE = (
    "Bits of the first gold answer: fewer are better. Gold passages found, exact match, answers "
    "that hold a gold answer and F1 in points. Δ: paired difference from nn with as many chunks, "
    "in brackets its 90 % bootstrap interval over questions."
)


class Reader:
    """A language model that reads a context once, to score the gold answer and to write its own.

    Args:
        language_model: Of a kind whose keys and values can be cut, see `LanguageModel.read`.
    """

    def __init__(self, language_model: LanguageModel) -> None:
        self._model = language_model
        self._answerer = InContextAnswerer(
            language_model=language_model, max_new_tokens=MAX_NEW_TOKENS
        )

    def read(self, question: str, answers: Sequence[str], chunks: CandidatePool) -> Row:
        """Return what a row says of one context: bits, answer and its scores."""
        query = Query(text=INSTRUCTION.format(question))
        used = self._answerer.used(query, chunks)
        ids = self._model.prompt_ids(self._answerer.prompt_for(query, used))
        prefix = self._model.read(ids[:-1])
        if prefix is None:
            raise InvalidInputError("the model's keys and values cannot be cut; take another one")
        targets = self._model.token_ids(answers[0])
        cache = prefix.cache(self._model.model, ids, prefix.adapter_key, {})
        written = replace(self._answerer, prefix=prefix).answer(query, chunks).text
        return {
            "read": len(used),
            "tokens": len(ids),
            "bits": round(self._nats([ids[-1], *targets[:-1]], targets, cache) / math.log(2), 4),
            "bytes": len(answers[0].encode()),
            "answer": written,
            **scores(written, answers),
        }

    def _nats(self, inputs: Sequence[int], targets: Sequence[int], cache: Any) -> float:
        """Return the cross-entropy of tokens behind a prompt whose last token is still to read."""
        layers = self._model.layers
        with torch.inference_mode():
            output = layers.trunk(input_ids=torch.tensor([inputs]), past_key_values=cache)
            hidden = output.last_hidden_state[0]
            return float(target_losses(layers, hidden, torch.tensor(targets)).sum())


def scores(written: str, answers: Sequence[str]) -> dict[str, float]:
    """Return "exact", "f1" and "holds" (the answer stands in what was written), best of all."""
    words = normalized(written).split()
    golds = [normalized(answer).split() for answer in answers]
    return {
        "exact": float(words in golds),
        "f1": round(max(f1(words, gold) for gold in golds), 4),
        "holds": float(any(f" {' '.join(gold)} " in f" {' '.join(words)} " for gold in golds)),
    }


def normalized(text: str) -> str:
    """Return a text as SQuAD's evaluation compares it: no case, punctuation and articles."""
    plain = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", plain).split())


def f1(words: Sequence[str], gold: Sequence[str]) -> float:
    """Return F1 of the words two texts have in common, 1 where neither has any.

    References:
        Rajpurkar et al. (2016), SQuAD, section 6.1.
    """
    if not words or not gold:
        return float(words == gold)
    return 2 * (Counter(words) & Counter(gold)).total() / (len(words) + len(gold))


def measure(
    collections: Sequence[Collection], reader: Reader, file: ResultsFile, *, n_questions: int
) -> None:
    """Write the rows that a file lacks, question by question in turns over the sets."""
    known: dict[str, list[Row]] = {}
    for row in file.rows:
        if "key" in row:
            known.setdefault("|".join(row["key"].split("|")[:2]), []).append(row)
    for i in range(n_questions):
        for one in collections:
            if i < len(one.questions):
                name = f"{one.name}|{one.questions[i].question_id}"
                if len(known.get(name, [])) < len(ARMS):
                    for row in rows_of(one, i, reader, known.get(name, [])):
                        file.append({"key": f"{name}|{row.pop('context')}", **row})
        print(f"{i + 1} questions of each set", flush=True)


def rows_of(collection: Collection, i: int, reader: Reader, known: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows of one question; what several methods chose alike is read once."""
    question = collection.questions[i]
    answers = collection.answers[question.question_id]
    read = {tuple(row["chosen"]): row for row in known}
    for context, chosen in collection.contexts(i).items():
        if chosen not in read:
            read[chosen] = {
                "chosen": list(chosen),
                "gold": round(collection.gold_found(i, chosen), 4),
                **reader.read(question.text, answers, collection.chunks(chosen)),
            }
        row = {name: value for name, value in read[chosen].items() if name != "key"}
        yield {"context": "|".join(map(str, context)), **row}


def record_of(collection: Collection, language_model: LanguageModel) -> Row:
    """Return the row that says in which setting a set was measured."""
    configuration = {
        "set": collection.name,
        "data": collection.digest,
        "passages": len(collection.passages),
        "versions": collection.versions.condition,
        "candidates": N_CANDIDATES,
        "instruction": INSTRUCTION,
        "max_new_tokens": MAX_NEW_TOKENS,
        "model": Path(language_model.name).name,
        "weights": language_model.fingerprint,
        "dtype": str(language_model.model.dtype),
    }
    digest = hashlib.sha256(json.dumps(configuration, sort_keys=True).encode()).hexdigest()
    return {"experiment": digest[:16], **configuration}


def check_setting(rows: Sequence[Row], record: Row) -> None:
    """Refuse a file in which a set was measured in another setting."""
    for row in rows:
        if row.get("set") == record["set"] and row["experiment"] != record["experiment"]:
            differing = [name for name in record if row.get(name) != record[name]]
            raise InvalidInputError(
                f"the rows of {record['set']!r} were measured in another setting: {differing} "
                f"differ; name another file with --results"
            )


def by_question(rows: Sequence[Row]) -> pd.DataFrame:
    """Return a line a set and question, a column a measure and arm.

    Raises:
        InvalidInputError: If no question has all of its rows.
    """
    records = []
    for row in rows:
        if "key" in row:
            name, question, form, method, n = row["key"].split("|")
            arm = f"{form}, {n}: {method}" if form else method
            records.append({"set": name, "question": question, "arm": arm, **row})
    if records:
        long = pd.DataFrame(records)
        long["bits_per_byte"] = long["bits"] / long["bytes"]
        long[POINTS] *= 100
        wide = long.pivot(index=["set", "question"], columns="arm", values=list(DIGITS))
        whole = wide.reindex(columns=pd.MultiIndex.from_product([DIGITS, ARMS])).dropna()
        if len(whole):
            return whole.astype(float)
    raise InvalidInputError("no question has all of its rows yet; measure with --data")


def table_of(rows: Sequence[Row]) -> Table:
    """Return what all questions say together; `summary` has the sets."""
    found = by_question(rows)
    counts = found.groupby(level="set").size()
    heads = ("gold", "bits", "Δ bits", "bits per byte", "exact", "holds", "F1", "Δ F1")

    def cells(arm: str) -> list[Cell]:
        own = {one: number(found[one, arm].mean(), digits) for one, digits in DIGITS.items()}
        bits, f1 = _over_nearest(found, arm, "bits"), _over_nearest(found, arm, "f1")
        return [
            *(own["gold"], own["bits"], bits, own["bits_per_byte"]),
            *(own["exact"], own["holds"], own["f1"], f1),
        ]

    of = ", ".join(f"{n} of {name}" for name, n in counts.items())
    lines = tuple((word(arm), *cells(arm)) for arm in ARMS)
    title = f"Answers from chosen contexts, questions: {of}"
    return Table(title=title, heads=("context", *heads), rows=lines, note=NOTE)


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a record a set and arm, each measure's mean in it."""
    means = by_question(rows).groupby(level="set").mean().stack(future_stack=True)
    return means.round(4).rename_axis(["set", "arm"]).reset_index().to_dict("records")


def _over_nearest(found: pd.DataFrame, arm: str, measure: str) -> Cell:
    if _is_reference(arm):
        return missing()
    nearest = f"{arm.split(': ')[0]}: {NEAREST}"
    return difference(gap(found[measure, arm], found[measure, nearest]), digits=DIGITS[measure])


def _is_reference(arm: str) -> bool:
    return arm in BOUNDS or arm.endswith(f": {NEAREST}")


def main() -> None:
    arguments = parse()
    if arguments.data is not None:
        with ResultsFile(arguments.results) as file:
            collections = [
                read_collection(arguments.data, name, project_cache()) for name in arguments.sets
            ]
            language_model = LanguageModel.from_pretrained()
            for collection in collections:
                record = record_of(collection, language_model)
                check_setting(file.rows, record)
                file.append(record)
            measure(collections, Reader(language_model), file, n_questions=arguments.questions)
    rows = read_rows(arguments.results)
    table = table_of(rows)
    table.show()
    if arguments.markdown:
        arguments.markdown.write_text(table.as_markdown(), "utf-8")
    Report(rows=summary(rows)).finish(arguments.json, PACKAGES)


def parse() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = options(__doc__, quick="two questions of squad")
    parser.add_argument("--data", type=Path, help="has corpus/SET and dev/SET; measures")
    parser.add_argument("--sets", type=names, default=SETS)
    parser.add_argument("--questions", type=int, default=50, help="of each set, at most 200")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where rows are kept")
    parser.add_argument("--markdown", type=Path, help="where to write the table")
    arguments = parser.parse_args()
    if arguments.quick:
        vars(arguments).update(QUICK)
    return arguments


if __name__ == "__main__":
    main()
