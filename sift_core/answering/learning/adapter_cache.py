"""Adapters that were learned before: in memory, then on disk, under a hash of all they came of."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from sift_core.answering.learning.adapter_folder import AdapterFolder, CachedAdapter, check_key
from sift_core.answering.learning.adapters import Adapter
from sift_core.answering.learning.learners import ModelCopy
from sift_core.answering.learning.settings import FineTuningSettings
from sift_core.answering.model.base_check import digest_of
from sift_core.checks import as_count, check_text
from sift_core.errors import InvalidInputError
from sift_core.types import FineTuningReport

__all__ = ["AdapterCache", "CachedAdapter", "adapter_key"]

LEARNING_VERSION = 1  # raise it when the same chunks and settings give another adapter
_VOCABULARY_DIGESTS: WeakKeyDictionary[Any, tuple[int, str]] = WeakKeyDictionary()


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

    Raises:
        InvalidInputError: If there are more ids than texts or fewer, or one is no text.
    """
    if len(document_ids) != len(texts):
        raise InvalidInputError(
            f"there must be one id a text, got {len(document_ids)} `document_ids` and "
            f"{len(texts)} `texts`"
        )
    for name, given in (("document_ids", document_ids), ("texts", texts)):
        if isinstance(given, str):
            raise InvalidInputError(f"`{name}` must be a sequence of texts, got one text")
        for text in given:
            check_text(name, text)
    counted = asdict(settings)
    del counted["max_seconds"]
    counted["learning_rate"] = settings.step_size
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
    and otherwise like an adapter that is not there.

    Args:
        folder: Where adapters are kept beyond this process, made when it is first needed; each
            in a folder of its own that PEFT and vLLM read (`folder_of`). None: memory alone.
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
        self.max_memory_bytes = as_count("max_memory_bytes", max_memory_bytes, minimum=0)
        max_bytes = as_count("max_disk_bytes", max_disk_bytes, minimum=0)
        self._disk = None if folder is None else AdapterFolder(Path(folder), max_bytes=max_bytes)
        self._kept: OrderedDict[str, CachedAdapter] = OrderedDict()
        self._n_bytes = 0
        self._lock = threading.Lock()

    @property
    def is_on_disk(self) -> bool:
        """Whether adapters are kept beyond this process, and so need the model's fingerprint."""
        return self._disk is not None

    @property
    def n_memory_bytes(self) -> int:
        """Size of the adapters in memory."""
        return self._n_bytes

    @property
    def n_disk_bytes(self) -> int:
        """Size of the adapters on disk; reads the folder."""
        return 0 if self._disk is None else self._disk.n_bytes

    def folder_of(self, key: str) -> Path | None:
        """Return the folder that has an adapter in PEFT's format, None if it is not on disk.

        Its files are checked by `get` and by nothing else, and may be deleted whenever another
        adapter is put into the cache.

        Raises:
            InvalidInputError: If the key is none.
        """
        check_key(key)
        if self._disk is None or not self._disk.has(key):
            return None
        return self._disk.place(key)

    def get(self, key: str) -> CachedAdapter | None:
        """Return the adapter under a key, or None; `report.source` says where it was found.

        Costs a few microseconds from memory; from disk reading and hashing its file.

        Raises:
            InvalidInputError: If the key is not one of `adapter_key`.
        """
        check_key(key)
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
        if self._disk is None or kept is not None:
            if self._disk is not None:
                self._disk.touch(key)
            return kept
        found = self._disk.read(key)
        if found is not None:
            self._keep(key, found.adapter, found.report)
        return found

    def put(self, key: str, adapter: Adapter | ModelCopy, report: FineTuningReport) -> bool:
        """Keep an adapter, and return whether it is kept anywhere.

        A model's private copy (scope "full") is not, nor what time, a divergence or refused steps
        cut short, nor an adapter above both limits. What is under the key on disk already stays.

        Raises:
            InvalidInputError: If the key is not one of `adapter_key`.
        """
        check_key(key)
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
            self._n_bytes = 0
        if self._disk is not None:
            self._disk.clear()

    def _keep(self, key: str, adapter: Adapter, report: FineTuningReport) -> bool:
        if adapter.n_bytes > self.max_memory_bytes:
            return False
        kept = CachedAdapter(adapter=adapter, report=replace(report, source="memory"))
        with self._lock:
            before = self._kept.pop(key, None)
            self._n_bytes -= before.adapter.n_bytes if before else 0
            self._kept[key] = kept
            self._n_bytes += adapter.n_bytes
            while self._n_bytes > self.max_memory_bytes:
                _, dropped = self._kept.popitem(last=False)
                self._n_bytes -= dropped.adapter.n_bytes
        return True


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
