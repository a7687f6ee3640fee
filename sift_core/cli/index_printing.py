"""What `sift index` says at its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sift_core.cli.showing_text import one_line, print_json, say, stdout_console

if TYPE_CHECKING:
    from rich.console import Console

    from sift_core.cli.index_writing import Indexed
    from sift_core.cli.stores import StoreAddress
    from sift_core.documents import SkippedPath

N_NAMES_SHOWN = 3


def reasons_of(skipped: Iterable[SkippedPath]) -> list[str]:
    """Return a phrase for each reason, the most frequent first: "3 hidden (.git/, .env, ...)"."""
    return [
        f"{len(paths)} {reason}: {some_of([one_line(path.source) for path in paths])}"
        for reason, paths in _by_reason(skipped)
    ]


def some_of(names: Sequence[str], *, everything: bool = False) -> str:
    """Return names in one line: the first few, with how many more there are, or all."""
    more = len(names) - N_NAMES_SHOWN
    if everything or more <= 0:
        return ", ".join(names)
    return f"{', '.join(names[:N_NAMES_SHOWN])} and {more:,} more"


def print_summary(
    address: StoreAddress,
    embedder_name: str,
    indexed: Indexed,
    seconds: float,
    *,
    verbose: bool,
) -> None:
    """Print what was done and left out, and what to do next.

    Args:
        address: The store.
        embedder_name: The model.
        indexed: What was done.
        seconds: How long it took.
        verbose: Whether every file that was left out is listed.
    """
    console = stdout_console()
    plan = indexed.plan
    n_chunks = indexed.n_added + indexed.n_unchanged
    say(
        console,
        f"{_number(plan.n_files, 'file')}, {_number(n_chunks, 'chunk')} in {address} "
        f"({embedder_name}): {indexed.n_added:,} new, {indexed.n_unchanged:,} unchanged, "
        f"{len(plan.stale):,} deleted, in {_duration(seconds)}.",
    )
    if plan.vanished_files:
        files = [one_line(file) for file in plan.vanished_files]
        say(console, f"No longer in the PATHs, and deleted: {some_of(files, everything=verbose)}")
    if plan.dropped_files:
        files = [one_line(file) for file in plan.dropped_files]
        say(
            console,
            f"Left out now, and deleted from the store: {some_of(files, everything=verbose)}",
        )
    if plan.kept_files:
        files = [one_line(file) for file in plan.kept_files]
        say(console, f"Not readable now, kept as stored: {some_of(files, everything=verbose)}")
    _print_skipped(console, indexed.skipped, verbose=verbose)
    say(console, f'Next: sift search "your question"{address.option}')


def print_record(
    address: StoreAddress,
    embedder_name: str,
    indexed: Indexed,
    seconds: float,
) -> None:
    """Print the same as one JSON document."""
    print_json(
        {
            "store": str(address),
            "embedder": embedder_name,
            "n_files": indexed.plan.n_files,
            "n_chunks": indexed.n_added + indexed.n_unchanged,
            "n_added": indexed.n_added,
            "n_unchanged": indexed.n_unchanged,
            "n_deleted": len(indexed.plan.stale),
            "vanished_files": indexed.plan.vanished_files,
            "dropped_files": indexed.plan.dropped_files,
            "kept_files": indexed.plan.kept_files,
            "skipped": [
                {
                    "source": path.source,
                    "reason": path.reason.name.lower(),
                    "detail": path.detail,
                }
                for path in indexed.skipped
            ],
            "seconds": round(seconds, 3),
        }
    )


def _print_skipped(console: Console, skipped: Sequence[SkippedPath], *, verbose: bool) -> None:
    if not skipped:
        return
    hint = "" if verbose or len(skipped) <= N_NAMES_SHOWN else " (--verbose lists all)"
    say(console, f"Left out{hint}:")
    if not verbose:
        for line in reasons_of(skipped):
            say(console, f"  {line}")
        return
    for reason, paths in _by_reason(skipped):
        say(console, f"  {len(paths)} {reason}:")
        for path in paths:
            detail = f" ({one_line(path.detail)})" if path.detail else ""
            say(console, f"    {one_line(path.source)}{detail}")


def _by_reason(skipped: Iterable[SkippedPath]) -> list[tuple[str, list[SkippedPath]]]:
    found: dict[str, list[SkippedPath]] = {}
    for path in skipped:
        found.setdefault(path.reason.value, []).append(path)
    return sorted(found.items(), key=lambda entry: -len(entry[1]))


def _number(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
