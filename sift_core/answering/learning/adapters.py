"""The weights of a LoRA, in PEFT's format on disk: what one query has learned."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sift_core.errors import InvalidInputError, MissingDependencyError

try:
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file, save_file
except ImportError as error:
    raise MissingDependencyError("torch and safetensors", extra="fine-tune") from error

_PREFIX = "base_model.model."  # what PEFT puts before the names of the model's own modules
WEIGHTS_NAME = "adapter_model.safetensors"
CONFIG_NAME = "adapter_config.json"
_NOT_PLAIN = (
    "use_dora",
    "use_rslora",
    "rank_pattern",
    "alpha_pattern",
    "modules_to_save",
    "alora_invocation_tokens",
)

# Ways to begin that subtract from the base's weights, which are what they were here.
_CHANGE_THE_BASE = ("pissa", "olora", "corda", "loftq")


@dataclass(frozen=True, kw_only=True)
class AdaptedLayer:
    """One linear layer that a LoRA adds to: its dotted name in the model, and its widths."""

    name: str
    n_in: int
    n_out: int


@dataclass(frozen=True, kw_only=True)
class AdapterLayout:
    """Which layers a LoRA adds to, and where their matrices lie in one flat tensor.

    Layer after layer: A, shape (rank, n_in), then B, shape (n_out, rank).

    Args:
        layers: In the order of the model's modules.
        rank: Of every update.
        fan_in_fan_out: Whether the model's weights are transposed (GPT-2's Conv1D).
    """

    layers: tuple[AdaptedLayer, ...]
    rank: int
    fan_in_fan_out: bool = False

    @cached_property
    def n_values(self) -> int:
        """Return the number of weights."""
        return sum(self.rank * (layer.n_in + layer.n_out) for layer in self.layers)

    def pairs(self, values: torch.Tensor) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Return (A, B) by layer as views of `values`, shape (n_values,)."""
        pairs = {}
        start = 0
        for layer in self.layers:
            middle = start + self.rank * layer.n_in
            end = middle + self.rank * layer.n_out
            a = values[start:middle].view(self.rank, layer.n_in)
            b = values[middle:end].view(layer.n_out, self.rank)
            pairs[layer.name] = (a, b)
            start = end
        return pairs

    def initial(self, seed: int) -> torch.Tensor:
        """Return a fresh adapter's weights, shape (n_values,): A as PEFT draws it, B zero."""
        generator = torch.Generator().manual_seed(seed)
        values = torch.zeros(self.n_values)
        for a, _ in self.pairs(values).values():
            torch.nn.init.kaiming_uniform_(a, a=math.sqrt(5), generator=generator)
        return values


@dataclass(frozen=True, kw_only=True, eq=False)
class Adapter:
    """A LoRA for one model, in float32. It is never written to once it is made.

    Args:
        layout: Which layers it adds to.
        alpha: Output scaling; the update is multiplied by alpha / rank.
        values: All weights, shape (n_values,), float32.
        key: Tells it from every other adapter of the model; "" for one that has no cache.
        base_name: The model's name on the hub, for readers of the saved files; "" if unknown.
    """

    layout: AdapterLayout
    alpha: float
    values: torch.Tensor
    key: str = ""
    base_name: str = ""

    def __post_init__(self) -> None:
        if self.values.shape != (self.layout.n_values,):
            raise InvalidInputError(
                f"`values` must have the shape ({self.layout.n_values},) of its layout, got "
                f"{tuple(self.values.shape)}"
            )

    @property
    def rank(self) -> int:
        """Return the rank of every update."""
        return self.layout.rank

    @property
    def scale(self) -> float:
        """Return what the update is multiplied by."""
        return self.alpha / self.layout.rank

    @property
    def n_bytes(self) -> int:
        """Return the memory of the weights."""
        return self.values.numel() * self.values.element_size()

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the weights on the CPU by the names that PEFT gives them."""
        named = {}
        for name, (a, b) in self.layout.pairs(self.values.detach().cpu()).items():
            named[f"{_PREFIX}{name}.lora_A.weight"] = a.contiguous()
            named[f"{_PREFIX}{name}.lora_B.weight"] = b.contiguous()
        return named

    def peft_config(self) -> dict[str, Any]:
        """Return the content of PEFT's adapter_config.json."""
        return {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": self.base_name or None,
            "r": self.layout.rank,
            "lora_alpha": int(self.alpha) if self.alpha == int(self.alpha) else self.alpha,
            "lora_dropout": 0.0,
            "bias": "none",
            "fan_in_fan_out": self.layout.fan_in_fan_out,
            "inference_mode": True,
            "target_modules": [layer.name for layer in self.layout.layers],  # whole names: exact
        }

    def save(self, folder: str | Path) -> None:
        """Write the adapter as PEFT does; `PeftModel.from_pretrained` and vLLM read it.

        Args:
            folder: Made where it is missing. Its two files are replaced.

        Raises:
            OSError: If it cannot be written to, for instance because the disk is full.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        config = json.dumps(self.peft_config(), indent=2) + "\n"
        try:
            save_file(self.tensors(), place / WEIGHTS_NAME, metadata={"format": "pt"})
        except SafetensorError as error:  # what safetensors makes of a full disk
            raise OSError(f"{WEIGHTS_NAME} could not be written: {error}") from error
        (place / CONFIG_NAME).write_text(config, encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path, *, key: str = "") -> Adapter:
        """Return the adapter that `save`, or PEFT, wrote: a plain LoRA on linear layers.

        Raises:
            InvalidInputError: If there is none, or it is of a kind that is not served here.
        """
        place = Path(folder)
        try:
            config = json.loads((place / CONFIG_NAME).read_text(encoding="utf-8"))
            tensors = load_file(place / WEIGHTS_NAME)
            if not isinstance(config, dict):
                raise ValueError(f"{CONFIG_NAME} holds a {type(config).__name__}, no object")
        except (OSError, ValueError, SafetensorError) as error:
            raise InvalidInputError(
                f"no adapter could be read from {place.name!r}: {error}; pass a folder with "
                f"{CONFIG_NAME} and {WEIGHTS_NAME}"
            ) from error
        return cls.from_tensors(tensors, config, key=key)

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any], *, key: str = ""
    ) -> Adapter:
        """Return the adapter of weights and configuration in PEFT's form.

        Raises:
            InvalidInputError: If it is not a plain LoRA, or weights are missing or misshapen.
        """
        rank = config.get("r")
        if config.get("peft_type") != "LORA" or not isinstance(rank, int) or rank < 1:
            raise InvalidInputError(
                f"the adapter must be a LoRA of rank >= 1, got {config.get('peft_type')!r} of "
                f"rank {rank!r}"
            )
        alpha = config.get("lora_alpha")
        if (
            isinstance(alpha, bool)
            or not isinstance(alpha, int | float)
            or not 0 < alpha < math.inf
        ):
            raise InvalidInputError(f"the adapter's `lora_alpha` must be > 0, got {alpha!r}")
        odd = [name for name in _NOT_PLAIN if config.get(name)]
        if str(config.get("init_lora_weights")).lower().startswith(_CHANGE_THE_BASE):
            odd.append(f"init_lora_weights={config['init_lora_weights']!r}")
        if odd or config.get("bias", "none") != "none":
            raise InvalidInputError(
                f"the adapter must be a plain LoRA, got one with {', '.join(odd) or 'biases'}"
            )
        names = [
            name[len(_PREFIX) : -len(".lora_A.weight")]
            for name in tensors
            if name.startswith(_PREFIX) and name.endswith(".lora_A.weight")
        ]
        pieces, layers = [], []
        for name in names:
            a = tensors[f"{_PREFIX}{name}.lora_A.weight"]
            b = tensors.get(f"{_PREFIX}{name}.lora_B.weight")
            if b is None or a.dim() != 2 or b.dim() != 2 or not a.shape[0] == b.shape[1] == rank:
                raise InvalidInputError(f"the adapter's weights for {name!r} are incomplete")
            layers.append(AdaptedLayer(name=name, n_in=a.shape[1], n_out=b.shape[0]))
            pieces += [a.flatten().float(), b.flatten().float()]
        if not names or len(tensors) != 2 * len(names):
            raise InvalidInputError(
                f"the adapter must have an A and a B for each layer and nothing else, got "
                f"{len(tensors)} tensors for {len(names)} layers"
            )
        values = torch.cat(pieces)
        if not torch.isfinite(values).all():
            raise InvalidInputError("the adapter's weights must be finite; make it again")
        layout = AdapterLayout(
            layers=tuple(layers), rank=rank, fan_in_fan_out=bool(config.get("fan_in_fan_out"))
        )
        return cls(
            layout=layout,
            alpha=float(alpha),
            values=values,
            key=key,
            base_name=config.get("base_model_name_or_path") or "",
        )
