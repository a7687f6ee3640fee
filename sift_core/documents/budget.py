"""Files read in a process of their own, which is ended where one takes too long or too much memory.

What parses PDF, HTML and nested text is not ours, and a small file can keep it busy for hours. The
process is started once for a run, if a file needs it, and again after it was ended.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from sift_core.checks import as_count
from sift_core.documents.chunker import Chunker
from sift_core.documents.file_content import read_file
from sift_core.documents.finding import (
    HTML_SUFFIXES,
    PDF_SUFFIX,
    FoundFile,
    SkippedPath,
    SkipReason,
)
from sift_core.errors import InvalidInputError
from sift_core.types import Document

# Of other files up to so many bytes the worst that was found takes .3 s, and they are read here; of
# HTML and reStructuredText it takes 6 s, of PDF any time.
_SMALL = 8_000
_SLOW = (PDF_SUFFIX, *HTML_SUFFIXES, ".rst")
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

    Where one of the files will need the process, that begins to start at once. A chunker's `size`
    is called in this process; a chunker of another class cuts here altogether, and Markdown, Python
    and plain text of up to 8 kB are read here.

    Args:
        files: What will be read.
        budget: What one file may take; None for no limit and no process.
    """

    def __init__(self, files: Iterable[FoundFile], budget: Budget | None) -> None:
        self._budget = budget
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = False
        if budget and any(map(_may_be_costly, files)):
            with suppress(_EndedError):  # told of the first file that needs it
                self._start()

    def __enter__(self) -> BudgetReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def read(self, file: FoundFile, chunker: Chunker) -> list[Document] | SkippedPath:
        """Return the chunks of a file, or why there are none, as `read_file` does."""
        if self._budget is None or type(chunker) is not Chunker or not _may_be_costly(file):
            return read_file(file, chunker)
        timer = None
        try:
            if self._process is None:
                self._start()
            assert self._process is not None
            if not self._is_ready:
                self._is_ready = self._received() == _READY
            if not hasattr(signal, "setitimer"):
                timer = threading.Timer(self._budget.seconds_for(file), self._process.kill)
                timer.start()
            return self._answer(file, chunker, self._budget)
        except _EndedError:
            return self._account(file, self._budget)
        finally:
            if timer:
                timer.cancel()

    def _start(self) -> None:
        code = _START.format(repr(sys.path))  # not "-m", which looks in the current folder first
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # no words of a parser's reach the terminal
                start_new_session=True,  # nor does its Ctrl-C reach the process
            )
        except OSError as error:
            raise _EndedError from error

    def _answer(
        self, file: FoundFile, chunker: Chunker, budget: Budget
    ) -> list[Document] | SkippedPath:
        limits = budget.seconds_for(file), budget.memory_for(file)
        self._send((file, chunker.max_size, chunker.size is not None, limits))
        while isinstance(received := self._received(), str):  # a text, the size of which it needs
            assert chunker.size is not None
            self._send(chunker.size(received))
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
                code = self._process.wait(timeout=60)
        has_started = self._is_ready
        self._end()
        reason = SkipReason.TOO_COSTLY
        if not has_started:
            reason, detail = SkipReason.UNREADABLE, "the process that reads it did not start"
        elif code == -getattr(signal, "SIGPROF", -(code or 0)):
            detail = f"more than {budget.seconds_for(file):.3g} s of processor time"
        else:
            detail = f"ended the process that read it, with code {code}"
        return SkippedPath(source=file.source, reason=reason, detail=detail)

    def _end(self) -> None:
        process, self._process, self._is_ready = self._process, None, False
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    assert pipe is not None
                    pipe.close()
            process.wait()


def _may_be_costly(file: FoundFile) -> bool:
    return file.n_bytes > _SMALL or file.path.suffix.lower() in _SLOW


def serve() -> None:
    """Read files as stdin asks for them, until it ends."""
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
