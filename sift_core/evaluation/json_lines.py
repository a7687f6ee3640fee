"""Files of one JSON object a line, plain or compressed, with errors that name the line."""

from __future__ import annotations

import gzip
import json
import lzma
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sift_core.errors import InvalidInputError

ENCODING = "utf-8-sig"  # UTF-8; programs of Windows put a byte order mark before it


@dataclass(frozen=True, kw_only=True)
class JsonLine:
    """One object and where it stands: `number` counts from 1."""

    path: Path
    number: int
    values: Mapping[str, Any]

    def text(self, key: str, default: str | None = None) -> str:
        """Return the text under a key, `default` where there is none.

        Raises:
            InvalidInputError: If there is no text and no default, or something else is there.
        """
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.error(f"needs a text under {key!r}, got {value!r}")
        return value

    def identifier(self, key: str) -> str:
        """Return the id under a key; a whole number counts as its digits.

        Raises:
            InvalidInputError: If there is none.
        """
        return self.as_identifier(self.values.get(key), key)

    def as_identifier(self, value: object, key: str) -> str:
        """Return a value that was found under a key as an id.

        Raises:
            InvalidInputError: If it is neither a whole number nor a text with something in it.
        """
        if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
            raise self.error(f"needs an id under {key!r}, got {value!r}")
        return str(value)

    def error(self, message: str) -> InvalidInputError:
        """Return the error that says this of the line."""
        return InvalidInputError(f"{self.path}, line {self.number}: {message}")


def read_json_lines(path: str | Path) -> Iterator[JsonLine]:
    """Yield the objects of a file in its order; blank lines and a byte order mark are skipped.

    Args:
        path: Ends in .gz or .xz where it is compressed.

    Raises:
        InvalidInputError: If there is no such file, it cannot be decompressed or decoded, or
            a line is no JSON object.
    """
    path = Path(path)
    number = 0
    try:
        with _opened(path) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield JsonLine(path=path, number=number, values=_parsed(path, number, line))
    except FileNotFoundError as error:
        raise InvalidInputError(f"there is no file {path}") from error
    except (OSError, EOFError, UnicodeDecodeError, zlib.error, lzma.LZMAError) as error:
        raise InvalidInputError(f"{path} cannot be read after line {number}: {error}") from error


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding=ENCODING)
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding=ENCODING)
    return path.open(encoding=ENCODING)


def _parsed(path: Path, number: int, line: str) -> Mapping[str, Any]:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path}, line {number}: no JSON: {error}") from error
    if not isinstance(values, dict):
        raise InvalidInputError(f"{path}, line {number}: must be a JSON object, got {line[:50]!r}")
    return values
