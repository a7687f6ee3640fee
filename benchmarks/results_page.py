"""Write the tables of docs/results.md anew from the rows in benchmarks/results.

    python -m benchmarks.results_page [--check]

A table stands between `<!-- table FILE PART NUMBER -->` and `<!-- end -->`: the one of that
number, from 0, that `benchmarks.language_modeling --results FILE --parts PART` prints. The one
between `<!-- answers -->` and `<!-- end -->` is the first of `benchmarks.answers`, the one
between `<!-- retrieval SET SET ... -->` and `<!-- end -->` is made from retrieval_SET.json, what
`sift eval retrieval --results` wrote. `--check` writes nothing and ends with 1 where the page
differs.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import answers_tables
from benchmarks.language_modeling.part_tables import tables_of
from benchmarks.language_modeling.results import results_of
from benchmarks.language_modeling.running import read_rows
from benchmarks.table import Table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/results.md"
RESULTS = ROOT / "benchmarks/results"
PLACE = re.compile(r"(<!-- table (\S+) (\S+) (\d+) -->\n).*?(<!-- end -->)", re.DOTALL)
RETRIEVAL = re.compile(r"(<!-- retrieval ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
ANSWERS = re.compile(r"(<!-- answers -->\n).*?(<!-- end -->)", re.DOTALL)
METRICS = {
    "recall@10": "recall@10",
    "all_gold@10": "all gold@10",
    "ndcg@10": "nDCG@10",
    "alpha_ndcg@10": "α-nDCG@10",
}
CONDITIONS = ("as is", "duplicates 4")


@cache
def tables(name: str, part: str) -> list[Table]:
    """Return the tables of a part from a file of benchmarks/results."""
    return tables_of(results_of(read_rows(RESULTS / name)), [part])[part]


def answers_table() -> str:
    """Return what a small model answers from the contexts that each method chose."""
    return answers_tables.tables(read_rows(RESULTS / "answers.jsonl"))[0].as_markdown()


def retrieval_table(sets: str) -> str:
    """Return SIFT's default against nearest neighbours on sets, in points of each metric."""
    lines = [
        "| set | questions | metric | as it is: nearest | SIFT's default "
        "| four noisy copies: nearest | SIFT's default |",
        "| :-- | --: | :-- | --: | --: | --: | --: |",
    ]
    for name in sets.split():
        record = json.loads((RESULTS / f"retrieval_{name}.json").read_text(encoding="utf-8"))
        found = {(row["condition"], row["method"]): row for row in record["rows"]}
        n = record["configuration"]["questions"]
        for metric, title in METRICS.items():
            cells = [
                cell
                for condition in CONDITIONS
                for cell in (
                    f"{100 * found[condition, 'nn'][metric]:.1f}",
                    _difference(found[condition, "sift"], metric),
                )
            ]
            lines.append(f"| {name} | {n} | {title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _difference(row: Mapping[str, Any], metric: str) -> str:
    """Return a difference to nearest neighbours in points; bold where its interval lacks 0."""
    found = row["differences"]["nn"][metric]
    low, high = (100 * end for end in found["ci"])
    mean = f"{100 * found['mean']:+.1f}"
    return f"{mean if low <= 0 <= high else f'**{mean}**'} [{low:+.1f}, {high:+.1f}]"


def filled(page: str) -> str:
    """Return the page with every table made anew."""

    def replaced(place: re.Match[str]) -> str:
        begin, name, part, number, end = place.groups()
        return f"{begin}\n{tables(name, part)[int(number)].as_markdown()}\n{end}"

    page = RETRIEVAL.sub(lambda place: f"{place[1]}\n{retrieval_table(place[2])}\n{place[3]}", page)
    page = ANSWERS.sub(lambda place: f"{place[1]}\n{answers_table()}\n{place[2]}", page)
    return PLACE.sub(replaced, page)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    arguments = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    new = filled(page)
    if arguments.check:
        return int(new != page)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
