"""Adapters that were learned before: in memory, then on disk, under a hash of all they came of."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from sift_core.answering.fine_tuning import FineTuned, OnStep, fine_tune
from sift_core.answering.model.adapters import AdaptedLayer, Adapter, AdapterLayout
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.model.weights_fingerprint import digest_of
from sift_core.answering.report import FineTuningReport
from sift_core.answering.settings import FineTuningSettings
from sift_core.checks import as_count, as_number, check_flag, check_text
from sift_core.errors import AdapterCacheWarning, InvalidInputError, MissingDependencyError
from sift_core.files import DAMAGE, UNFINISHED, write_whole
from sift_core.types import CandidatePool

try:
    import torch
    from cachetools import LRUCache
    from safetensors import SafetensorError
    from safetensors.torch import load, save
except ImportError as error:
    raise MissingDependencyError("torch, safetensors and cachetools", extra="fine-tune") from error

LEARNING_VERSION = 1  # raise it when the same chunks and settings give another adapter
FORMAT, _SUFFIX = "sift adapter 3", ".safetensors"  # of a file
ABANDONED_S = 3600.0  # guess: no adapter takes so long to write; its process was killed
_KEY = re.compile(r"[0-9a-f]{64}")
# Raised for a file that is cut, altered, or of another form.
_DAMAGE = (*DAMAGE, RuntimeError, SafetensorError)
_VOCABULARY_DIGESTS: WeakKeyDictionary[Any, tuple[int, str]] = WeakKeyDictionary()


def fine_tune_cached(
    language_model: LanguageModel,
    chunks: CandidatePool,
    settings: FineTuningSettings,
    cache: AdapterCache | None,
    *,
    on_step: OnStep | None = None,
) -> FineTuned:
    """Return what the model learns from the chunks, in order, or learned from them before.

    Costs a forward and backward pass a chunk, repeats counted. The model is as before.
    Arguments and errors are those of `fine_tune`.
    """
    if cache is None:
        return fine_tune(language_model, chunks.texts, settings, on_step=on_step)
    key = adapter_key(
        base=language_model.fingerprint if cache.is_on_disk else language_model.identity,
        tokenizer=language_model.tokenizer,
        document_ids=chunks.document_ids,
        texts=chunks.texts,
        settings=settings,
    )
    found = cache.get(key)
    if found is not None and max(found.report.learned, default=-1) < len(chunks):
        return found
    tuned = fine_tune(language_model, chunks.texts, settings, on_step=on_step, key=key)
    cache.put(key, tuned.adapter, tuned.report)
    return tuned


def adapter_key(
    *,
    base: str,
    tokenizer: Any,
    document_ids: Sequence[str],
    texts: Sequence[str],
    settings: FineTuningSettings,
) -> str:
    """Return a hash, 64 hexadecimal digits, of everything that an adapter is made from.

    All settings count but `max_seconds`, whose cuts are never cached. `checkpointing` counts since
    it may change the last bits. Device, threads and versions of libraries do not. Takes about 5 µs
    a chunk, and 0.1 s the first time a tokenizer of 50,000 tokens is seen.

    Args:
        base: `fingerprint` of the model.
        tokenizer: The model's. If its rules, not its vocabulary, are changed after the first
            call, that goes unnoticed.
        document_ids: Of the chunks, in order of choice.
        texts: The chunks.
        settings: How they are learned from.
    """
    counted = settings.as_record()
    del counted["max_seconds"]
    return digest_of(
        [
            f"sift adapter {LEARNING_VERSION}",
            base,
            _tokenizer_digest(tokenizer),
            json.dumps(counted, sort_keys=True),
            *(part for chunk in zip(document_ids, texts, strict=True) for part in chunk),
        ]
    )


class AdapterCache:
    """Adapters by key, the least recently used dropped first.

    Several threads may use one cache, and several processes one folder: a reader sees a whole file
    or none. Each file holds a checksum, and nothing is pickled. A file that cannot be read or
    written is reported by `AdapterCacheWarning` and counts as absent. A damaged file is deleted.
    `Adapter.save` writes an adapter for PEFT or vLLM.

    Args:
        folder: Where adapters are kept beyond this process. It is made, for its owner alone, when
            it is first needed. Other files there are left alone. Default: memory alone.
        max_memory_bytes: Limit for what is kept in memory, >= 0. Default: 1 GiB.
        max_disk_bytes: Limit for what is kept on disk, >= 0. Default: 10 GiB.

    Raises:
        InvalidInputError: If a limit is negative or no whole number.

    Example:
        >>> from dataclasses import replace
        >>> learning = LearningOptions(n_steps=1, cache=AdapterCache(folder / "adapters"))
        >>> learner = replace(engine, learning=learning)
        >>> first = learner.answer("When does the ferry sail?", mode="fine_tune")
        >>> learner.answer("When does the ferry sail?", mode="fine_tune").fine_tuning.source
        'memory'
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        max_memory_bytes: int = 1 << 30,  # guess: 28 of GPT-2's size at rank 64, one of 8B's
        max_disk_bytes: int = 10 << 30,  # guess
    ) -> None:
        self._max_disk_bytes = as_count("max_disk_bytes", max_disk_bytes, minimum=0)
        self._kept: LRUCache[str, FineTuned] = LRUCache(
            as_count("max_memory_bytes", max_memory_bytes, minimum=0),
            getsizeof=lambda kept: kept.adapter.n_bytes,
        )
        self._lock = threading.Lock()
        self._folder = None if folder is None else Path(folder)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the folder and the limits; what is kept in memory stays in this process."""
        n_memory, n_disk = int(self._kept.maxsize), self._max_disk_bytes
        limits = {"max_memory_bytes": n_memory, "max_disk_bytes": n_disk}
        return partial(type(self), self._folder, **limits), ()

    @property
    def is_on_disk(self) -> bool:
        """Whether adapters are kept beyond this process, and so need the model's fingerprint."""
        return self._folder is not None

    def get(self, key: str) -> FineTuned | None:
        """Return the adapter under a key, or None; `report.source` says where it was found.

        Costs a few microseconds from memory; from disk reading and hashing its file.

        Raises:
            InvalidInputError: If the key is not one of `adapter_key`.
        """
        _check_key(key)
        with self._lock:
            kept = self._kept.get(key)
        if self._folder is None:
            return kept
        path = self._folder / f"{key}{_SUFFIX}"
        if kept is not None:
            _touch(path)
            return kept
        found = _read_file(path, key)
        if found is None:
            return None
        self._keep(key, *found)
        adapter, report = found
        return FineTuned(adapter=adapter, report=replace(report, source="disk"))

    def put(self, key: str, adapter: Adapter, report: FineTuningReport) -> bool:
        """Keep an adapter, and return whether it is kept anywhere.

        What time, a divergence or refused steps cut short is not, nor an adapter above both limits.

        Raises:
            InvalidInputError: If the key is not one of `adapter_key`.
        """
        _check_key(key)
        if report.stop_reason != "done" or report.n_refused:
            return False
        keyed = replace(adapter, key=key, values=adapter.values.detach().cpu())
        in_memory = self._keep(key, keyed, report)
        if self._folder is None:
            return in_memory
        content = _content(key, keyed, report)
        if len(content) > self._max_disk_bytes:
            return in_memory
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _shrink(self._folder, self._max_disk_bytes - len(content))
            path = self._folder / f"{key}{_SUFFIX}"
            write_whole(path, content, mode=0o600)
        except OSError as error:
            _warn(f"an adapter could not be written to {self._folder}", error, stacklevel=3)
            return in_memory
        _touch(path)
        return True

    def clear(self) -> None:
        """Drop all adapters, in memory and on disk; other files in the folder stay."""
        with self._lock:
            self._kept.clear()
        if self._folder is not None:
            try:
                _shrink(self._folder, 0)
            except OSError as error:
                what = f"the adapters in {self._folder} could not be deleted"
                _warn(what, error, stacklevel=3)

    def _keep(self, key: str, adapter: Adapter, report: FineTuningReport) -> bool:
        kept = FineTuned(adapter=adapter, report=replace(report, source="memory"))
        with self._lock:
            try:
                self._kept[key] = kept
            except ValueError:  # larger than the cache
                return False
        return True


def _touch(path: Path) -> None:
    """Note that an adapter was used now."""
    now = time.time_ns()  # finer than the clock that files get their times from
    with suppress(OSError):
        os.utime(path, ns=(now, now))


def _shrink(folder: Path, max_bytes: int) -> None:
    """Delete what was used longest ago until the rest fits, and what was never finished."""
    entries = []
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(FileNotFoundError):  # deleted meanwhile
            if _KEY.fullmatch(path.stem):
                about = path.lstat()
                entries.append((about.st_mtime_ns, about.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= max_bytes:
            break
        path.unlink(missing_ok=True)
        total -= size
    for draft in folder.glob(f"*{UNFINISHED}"):
        with suppress(FileNotFoundError):
            if time.time() - draft.lstat().st_mtime > ABANDONED_S:
                draft.unlink()


def _read_file(path: Path, key: str) -> tuple[Adapter, FineTuningReport] | None:
    """Return an adapter on the CPU and how it learned; None if there is none of use."""
    try:
        found = _read(path.read_bytes(), key)
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
    _touch(path)
    return found


def _content(key: str, adapter: Adapter, report: FineTuningReport) -> bytes:
    described = json.dumps(
        {
            "format": FORMAT,
            "key": key,
            **asdict(adapter.layout),
            "alpha": adapter.alpha,
            "base_name": adapter.base_name,
            "report": asdict(report),
        }
    )
    values = adapter.values.detach().cpu().contiguous()
    metadata = {"adapter": described, "sha256": _checksum(described, values)}
    return save({"values": values}, metadata)


def _read(content: bytes, key: str) -> tuple[Adapter, FineTuningReport]:
    """Return the adapter in a file of safetensors; raises one of `_DAMAGE`.

    `safe_open` opens a file twice, and another process may delete it between.
    """
    with torch.inference_mode(False):
        values = load(content)["values"].clone()
    end = 8 + int.from_bytes(content[:8], "little")  # the format: a length, then a header of JSON
    metadata = json.loads(content[8:end])["__metadata__"]
    if metadata["sha256"] != _checksum(metadata["adapter"], values):
        raise ValueError("its checksum is another one")
    described = json.loads(metadata["adapter"])
    if (described["format"], described["key"]) != (FORMAT, key):
        raise ValueError("it is of another key or format")
    if values.dtype != torch.float32 or not bool(values.isfinite().all()):
        raise ValueError(f"its weights are no finite numbers of float32, but of {values.dtype}")
    check_text("base_name", described["base_name"])
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
    return adapter, _report(described["report"])


def _report(described: dict[str, Any]) -> FineTuningReport:
    """Return the report of a learning that took all of its steps; raises `ValueError` if not."""
    report = FineTuningReport(**described)
    if report.stop_reason != "done" or report.n_refused:
        raise ValueError("its learning was cut short")
    check_flag("checkpointing", report.checkpointing)
    return replace(
        report,
        n_steps=as_count("n_steps", report.n_steps, minimum=0),
        n_skipped=as_count("n_skipped", report.n_skipped, minimum=0),
        losses=tuple(as_number("losses", loss) for loss in report.losses),
        learned=tuple(as_count("learned", row, minimum=0) for row in report.learned),
    )


def _checksum(described: str, values: torch.Tensor) -> str:
    content: Any = values.view(torch.uint8).numpy()
    digest = hashlib.sha256(described.encode())
    digest.update(content)
    return digest.hexdigest()


def _warn(what: str, why: object, *, stacklevel: int = 4) -> None:
    warnings.warn(f"{what}: {why}", AdapterCacheWarning, stacklevel=stacklevel)


def _check_key(key: str) -> None:
    """Refuse what might name another file."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise InvalidInputError(f"a cache key must be 64 hexadecimal digits, got {key!r}")


def _tokenizer_digest(tokenizer: Any) -> str:
    """Return a hash of what turns a text into the tokens that are learned from."""
    return digest_of(
        [
            type(tokenizer).__qualname__,
            _vocabulary_digest(tokenizer),
            json.dumps(tokenizer.special_tokens_map, sort_keys=True, default=str),
            json.dumps(tokenizer.chat_template, sort_keys=True, default=str),
            str(tokenizer.model_max_length),  # where a long chunk is split
        ]
    )


def _vocabulary_digest(tokenizer: Any) -> str:
    """Return a hash of vocabulary and rules, kept, since writing them out takes long."""
    cached = _VOCABULARY_DIGESTS.get(tokenizer)
    if cached is not None and cached[0] == len(tokenizer):
        return cached[1]
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        rules = json.loads(backend.to_str())
        for name in ("truncation", "padding"):  # of the last call
            rules.pop(name, None)
    else:
        rules = [tokenizer.get_vocab(), tokenizer.init_kwargs]
    digest = digest_of([json.dumps(rules, sort_keys=True, default=str)])
    _VOCABULARY_DIGESTS[tokenizer] = (len(tokenizer), digest)
    return digest
