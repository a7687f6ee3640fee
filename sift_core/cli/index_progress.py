"""How far `sift index` is: a bar with the time left on a terminal, some lines in a pipe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

SECONDS_A_LINE = 10.0  # at least between two lines of a log
_PERCENTS_A_LINE = 10


@contextmanager
def progress(console: Console, title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Give a function that says how much more was done.

    Args:
        console: Of stderr.
        title: What is done.
        total: How much there is to do; of nothing, nothing is shown.
    """
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    if total == 0:
        yield lambda n: None
    elif console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeLeft())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(title, total=total)
            yield lambda n: bar.advance(task, n)
    else:
        console.print(f"{title} …")
        yield _Lines(console, total).advance


class _Lines:
    """Prints how far the work is, seldom enough for a log."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._n_done = 0
        self._next_percent = _PERCENTS_A_LINE
        self._printed_at = time.monotonic()

    def advance(self, n: int) -> None:
        self._n_done += n
        percent = 100 * self._n_done // self._total
        now = time.monotonic()
        if percent >= self._next_percent and now - self._printed_at >= SECONDS_A_LINE:
            self._console.print(f"  {percent} %")
            self._printed_at = now
            self._next_percent = percent - percent % _PERCENTS_A_LINE + _PERCENTS_A_LINE
