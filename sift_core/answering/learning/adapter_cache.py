"""Adapters that were learned before: in memory, then on disk, under a hash of all they came of."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from sift_core.answering.learning.adapter_files import AdapterFiles
from sift_core.answering.learning.fine_tuning import FineTuned, OnStep, fine_tune
from sift_core.answering.learning.settings import FineTuningSettings
from sift_core.answering.model.adapters import Adapter, ModelCopy
from sift_core.answering.model.base_check import digest_of
from sift_core.answering.model.language_model import LanguageModel
from sift_core.checks import as_count
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.types import CandidatePool, FineTuningReport

try:
    from cachetools import LRUCache
except ImportError as error:
    raise MissingDependencyError("cachetools", extra="fine-tune") from error

LEARNING_VERSION = 1  # raise it when the same chunks and settings give another adapter
_KEY = re.compile(r"[0-9a-f]{64}")
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
    if cache is None or settings.kind == "full":
        return fine_tune(language_model, chunks.texts, settings, on_step=on_step)
    key = adapter_key(
        base=language_model.fingerprint if cache.is_on_disk else language_model.identity,
        tokenizer=language_model.tokenizer,
        document_ids=chunks.document_ids,
        texts=chunks.texts,
        settings=settings,
    )
    found = cache.get(key)
    if found is not None:
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

    All settings count but `max_seconds` (an adapter whose learning it cut is never cached, and
    any other is what would have come without it), `chat_request` where no chat is made, and
    whether a learning rate was given or is the default one. `rows_per_pass` and `checkpointing`
    count since they change the last bits. Device, threads and versions of libraries do not.
    Takes about 5 µs a chunk; .1 s the first time a tokenizer of 50,000 tokens is seen.

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
    if settings.chunk_format != "chat":
        del counted["chat_request"]
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

    Several threads may use one cache, and several processes one folder. Nothing is pickled. A
    file that cannot be read or written, a full disk too, is reported by `AdapterCacheWarning`
    and otherwise like an adapter that is not there. `Adapter.save` writes one for PEFT or vLLM.

    Args:
        folder: Where adapters are kept beyond this process, made when it is first needed.
            None: memory alone.
        max_memory_bytes: What is kept in the machine's memory at most, >= 0.
        max_disk_bytes: What is kept on disk at most, >= 0.

    Raises:
        InvalidInputError: If a limit is negative or no whole number.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        max_memory_bytes: int = 1 << 30,  # guess: 28 of GPT-2's size at rank 64, one of 8B's
        max_disk_bytes: int = 10 << 30,  # guess
    ) -> None:
        n_memory = as_count("max_memory_bytes", max_memory_bytes, minimum=0)
        n_disk = as_count("max_disk_bytes", max_disk_bytes, minimum=0)
        self._disk = None if folder is None else AdapterFiles(Path(folder), max_bytes=n_disk)
        self._kept: LRUCache[str, FineTuned] = LRUCache(
            n_memory,
            getsizeof=lambda kept: kept.adapter.n_bytes,  # type: ignore[union-attr]  # no copies
        )
        self._lock = threading.Lock()
        self._made_from = {"max_memory_bytes": n_memory, "max_disk_bytes": n_disk}
        self._folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the folder and the limits; what is kept in memory stays in this process."""
        return partial(type(self), self._folder, **self._made_from), ()

    @property
    def is_on_disk(self) -> bool:
        """Whether adapters are kept beyond this process, and so need the model's fingerprint."""
        return self._disk is not None

    def get(self, key: str) -> FineTuned | None:
        """Return the adapter under a key, or None; `report.source` says where it was found.

        Costs a few microseconds from memory; from disk reading and hashing its file.

        Raises:
            InvalidInputError: If the key is not one of `adapter_key`.
        """
        _check_key(key)
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and self._disk is not None:
            self._disk.touch(key)
        if kept is not None or self._disk is None:
            return kept
        found = self._disk.read(key)
        if found is None:
            return None
        adapter, report = found
        self._keep(key, adapter, report)
        return FineTuned(adapter=adapter, report=replace(report, source="disk"))

    def put(self, key: str, adapter: Adapter | ModelCopy, report: FineTuningReport) -> bool:
        """Keep an adapter, and return whether it is kept anywhere.

        A model's private copy (scope "full") is not, nor what time, a divergence or refused steps
        cut short, nor an adapter above both limits.

        Raises:
            InvalidInputError: If the key is not one of `adapter_key`.
        """
        _check_key(key)
        if isinstance(adapter, ModelCopy) or report.stop_reason != "done" or report.n_refused:
            return False
        keyed = replace(adapter, key=key, values=adapter.values.detach().cpu())
        in_memory = self._keep(key, keyed, report)
        on_disk = self._disk is not None and self._disk.write(key, keyed, report)
        return in_memory or on_disk

    def clear(self) -> None:
        """Drop all adapters, in memory and on disk; other files in the folder stay."""
        with self._lock:
            self._kept.clear()
        if self._disk is not None:
            self._disk.clear()

    def _keep(self, key: str, adapter: Adapter, report: FineTuningReport) -> bool:
        kept = FineTuned(adapter=adapter, report=replace(report, source="memory"))
        with self._lock:
            try:
                self._kept[key] = kept
            except ValueError:  # larger than the cache
                return False
        return True


def _check_key(key: str) -> None:
    """Refuse what might name another file."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise InvalidInputError(
            f"a cache key must be 64 hexadecimal digits in lower case, as `adapter_key` returns, "
            f"got {key!r}"
        )


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
    known = _VOCABULARY_DIGESTS.get(tokenizer)
    if known is not None and known[0] == len(tokenizer):
        return known[1]
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
