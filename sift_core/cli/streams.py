"""stdin, stdout and stderr of a command: what is written is cleaned, and what fails is told.

Everything that reaches the terminal goes through here, whoever wrote it: our commands, Typer's
usage errors, warnings and logs of libraries. Texts lose what steers a terminal. Rich writes its own
colours to what lies behind (it asks for `rich_proxied_file`): `output.Terminal` and the messages of
usage errors are cleaned before they get there.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

READER_GONE = 141  # as shells count a death by SIGPIPE: `sift search … | head -1`
CANNOT_WRITE = 2

_NARROWEST = 20  # columns, below which help and tables lose all words
_WIDEST = 10_000

# Control characters but tab and newline, which begin escape sequences, and marks that turn the
# direction of writing: a document must neither steer the terminal nor look like another one. Halves
# of surrogate pairs stand for bytes of file names that are no text.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_NO_TEXT = re.compile("[\ud800-\udfff]")


def plain(text: str) -> str:
    """Return a text without the characters that steer a terminal; tabs and line ends stay."""
    return _NO_TEXT.sub("?", _STEERING.sub("", text))


def one_line(text: str) -> str:
    """Return a text in one line, safe for a terminal."""
    return " ".join(plain(text).split())


class Stream:
    """A stream of the process, of which a failed write is told in a line and not in a traceback.

    A command whose results nobody can read ends; one whose notes nobody can read goes on.

    Args:
        behind: The stream.
        has_results: Whether it is stdout rather than stderr.
    """

    def __init__(self, behind: IO[str], *, has_results: bool) -> None:
        self._behind = behind
        self._has_results = has_results
        self._is_dead = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    def write(self, text: str) -> int:
        """Write a text.

        Raises:
            SystemExit: If it is stdout and nobody reads it any more, or it cannot be written.
        """
        if not self._is_dead:
            try:
                self._behind.write(text)
            except OSError as error:
                self._end(error)
        return len(text)

    def flush(self) -> None:
        """Write what is kept back, as `write` does."""
        if not self._is_dead:
            try:
                self._behind.flush()
            except OSError as error:
                self._end(error)

    def _end(self, error: OSError) -> None:
        self._is_dead = True
        with suppress(OSError, ValueError):  # Python writes what is left once more when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._behind.fileno())
        if not self._has_results:
            return
        if error.errno == errno.EPIPE:
            raise SystemExit(READER_GONE)
        sys.stderr.write(
            f"error: stdout cannot be written: {error.strerror or error}; what it leads to must be "
            f"open and have space\n"
        )
        raise SystemExit(CANNOT_WRITE)


class CleanStream:
    """A stream through which no text can steer the terminal.

    Args:
        behind: The stream.
        has_results: Whether it is stdout rather than stderr.

    Attributes:
        rich_proxied_file: What lies behind, for what draws with escape sequences of its own.
    """

    def __init__(self, behind: IO[str], *, has_results: bool) -> None:
        self.rich_proxied_file: Stream = Stream(behind, has_results=has_results)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str) -> int:
        """Write a text without the characters that steer a terminal, as `Stream.write` does."""
        return self.rich_proxied_file.write(plain(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts, each as `write` does."""
        for line in lines:
            self.write(line)


@contextmanager
def clean_streams() -> Iterator[None]:
    """Put clean streams into the place of stdout and stderr, and mend widths that show nothing."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # σ² must not end a run in a latin-1 terminal, nor a byte that is no UTF-8 in a question.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    _mend_widths()
    before = sys.stdout, sys.stderr
    sys.stdout = CleanStream(sys.stdout, has_results=True)
    sys.stderr = CleanStream(sys.stderr, has_results=False)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def undecorated(stream: Any) -> Any:
    """Return what lies behind clean streams, and behind those that Rich puts before them."""
    while (behind := getattr(stream, "rich_proxied_file", None)) is not None:
        stream = behind
    return stream


def open_closed_streams() -> None:
    """Open what was closed when the process began, so that no file of ours gets its number.

    stdin is empty then, stderr swallows, and writing to stdout fails.
    """
    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # takes the lowest free number, which is this one
    sys.stdin = sys.stdin or open(0, closefd=False)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)
    sys.stderr = sys.stderr or open(2, "w", closefd=False)


def _mend_widths() -> None:
    """Correct sizes of a terminal at which Rich and Typer print nothing, or fail."""
    for name in ("COLUMNS", "LINES", "TERMINAL_WIDTH"):
        size = os.environ.get(name, "")
        if not (size.isdecimal() and 0 < int(size) <= _WIDEST):
            os.environ.pop(name, None)
        elif name != "LINES" and int(size) < _NARROWEST:
            os.environ[name] = str(_NARROWEST)
