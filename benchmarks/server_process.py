"""A server in a process of its own, so that its work and its interpreter's lock are not ours."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def served_by(serve: Callable[[Connection, T], None], served: T) -> Iterator[str]:
    """Yield the URL of a server on this machine, until the block ends.

    Args:
        serve: A function of a module; it sends its port over the connection, and serves.
        served: What it is given beside the connection; it is pickled.
    """
    context = multiprocessing.get_context("spawn")  # threads of other libraries stay behind
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, served), daemon=True)
    process.start()
    theirs.close()  # so that waiting ends where the process dies before it serves
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()
