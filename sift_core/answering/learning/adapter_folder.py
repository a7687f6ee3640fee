"""Adapters on disk, each in a folder of its own in PEFT's format, whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sift_core.answering.learning.adapters import CONFIG_NAME, WEIGHTS_NAME, Adapter
from sift_core.errors import AdapterCacheWarning, InvalidInputError, MissingDependencyError
from sift_core.types import FineTuningReport

try:
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load
except ImportError as error:
    raise MissingDependencyError("torch and safetensors", extra="fine-tune") from error

FORMAT = 1  # of the folder
RECORD_NAME = "sift_record.json"  # what PEFT and vLLM pass over: report and checksums
MAX_RECORD_BYTES = 1 << 24  # guess: far above the configuration of any model, or losses of a run
ABANDONED_S = 3600.0  # guess: no adapter takes so long to write; its process was killed
_UNFINISHED = ".sift-unfinished-"
_KEY = re.compile(r"[0-9a-f]{64}")
# A file that is cut, altered, misses, or is of another form.
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError)


@dataclass(frozen=True, kw_only=True, eq=False)
class CachedAdapter:
    """An adapter that was learned before, and how that went.

    Args:
        adapter: On the CPU.
        report: Its `source` says where the adapter was found: "memory" or "disk".
    """

    adapter: Adapter
    report: FineTuningReport


def check_key(key: str) -> str:
    """Return the key.

    Raises:
        InvalidInputError: If it isn't 64 hexadecimal digits, and so might name another file.
    """
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise InvalidInputError(
            f"a cache key must be 64 hexadecimal digits in lower case, as `adapter_key` returns, "
            f"got {key!r}"
        )
    return key


class AdapterFolder:
    """A bounded folder of adapters, shared with other threads and processes.

    A reader sees an adapter whole or not at all. One that is damaged is reported and deleted,
    one that can't be written is reported; neither raises. Files that are not of this cache
    are left alone, and links are never followed out of the folder.

    Args:
        folder: Made, for its owner alone, when the first adapter is written.
        max_bytes: Size of all adapters at most; those used longest ago are deleted first.
            Exceeded by one while it is being written.
    """

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes

    @property
    def n_bytes(self) -> int:
        """Size of all adapters; reads the folder."""
        with suppress(OSError):
            return sum(entry.n_bytes for entry in self._entries())
        return 0

    def place(self, key: str) -> Path:
        """Return the folder of an adapter, whether it is there or not.

        Raises:
            InvalidInputError: If the key is none.
        """
        return self.folder / check_key(key)

    def read(self, key: str) -> CachedAdapter | None:
        """Return an adapter, or None where there is none that can be used."""
        place = self.place(key)
        try:
            found = os.lstat(place)
        except OSError:
            return None
        try:
            cached = _read(place, key)
        except _DAMAGE as error:
            if self._is_still(place, found):
                self._discard(place)
                _warn(f"the adapter {place} is damaged and was deleted, to be learned anew", error)
            return None
        except OSError as error:
            if self._is_still(place, found):
                _warn(f"the adapter {place} could not be read and is learned anew", error)
            return None
        self.touch(key)
        return cached

    def has(self, key: str) -> bool:
        """Return whether there is a folder for a key; what is in it is looked at by `read`."""
        return _is_folder(self.place(key))

    def touch(self, key: str) -> None:
        """Note that an adapter was used now."""
        with suppress(OSError):
            _set_used_now(self.place(key))

    def write(self, key: str, adapter: Adapter, report: FineTuningReport) -> bool:
        """Keep an adapter, and return whether it is kept.

        One that is larger than `max_bytes` is not. Nothing is left of one that could not be
        written, for instance because the disk is full; that is reported by a warning.
        """
        place = self.place(key)
        if adapter.n_bytes > self.max_bytes:
            return False
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._shrink(self.max_bytes - adapter.n_bytes)
            with self._draft() as draft:
                adapter.save(draft)
                _write_record(draft, key, report)
                _set_used_now(draft)
                self._publish(draft, place)
            self._shrink(self.max_bytes)  # files are somewhat larger than the weights
        except OSError as error:
            _warn(f"an adapter could not be written to {self.folder}", error)
            return False
        return _is_folder(place)

    def clear(self) -> None:
        """Delete all adapters, and nothing else; what can't be deleted is reported."""
        try:
            self._shrink(-1)
        except FileNotFoundError:
            return
        except OSError as error:
            _warn(f"the adapters in {self.folder} could not be deleted", error)
            return
        if self.n_bytes:
            _warn(f"not every adapter in {self.folder} could be deleted", "see its permissions")

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        """Yield a new folder beside the adapters that is gone after the block."""
        draft = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self.folder))
        try:
            yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _publish(self, draft: Path, place: Path) -> None:
        if os.path.lexists(place) and not _is_folder(place):  # in the way of this cache
            self._discard(place)
        try:
            os.rename(draft, place)
        except OSError as error:
            # Another thread or process was faster, and has learned the same; a third may have
            # deleted it again by now.
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY) and not _is_folder(place):
                raise

    def _entries(self) -> list[_Entry]:
        with os.scandir(self.folder) as listing:
            names = [entry.name for entry in listing if entry.is_dir(follow_symlinks=False)]
        entries = []
        for name in filter(_KEY.fullmatch, names):
            with suppress(FileNotFoundError):  # deleted meanwhile
                entries.append(_Entry.of(self.folder / name))
        return entries

    def _shrink(self, max_bytes: int) -> None:
        """Delete what was used longest ago until the rest fits, and what was never finished."""
        entries = sorted(self._entries(), key=lambda entry: entry.used_ns)
        total = sum(entry.n_bytes for entry in entries)
        for entry in entries:
            if total <= max_bytes:
                break
            self._discard(entry.place)
            total -= entry.n_bytes
        for draft in self.folder.glob(f"{_UNFINISHED}*"):
            with suppress(FileNotFoundError):
                if time.time() - draft.lstat().st_mtime > ABANDONED_S:
                    _remove(draft)

    def _discard(self, place: Path) -> None:
        """Delete an entry; for others it is gone at once."""
        trash = self.folder / f"{_UNFINISHED}{secrets.token_hex(8)}"
        with suppress(OSError):
            os.rename(place, trash)
            _remove(trash)

    @staticmethod
    def _is_still(place: Path, found: os.stat_result) -> bool:
        """Return whether no other process has deleted, replaced or touched an entry meanwhile."""
        try:
            now = os.lstat(place)
        except OSError:
            return False
        # A new folder may get the number of a deleted one.
        return os.path.samestat(now, found) and now.st_ctime_ns == found.st_ctime_ns


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """An adapter's folder, when it was used last, and its size."""

    place: Path
    used_ns: int
    n_bytes: int

    @classmethod
    def of(cls, place: Path) -> _Entry:
        with os.scandir(place) as files:
            n_bytes = sum(file.stat(follow_symlinks=False).st_size for file in files)
        return cls(place=place, used_ns=os.lstat(place).st_mtime_ns, n_bytes=n_bytes)


def _is_folder(place: Path) -> bool:
    return place.is_dir() and not place.is_symlink()


def _read(place: Path, key: str) -> CachedAdapter:
    """Return what an entry holds.

    Raises:
        OSError: If it cannot be read now.
        ValueError, or another of `_DAMAGE`: If it is damaged.
    """
    if not _is_folder(place):
        raise ValueError("it is no folder")
    record = json.loads(_content(place / RECORD_NAME))
    checksum = record.pop("checksum")
    if checksum != _checksum(record) or (record["format"], record["key"]) != (FORMAT, key):
        raise ValueError(f"{RECORD_NAME} was altered")
    content = {}
    for name in (CONFIG_NAME, WEIGHTS_NAME):
        content[name] = _content(place / name, n_bytes=record["files"][name]["n_bytes"])
        if hashlib.sha256(content[name]).hexdigest() != record["files"][name]["sha256"]:
            raise ValueError(f"{name} was altered")
    with torch.inference_mode(False):
        adapter = Adapter.from_tensors(
            load(content[WEIGHTS_NAME]), json.loads(content[CONFIG_NAME]), key=key
        )
    report = {**record["report"], "source": "disk"}
    for name in ("losses", "learned"):
        report[name] = tuple(report[name])
    return CachedAdapter(adapter=adapter, report=FineTuningReport(**report))


def _content(path: Path, *, n_bytes: int | None = None) -> bytes:
    """Return the content of a plain file, of a known size if one is given."""
    try:
        about = os.lstat(path)
    except FileNotFoundError as error:
        raise ValueError(f"{path.name} is missing") from error
    if not stat.S_ISREG(about.st_mode):
        raise ValueError(f"{path.name} is no plain file")
    if about.st_size > MAX_RECORD_BYTES if n_bytes is None else about.st_size != n_bytes:
        raise ValueError(f"{path.name} has {about.st_size} bytes, which is not its size")
    flags = os.O_RDONLY
    for option in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):  # if it became a link or a pipe
        flags |= getattr(os, option, 0)
    with open(os.open(path, flags), "rb") as file:
        return file.read()


def _write_record(place: Path, key: str, report: FineTuningReport) -> None:
    content = {name: (place / name).read_bytes() for name in (CONFIG_NAME, WEIGHTS_NAME)}
    record = {
        "format": FORMAT,
        "key": key,
        "report": {**asdict(report), "source": "trained"},
        "files": {
            name: {"n_bytes": len(part), "sha256": hashlib.sha256(part).hexdigest()}
            for name, part in content.items()
        },
    }
    record["checksum"] = _checksum(record)
    (place / RECORD_NAME).write_text(json.dumps(record, indent=1), encoding="utf-8")


def _checksum(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _set_used_now(place: Path) -> None:
    now = time.time_ns()
    follow = os.utime not in os.supports_follow_symlinks  # only where there is no other way
    # Finer than the clock that files get their times from.
    os.utime(place, ns=(now, now), follow_symlinks=follow)


def _remove(place: Path) -> None:
    if place.is_symlink() or not place.is_dir():
        place.unlink()
    else:
        shutil.rmtree(place, ignore_errors=True)


def _warn(what: str, why: object) -> None:
    warnings.warn(f"{what}: {why}", AdapterCacheWarning, stacklevel=4)
