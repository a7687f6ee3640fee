"""The command line that the benchmarks have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from pathlib import Path


def options(doc: str, *, data: bool = False, quick: str = "") -> argparse.ArgumentParser:
    """Return a parser with --json, to which a benchmark adds its own options.

    Args:
        doc: The module's docstring; its first line describes the command.
        data: Whether --data is needed. Default: there is no such option.
        quick: What --quick leaves out. Default: there is no such option.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    if data:
        parser.add_argument("--data", type=Path, required=True, help="folder of the corpora")
    if quick:
        parser.add_argument("--quick", action="store_true", help=f"{quick}; its numbers are rough")
    parser.add_argument("--json", type=Path, help="where to write the record")
    return parser


def count(text: str) -> int:
    """Return a whole number of at least 1, as an option's type."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def names(text: str) -> list[str]:
    """Return the parts of "one,other", as an option's type."""
    return text.split(",")


def names_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Return the type of an option whose names, as in "one,other", are all known."""

    def checked(text: str) -> list[str]:
        given = names(text)
        if unknown := [name for name in given if name not in known]:
            message = f"no {', '.join(unknown)}; there are {', '.join(known)}"
            raise argparse.ArgumentTypeError(message)
        return given

    return checked
