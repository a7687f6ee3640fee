"""Keys and values of prompts' beginnings, so that a follow-up question reads only what is new."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sift_core.checks import as_count
from sift_core.errors import MissingDependencyError

try:
    import torch
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer
except ImportError as error:
    raise MissingDependencyError("torch and transformers", extra="fine-tune") from error

Ids: TypeAlias = npt.NDArray[np.int64]

# Options of `generate` under which a prompt's keys and values are not one row of `DynamicCache`,
# or come from elsewhere; with the values under which they are.
_PLAIN: Mapping[str, tuple[Any, ...]] = {
    "assistant_model": (None,),
    "cache_implementation": (None,),
    "custom_generate": (None,),
    "dola_layers": (None,),
    "generation_config": (None,),
    "guidance_scale": (None, 1, 1.0),
    "inputs_embeds": (None,),
    "num_beams": (None, 1),
    "num_return_sequences": (None, 1),
    "past_key_values": (None,),
    "penalty_alpha": (None,),
    "position_ids": (None,),
    "prefill_chunk_size": (None,),
    "prompt_lookup_num_tokens": (None,),
    "return_dict_in_generate": (None, False),
    "use_cache": (None, True),
}
# Rotary embeddings that turn a prompt's first tokens by its length: not the same in a longer one.
_ROPE_BY_LENGTH = ("dynamic", "longrope")


@dataclass(frozen=True, kw_only=True)
class _Prefix:
    """Keys and values of each layer, shape (1, heads, tokens, width), for the tokens `ids`."""

    ids: Ids
    layers: Sequence[tuple[torch.Tensor, torch.Tensor]]

    @property
    def n_bytes(self) -> int:
        tensors = [tensor for layer in self.layers for tensor in layer]
        return self.ids.nbytes + sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class PrefixCache:
    """Keys and values of the prompts that one model read lately, the least recent dropped first.

    They belong to the weights that made them: each adapter has its own, found under its key,
    and never another's. So a key names the same weights for as long as the cache lives; one
    cache serves one model. The tensors stay on the model's device. Several threads may use it.

    Args:
        max_bytes: What is kept at most, >= 0; a prompt larger than that is not kept.

    Raises:
        InvalidInputError: If `max_bytes` is negative or no whole number.
    """

    def __init__(self, *, max_bytes: int = 1 << 28) -> None:
        self.max_bytes = as_count("max_bytes", max_bytes, minimum=0)
        self._kept: OrderedDict[tuple[Hashable, bytes], _Prefix] = OrderedDict()
        self._n_bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many prompts are kept."""
        return len(self._kept)

    @property
    def n_bytes(self) -> int:
        """Size of what is kept."""
        return self._n_bytes

    def longest(
        self, adapter_key: Hashable | None, ids: Sequence[int]
    ) -> tuple[DynamicCache | None, int]:
        """Return a copy of what is kept of the longest known beginning of `ids`, and its length.

        At least one token is left to read, since a model without input has no next token;
        None and 0 if there is nothing. A kept prompt that only begins like `ids` counts as far
        as it does. Takes time in the number of prompts kept and in the bytes copied.

        Args:
            adapter_key: The adapter in force; None for the base model.
            ids: Tokens of a prompt.
        """
        wanted = np.asarray(ids, dtype=np.int64)[: max(0, len(ids) - 1)]
        with self._lock:
            best, n_best = None, 0
            for key, kept in self._kept.items():
                n_common = _n_common(kept.ids, wanted) if key[0] == adapter_key else 0
                if n_common > n_best:
                    best, n_best = key, n_common
            if best is None:
                return None, 0
            self._kept.move_to_end(best)
            layers = self._kept[best].layers  # never written to: copied outside of the lock
        cache = DynamicCache()
        for i, (keys, values) in enumerate(layers):
            cache.update(keys[..., :n_best, :], values[..., :n_best, :], i)
        return cache, n_best

    def put(self, adapter_key: Hashable | None, ids: Sequence[int], cache: Any) -> bool:
        """Keep a copy of a cache's beginning; return whether it is kept.

        Not kept is what can't be cut at any token: sliding windows, recurrent states, layers
        that share theirs, quantised, static or several rows' caches.

        Args:
            adapter_key: The adapter that was in force; None for the base model.
            ids: The tokens that were read, as many as are to be kept at most.
            cache: `past_key_values` after they were, or after more.
        """
        layers = _layers(cache)
        n_read = min((keys.shape[-2] for keys, _ in layers), default=0)
        read = np.array(ids[:n_read], dtype=np.int64)
        n_kept = len(read)
        if not n_kept:
            return False
        parts = [
            (keys[..., :n_kept, :].detach().clone(), values[..., :n_kept, :].detach().clone())
            for keys, values in layers
        ]
        prefix = _Prefix(ids=read, layers=parts)
        if prefix.n_bytes > self.max_bytes:
            return False
        with self._lock:
            for key, kept in list(self._kept.items()):
                if key[0] != adapter_key:
                    continue
                n_common = _n_common(kept.ids, read)
                if n_common == n_kept:  # is kept already, perhaps as a longer one's beginning
                    self._kept.move_to_end(key)
                    return True
                if n_common == len(kept.ids):
                    self._drop(key)
            self._kept[adapter_key, read.tobytes()] = prefix
            self._n_bytes += prefix.n_bytes
            while self._n_bytes > self.max_bytes:
                self._drop(next(iter(self._kept)))
        return True

    def forget(self, adapter_key: Hashable | None) -> None:
        """Drop what was made under an adapter (None: under the base model)."""
        with self._lock:
            for key in [key for key in self._kept if key[0] == adapter_key]:
                self._drop(key)

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._kept.clear()
            self._n_bytes = 0

    def _drop(self, key: tuple[Hashable, bytes]) -> None:
        self._n_bytes -= self._kept.pop(key).n_bytes


def generate_with_prefix(
    model: Any,
    inputs: torch.Tensor,
    cache: PrefixCache | None,
    adapter_key: Hashable | None,
    *,
    keep: bool = True,
    **options: Any,
) -> torch.Tensor:
    """Return `model.generate(inputs, **options)`, without reading again what `cache` knows.

    Afterwards `cache` knows this prompt and its continuation, but for the last token. Beams,
    several rows, masked tokens, contrastive search and the like go past the cache, and so do
    models whose keys depend on the prompt's length. What a listener or an error cuts off is
    not kept.

    Exact: which tokens were read, hence what a greedy continuation is unless two tokens tie
    within rounding. Not exact: the last bits of logits, since a prompt read in two parts is
    added up in another order. So an answer may differ in bits from the one that a fresh cache
    gives, and sampling with one seed may; without a cache, or with an empty one, nothing does.

    Args:
        model: A causal LM of transformers, held by the caller, with the adapter in force.
        inputs: The prompt's tokens, shape (1, n).
        cache: This model's; None to read everything.
        adapter_key: Names the weights that are in force; None for the base model.
        keep: Whether `cache` is to know this prompt afterwards. If not, an answer depends on what
            was put there on purpose alone, and not on what was asked before.
        **options: Of `generate`, the attention mask among them.

    Returns:
        Prompt and continuation, shape (1, n + new).
    """
    if cache is None or len(inputs) != 1 or not _is_plain(model, options):
        output: torch.Tensor = model.generate(inputs, **options)
        return output
    past, _ = cache.longest(adapter_key, inputs[0].tolist())
    options = {**options, "return_dict_in_generate": True}
    if past is not None:
        options["past_key_values"] = past
    written = model.generate(inputs, **options)
    output = written.sequences
    if keep:
        cache.put(adapter_key, output[0].tolist(), written.past_key_values)
    return output


def _is_plain(model: Any, options: Mapping[str, Any]) -> bool:
    defaults = model.generation_config
    settings = {name: options.get(name, getattr(defaults, name, None)) for name in _PLAIN}
    if any(settings[name] not in allowed for name, allowed in _PLAIN.items()):
        return False
    mask = options.get("attention_mask")
    if mask is not None and not bool(mask.all()):
        return False
    config = model.config.get_text_config(decoder=True)
    # Called `rope_parameters` since transformers 5, and there by kind of layer in some models.
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    return not any(f"'{kind}'" in str(rope) for kind in _ROPE_BY_LENGTH)


def _layers(cache: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return each layer's keys and values; none if a layer can't be cut at any token."""
    if type(cache) is not DynamicCache or getattr(cache, "offloading", False):
        return []
    layers = []
    for layer in cache.layers:
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if type(layer) is not DynamicLayer or keys is None or values is None:
            return []
        if keys.ndim != 4 or len(keys) != 1 or values.shape[:3] != keys.shape[:3]:
            return []
        layers.append((keys, values))
    return layers


def _n_common(first: Ids, second: Ids) -> int:
    """Return with how many tokens both begin."""
    n = min(len(first), len(second))
    differ = np.flatnonzero(first[:n] != second[:n])
    return int(differ[0]) if len(differ) else n
