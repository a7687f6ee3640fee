"""What of PEFT's `LoraConfig` is honoured here, and which layers of a model it names."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from sift_core.checks import as_number, short_repr
from sift_core.errors import InvalidInputError, MissingDependencyError

try:
    from peft import LoraConfig
    from peft.tuners.tuners_utils import check_target_module_exists
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
except ImportError as error:
    raise MissingDependencyError("peft", extra="fine-tune") from error

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


def check_plain(config: Any, *, has_learned: bool) -> None:
    """Refuse all that is not a plain LoRA on linear layers, of one rank and without dropout.

    Args:
        config: A `peft.LoraConfig`.
        has_learned: Whether it describes an adapter that learned elsewhere; how it did is no
            matter then, unless that changed the base's weights.

    Raises:
        InvalidInputError: If a field says what is not done here; the message names it.
    """
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
