"""The folder of a Qdrant Edge shard, and the engine's failures in words."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sift_core.errors import CandidateSourceError, InvalidInputError, MissingDependencyError
from sift_core.types import check_text

try:
    import qdrant_edge as edge
except ImportError as error:
    raise MissingDependencyError("qdrant-edge-py", extra="qdrant-edge") from error

NAME_FILE = "sift.json"  # the embedder's name, beside the engine's own files
_NEW_NAME_FILE = "sift.json.new"  # what a process killed while writing leaves


def load_shard(folder: Path) -> edge.EdgeShard | None:
    """Return the shard in a folder, open; None if the folder is empty or not there.

    Raises:
        CandidateSourceError: If it cannot be opened: locked, unreadable, damaged.
        InvalidInputError: If the folder holds something else.
    """
    with engine_failures("open", f"Qdrant Edge shard {folder!s}"):
        names = set(os.listdir(folder)) if os.path.lexists(folder) else set()
        if "edge_config.json" in names or ("segments" in names and os.listdir(folder / "segments")):
            return edge.EdgeShard.load(str(folder))
    ours = {"segments", "wal", NAME_FILE, _NEW_NAME_FILE}
    # A process killed while it made the shard leaves temporary files of the engine.
    others = sorted(n for n in names - ours if not n.startswith(".atomicwrite"))
    if others:
        raise InvalidInputError(
            f"the folder {folder!s} holds no Qdrant Edge shard, but {others[:3]}; pass a new "
            f"or empty folder. What QdrantClient(path=…) or a server has written is not one"
        )
    return None


@contextmanager
def engine_failures(
    action: str, place: str, misfit: Callable[[], str | None] = lambda: None
) -> Iterator[None]:
    """Turn what the engine raises inside the block into an error of ours.

    It has no exceptions of its own: `Exception` with a text, and Rust's panics, which are
    no `Exception`.

    Args:
        action: What was tried, a verb with "to" and "from" as needed.
        place: What the message calls the shard.
        misfit: Asked after a failure; returns what was wrong with the caller's input, or None.
    """
    try:
        yield
    except BaseException as error:
        reraise_unless_engine(error)
        reason = misfit()
        if reason is not None:
            raise InvalidInputError(reason) from error
        raise CandidateSourceError(
            f"could not {action} {place}: {error}; {_advice(str(error))}"
        ) from error


def reraise_unless_engine(error: BaseException) -> None:
    """Raise `error` again unless it may be the engine's: an exception or a Rust panic."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error


def _advice(text: str) -> str:
    if "WouldBlock" in text:
        return (
            "it is open already, here or in another process; close it there, as one source of "
            "one process at a time can have it (a Qdrant server serves many)"
        )
    if "not initialized" in text:
        return "it was closed; open it again"
    return (
        "is the disk full or read-only, are the folder's files whole and written by this version "
        "of qdrant-edge-py, and are filter and parameters right?"
    )


def recorded_name(folder: Path) -> str | None:
    """Return the embedder's name in a folder, None if it has none."""
    path = folder / NAME_FILE
    try:
        name = json.loads(path.read_bytes())["embedder_name"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CandidateSourceError(
            f"could not read the embedder's name from {path!s}: {error!r}; restore the file, or "
            f"delete it and pass the right `embedder_name`"
        ) from error
    check_text(f"embedder_name in {path!s}", name)
    return str(name)


def record_name(folder: Path, embedder_name: str) -> None:
    """Write the embedder's name, so that a kill or a power failure leaves the old file or the new.

    Raises:
        CandidateSourceError: If it cannot be written.
    """
    path = folder / NAME_FILE
    try:
        if recorded_name(folder) == embedder_name:
            return
        with open(folder / _NEW_NAME_FILE, "w", encoding="utf-8") as file:
            json.dump({"embedder_name": embedder_name}, file, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(folder / _NEW_NAME_FILE, path)
    except OSError as error:
        raise CandidateSourceError(
            f"could not write the embedder's name to {path!s}: {error}; is the disk full or "
            f"read-only?"
        ) from error
