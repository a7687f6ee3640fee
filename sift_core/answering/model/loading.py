"""Models and tokenizers from a folder or the hub, with the adapter that PEFT saved for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sift_core.answering.model.adapters import CONFIG_NAME, WEIGHTS_NAME
from sift_core.answering.model.bundled import INSTALL, SMOLLM2, packaged_place
from sift_core.answering.model.number_type import NumberType, check_number_type, cpu_number_type
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.processor import limit_torch_threads

try:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
except ImportError as error:
    raise MissingDependencyError("torch and transformers", extra="fine-tune") from error


def load(
    name: str, *, device: str | None, dtype: NumberType, trust_remote_code: bool, **options: Any
) -> tuple[Any, Any]:
    """Return the model and the tokenizer of that name.

    Arguments and errors are those of `LanguageModel.from_pretrained`.
    """
    check_number_type(dtype)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if str(device).partition(":")[0] == "cpu":
        limit_torch_threads()
        dtype = cpu_number_type().name if dtype == "auto" else dtype
    asked_for, name = name, packaged_place(name)
    if "quantization_config" in options:
        options.setdefault("device_map", {"": device})  # it cannot be moved afterwards
    trust = {"trust_remote_code": trust_remote_code}
    try:
        base, tokenizer_name = _base_and_tokenizer(name)
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_name, **trust)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            base, dtype=dtype, use_safetensors=True, output_loading_info=True, **trust, **options
        )
        model, loading = loaded
        if base != name:
            model = merged(_with_adapter(model, name))
        if "device_map" not in options:
            model.to(device)
    except InvalidInputError:
        raise
    except Exception as error:  # of transformers and PEFT: no such model or device, a damaged file
        first_line = str(error).strip().split("\n")[0]
        advice = (
            "Pass a folder with a model of transformers, or an id that the hub knows and a network."
        )
        if asked_for == SMOLLM2:
            bundled = f"Without the hub: {INSTALL}"
            advice = bundled if name == SMOLLM2 else "If that folder is damaged, delete it."
        raise InvalidInputError(
            f"no causal language model {name!r} on device {device!r}: {first_line} {advice}"
        ) from error
    if loading["missing_keys"]:
        raise InvalidInputError(
            f"the weights of {name!r} are incomplete: {len(loading['missing_keys'])} are "
            f"missing, {sorted(loading['missing_keys'])[0]!r} the first; load the whole model"
        )
    return model, tokenizer


def merged(peft_model: Any) -> Any:
    """Return the model inside a `PeftModel`, with the active adapter in its weights.

    Raises:
        InvalidInputError: If the adapter is none that can be merged.
    """
    try:
        return peft_model.merge_and_unload(safe_merge=True)
    # NotImplementedError is PEFT's own, of kinds that have no merged form.
    except (AttributeError, TypeError, ValueError, NotImplementedError) as error:
        raise InvalidInputError(
            f"the model carries an adapter that cannot be merged ({error}); pass the base model, "
            f"or a `PeftModel` with a LoRA"
        ) from error


def _base_and_tokenizer(name: str) -> tuple[str, str]:
    """Return where model and tokenizer are; of a folder with a PEFT adapter, its base's."""
    folder = Path(name)
    if not (folder / CONFIG_NAME).is_file() or (folder / "config.json").is_file():
        return name, name
    from peft import PeftConfig

    base = PeftConfig.from_pretrained(name).base_model_name_or_path
    if not base:
        raise ValueError(f"{CONFIG_NAME} does not say what the base of the adapter is.")
    has_tokenizer = (folder / "tokenizer_config.json").is_file()
    return str(base), name if has_tokenizer else str(base)


def _with_adapter(model: Any, folder: str) -> Any:
    if not (Path(folder) / WEIGHTS_NAME).is_file():  # or PEFT would read a pickle
        raise FileNotFoundError(f"{WEIGHTS_NAME} is missing in {folder}.")
    from peft import PeftModel

    return PeftModel.from_pretrained(model, folder)
