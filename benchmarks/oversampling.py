"""Where 200 candidates are few facts, what does asking for more bring, and what does it cost?

    python -m benchmarks.oversampling --data FOLDER [--sets musique,hotpotqa,...] [--quick]
                                      [--json FILE] [--plot FILE]

Each set of a data folder as it is, with 4 to 64 noisy copies of every passage,
with unevenly many, and with 4 textual versions. `ContextSelector` chooses 10, 20 and 50 from the
nearest 200, from the nearest 1,000, and from what `OversamplingSource` makes of 200. Then: the
same for other numbers in its rule; which measure of a pool's effective size foretells that more
candidates help; the milliseconds of a fetch from Faiss. Nothing is embedded that
benchmarks.retrieval has embedded. Rows have fractions; tables and bars have points.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks import oversampling_plot
from benchmarks.bars import load_bars
from benchmarks.embedding_cache import project_cache
from benchmarks.other_embeddings import common_direction, unit
from benchmarks.oversampling_data import N_COPIES, Asked, asked, conditions
from benchmarks.oversampling_latency import measure_latency
from benchmarks.oversampling_sizes import MEASURES, separation
from benchmarks.records import write_record
from benchmarks.report import Report
from benchmarks.retrieval import QuestionSet, read_sets
from sift_core import CandidatePool, ContextSelector
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.evaluation.search import as_is
from sift_core.sources import oversampling as rule
from sift_core.sources.oversampling import OversamplingSource

PACKAGES = ["numpy", "numba", "faiss-cpu", "sentence-transformers", "sift-rerank"]
N_CANDIDATES, MANY_CANDIDATES = 200, 1000
N_SELECT = (10, 20, 50)
# The rule's numbers beside those that were chosen, one changed at a time.
OTHER_RULES: dict[str, dict[str, float]] = {
    **{f"{n} contents a choice": {"DISTINCT_A_CHOICE": n} for n in (1, 3, 4, 6)},
    "steps up to 2": {"LARGEST_STEP": 2},
    "steps up to 10": {"LARGEST_STEP": 10},
    "one more fetch": {"MORE_FETCHES": 1},
    "cap 500": {"MAX_CANDIDATES": 500},
    "cap 1000": {"MAX_CANDIDATES": 1000},
}
PLATEAU_CONDITIONS = ("duplicates 16", "duplicates 64")

Row = dict[str, Any]
Policy = Callable[[Asked, int], CandidatePool]  # (question, n_select) → pool


def fixed(n_candidates: int) -> Policy:
    return lambda one, n_select: one.source.fetch(one.query, n_candidates)


def adaptive(one: Asked, n_select: int) -> CandidatePool:
    return OversamplingSource(one.source, n_select=n_select).fetch(one.query, N_CANDIDATES)


POLICIES: dict[str, Policy] = {
    f"{N_CANDIDATES}": fixed(N_CANDIDATES),
    f"{MANY_CANDIDATES}": fixed(MANY_CANDIDATES),
    "adaptive": adaptive,
}


@dataclass
class Found:
    """What a policy brought, question by question."""

    recalls: list[float] = field(default_factory=list)
    all_gold: list[float] = field(default_factory=list)
    candidates: list[int] = field(default_factory=list)
    fetches: list[int] = field(default_factory=list)
    count_s: list[float] = field(default_factory=list)
    select_s: list[float] = field(default_factory=list)

    def add(self, one: Asked, policy: Policy, n_select: int) -> None:
        """Fetch by the policy, choose, and note what was found at what cost."""
        one.source.asked.clear()
        begin = time.perf_counter()
        pool = policy(one, n_select)
        fetched = time.perf_counter()
        chosen = ContextSelector().select(one.query.embedding, pool.embeddings, n_select).positions
        self.select_s.append(time.perf_counter() - fetched)
        self.count_s.append(fetched - begin)  # the ranking is at hand: what is left is counting
        hits = {int(pool.document_ids[i]) for i in chosen} & one.gold
        self.recalls.append(len(hits) / len(one.gold))
        self.all_gold.append(float(len(hits) == len(one.gold)))
        self.candidates.append(sum(one.source.asked))
        self.fetches.append(len(one.source.asked))

    def row(self) -> Row:
        """Return means; medians of times."""
        return {
            "recall": float(np.mean(self.recalls)),
            "all_gold": float(np.mean(self.all_gold)),
            "candidates": float(np.mean(self.candidates)),
            "fetches": float(np.mean(self.fetches)),
            "count_ms": 1e3 * float(np.median(self.count_s)),
            "select_ms": 1e3 * float(np.median(self.select_s)),
            "n_queries": len(self.recalls),
        }


@contextmanager
def other_rule(numbers: Mapping[str, float]) -> Iterator[None]:
    """Let `sift_core.sources.oversampling` work with other numbers inside the block."""
    before = {name: getattr(rule, name) for name in numbers}
    try:
        vars(rule).update(numbers)
        yield
    finally:
        vars(rule).update(before)


@dataclass
class Sizes:
    """Measures of pools, and whether more candidates than the pool's helped the question."""

    of: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    helped: list[bool] = field(default_factory=list)

    def add(self, one: Asked, helped: bool) -> None:
        rows = one.source.embeddings[:N_CANDIDATES]
        for name, measure in MEASURES.items():
            begin = time.perf_counter()
            self.of[name].append(measure(one.query.embedding, rows))
            self.seconds[name].append(time.perf_counter() - begin)
        self.helped.append(helped)


def measure_set(
    questions: QuestionSet, cache: EmbeddingCache, *, quick: bool, seed: int, sizes: Sizes
) -> list[Row]:
    """Return the rows of one set: every policy, n_select and condition; other rules on some."""
    rows: list[Row] = []
    copies = (N_COPIES[1], N_COPIES[3]) if quick else N_COPIES
    for versions in conditions(questions, cache, n_copies=copies, seed=seed):
        found: dict[tuple[str, str, int], Found] = defaultdict(Found)
        what = f"{questions.name}, {versions.condition}"
        for one in tqdm(asked(questions, versions), total=len(questions.questions), desc=what):
            for name, policy in POLICIES.items():
                for n_select in N_SELECT:
                    found["policies", name, n_select].add(one, policy, n_select)
            with other_rule({"DISTINCT_A_CHOICE": 10}):  # as good as oversampling can get
                found["policies", "adaptive, 10 contents a choice", 20].add(one, adaptive, 20)
            few, many = (
                found["policies", name, 20].recalls[-1]
                for name in (f"{N_CANDIDATES}", "adaptive, 10 contents a choice")
            )
            sizes.add(one, helped=many > few)
            if versions.condition in PLATEAU_CONDITIONS and not quick:
                for name, numbers in OTHER_RULES.items():
                    with other_rule(numbers):
                        for n_select in (10, 20):
                            found["plateau", name, n_select].add(one, adaptive, n_select)
        case = {"set": questions.name, "condition": versions.condition}
        rows += [
            {"part": part, **case, "policy": name, "n_select": n_select, **each.row()}
            for (part, name, n_select), each in found.items()
        ]
    return rows


def rows_of_sizes(sizes: Sizes) -> list[Row]:
    """Return for every measure how well it foretells a gain, and its cost."""
    helped = np.array(sizes.helped)
    return [
        {
            "part": "measures",
            "measure": name,
            "separation": separation(np.array(values), helped),
            "ms": 1e3 * float(np.median(sizes.seconds[name])),
            "n_pools": len(helped),
            "n_helped": int(helped.sum()),
        }
        for name, values in sizes.of.items()
    ]


def rows_of_scales(questions: QuestionSet, cache: EmbeddingCache, seed: int) -> list[Row]:
    """Return each measure of the pools as they are, and with a common direction added to all."""
    plain = as_is(questions.passages, cache)
    change = common_direction(plain.embeddings, np.random.default_rng(seed))
    shifted = (
        replace(questions, embeddings=unit(change(questions.embeddings))),
        replace(plain, embeddings=unit(change(plain.embeddings))),
    )
    rows = []
    for name, case in (("MiniLM", (questions, plain)), ("common direction", shifted)):
        pools = [
            (one.query.embedding, one.source.embeddings[:N_CANDIDATES]) for one in asked(*case)
        ]
        for measure, size in MEASURES.items():
            mean = float(np.mean([size(query, rows) for query, rows in pools]))
            row = {"part": "scales", "set": questions.name, "embeddings": name}
            rows.append({**row, "measure": measure, "mean": mean})
    return rows


def judge(report: Report) -> None:
    """Hold the means over the sets against the bars."""
    table = means(report.rows, "policies")
    few, many = f"{N_CANDIDATES}", f"{MANY_CANDIDATES}"
    for (condition, policy, n_select), row in table.items():
        if policy != "adaptive":
            continue
        name = f"{condition}, {n_select} chosen:"
        gain = 100 * (row["recall"] - table[condition, few, n_select]["recall"])
        report.judge(f"{name} points of recall over {few}", gain, "over_few")
        gain = 100 * (row["recall"] - table[condition, many, n_select]["recall"])
        report.judge(f"{name} points of recall over {many}", gain, "over_many")
        if condition == "as is":
            report.judge(f"{name} fetches", row["fetches"], "fetches_as_is", "lower")
        if condition == "duplicates 32" and n_select == 20:
            gain = 100 * (row["recall"] - table[condition, few, n_select]["recall"])
            report.judge(f"{name} points of recall over {few}", gain, "redundant_over_few")
            report.judge(f"{name} candidates", row["candidates"], "redundant_candidates", "lower")


def means(rows: Sequence[Row], part: str) -> dict[tuple[str, str, int], Row]:
    """Return (condition, policy, n_select) → the numbers of a row, averaged over the sets."""
    groups: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if row.get("part") == part:
            groups[row["condition"], row["policy"], row["n_select"]].append(row)
    numbers = ("recall", "all_gold", "candidates", "fetches", "count_ms", "select_ms")
    return {
        key: {name: float(np.mean([row[name] for row in group])) for name in numbers}
        for key, group in groups.items()
    }


def print_policies(rows: Sequence[Row], part: str) -> None:
    print(f"\n{part}, means over sets: recall / all_gold in points, candidates, fetches, ms")
    for (condition, policy, n_select), row in means(rows, part).items():
        print(
            f"{condition:<14} {n_select:>3} chosen {100 * row['recall']:6.1f} / "
            f"{100 * row['all_gold']:5.1f} {row['candidates']:7.0f} {row['fetches']:5.2f} "
            f"{row['count_ms']:6.1f} + {row['select_ms']:5.1f}  {policy}"
        )


def print_measures(rows: Sequence[Row]) -> None:
    print("\nmeasures: separation of pools that more candidates help, ms")
    for row in rows:
        if row.get("part") == "measures":
            print(f"{row['separation']:6.3f} {row['ms']:7.2f}  {row['measure']}")
    print("\nmean size of a pool as it is / with a common direction in all embeddings")
    for name in MEASURES:
        pair = [
            np.mean([r["mean"] for r in rows if (r.get("embeddings"), r.get("measure")) == key])
            for key in (("MiniLM", name), ("common direction", name))
        ]
        print(f"{pair[0]:7.1f} / {pair[1]:7.1f}  {name}")


def some_questions(questions: QuestionSet, n: int, seed: int) -> QuestionSet:
    """Return a random subset, of the embeddings too: nothing is embedded for it."""
    n_all = len(questions.questions)
    if n >= n_all:
        return questions
    drawn = np.sort(np.random.default_rng(seed).choice(n_all, n, replace=False))
    return replace(
        questions,
        questions=[questions.questions[i] for i in drawn],
        embeddings=questions.embeddings[drawn],
    )


def main() -> None:
    arguments = parse()
    cache = project_cache()
    report = Report(bar_numbers=load_bars("oversampling"))
    sizes = Sizes()
    at_most = arguments.max_queries
    everything = argparse.Namespace(**{**vars(arguments), "max_queries": None})
    for complete in read_sets(everything, cache):
        questions = some_questions(complete, at_most, arguments.seed)
        report.rows += measure_set(
            questions, cache, quick=arguments.quick, seed=arguments.seed, sizes=sizes
        )
        report.rows += rows_of_scales(questions, cache, arguments.seed)
        if arguments.latency_set == questions.name:
            report.rows += measure_latency(questions, cache, arguments.seed)
    report.rows += rows_of_sizes(sizes)
    print_policies(report.rows, "policies")
    print_policies(report.rows, "plateau")
    print_measures(report.rows)
    report.heading("Bars")
    judge(report)
    if arguments.plot:
        oversampling_plot.draw(report.rows, arguments.plot)
    if arguments.json:
        write_record(arguments.json, rows=report.rows, bars=report.bars, packages=PACKAGES)


def parse(options: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options, those of the command line if None."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="has corpus/SET and dev/SET")
    parser.add_argument("--sets", type=lambda text: text.split(","), help="of the folder; all")
    parser.add_argument("--max-queries", type=int, help="random ones of each set; 60, quick: 10")
    parser.add_argument("--quick", action="store_true", help="fewer conditions, one rule")
    parser.add_argument("--latency-set", default="hotpotqa", help="whose fetches are timed")
    parser.add_argument("--seed", type=int, default=0, help="of subset and noise")
    parser.add_argument("--json", type=Path, help="where to write the record")
    parser.add_argument("--plot", type=Path, help="where to draw recall against copies (PNG)")
    arguments = parser.parse_args(options)
    if arguments.max_queries is None:
        arguments.max_queries = 10 if arguments.quick else 60
    return arguments


if __name__ == "__main__":
    main()
