"""Write the tables of docs/results.md anew from those in benchmarks/results.

    python -m benchmarks.results_page [--check]

A table stands between `<!-- table FILE TITLE -->` and `<!-- end -->`: the first one of
benchmarks/results/FILE whose title begins so, as a benchmark wrote it with `--markdown`. `--check`
writes nothing and ends with 1 where the page differs.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/results.md"
RESULTS = ROOT / "benchmarks/results"
PLACE = re.compile(r"(<!-- table (\S+) (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(file: str, title: str) -> str:
    """Return a table with its title and note.

    Raises:
        ValueError: If the file has no table whose title begins so.
    """
    text = (RESULTS / file).read_text(encoding="utf-8")
    begin = f"\n**{title}"
    _, found, rest = f"\n{text}".partition(begin)
    if not found:
        raise ValueError(f"{file} has no table {title!r}")
    return f"{begin}{rest}".partition("\n\n**")[0].strip()


def filled(page: str) -> str:
    """Return the page with every table made anew."""
    return PLACE.sub(lambda place: f"{place[1]}\n{table(place[2], place[3])}\n\n{place[4]}", page)


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
