"""Files read in a process of their own, which is ended where one takes too long or too much memory.

Parsers of PDF, HTML, Office files and nested text are others' code, and a small file can keep one
busy for hours.
The process is started once for a run, if a file needs it, and again after it was ended.
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
from typing import Any

from sift_core.checks import as_count, as_number
from sift_core.documents.chunker import Chunker
from sift_core.documents.file_content import FileContent, read_file
from sift_core.documents.finding import (
    HTML_SUFFIXES,
    NOTEBOOK_SUFFIX,
    OFFICE_SUFFIXES,
    PDF_SUFFIX,
    FoundFile,
    SkippedPath,
    SkipReason,
)

# The worst file found of up to 8 kB takes 0.3 s, and such files are read here. But HTML and
# reStructuredText of that size can take 6 s, and PDF and what is packed any time.
_SMALL = 8_000
_SLOW = (PDF_SUFFIX, *HTML_SUFFIXES, NOTEBOOK_SUFFIX, *OFFICE_SUFFIXES, ".rst")
_SECONDS_A_MEGABYTE = 10  # ten times what cutting takes
_MEMORY_A_BYTE = 32  # about three times what trees of Markdown take
_START = "import sys; sys.path[:] = {}; from sift_core.documents.budget import serve; serve()"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What reading one file may take; over it the file is left out (`SkipReason.TOO_COSTLY`).

    Args:
        seconds: Of processor time, and 10 more for each megabyte of the file; of time on the clock
            on Windows. Default: 20.
        n_bytes: Of memory, and 32 more for each byte of the file. On Linux only. Default: 1 GiB.

    Raises:
        InvalidInputError: If one is negative or no number.
    """

    seconds: float = 20.0
    n_bytes: int = 2**30

    def __post_init__(self) -> None:
        as_number("seconds", self.seconds, minimum=0)
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
    """Reads files, each within a budget. `close` ends the process.

    Where one of the files will need the process, that begins to start at once. A chunker's `size`
    is called in this process; a chunker of another class cuts here altogether, and Markdown, Python
    and plain text of up to 8 kB are read here.

    Args:
        files: What will be read.
        budget: What one file may take. With None there is no limit and no process.
    """

    def __init__(self, files: Iterable[FoundFile], budget: Budget | None) -> None:
        self._budget = budget
        self._process: subprocess.Popen[bytes] | None = None
        self._has_answered = False
        if budget and any(map(_may_be_costly, files)):
            with suppress(_EndedError):  # the first file that needs it is left out for that
                self._started()

    def read(self, file: FoundFile, chunker: Chunker) -> FileContent:
        """Return the chunks of a file, or why there are none, as `read_file` does."""
        if self._budget is None or type(chunker) is not Chunker or not _may_be_costly(file):
            return read_file(file, chunker)
        seconds, n_bytes = self._budget.seconds_for(file), self._budget.memory_for(file)
        timer = None
        try:
            process = self._started()
            if not self._has_answered:
                self._has_answered = self._answer(None) is None
            if not hasattr(signal, "setitimer"):
                timer = threading.Timer(seconds, process.kill)
                timer.start()
            answer = self._answer((file, chunker.max_size, bool(chunker.size), seconds, n_bytes))
            while isinstance(answer, str):  # a text, the size of which it needs
                assert chunker.size is not None
                answer = self._answer(chunker.size(answer))
            found: FileContent = answer
            return found
        except _EndedError:
            return FileContent([], self._account(file, seconds))
        finally:
            if timer:
                timer.cancel()

    def close(self) -> None:
        """End the process."""
        process, self._process, self._has_answered = self._process, None, False
        if process is not None:
            process.kill()
            with suppress(OSError), process:  # closes its pipes and waits for it
                pass

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            code = _START.format(repr(sys.path))  # "-m" looks in the current folder first
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
        return self._process

    def _answer(self, message: object) -> Any:
        """Send a message to the process and return what it replies."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(message, process.stdin)
            process.stdin.flush()
            return pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise _EndedError from error

    def _account(self, file: FoundFile, seconds: float) -> SkippedPath:
        """Return why the process ended, after which the next file gets another."""
        code = None
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(timeout=60)
        reason, detail = SkipReason.TOO_COSTLY, f"ended the process that read it, with code {code}"
        if not self._has_answered:
            reason, detail = SkipReason.UNREADABLE, "the process that reads it did not start"
        elif code == (-signal.SIGPROF if hasattr(signal, "SIGPROF") else 1):
            detail = f"more than {seconds:.3g} s of processor time"
        elif code in (-signal.SIGABRT, -signal.SIGSEGV):  # compiled code that was refused memory
            detail = "crashed the process that read it, probably for lack of memory"
        self.close()
        return SkippedPath(source=file.source, reason=reason, detail=detail)


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

    with suppress(EOFError, BrokenPipeError):
        reply(pickle.load(requests))  # that it has started
        while True:
            file, max_size, is_asked, seconds, n_bytes = pickle.load(requests)
            try:
                _limit(seconds, n_bytes)
                answer = read_file(file, Chunker(max_size, size=size if is_asked else None))
            except MemoryError:
                detail = f"more than {n_bytes / 2**20:,.0f} MiB of memory"
                skipped = SkippedPath(
                    source=file.source, reason=SkipReason.TOO_COSTLY, detail=detail
                )
                answer = FileContent([], skipped)
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
