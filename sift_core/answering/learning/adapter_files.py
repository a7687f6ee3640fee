"""Adapters on disk, a safetensors file each, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import time
import warnings
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sift_core.answering.model.adapters import AdaptedLayer, Adapter, AdapterLayout
from sift_core.checks import as_number
from sift_core.errors import AdapterCacheWarning, MissingDependencyError
from sift_core.types import FineTuningReport

try:
    import torch
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import save
except ImportError as error:
    raise MissingDependencyError("torch and safetensors", extra="fine-tune") from error

FORMAT = "sift adapter 2"
ABANDONED_S = 3600.0  # guess: no adapter takes so long to write; its process was killed
_SUFFIX, _UNFINISHED = ".safetensors", ".unfinished"
_NAME = re.compile(r"[0-9a-f]{64}\.safetensors")
# A file that is cut, altered, or of another form.
_DAMAGE = (
    *(ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RuntimeError),
    SafetensorError,
)


class AdapterFiles:
    """A bounded folder of adapters by key, shared with other threads and processes.

    A file appears by renaming, so that a reader sees it whole or not at all, and holds a
    checksum of its weights and of all that describes them. One that is damaged is reported and
    deleted, one that can't be written is reported; neither raises. Files that are not of this
    cache are left alone.

    Args:
        folder: Made, for its owner alone, when the first adapter is written.
        max_bytes: Size of all files at most; those used longest ago are deleted first.
    """

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes

    def read(self, key: str) -> tuple[Adapter, FineTuningReport] | None:
        """Return an adapter on the CPU and how it learned; None if there is none of use."""
        path = self._path(key)
        if not path.is_file():
            return None
        try:
            found = _read(path, key)
        except FileNotFoundError:
            return None
        except _DAMAGE as error:
            with suppress(OSError):
                path.unlink()
            _warn(f"the adapter {path} is damaged and was deleted, to be learned anew", error)
            return None
        except OSError as error:
            _warn(f"the adapter {path} could not be read and is learned anew", error)
            return None
        self.touch(key)
        return found

    def touch(self, key: str) -> None:
        """Note that an adapter was used now."""
        now = time.time_ns()  # finer than the clock that files get their times from
        with suppress(OSError):
            os.utime(self._path(key), ns=(now, now))

    def write(self, key: str, adapter: Adapter, report: FineTuningReport) -> bool:
        """Keep an adapter, and return whether it is kept.

        One that is larger than `max_bytes` is not. Nothing is left of one that could not be
        written, for instance because the disk is full; that is reported by a warning.
        """
        content = _content(key, adapter, report)
        if len(content) > self.max_bytes:
            return False
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._shrink(self.max_bytes - len(content))
            descriptor, draft = tempfile.mkstemp(suffix=_UNFINISHED, dir=self.folder)
            try:
                with open(descriptor, "wb") as file:
                    file.write(content)
                os.replace(draft, self._path(key))
            except BaseException:
                os.unlink(draft)
                raise
        except OSError as error:
            _warn(f"an adapter could not be written to {self.folder}", error)
            return False
        self.touch(key)
        return True

    def clear(self) -> None:
        """Delete all adapters, and nothing else; what can't be deleted is reported."""
        try:
            self._shrink(0)
        except OSError as error:
            _warn(f"the adapters in {self.folder} could not be deleted", error)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _entries(self) -> list[tuple[int, int, Path]]:
        """Return when each file was used last, its size and its path."""
        entries = []
        for path in self.folder.glob(f"*{_SUFFIX}"):
            with suppress(FileNotFoundError):  # deleted meanwhile
                if _NAME.fullmatch(path.name):
                    about = path.lstat()
                    entries.append((about.st_mtime_ns, about.st_size, path))
        return entries

    def _shrink(self, max_bytes: int) -> None:
        """Delete what was used longest ago until the rest fits, and what was never finished."""
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total <= max_bytes:
                break
            path.unlink(missing_ok=True)
            total -= size
        for draft in self.folder.glob(f"*{_UNFINISHED}"):
            with suppress(FileNotFoundError):
                if time.time() - draft.lstat().st_mtime > ABANDONED_S:
                    draft.unlink()


def _content(key: str, adapter: Adapter, report: FineTuningReport) -> bytes:
    described = json.dumps(
        {
            "format": FORMAT,
            "key": key,
            "layers": [asdict(layer) for layer in adapter.layout.layers],
            "rank": adapter.rank,
            "fan_in_fan_out": adapter.layout.fan_in_fan_out,
            "alpha": adapter.alpha,
            "base_name": adapter.base_name,
            "report": asdict(report),
        }
    )
    values = adapter.values.detach().cpu().contiguous()
    metadata = {"adapter": described, "sha256": _checksum(described, values)}
    return save({"values": values}, metadata)


def _read(path: Path, key: str) -> tuple[Adapter, FineTuningReport]:
    """Return what a file holds.

    Raises:
        OSError: If it cannot be read now.
        ValueError, or another of `_DAMAGE`: If it is damaged.
    """
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        with torch.inference_mode(False):
            values = file.get_tensor("values").clone()
    if metadata["sha256"] != _checksum(metadata["adapter"], values):
        raise ValueError("its checksum is another one")
    described = json.loads(metadata["adapter"])
    if (described["format"], described["key"]) != (FORMAT, key):
        raise ValueError("it is of another key or format")
    if values.dtype != torch.float32:
        raise ValueError(f"its weights are of {values.dtype}")
    layout = AdapterLayout(
        layers=tuple(AdaptedLayer(**layer) for layer in described["layers"]),
        rank=described["rank"],
        fan_in_fan_out=described["fan_in_fan_out"],
    )
    adapter = Adapter(
        layout=layout,
        alpha=as_number("alpha", described["alpha"], above=0),
        values=values,
        key=key,
        base_name=described["base_name"],
    )
    report = FineTuningReport(**described["report"])
    return adapter, replace(report, losses=tuple(report.losses), learned=tuple(report.learned))


def _checksum(described: str, values: torch.Tensor) -> str:
    digest = hashlib.sha256(described.encode())
    content: Any = values.view(torch.uint8).numpy()
    digest.update(content)
    return digest.hexdigest()


def _warn(what: str, why: object) -> None:
    warnings.warn(f"{what}: {why}", AdapterCacheWarning, stacklevel=4)
