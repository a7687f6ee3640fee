"""An answer as it is written: pieces of text from a worker thread, for loops of either kind.

The worker computes the whole answer, however slowly its pieces are read, so that a slow reader
never keeps a model to itself. Closing a stream ends the computation at its next step.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TypeAlias, TypeVar

from sift_core.errors import AnswerError, InvalidInputError
from sift_core.types import Answer

T = TypeVar("T")
OnText: TypeAlias = Callable[[str], object]
OnStep: TypeAlias = Callable[[float], object]
Produce: TypeAlias = Callable[[OnText, OnStep], Answer]
"""Computes an answer, and calls back with pieces of its text and after each step of its work."""
Submit: TypeAlias = Callable[..., "Future[None]"]
"""Runs a function with arguments in another thread, like an executor's `submit`."""

# Set when the interpreter exits, before it waits for the threads of every executor: what nobody
# can read any more need not be computed. There is no public way to hear of it in time.
_exiting = threading.Event()
if hasattr(threading, "_register_atexit"):
    threading._register_atexit(_exiting.set)


class _Cancelled(Exception):
    """Raised inside the worker, to leave the model as every other exception does."""


@dataclass(frozen=True, kw_only=True)
class _End:
    """What follows the last piece: the answer, or why there is none."""

    answer: Answer | None = None
    error: BaseException | None = None

    def result(self) -> Answer:
        if self.error is not None:
            raise self.error
        if self.answer is None:
            raise AnswerError("the stream was closed before its end; read it to have its answer")
        return self.answer


@dataclass(frozen=True, kw_only=True, eq=False)
class _Feed:
    """The worker's end of a stream. It knows no reader, so that a forgotten one can vanish."""

    put: Callable[[str | _End], object]
    cancelled: threading.Event

    def run(self, produce: Produce) -> None:
        """Compute the answer and put its pieces and its end."""
        try:
            self.check(0.0)
            end = _End(answer=produce(self.on_text, self.check))
        except _Cancelled:
            end = _End()
        except BaseException as error:  # the reader raises it
            end = _End(error=error)
        with suppress(RuntimeError):  # the reader's event loop is closed
            self.put(end)

    def on_text(self, piece: str) -> None:
        self.check(0.0)
        try:
            self.put(piece)
        except RuntimeError as error:  # the reader's event loop is closed
            raise _Cancelled from error

    def check(self, _: float) -> None:
        if self.cancelled.is_set() or _exiting.is_set():
            raise _Cancelled


async def computed(submit: Submit, call: Callable[[OnStep], T]) -> T:
    """Return what a function returns in another thread; cancelling the task ends it at a step.

    Args:
        submit: Runs it.
        call: The function; it calls what it is given after each step of its work.
    """
    cancelled = threading.Event()
    results: list[T] = []

    def check(_: float) -> None:
        if cancelled.is_set() or _exiting.is_set():
            raise _Cancelled

    job = submit(lambda: results.append(call(check)))
    try:
        await asyncio.wrap_future(job)
    except asyncio.CancelledError:
        cancelled.set()
        raise
    return results[0]


class _Stream:
    """What both kinds of stream share: the job in the worker, and its cancellation."""

    def __init__(
        self, produce: Produce, submit: Submit, put: Callable[[str | _End], object]
    ) -> None:
        self._cancelled = threading.Event()
        self._put = put
        feed = _Feed(put=put, cancelled=self._cancelled)
        self._job: Future[None] = submit(feed.run, produce)
        self._end: _End | None = None

    def __del__(self) -> None:
        cancelled = getattr(self, "_cancelled", None)  # None where no thread could be started
        if cancelled is not None:
            cancelled.set()

    def _cancel(self) -> None:
        self._cancelled.set()
        if self._job.cancel():  # it will put no end, and somebody else may wait for one
            with suppress(RuntimeError):  # the reader's event loop is closed
                self._put(_End())
        self._end = self._end or _End()


class AnswerStream(_Stream, Iterator[str]):
    """The pieces of an answer's text, for `for`; they add up to `answer().text`.

    For one reader. Close it (or leave its `with` block) to stop early: nothing is computed any
    more when `close` returns. A stream that nobody refers to any more is closed by itself, and so
    is every stream when the interpreter exits.
    """

    def __init__(self, produce: Produce, submit: Submit) -> None:
        self._pieces: queue.SimpleQueue[str | _End] = queue.SimpleQueue()
        super().__init__(produce, submit, self._pieces.put)

    def __next__(self) -> str:
        """Return the next piece as soon as there is one.

        Raises:
            AnswerError: If the model fails; it is as before.
        """
        if self._end is not None:
            raise StopIteration
        piece = self._pieces.get()
        if isinstance(piece, str):
            return piece
        self._end = piece
        if piece.error is not None:
            raise piece.error
        raise StopIteration

    def answer(self) -> Answer:
        """Return the whole answer, after reading what is left of it.

        Raises:
            AnswerError: If the model fails, or the stream was closed before its end.
        """
        for _ in self:
            pass
        return (self._end or _End()).result()

    def close(self) -> None:
        """Stop computing; return when nothing is computed any more."""
        self._cancel()
        if not self._job.cancelled():
            wait([self._job])

    def __enter__(self) -> AnswerStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class AsyncAnswerStream(_Stream, AsyncIterator[str]):
    """The pieces of an answer's text, for `async for`; they add up to `(await answer()).text`.

    For one reader in the event loop that it was made in, which it never blocks. Close it (or
    leave its `async with` block) to stop early, as when the reading task is cancelled.
    """

    def __init__(self, produce: Produce, submit: Submit) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        pieces: asyncio.Queue[str | _End] = asyncio.Queue()
        self._pieces = pieces

        def put(piece: str | _End) -> None:
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

        super().__init__(produce, submit, put)

    async def __anext__(self) -> str:
        """Return the next piece as soon as there is one.

        Raises:
            AnswerError: If the model fails; it is as before.
            InvalidInputError: In another event loop than the stream was made in.
        """
        if self._end is not None:
            raise StopAsyncIteration
        if asyncio.get_running_loop() is not self._loop:
            raise InvalidInputError(
                "a stream must be read in the event loop that it was made in, and this is another "
                "one; make and read it in one `asyncio.run`, or use a stream that is not async"
            )
        piece = await self._pieces.get()
        if isinstance(piece, str):
            return piece
        self._end = piece
        if piece.error is not None:
            raise piece.error
        raise StopAsyncIteration

    async def answer(self) -> Answer:
        """Return the whole answer, after reading what is left of it.

        Raises:
            AnswerError: If the model fails, or the stream was closed before its end.
        """
        async for _ in self:
            pass
        return (self._end or _End()).result()

    async def aclose(self) -> None:
        """Stop computing; return when nothing is computed any more."""
        self._cancel()
        if not self._job.cancelled():
            await asyncio.wait([asyncio.wrap_future(self._job)])

    async def __aenter__(self) -> AsyncAnswerStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
