"""Do the spread's temperature and α mean the same for every embedding model?

    python -m benchmarks.spread_scales --data FOLDER [--sets NAME …] [--json FILE]

`search` chooses ten of each corpus under all-MiniLM-L6-v2 and three models made without other
weights. Temperature and α vary one at a time, on the first halves, where the defaults were tuned.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.bars import bar, in_words
from benchmarks.other_embeddings import common_direction, leading_coordinates, lexical, unit
from benchmarks.records import write_record
from benchmarks.retrieval import QuestionSet
from benchmarks.words_in_choice import N_SELECT, Corpus, judge, read_corpus, rows_in
from sift_core import ChoiceOptions, Query, search
from sift_core.evaluation.data import Question
from sift_core.evaluation.search import Versions
from sift_core.evaluation.statistics import mean

SETS = ("musique", "2wikimultihopqa", "hotpotqa")
N_QUESTIONS, SEED = 100, 0
DEFAULT = (0.7, 0.5)  # temperature and α of `selection/spread.py`
SCALES = (*((t, 0.5) for t in (0.35, 0.5, 0.7, 1.0, 1.4)), (0.7, 0.3), (0.7, 0.7))
NEARLY_BEST = 1.0  # points of recall@10 between the best scale and the default
CHANGES = {"common direction": common_direction, "96 of 384": leading_coordinates}

Values = dict[tuple[float, float], list[float]]  # scale → recall@10 of each question
Model = tuple[str, Corpus, list[Query]]


def models(corpus: Corpus, questions: Sequence[Question]) -> Iterator[Model]:
    """Return each model's name, with the corpus and the questions as it embeds them."""
    queries = corpus.queries(questions)
    yield "MiniLM", corpus, queries
    asked = np.stack([one.vector for one in queries])
    made = {}
    for name, change in CHANGES.items():
        changed = change(corpus.vectors, np.random.default_rng(SEED))
        made[name] = unit(changed(asked)), unit(changed(corpus.vectors))
    passages = corpus.found.passages
    plain = Versions(condition="", embeddings=corpus.vectors, originals=np.arange(len(passages)))
    under = QuestionSet(name="", passages=passages, questions=questions, embeddings=asked)
    made["TF-IDF and SVD"] = tuple(one.embeddings for one in lexical(under, plain))
    for name, (rows, vectors) in made.items():
        embedded = [replace(one, embedding=row) for one, row in zip(queries, rows, strict=True)]
        yield name, replace(corpus, vectors=vectors), embedded


def measure(corpus: Corpus, questions: Sequence[Question], queries: Sequence[Query]) -> Values:
    """Return recall@10 of the default of `search`, with each scale of its spread."""
    values: Values = {}
    for temperature, followed in SCALES:
        scale = {"TEMPERATURE": temperature, "FOLLOWED": followed}
        with patch.multiple("sift_core.selection.spread", **scale):
            for question, query in zip(questions, queries, strict=True):
                found = search(corpus.source, query, ChoiceOptions(n_select=N_SELECT))
                recall = judge(corpus, question, rows_in(found.pool, found.positions))["recall@10"]
                values.setdefault((temperature, followed), []).append(recall)
    return values


def rows_of(set_name: str, model: str, values: Values) -> list[dict[str, Any]]:
    """Return a row for each scale; the difference from the default is in points."""
    rows = []
    for (temperature, followed), of_each in values.items():
        row = {"set": set_name, "model": model, "temperature": temperature, "followed": followed}
        row |= {"n_questions": len(of_each), "recall@10": round(float(np.mean(of_each)), 4)}
        beyond = mean(100 * (np.array(of_each) - values[DEFAULT]))
        row["over default"] = [round(v, 2) for v in (beyond.value, beyond.low, beyond.high)]
        rows.append(row)
        print(*row.values(), flush=True)
    return rows


def bars_of(all_values: Mapping[str, Values]) -> list[dict[str, Any]]:
    """Return, for each model, how far the best scale is ahead of the default, in points."""
    bars = []
    for model, values in all_values.items():
        means = {scale: 100 * float(np.mean(of_each)) for scale, of_each in values.items()}
        best = max(means, key=lambda scale: means[scale])
        name = f"{model}: T {best[0]}, α {best[1]} over the default, recall@10"
        bars.append(bar(name, round(means[best] - means[DEFAULT], 2), NEARLY_BEST, "lower"))
    return bars


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the corpora")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    of_all: dict[str, Values] = {}
    for name in arguments.sets:
        corpus = Corpus.of(*read_corpus(arguments.data, name))
        questions = Corpus.halves_of(corpus.found)[0][:N_QUESTIONS]
        for model, embedded, queries in models(corpus, questions):
            values = measure(embedded, questions, queries)
            rows += rows_of(name, model, values)
            before = of_all.get(model, {key: [] for key in SCALES})
            of_all[model] = {scale: before[scale] + values[scale] for scale in SCALES}
    rows += [row for model, values in of_all.items() for row in rows_of("all", model, values)]
    bars = bars_of(of_all)
    print(*map(in_words, bars), sep="\n")
    if arguments.json:
        write_record(arguments.json, rows=rows, bars=bars, packages=["numpy", "scikit-learn"])


if __name__ == "__main__":
    main()
