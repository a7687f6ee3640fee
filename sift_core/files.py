"""Files that are whole: replaced at once, checked when they are read, made by one process."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from sift_core.errors import InvalidInputError

UNFINISHED = ".unfinished"  # end of a draft's name
# Raised by what reads a value of another form than the one that was written.
DAMAGE = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)
_BLOCK = 1 << 20  # bytes that are read at once


def default_cache_folder() -> Path:
    """Return the folder of this library's caches, by the XDG base directories; make nothing.

    Raises:
        InvalidInputError: If this account has no home folder and no variable names another.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = os.path.expanduser("~")  # itself where there is none
    if not os.path.isabs(base) and not os.path.isabs(home):
        raise InvalidInputError(
            "this account has no home folder to keep caches in; set HOME or XDG_CACHE_HOME to a "
            "folder that it may write, as a whole path"
        )
    root = Path(base) if os.path.isabs(base) else Path(home, ".cache")
    return root / "sift-rerank"


def measured_once(name: str, circumstances: Sequence[str], measure: Callable[[], float]) -> float:
    """Return a number that is measured once on this machine and kept in the cache folder.

    So all processes decide alike. If the folder cannot be read or written, each call measures.

    Args:
        name: What is measured, as a file's name.
        circumstances: What it depends on beside the machine, such as versions.
        measure: Measures it.
    """
    digest = json_checksum([platform.node(), platform.machine(), *circumstances])[:16]
    try:
        path = default_cache_folder() / "measured" / f"{name}-{digest}.json"
    except InvalidInputError:  # this account has no home
        return measure()
    try:
        kept = float(unseal(path.read_bytes(), name))
        if math.isfinite(kept):
            return kept
        raise ValueError("it is no finite number")
    except (OSError, *DAMAGE):  # none yet, or damaged
        found = measure()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, seal(found, name))
    return found


def seal(content: Any, name: str) -> bytes:
    """Return JSON of a value, with a name and a checksum."""
    checksum = json_checksum([name, content])
    return json.dumps({"sha256": checksum, "name": name, "content": content}).encode()


def unseal(text: bytes, name: str) -> Any:
    """Return the value that `seal` was given under this name.

    Raises:
        ValueError: If the text was damaged, or sealed under another name.
    """
    try:
        record = json.loads(text)
        content = record["content"]
        if (record["name"], record["sha256"]) == (name, json_checksum([name, content])):
            return content
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise ValueError(f"it is none of ours, or damaged: {type(error).__name__}") from error
    raise ValueError("its name or its checksum is another one")


def json_checksum(content: Any) -> str:
    """Return the SHA-256 of a value as JSON with sorted keys: 64 hexadecimal digits."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_whole(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Write a file in place of what was there; readers see the old content or the new one.

    The draft beside it has a random name. So no planted link leads elsewhere, and several threads
    and processes may write one file. Only a process that is killed leaves its draft behind.

    Args:
        path: The file. Its folder must exist.
        content: What it holds afterwards.
        mode: Its permissions before the umask. Default: readable and writable by all.

    Raises:
        OSError: If the file cannot be written; what was there stays.
    """
    draft = path.with_name(f"{path.name}.{uuid4().hex}{UNFINISHED}")
    try:
        draft.touch(mode, exist_ok=False)
        draft.write_bytes(content)
        os.replace(draft, path)
    except BaseException:
        _delete(draft)
        raise


def make_once(
    path: Path,
    make: Callable[[Path], object],
    *,
    is_made: Callable[[Path], bool] = Path.exists,
) -> None:
    """Make a file or folder unless it is there; it appears complete or not at all.

    Processes that want it meanwhile wait for the one that makes it.

    Args:
        path: The file or folder. Its parent is made where it is missing.
        make: Writes it under another name, which it is given.
        is_made: Returns whether it is there already. Default: whether the path exists.

    Raises:
        OSError: If it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(lock(path.with_name(f"{path.name}.lock"))):
        if is_made(path):  # perhaps since this call waits
            return
        draft = path.with_name(f"{path.name}.part")
        _delete(draft)  # of a process that was killed
        try:
            make(draft)
            os.replace(draft, path)
        finally:
            _delete(draft)


def lock(path: Path, *, wait_s: float = math.inf) -> sqlite3.Connection:
    """Return a lock that nobody else holds, until its `close` or the death of the process.

    It is SQLite's exclusive lock: in the standard library, on every system. A forked process does
    not inherit it, unlike the lock of `flock`, and so cannot release it.

    Args:
        path: An empty file, made where it is missing. It stays there.
        wait_s: Seconds to wait while another holds the lock. Default: without end.

    Raises:
        TimeoutError: If another still holds the lock.
        OSError: If the file cannot be opened.
    """
    connection, deadline = None, time.monotonic() + wait_s
    while True:
        try:
            connection = sqlite3.connect(
                path, timeout=min(wait_s, 1.0), isolation_level=None, check_same_thread=False
            )
            connection.execute("BEGIN EXCLUSIVE")
            return connection
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            if "locked" not in str(error):
                raise OSError(str(error)) from error
            if time.monotonic() >= deadline:
                raise TimeoutError("another process or thread holds the lock") from error


def write_durably(path: Path, write: Callable[[Callable[[bytes], object]], object]) -> str:
    """Write a new file whose content survives a power failure, and return its SHA-256.

    Its name survives after `sync_folder`.

    Args:
        path: The file, which must not be there yet.
        write: Called with a function that appends bytes to the file.

    Raises:
        OSError: If the file is there already, or cannot be written.
    """
    checksum = hashlib.sha256()

    with path.open("xb") as file:

        def append(block: bytes) -> None:
            checksum.update(block)
            file.write(block)

        write(append)
        file.flush()
        os.fsync(file.fileno())
    return checksum.hexdigest()


def file_checksum(path: Path) -> str:
    """Return the SHA-256 of a regular file, or of the one that a link leads to.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is a folder or a device; /dev/zero would be read without end.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path.name} is no regular file")
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power failure, where the system has a call for that."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _delete(draft: Path) -> None:
    """Delete a file or folder if possible."""
    if draft.is_dir():
        shutil.rmtree(draft, ignore_errors=True)
    with suppress(OSError):
        draft.unlink()
