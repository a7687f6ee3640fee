"""Write the tables of docs/results.md anew from those in benchmarks/results.

    python -m benchmarks.results_page [--check]

A table stands between `<!-- table FILE TITLE -->` and `<!-- end -->`: the first one of
benchmarks/results/FILE whose title begins so, as a benchmark wrote it with `--markdown`. After
`TITLE; rows BEGINNING` it has only the rows whose first cell begins so. `--check` writes nothing
and ends with 1 where the page differs.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/results.md"
RESULTS = ROOT / "benchmarks/results"
PLACE = re.compile(r"(<!-- table (\S+) (.+?)(?:; rows (.+?))? -->\n).*?(<!-- end -->)", re.DOTALL)


def table(file: str, title: str, rows: str = "") -> str:
    """Return the head of a table, and its rows whose first cell begins with `rows`.

    Raises:
        ValueError: If the file has no table whose title begins so.
    """
    text = (RESULTS / file).read_text(encoding="utf-8")
    _, found, rest = f"\n{text}".partition(f"\n**{title}")
    if not found:
        raise ValueError(f"{file} has no table {title!r}")
    lines = [line for line in rest.partition("\n\n**")[0].splitlines() if line.startswith("|")]
    return "\n".join([*lines[:2], *(line for line in lines[2:] if line.startswith(f"| {rows}"))])


def filled(page: str) -> str:
    """Return the page with every table made anew."""

    def made_anew(place: re.Match[str]) -> str:
        begin, file, title, rows, end = place.groups(default="")
        return f"{begin}\n{table(file, title, rows)}\n\n{end}"

    return PLACE.sub(made_anew, page)


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
