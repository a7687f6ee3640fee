"""Keys and values of what prompts begin with: a follow-up question reads only what is new."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sift_core.errors import MissingDependencyError

try:
    import torch
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer
except ImportError as error:
    raise MissingDependencyError("torch and transformers", extra="fine-tune") from error

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
    "past_key_values": (None,),
    "penalty_alpha": (None,),
    "position_ids": (None,),
    "prefill_chunk_size": (None,),
    "prompt_lookup_num_tokens": (None,),
    "use_cache": (None, True),
}
# Rotary embeddings that turn a prompt's first tokens by its length: not the same in a longer one.
_ROPE_BY_LENGTH = ("dynamic", "longrope")


@dataclass(frozen=True, kw_only=True, eq=False)
class Prefix:
    """Tokens that prompts begin with, and the keys and values that a model made of them.

    They belong to the weights that made them. A continuation of a prompt that begins so reads
    the same tokens, but adds up logits in another order: it may differ in the last bits from
    one that is read whole, and a greedy text where two tokens tie within rounding.

    Args:
        ids: The tokens.
        layers: Keys and values of each layer, shape (1, heads, n, width); never written to.
        adapter_key: Of the adapter that was active. The base model has None.
    """

    ids: Sequence[int]
    layers: Sequence[tuple[torch.Tensor, torch.Tensor]]
    adapter_key: Hashable | None

    def cache(
        self,
        model: Any,
        prompt_ids: Sequence[int],
        adapter_key: Hashable | None,
        options: Mapping[str, Any],
    ) -> DynamicCache | None:
        """Return a copy of what is known of a prompt, as far as it begins like this one.

        At least one token is left to read, since a model without input has no next token. None
        where nothing is known: under another adapter, or where `options` of `generate` (beams,
        contrastive search, …) or the model make a prompt's keys depend on more than its tokens.
        """
        n = 0
        for ours, theirs in zip(self.ids, prompt_ids[:-1], strict=False):
            if ours != theirs:
                break
            n += 1
        if not n or adapter_key != self.adapter_key or not _is_plain(model, options):
            return None
        cache = DynamicCache()
        for i, (keys, values) in enumerate(self.layers):
            cache.update(keys[..., :n, :], values[..., :n, :], i)
        return cache


def read_prefix(
    model: Any, trunk: Any, ids: Sequence[int], adapter_key: Hashable | None
) -> Prefix | None:
    """Return what a model makes of the tokens that prompts begin with.

    None where its cache cannot be cut at any token: sliding windows, recurrent states, layers
    that share their keys and values.
    """
    output = trunk(input_ids=torch.tensor([ids], device=model.device), use_cache=True)
    layers = _layers(output.past_key_values, len(ids))
    return Prefix(ids=tuple(ids), layers=layers, adapter_key=adapter_key) if layers else None


def _is_plain(model: Any, options: Mapping[str, Any]) -> bool:
    defaults = model.generation_config
    settings = {name: options.get(name, getattr(defaults, name, None)) for name in _PLAIN}
    if any(settings[name] not in allowed for name, allowed in _PLAIN.items()):
        return False
    config = model.config.get_text_config(decoder=True)
    # Called `rope_parameters` since transformers 5, and there by kind of layer in some models.
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    return not any(f"'{kind}'" in str(rope) for kind in _ROPE_BY_LENGTH)


def _layers(cache: Any, n: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return each layer's keys and values; none if a layer can't be cut at any token."""
    if type(cache) is not DynamicCache or getattr(cache, "offloading", False):
        return []
    layers = []
    for layer in cache.layers:
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if type(layer) is not DynamicLayer or keys is None or values is None:
            return []
        if keys.ndim != 4 or keys.shape[-2] != n or values.shape[:3] != keys.shape[:3]:
            return []
        layers.append((keys, values))
    return layers
