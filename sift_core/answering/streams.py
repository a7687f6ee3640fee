"""An answer as it is written: pieces of text from a worker thread, for loops of either kind.

The worker computes the whole answer, however slowly its pieces are read, so that a slow reader
never keeps a model to itself. Closing a stream ends the computation at the model's next layer.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from sift_core.answering.answer import Answer
from sift_core.answering.answer_spans import end_stream, span_of_stream
from sift_core.answering.model.fair_lock import Submit
from sift_core.errors import AnswerError, InvalidInputError
from sift_core.progress import Cancelled, checked
from sift_core.tracing import Span

T = TypeVar("T")
OnText: TypeAlias = Callable[[str], object]
OnStep: TypeAlias = Callable[[float], object]
Produce: TypeAlias = Callable[[OnText, OnStep], Answer]
"""Computes an answer, and calls back with pieces of its text and after each step of its work."""

# Set when the interpreter exits, before it waits for the threads of every executor: what nobody
# can read any more need not be computed. There is no public way to hear of it in time.
_exiting = threading.Event()
if hasattr(threading, "_register_atexit"):
    threading._register_atexit(_exiting.set)


@dataclass(frozen=True, kw_only=True)
class _End:
    """What follows the last piece: the answer, or why there is none."""

    answer: Answer | None = None
    error: BaseException | None = None


def cancellable(answer: Callable[..., Answer], generation: Mapping[str, Any]) -> Produce:
    """Return the computation of an answer that ends where its stream is closed, at any token.

    Args:
        answer: Called with `on_step`, and with `on_text` and the settings by name.
        generation: How to generate, stopping criteria included.
    """

    def produce(on_text: OnText, on_step: OnStep) -> Answer:
        def go_on(*_: Any, **__: Any) -> bool:
            on_step(0.0)  # leaves where the stream is closed: beams have no text before the end
            return False

        criteria = [*(generation.get("stopping_criteria") or []), go_on]
        return answer(on_step, on_text=on_text, **{**generation, "stopping_criteria": criteria})

    return produce


async def run_in_worker(submit: Submit, call: Callable[[OnStep], T]) -> T:
    """Return what a function returns in another thread; cancelling the task ends it soon.

    Args:
        submit: Runs it.
        call: The function; it calls what it is given after each step of its work.
    """
    cancelled = threading.Event()
    results: list[T] = []
    check = _checking(cancelled)

    def run() -> None:
        with checked(check):
            results.append(call(check))

    job = submit(run)
    try:
        await asyncio.wrap_future(job)
    except asyncio.CancelledError:
        cancelled.set()
        raise
    return results[0]


def _checking(cancelled: threading.Event) -> OnStep:
    """Return what raises once nobody waits for a computation any more."""

    def check(_: float) -> None:
        if cancelled.is_set() or _exiting.is_set():
            raise Cancelled

    return check


def _feed(
    produce: Produce,
    put: Callable[[str | _End], object],
    cancelled: threading.Event,
    span: Span,
) -> None:
    """Compute an answer and put its pieces and its end.

    It knows no stream, so that one that nobody refers to any more can vanish.
    """
    check = _checking(cancelled)

    def on_text(piece: str) -> None:
        check(0.0)
        try:
            put(piece)
        except RuntimeError as error:  # the reader's event loop is closed
            raise Cancelled from error

    cause: BaseException | None = None
    try:
        check(0.0)
        with checked(check):
            end = _End(answer=produce(on_text, check))
    except Cancelled as error:
        end, cause = _End(), error
    except BaseException as error:  # the reader raises it
        end, cause = _End(error=error), error
    try:
        end_stream(span, end.answer, cause)
    finally:  # a span processor of the application may fail, and the reader still waits
        with suppress(RuntimeError):  # the reader's event loop is closed
            put(end)


class _Stream:
    """What both kinds of stream share: the job in the worker, its end, and its cancellation."""

    def __init__(
        self, produce: Produce, submit: Submit, put: Callable[[str | _End], object]
    ) -> None:
        self._cancelled = threading.Event()
        self._put = put
        self._end: _End | None = None
        self._span = span = span_of_stream()
        self._job: Future[None] = submit(_feed, produce, put, self._cancelled, span)

    def __del__(self) -> None:
        cancelled = getattr(self, "_cancelled", None)  # None where there is no event loop
        if cancelled is not None:
            cancelled.set()

    def _taken(self, piece: str | _End) -> str | None:
        """Return a piece of text; None at the end, or raise why there is no more."""
        if isinstance(piece, str):
            return piece
        self._end = piece
        if piece.error is not None:
            raise piece.error
        return None

    def _result(self) -> Answer:
        """Return the answer after the end was taken."""
        end = self._end or _End()
        if end.error is not None:
            raise end.error
        if end.answer is None:
            raise AnswerError("the stream was closed before its end; read it to have its answer")
        return end.answer

    def _cancel(self) -> bool:
        """Return whether the job never began; if it did, it ends at its next layer or step."""
        self._cancelled.set()
        if is_cancelled := self._job.cancel():
            self._span.end(Cancelled())
            with suppress(RuntimeError):  # the reader's event loop is closed
                self._put(_End())  # the job puts none, and somebody else may wait for one
        self._end = self._end or _End()
        return is_cancelled


class AnswerStream(_Stream, Iterator[str]):
    """The pieces of an answer's text, for `for`; they add up to `answer().text`.

    For one reader, who gets each piece as soon as there is one. Close it (or leave its `with`
    block) to stop early: nothing is computed any more when `close` returns. A stream that nobody
    refers to any more is closed by itself, and so is every stream when the interpreter exits.

    Raises:
        AnswerError: If the model fails; it is as before.

    Example:
        >>> with engine.stream("When does the ferry sail?", mode="context") as stream:
        ...     text = "".join(stream)
        >>> text == stream.answer().text
        True
    """

    def __init__(self, produce: Produce, submit: Submit) -> None:
        self._pieces: queue.SimpleQueue[str | _End] = queue.SimpleQueue()
        super().__init__(produce, submit, self._pieces.put)

    def __next__(self) -> str:
        piece = None if self._end is not None else self._taken(self._pieces.get())
        if piece is None:
            raise StopIteration
        return piece

    def answer(self) -> Answer:
        """Return the whole answer, after reading what is left of it.

        Raises:
            AnswerError: If the model fails, or the stream was closed before its end.
        """
        for _ in self:
            pass
        return self._result()

    def close(self) -> None:
        """Stop computing; return when nothing is computed any more."""
        if not self._cancel():
            wait([self._job])

    def __enter__(self) -> AnswerStream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncAnswerStream(_Stream, AsyncIterator[str]):
    """The pieces of an answer's text, for `async for`; they add up to `(await answer()).text`.

    For one reader in the event loop that it was made in, which it never blocks. Close it (or
    leave its `async with` block) to stop early, as when the reading task is cancelled.

    Raises:
        AnswerError: If the model fails; it is as before.
        InvalidInputError: In another event loop than the stream was made in.

    Example:
        >>> import asyncio
        >>> async def ask():
        ...     async with await engine.astream(question, mode="context") as stream:
        ...         return [piece async for piece in stream]
        ...
        >>> len(asyncio.run(ask())) > 0
        True
    """

    def __init__(self, produce: Produce, submit: Submit) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._pieces = pieces = asyncio.Queue[str | _End]()

        def put(piece: str | _End) -> None:
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

        super().__init__(produce, submit, put)

    async def __anext__(self) -> str:
        if self._end is None and asyncio.get_running_loop() is not self._loop:
            raise InvalidInputError(
                "a stream must be read in the event loop that it was made in, and this is another "
                "one; make and read it in one `asyncio.run`, or use a stream that is not async"
            )
        piece = None if self._end is not None else self._taken(await self._pieces.get())
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def answer(self) -> Answer:
        """Return the whole answer, after reading what is left of it.

        Raises:
            AnswerError: If the model fails, or the stream was closed before its end.
        """
        async for _ in self:
            pass
        return self._result()

    async def aclose(self) -> None:
        """Stop computing; return when nothing is computed any more."""
        if not self._cancel():
            await asyncio.wait([asyncio.wrap_future(self._job)])

    async def __aenter__(self) -> AsyncAnswerStream:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()
