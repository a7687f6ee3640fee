"""Files read in a process of their own, which is ended where one takes too long or too much memory.

What parses PDF, HTML and nested text is not ours, and a small file can keep it busy for hours. The
process is started once for a run, at the first file that needs it, and again after it was ended.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from sift_core.checks import as_count
from sift_core.documents.chunker import Chunker
from sift_core.documents.finding import PDF_SUFFIX, FoundFile, SkippedPath, SkipReason
from sift_core.errors import InvalidInputError
from sift_core.types import Document

# Of text and HTML up to so many bytes the worst that was found takes seconds, and it is read here.
_SMALL = 8_000
_SECONDS_A_MEGABYTE = 10  # ten times what cutting takes
_MEMORY_A_BYTE = 32  # about three times what trees of Markdown take
_READY = "ready"
_START = "import sys; sys.path[:] = {}; from sift_core.documents.budget import serve; serve()"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What reading one file may take; over it the file is left out (`SkipReason.TOO_COSTLY`).

    Args:
        seconds: Of processor time, and 10 more for each megabyte of the file; of time on the clock
            on Windows.
        n_bytes: Of memory, and 32 more for each byte of the file. On Linux only.

    Raises:
        InvalidInputError: If one is negative or no number.
    """

    seconds: float = 20.0
    n_bytes: int = 2**30

    def __post_init__(self) -> None:
        if not (isinstance(self.seconds, (int, float)) and self.seconds >= 0):
            raise InvalidInputError(f"`seconds` must be a number >= 0, got {self.seconds!r}")
        as_count("n_bytes", self.n_bytes, minimum=0)

    def seconds_for(self, file: FoundFile) -> float:
        """Return what reading a file may take, in seconds."""
        return self.seconds + _SECONDS_A_MEGABYTE * file.n_bytes / 1e6

    def memory_for(self, file: FoundFile) -> int:
        """Return what reading a file may take, in bytes."""
        return self.n_bytes + _MEMORY_A_BYTE * file.n_bytes


class _EndedError(Exception):
    """Raised inside this module where the process does not answer."""


class BudgetReader:
    """Reads files, each within a budget. A context manager, which ends the process.

    A chunker's `size` is called in this process; a chunker of another class cuts here altogether,
    and text and HTML of up to 8 kB are read here.

    Args:
        chunker: What cuts.
        budget: What one file may take; None for no limit and no process.
    """

    def __init__(self, chunker: Chunker, budget: Budget | None) -> None:
        self._chunker = chunker
        self._budget = budget if type(chunker) is Chunker else None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> BudgetReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def read(self, file: FoundFile) -> list[Document] | SkippedPath:
        """Return the chunks of a file, or why there are none, as `read_file` does."""
        from sift_core.documents.reader import read_file

        is_small = file.n_bytes <= _SMALL and file.path.suffix.lower() != PDF_SUFFIX
        if self._budget is None or is_small:
            return read_file(file, self._chunker)
        timer = None
        try:
            if self._process is None:
                self._start()
            assert self._process is not None
            if not hasattr(signal, "setitimer"):
                timer = threading.Timer(self._budget.seconds_for(file), self._process.kill)
                timer.start()
            return self._answer(file, self._budget)
        except _EndedError:
            return self._account(file, self._budget)
        finally:
            if timer:
                timer.cancel()

    def _start(self) -> None:
        code = _START.format(repr(sys.path))  # not "-m", which looks in the current folder first
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        except OSError as error:
            raise _EndedError from error
        if self._received() != _READY:
            raise _EndedError

    def _answer(self, file: FoundFile, budget: Budget) -> list[Document] | SkippedPath:
        limits = budget.seconds_for(file), budget.memory_for(file)
        self._send((file, self._chunker.max_size, self._chunker.size is not None, limits))
        while isinstance(received := self._received(), str):  # a text, the size of which it needs
            assert self._chunker.size is not None
            self._send(self._chunker.size(received))
        answer: list[Document] | SkippedPath = received
        return answer

    def _send(self, message: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()
        except OSError as error:
            raise _EndedError from error

    def _received(self) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            return pickle.load(self._process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise _EndedError from error

    def _account(self, file: FoundFile, budget: Budget) -> SkippedPath:
        """Return why the process ended, after which the next file gets another."""
        code = None
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(timeout=10)
        self._end()
        reason = SkipReason.TOO_COSTLY
        if code is None or (code == 1 and hasattr(signal, "setitimer")):
            reason, detail = SkipReason.UNREADABLE, "the process that reads it did not start"
        elif code == -getattr(signal, "SIGPROF", -code):
            detail = f"more than {budget.seconds_for(file):.3g} s of processor time"
        else:
            detail = f"ended the process that read it, with code {code}"
        return SkippedPath(source=file.source, reason=reason, detail=detail)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    assert pipe is not None
                    pipe.close()
            process.wait()


def serve() -> None:
    """Read files as stdin asks for them, until it ends."""
    from sift_core.documents.reader import read_file

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this one ends it
    logging.disable()
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what others print is no reply

    def reply(message: object) -> None:
        pickle.dump(message, replies)
        replies.flush()

    def size(text: str) -> float:
        reply(text)
        counted: float = pickle.load(requests)
        return counted

    reply(_READY)
    with suppress(EOFError, BrokenPipeError):
        while True:
            file, max_size, is_asked, (seconds, n_bytes) = pickle.load(requests)
            answer: list[Document] | SkippedPath
            try:
                _limit(seconds, n_bytes)
                answer = read_file(file, Chunker(max_size, size=size if is_asked else None))
            except MemoryError:
                answer = SkippedPath(
                    source=file.source,
                    reason=SkipReason.TOO_COSTLY,
                    detail=f"more than {n_bytes / 2**20:,.0f} MiB of memory",
                )
            _limit(0.0, None)
            reply(answer)


def _limit(seconds: float, n_bytes: int | None) -> None:
    """Have the system end this process after so much more time, 0 for never, and refuse memory."""
    if hasattr(signal, "setitimer"):
        # A signal that nobody handles ends the process, whatever it computes.
        signal.setitimer(signal.ITIMER_PROF, max(seconds, 1e-6) if n_bytes is not None else 0.0)
    if sys.platform == "linux":
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = hard if n_bytes is None else pages * resource.getpagesize() + n_bytes
        with suppress(ValueError):  # more than the system lets it have
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
