"""A folder that holds an index, its documents and the embedder's name, and is never half new.

    manifest.json             names the three files below with their SHA-256; replacing it switches
    index-<token>.faiss       the index
    documents-<token>.jsonl   a document a line: Faiss id, content id, document id, text, metadata
    words-<token>.npz         the columns of a `LexicalIndex`; older versions do not write it
    folder.lock               held by whoever writes

Without a manifest, an index of another tool is read (`other_tools`).

Files of these names that the manifest does not name were left by a process that died; the next
save deletes them, and no others.
"""

from __future__ import annotations

import json
import os
import re
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sift_core.errors import CandidateSourceError
from sift_core.files import DAMAGE, file_checksum, json_checksum, lock, sync_folder, write_durably
from sift_core.sources.faiss.documents import DocumentTable, Row
from sift_core.sources.faiss.entries import faiss, starting_form
from sift_core.sources.faiss.other_tools import find_documents, read_index
from sift_core.sources.lexical_index import FORMAT as WORDS_FORMAT
from sift_core.sources.lexical_index import LexicalIndex
from sift_core.types import Document

MANIFEST = "manifest.json"
LOCK = "folder.lock"
FORMAT = 2  # 1 kept its documents in SQLite
LOCK_WAIT_S = 5.0  # a save of others takes a second or so. Guess.
_OURS = re.compile(
    r"(index-\w{12}\.faiss|documents-\w{12}\.jsonl|words-\w{12}\.npz|manifest-\w{12}\.json)",
    re.ASCII,
)
_SUFFIXES = {"index": "faiss", "documents": "jsonl", "words": "npz", "manifest": "json"}
_BLOCK = 1 << 20


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedIndex:
    """What was read from a folder; `words` are None in a folder that keeps none we can read."""

    index: Any
    documents: DocumentTable
    words: LexicalIndex | None
    embedder_name: str | None


class IndexFolder:
    """One folder, and which of its states is known.

    Args:
        path: It need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path: Path = path.absolute()
        self._known: str | None = None  # the manifest that was last read or written
        self._is_others = False  # whether another tool wrote what was read
        self._lock: weakref.finalize[Any, IndexFolder] | None = None  # lets go when it is called

    def is_same_as(self, path: Path) -> bool:
        """Return whether a path leads here, and this may write here."""
        if self._is_others:
            return False
        return path.is_dir() and self.path.is_dir() and path.samefile(self.path)

    def holds_index(self) -> bool:
        """Return whether there is a saved state, or an index of another tool.

        Raises:
            CandidateSourceError: If there is a manifest that cannot be used.
        """
        return self._manifest() is not None or find_documents(self.path) is not None

    def read(self) -> SavedIndex:
        """Return what was saved last; a save by another process meanwhile does no harm.

        Raises:
            CandidateSourceError: If a file is missing, damaged or of another format.
        """
        for is_last in (False, False, True):
            manifest = self._manifest()
            if manifest is None:
                return self._read_others()
            try:
                saved = self._read(manifest, may_lack_words=is_last)
            except FileNotFoundError as error:  # replaced while it was read
                if is_last:
                    raise CandidateSourceError(
                        f"{error.filename!r} is missing, which {str(self.path)!r} needs; restore "
                        f"it, or index again into another folder"
                    ) from error
            except OSError as error:
                raise _failed("load", self.path, error) from error
            else:
                self._known = manifest["sha256"]
                return saved
        raise AssertionError("the last round returns or raises")

    def _read_others(self) -> SavedIndex:
        found = find_documents(self.path)
        if found is None:
            raise CandidateSourceError(
                f"{str(self.path)!r} holds no saved source: it has no {MANIFEST}; is it the right "
                f"folder?"
            )
        index, documents = read_index(found)
        self._is_others = True
        words = LexicalIndex.empty()  # counted when they are first looked up
        return SavedIndex(index=index, documents=documents, words=words, embedder_name=None)

    def acquire(self) -> None:
        """Become the only writer, until `release` or the death of the process.

        Raises:
            CandidateSourceError: If another writes, or has written since this folder was read, or
                what it holds cannot be used; others may write then.
        """
        if self._lock is not None:
            return
        if self._is_others:
            raise CandidateSourceError(
                f"{str(self.path)!r} was filled by another tool and is only read; save the source "
                f"into another folder"
            )
        self._lock = weakref.finalize(self, _lock(self.path))
        try:
            manifest = self._manifest()  # looked at again, now that nobody else writes
            if self._known is not None and (manifest or {}).get("sha256") != self._known:
                raise CandidateSourceError(
                    f"{str(self.path)!r} was saved anew by something else since this source was "
                    f"loaded; load it again"
                )
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let others write."""
        if self._lock is not None:
            self._lock()
            self._lock = None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer for a block, and longer where one was before."""
        was_held = self._lock is not None
        self.acquire()
        try:
            yield
        finally:
            if not was_held:
                self.release()

    def write(
        self, index: Any, rows: Iterable[Row], words: LexicalIndex, *, embedder_name: str | None
    ) -> None:
        """Write a state, switch to it and delete the one before; the lock must be held.

        Args:
            index: Any CPU index.
            rows: The documents of its entries; entries without one count as deleted.
            words: The words of these documents.
            embedder_name: Model behind the vectors.

        Raises:
            CandidateSourceError: If it cannot be written; the folder is then as before.
        """
        assert self._lock is not None
        self._manifest()  # refuses to replace the manifest of something else
        token = uuid.uuid4().hex[:12]
        paths = [self.path / f"{name}-{token}.{suffix}" for name, suffix in _SUFFIXES.items()]
        index_path, documents_path, words_path, manifest_path = paths
        state: dict[str, Any] = {"embedder_name": embedder_name}
        is_switched = False
        try:
            state["index"] = _write_index(index_path, starting_form(index))
            state["documents"] = _write_documents(documents_path, rows)
            state["words"] = _write_words(words_path, words)
            checksum = json_checksum(state)
            manifest = {"format": FORMAT, "state": state, "sha256": checksum}
            written = json.dumps(manifest, indent=1).encode()
            write_durably(manifest_path, lambda append: append(written))
            sync_folder(self.path)
            os.replace(manifest_path, self.path / MANIFEST)
            self._known, is_switched = checksum, True
            sync_folder(self.path)
        except BaseException as error:
            _delete([manifest_path] if is_switched else paths)
            if isinstance(error, OSError):
                raise _failed("save into", self.path, error) from error
            raise
        with suppress(OSError):  # the next save deletes them
            _delete(
                path
                for path in sorted(self.path.iterdir())
                if _OURS.fullmatch(path.name) and path not in paths
            )

    def _manifest(self) -> dict[str, Any] | None:
        """Return the manifest, its form checked; None where there is none."""
        path = self.path / MANIFEST
        try:
            content = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _failed("read", path, error) from error
        try:
            manifest: dict[str, Any] = json.loads(content)
            found = manifest["format"]
            if found != FORMAT:
                raise CandidateSourceError(
                    f"{str(self.path)!r} has format {found!r}, this version of sift-rerank reads "
                    f"{FORMAT}: index again into another folder, or upgrade sift-rerank"
                )
            state = manifest["state"]
            if manifest["sha256"] != json_checksum(state):
                raise ValueError("its checksum is another")
            if not isinstance(state["embedder_name"], str | None):
                raise TypeError("its `embedder_name` is no text")
            for kind in ("index", "documents", *(["words"] if "words" in state else [])):
                if not _OURS.fullmatch(state[kind]["name"]) or not state[kind]["sha256"]:
                    raise ValueError(f"it names {state[kind]['name']!r}")
        except DAMAGE as error:
            raise CandidateSourceError(
                f"{str(path)!r} is no manifest of this library, or damaged: "
                f"{type(error).__name__}: {error}; restore it, or index again into another folder"
            ) from error
        return manifest

    def _read(self, manifest: dict[str, Any], *, may_lack_words: bool) -> SavedIndex:
        state = manifest["state"]
        words = self._read_words(state.get("words"), may_be_missing=may_lack_words)
        index_path = self._checked(state["index"])
        documents_path = self._checked(state["documents"])
        try:
            index = faiss.read_index(str(index_path))
        except (RuntimeError, MemoryError) as error:
            if not index_path.exists():
                raise FileNotFoundError(2, "gone", str(index_path)) from error
            raise CandidateSourceError(
                f"Faiss {faiss.__version__} could not read {str(index_path)!r}: {error}; was it "
                f"written by a newer Faiss?"
            ) from error
        try:
            documents = DocumentTable(_read_documents(documents_path))
            name = state["embedder_name"]
        except DAMAGE as error:
            raise CandidateSourceError(
                f"{str(documents_path)!r} holds other than documents: {type(error).__name__}: "
                f"{error}; restore it, or index again into another folder"
            ) from error
        return SavedIndex(index=index, documents=documents, words=words, embedder_name=name)

    def _read_words(
        self, entry: dict[str, Any] | None, *, may_be_missing: bool
    ) -> LexicalIndex | None:
        """Return the words; None if the manifest names none, or another version's.

        Args:
            entry: What the manifest says of the file.
            may_be_missing: Whether a file that is gone counts as none.
        """
        if entry is None or entry.get("format") != WORDS_FORMAT:
            return None
        try:
            path = self._checked(entry)
            return LexicalIndex.from_bytes(path.read_bytes())
        except FileNotFoundError:
            if may_be_missing:
                return None
            raise
        except ValueError as error:
            raise CandidateSourceError(
                f"{str(path)!r} holds other than words: {error}; restore it, or index again into "
                f"another folder"
            ) from error

    def _checked(self, entry: dict[str, Any]) -> Path:
        """Return the path of a file that is the one that was written."""
        path = self.path / str(entry["name"])
        try:
            checksum = file_checksum(path)
        except ValueError as error:
            raise CandidateSourceError(
                f"{str(path)!r} is no regular file; restore it, or index again into another folder"
            ) from error
        if checksum != entry["sha256"]:
            raise CandidateSourceError(
                f"{str(path)!r} is not the file that was saved: it was cut short, damaged or "
                f"swapped; restore it, or index again into another folder"
            )
        return path


def _write_index(path: Path, index: Any) -> dict[str, str]:
    def write(append: Callable[[bytes], object]) -> None:
        try:
            # Faiss' own writer does not notice that the disk is full when it closes a file.
            faiss.write_index(index, faiss.PyCallbackIOWriter(append, _BLOCK))
        except RuntimeError as error:
            raise CandidateSourceError(
                f"Faiss could not write {type(index).__name__} to {str(path)!r}: {error}; its type "
                f"cannot be saved"
            ) from error

    return {"name": path.name, "sha256": write_durably(path, write)}


def _write_documents(path: Path, rows: Iterable[Row]) -> dict[str, str]:
    def write(append: Callable[[bytes], object]) -> None:
        for faiss_id, content, document in rows:
            about = [document.document_id, document.text, dict(document.metadata)]
            columns = [faiss_id, content, *about]
            append(json.dumps(columns, ensure_ascii=False).encode() + b"\n")

    return {"name": path.name, "sha256": write_durably(path, write)}


def _write_words(path: Path, words: LexicalIndex) -> dict[str, Any]:
    checksum = write_durably(path, lambda append: append(words.as_bytes()))
    return {"name": path.name, "sha256": checksum, "format": WORDS_FORMAT}


def _read_documents(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        for line in file:
            faiss_id, content, document_id, text, metadata = columns = json.loads(line)
            is_ours = tuple(map(type, columns)) == (int, str, str, str, dict)
            if not is_ours or not -(2**63) <= faiss_id < 2**63:
                raise TypeError(f"line {line[:80]!r}")
            document = Document(document_id=document_id, text=text, metadata=metadata)
            yield faiss_id, content, document


def _lock(folder: Path) -> Callable[[], None]:
    """Lock a folder, which is made where it is missing, and return what unlocks it.

    Raises:
        CandidateSourceError: If another writes, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return lock(folder / LOCK, wait_s=LOCK_WAIT_S).close
    except TimeoutError as error:
        raise CandidateSourceError(
            f"another process or source is writing into {str(folder)!r}; wait until it has "
            f"ended (`complete` ends it), then load the source again"
        ) from error
    except OSError as error:
        raise _failed("save into", folder, error) from error


def _delete(paths: Iterable[Path]) -> None:
    """Delete files where that is possible; Windows keeps one that another process reads."""
    for path in paths:
        with suppress(OSError):
            path.unlink()


def _failed(verb: str, path: Path, error: Exception) -> CandidateSourceError:
    return CandidateSourceError(
        f"could not {verb} {str(path)!r}: {error}; is there space, and may this user do that?"
    )
