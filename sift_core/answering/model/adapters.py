"""An adapter: the weights of a LoRA that one query has learned, in PEFT's format on disk.

PEFT itself is imported where it is needed, since that takes seconds.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sift_core.checks import as_number, short_repr
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.files import write_whole

try:
    import torch
    from safetensors.torch import load_file, save
except ImportError as error:
    raise MissingDependencyError("torch and safetensors", extra="fine-tune") from error

PREFIX = "base_model.model."  # what PEFT puts before the names of the model's own modules
WEIGHTS_NAME = "adapter_model.safetensors"
CONFIG_NAME = "adapter_config.json"
# What to do with an adapter that is more than a LoRA, for instance with embeddings of new tokens.
MERGE = "pass its folder as the model, so that PEFT adds it to its base"
_A, _B = ".lora_A.weight", ".lora_B.weight"

_HONOURED = {
    *("r", "lora_alpha", "use_rslora"),
    *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
}
# What names a model or a layout, and changes no number here.
_DESCRIBING = {
    *("peft_type", "task_type", "auto_mapping", "peft_version", "inference_mode", "revision"),
    *("base_model_name_or_path", "fan_in_fan_out", "runtime_config"),
}
# What has an effect on how an adapter learns, and none once it has learned.
_OF_LEARNING = {"lora_dropout", "init_lora_weights", "eva_config", "lora_ga_config"}
# Ways to begin that subtract from the base's weights, which are what they were here.
_CHANGE_THE_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Adapter:
    """A LoRA for one model, in float32. It is never written to once it is made.

    Args:
        layout: Which layers it adds to.
        alpha: Output scaling; the update is multiplied by alpha / rank.
        values: All weights, shape (n_values,), float32.
        key: Tells it from every other adapter of the model; "" for one that has no cache.
        base_name: The model's name on the hub, for readers of the saved files; "" if unknown.

    Example:
        >>> adapter = fine_tune(language_model, ["The ferry sails at nine."]).adapter
        >>> adapter.save(folder / "adapter")
        >>> Adapter.load(folder / "adapter").rank
        64
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

    def arranged(self, layout: AdapterLayout) -> torch.Tensor:
        """Return a copy of the weights in the order of another layout of the same layers.

        Files have the layers in the order of their names.

        Raises:
            InvalidInputError: If the layers, their widths or the rank are other ones.
        """
        if set(layout.layers) != set(self.layout.layers) or layout.rank != self.rank:
            raise InvalidInputError(
                f"an adapter of rank {self.rank} on {len(self.layout.layers)} layers cannot stand "
                f"for one of rank {layout.rank} on {len(layout.layers)} layers"
            )
        values = self.values.new_empty(layout.n_values)
        own = self.layout.pairs(self.values)
        for name, (a, b) in layout.pairs(values).items():
            a.copy_(own[name][0])
            b.copy_(own[name][1])
        return values

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the weights on the CPU by the names that PEFT gives them."""
        named = {}
        for name, (a, b) in self.layout.pairs(self.values.detach().cpu()).items():
            named[f"{PREFIX}{name}{_A}"] = a.contiguous()
            named[f"{PREFIX}{name}{_B}"] = b.contiguous()
        return named

    def save(self, folder: str | Path) -> None:
        """Write the adapter as PEFT does; `PeftModel.from_pretrained` and vLLM read it.

        The configuration is PEFT's own `LoraConfig.save_pretrained`. The weights are not taken
        by `get_peft_model_state_dict`, which wants them in a model's modules, where ours never
        are; the file is the same.

        Args:
            folder: Made where it is missing. Its two files are replaced, each as a whole.

        Raises:
            OSError: If it cannot be written to, for instance because the disk is full.
        """
        from peft import LoraConfig

        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        # PEFT says int, and takes and keeps any number.
        alpha: Any = int(self.alpha) if self.alpha == int(self.alpha) else self.alpha
        config = LoraConfig(
            task_type="CAUSAL_LM",
            base_model_name_or_path=self.base_name or None,
            r=self.rank,
            lora_alpha=alpha,
            target_modules=[layer.name for layer in self.layout.layers],  # whole names: exact
            fan_in_fan_out=self.layout.fan_in_fan_out,
            inference_mode=True,
        )
        with TemporaryDirectory(dir=place) as draft:
            config.save_pretrained(draft)
            described = Path(draft, CONFIG_NAME).read_bytes()
        write_whole(place / WEIGHTS_NAME, save(self.tensors(), metadata={"format": "pt"}))
        write_whole(place / CONFIG_NAME, described)

    @classmethod
    def load(cls, folder: str | Path, *, key: str = "") -> Adapter:
        """Return the adapter that `save`, or PEFT, wrote: a plain LoRA on linear layers.

        The configuration is read by PEFT's `PeftConfig.from_pretrained`, the weights from
        safetensors alone: `peft.load_peft_weights` would also read a pickle.

        Raises:
            InvalidInputError: If there is none, it is of a kind that is not served here, or
                weights are missing or misshapen.
        """
        from peft import PeftConfig

        place = Path(folder)
        try:
            if not (place / CONFIG_NAME).is_file():  # or PEFT would look on the hub
                raise FileNotFoundError(f"{CONFIG_NAME} is missing")
            config = PeftConfig.from_pretrained(str(place))
            tensors = load_file(place / WEIGHTS_NAME)
        except Exception as error:  # what PEFT makes of a damaged file may be anything
            raise InvalidInputError(
                f"no adapter could be read from {place.name!r}: {error}; pass a folder with "
                f"{CONFIG_NAME} and {WEIGHTS_NAME}"
            ) from error
        check_plain(config, has_learned=True)
        return cls(
            layout=_layout(tensors, config.r, fan_in_fan_out=bool(config.fan_in_fan_out)),
            alpha=alpha_of(config),
            values=torch.cat([tensors[name].flatten().float() for name in _in_order(tensors)]),
            key=key,
            base_name=config.base_model_name_or_path or "",
        )


def _in_order(tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """Return the names of all weights as they follow each other in one flat tensor."""
    names = [name.removesuffix(_A) for name in tensors if name.endswith(_A)]
    return [name + half for name in names for half in (_A, _B)]


def _layout(
    tensors: Mapping[str, torch.Tensor], rank: int, *, fan_in_fan_out: bool
) -> AdapterLayout:
    """Return the layout of weights by PEFT's names.

    Raises:
        InvalidInputError: If they are not an A and a B for each layer, of this rank and finite.
    """
    layers = []
    for name in _in_order(tensors)[::2]:
        name = name.removesuffix(_A)
        a, b = tensors[name + _A], tensors.get(name + _B)
        if b is None or a.dim() != 2 or b.dim() != 2 or not a.shape[0] == b.shape[1] == rank:
            raise InvalidInputError(f"the adapter's weights for {name!r} are incomplete")
        own_name = name.removeprefix(PREFIX)
        layers.append(AdaptedLayer(name=own_name, n_in=a.shape[1], n_out=b.shape[0]))
    if not layers or len(tensors) != 2 * len(layers):
        other = min((name for name in tensors if not name.endswith((_A, _B))), default="")
        raise InvalidInputError(
            f"the adapter must have an A and a B for each layer and nothing else, got "
            f"{len(tensors)} tensors for {len(layers)} layers"
            + (f", {other!r} of shape {tuple(tensors[other].shape)} for one" if other else "")
            + f"; {MERGE}"
        )
    of_floats = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    if not all(t.dtype in of_floats and bool(t.isfinite().all()) for t in tensors.values()):
        raise InvalidInputError("the adapter's weights must be finite floats; make it again")
    return AdapterLayout(layers=tuple(layers), rank=rank, fan_in_fan_out=fan_in_fan_out)


def check_plain(config: Any, *, has_learned: bool) -> None:
    """Refuse all that is not a plain LoRA on linear layers, of one rank and without dropout.

    Args:
        config: A `peft.LoraConfig`.
        has_learned: Whether it describes an adapter that learned elsewhere; how it did is no
            matter then, unless that changed the base's weights.

    Raises:
        InvalidInputError: If a field says what is not done here; the message names it.
    """
    try:
        from peft import LoraConfig
    except ImportError as error:
        raise MissingDependencyError("peft", extra="fine-tune") from error

    if not isinstance(config, LoraConfig):
        kind = getattr(config, "peft_type", None) or type(config).__name__
        raise InvalidInputError(f"the adapter must be a LoRA (`peft.LoraConfig`), got {kind!s}")
    default = LoraConfig()
    known = _HONOURED | _DESCRIBING | (_OF_LEARNING if has_learned else set())
    odd = [
        f"{field.name}={value!r}"
        for field in fields(config)
        if field.name not in known
        and (value := getattr(config, field.name)) != (usual := getattr(default, field.name))
        and (value or usual)
    ]
    beginning = str(config.init_lora_weights).lower()
    if has_learned and beginning.startswith(_CHANGE_THE_BASE):
        odd.append(f"init_lora_weights={config.init_lora_weights!r}")
    if odd:
        raise InvalidInputError(
            f"the adapter must be a plain LoRA without dropout, got one with {', '.join(odd)}"
            + (f"; {MERGE}" if has_learned else "")
        )
    if not isinstance(config.r, int) or isinstance(config.r, bool) or config.r < 1:
        raise InvalidInputError(f"the adapter's rank `r` must be >= 1, got {short_repr(config.r)}")
    if isinstance(config.lora_alpha, bool):
        raise InvalidInputError("the adapter's `lora_alpha` must be a number, got a bool")
    as_number("lora_alpha", config.lora_alpha, above=0)


def alpha_of(config: Any) -> float:
    """Return the output scaling whose update is multiplied by alpha / rank, as in a plain LoRA."""
    return float(config.lora_alpha * (math.sqrt(config.r) if config.use_rslora else 1))


def is_all_linear(config: Any) -> bool:
    """Return whether a configuration names every linear layer but the head."""
    return isinstance(config.target_modules, str) and config.target_modules == "all-linear"


def matcher(config: Any, model_type: str, linear_names: Iterable[str]) -> Callable[[str], bool]:
    """Return what tells, by PEFT's own rules, whether a module of that dotted name is adapted.

    Args:
        config: A `peft.LoraConfig`. Without `target_modules` PEFT's choice for the kind of
            model holds.
        model_type: Of the model's configuration.
        linear_names: Dotted names of what "all-linear" stands for.

    Raises:
        InvalidInputError: If PEFT has no choice for this kind of model.
    """
    from peft.tuners.tuners_utils import check_target_module_exists
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING

    config = copy.copy(config)
    if is_all_linear(config):
        config.target_modules = {name.rpartition(".")[2] for name in linear_names}
    elif config.target_modules is None:
        usual = TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.get(model_type)
        if usual is None:
            raise InvalidInputError(
                f"PEFT has no layers of its own choice for {model_type!r} models; pass "
                f'`target_modules`, for instance "all-linear"'
            )
        config.target_modules = set(usual)
    return lambda name: bool(check_target_module_exists(config, name))
