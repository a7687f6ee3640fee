"""The file of an experiment: one JSON object a line, written so that a kill loses one row at most.

A line is written with one system call and synchronised before the next row is measured: a
kill leaves whole lines and perhaps the beginning of one, which is dropped and measured again;
a power cut does the same. Synchronising takes about a millisecond on a local disk, a row
between some and thousands. One process writes at a time; any number may read.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import math
import os
import sys
import warnings
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, TypeAlias

from sift_core.errors import ExperimentError, InvalidInputError

_logger = logging.getLogger(__name__)

Row: TypeAlias = dict[str, Any]
"""One JSON object of the file."""

_Identity: TypeAlias = "str | tuple[str, str]"


class ResultsFile:
    """Rows on disk, each with a key of its own; a run that was ended goes on from them.

    A row is known by `row["key"]`; one without a key, such as the description of an experiment,
    by `row["experiment"]`. Of two rows that are known by one name the first counts.

    Writing needs the file for itself: `with file:` takes it, and ends what a kill cut short;
    `append` outside of a `with` takes it for one row, which reads the whole file each time.

    Args:
        path: A .jsonl file, which need not exist, or a .jsonl.gz, which can only be read. The
            folder is created when the first row is written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file: BinaryIO | None = None
        self._identities: set[_Identity] = set()
        self._n_users = 0

    def rows(self) -> list[Row]:
        """Return the rows in the order of the file, read from disk; [] where there is no file.

        The beginning of a row at the end, which a kill cut short or another process is about
        to end, is left out.

        Raises:
            InvalidInputError: If the file has a line that is no row.
            ExperimentError: If the system cannot read it.
        """
        rows: dict[_Identity, Row] = {}
        for identity, row in _parsed(self.path, _lines(self._bytes())):
            rows.setdefault(identity, row)
        return list(rows.values())

    def keys(self) -> set[str]:
        """Return the key of every row that has one; reads the file unless it is held.

        Raises:
            InvalidInputError: If the file has a line that is no row.
            ExperimentError: If the system cannot read it.
        """
        identities = self._identities if self._file else self._read_identities(self._bytes())
        return {identity for identity in identities if isinstance(identity, str)}

    def append(self, row: Mapping[str, Any]) -> bool:
        """Write one row and synchronise the file; return False where it is there already.

        Raises:
            InvalidInputError: If `row` has no name (see the class) or holds something for which
                JSON has no form, such as NaN; or if the file cannot be written to, see `with`.
            ExperimentError: If the system cannot write it, on a full disk for instance; the
                file then is as it was.
        """
        identity = _identity(row)
        line = _encoded(row)
        with self as file:
            if identity in file._identities:
                return False
            file._write(line)
            file._identities.add(identity)
        return True

    def __enter__(self) -> ResultsFile:
        """Take the file for writing; may be nested.

        Raises:
            InvalidInputError: If the file is compressed or has a line that is no row.
            ExperimentError: If another process writes to it, or the system does not let us.
        """
        if self._file is None:
            self._open()
        self._n_users += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._n_users -= 1
        if not self._n_users and self._file:
            self._file.close()
            self._file = None

    def _open(self) -> None:
        if self.path.suffix == ".gz":
            raise InvalidInputError(
                f"{str(self.path)!r} is compressed, and rows cannot be appended to it; unpack it, "
                f"or write to another file"
            )
        with contextlib.ExitStack() as stack, self._system_errors("write to"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(self.path.open("ab", buffering=0))
            _lock(file, self.path)
            content = self._bytes()
            self._identities = self._read_identities(content)
            self._mend(file, content)
            stack.pop_all()
        self._file = file

    def _mend(self, file: BinaryIO, content: bytes) -> None:
        """Make the file end with the end of a row."""
        end = content.rfind(b"\n") + 1
        tail = content[end:]
        if not tail:
            return
        if _is_whole(tail):
            file.write(b"\n")
        else:
            file.truncate(end)
            _logger.info("dropped the unfinished last line of %s", self.path)
        os.fsync(file.fileno())

    def _write(self, line: bytes) -> None:
        assert self._file is not None
        size = os.fstat(self._file.fileno()).st_size
        with self._system_errors("write to"):
            try:
                n_written = self._file.write(line)
                if n_written != len(line):
                    raise OSError(
                        f"{n_written} of {len(line)} bytes were written; is the disk full?"
                    )
                os.fsync(self._file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    self._file.truncate(size)
                raise

    def _bytes(self) -> bytes:
        with self._system_errors("read"):
            try:
                content = self.path.read_bytes()
                return gzip.decompress(content) if self.path.suffix == ".gz" else content
            except FileNotFoundError:
                return b""
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise InvalidInputError(
                    f"{str(self.path)!r} is no whole gzip file ({error}); get it again"
                ) from error

    def _read_identities(self, content: bytes) -> set[_Identity]:
        return {identity for identity, _ in _parsed(self.path, _lines(content))}

    @contextlib.contextmanager
    def _system_errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            raise ExperimentError(
                f"could not {verb} the results file {str(self.path)!r}: {reason}. The rows that "
                f"it has are kept; a second run goes on from them"
            ) from error


def _lines(content: bytes) -> list[bytes]:
    """Return the lines, without the last one where that is the beginning of a row."""
    lines = content.split(b"\n")
    if lines[-1].startswith(b"{") and not _is_whole(lines[-1]):
        lines.pop()
    return lines


def _is_whole(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _parsed(path: Path, lines: list[bytes]) -> Iterator[tuple[_Identity, Row]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_constant=_refuse_constant)
            identity = _identity(row)
        except (ValueError, RecursionError) as error:  # InvalidInputError is a ValueError too
            raise InvalidInputError(
                f"line {number} of {str(path)!r} is no row of results: {error}. Is it a results "
                f"file? If it is, and the line is damaged, delete the line; a second run measures "
                f"it again"
            ) from error
        yield identity, row


def _refuse_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


def _identity(row: object) -> _Identity:
    if not isinstance(row, Mapping):
        raise InvalidInputError(f"a row must be an object with names, got {type(row).__name__}")
    if isinstance(key := row.get("key"), str):
        return key
    if "key" not in row and isinstance(experiment := row.get("experiment"), str):
        return "experiment", experiment
    raise InvalidInputError(
        f"a row must have a text under 'key', or no 'key' and a text under 'experiment'; got "
        f"'key' {key!r} and 'experiment' {row.get('experiment')!r}"
    )


def _encoded(row: Mapping[str, Any]) -> bytes:
    """Return the line of a row. ASCII: any text goes in, and a cut never splits a character."""
    try:
        return json.dumps(row, allow_nan=False).encode("ascii") + b"\n"
    except (ValueError, TypeError, RecursionError) as error:
        field, value = _first_without_json("", row) or ("the row", type(row).__name__)
        raise InvalidInputError(
            f"{field} must be of JSON's kinds (finite numbers, texts, lists, ...), got {value}"
        ) from error


def _first_without_json(field: str, value: object) -> tuple[str, str] | None:
    """Return the name of the first part that JSON cannot hold, and that part in words."""
    if isinstance(value, Mapping):
        parts = ((f"{field}.{name}" if field else str(name), part) for name, part in value.items())
    elif isinstance(value, list | tuple):
        parts = ((f"{field}[{i}]", part) for i, part in enumerate(value))
    elif isinstance(value, float):
        return None if math.isfinite(value) else (f"`{field}`", str(value))
    elif value is None or isinstance(value, str | int):
        return None
    else:
        return f"`{field}`", f"{value!r:.80} of type {type(value).__name__}"
    found = (_first_without_json(*part) for part in parts)
    return next((first for first in found if first), None)


if sys.platform == "win32":
    import msvcrt

    # Windows keeps others from reading a locked byte; this one is beyond any row.
    _LOCKED_BYTE = 1 << 40

    def _lock_without_waiting(file: BinaryIO) -> None:
        os.lseek(file.fileno(), _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError from error

else:
    import fcntl

    def _lock_without_waiting(file: BinaryIO) -> None:
        # Not lockf: its lock ends as soon as this process closes the file after reading it.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock(file: BinaryIO, path: Path) -> None:
    """Keep other processes from writing until the file is closed or this process ends."""
    try:
        _lock_without_waiting(file)
    except BlockingIOError as error:
        raise ExperimentError(
            f"another run is writing to the results file {str(path)!r}; wait for its end, or give "
            f"this run a file of its own"
        ) from error
    except OSError as error:  # some network file systems
        warnings.warn(
            f"{str(path)!r} cannot be locked ({error.strerror}): take care that no other run "
            f"writes to it",
            RuntimeWarning,
            stacklevel=2,
        )
