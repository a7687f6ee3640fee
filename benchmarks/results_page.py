"""Write the tables of docs/results.md anew from the rows in benchmarks/results.

    python -m benchmarks.results_page [--check]

A table stands between `<!-- table FILE PART NUMBER -->` and `<!-- end -->`: the one of that
number, from 0, that `sift eval tables FILE --parts PART` prints. `--check` writes nothing and
ends with 1 where the page differs.
"""

from __future__ import annotations

import argparse
import re
import sys
from functools import cache
from pathlib import Path

from sift_core.evaluation.analysis.part_tables import tables_of
from sift_core.evaluation.analysis.rows import Results
from sift_core.evaluation.analysis.table import Table
from sift_core.evaluation.running.results_file import ResultsFile

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/results.md"
PLACE = re.compile(r"(<!-- table (\S+) (\S+) (\d+) -->\n).*?(<!-- end -->)", re.DOTALL)


@cache
def tables(name: str, part: str) -> tuple[Table, ...]:
    """Return the tables of a part from a file of benchmarks/results."""
    rows = ResultsFile(ROOT / "benchmarks/results" / name).rows()
    return tables_of(Results.from_rows(rows), [part]).tables[part]


def filled(page: str) -> str:
    """Return the page with every table made anew."""

    def replaced(place: re.Match[str]) -> str:
        begin, name, part, number, end = place.groups()
        return f"{begin}\n{tables(name, part)[int(number)].as_markdown()}\n{end}"

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
