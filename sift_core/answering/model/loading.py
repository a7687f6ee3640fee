"""Models and tokenizers from a folder or the hub, and the number type in which they compute."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from sift_core.answering.model.adapters import CONFIG_NAME, PREFIX, WEIGHTS_NAME
from sift_core.answering.model.bundled import INSTALL, SMOLLM2, packaged_place
from sift_core.checks import short_repr
from sift_core.errors import InvalidInputError, MissingDependencyError, reason_of
from sift_core.files import measured_once
from sift_core.processor import BFLOAT16_INSTRUCTIONS, instructions, limit_torch_threads

try:
    import torch
    from safetensors import safe_open
except ImportError as error:
    raise MissingDependencyError("torch", extra="fine-tune") from error

NumberType: TypeAlias = Literal["auto", "float32", "bfloat16", "float16"]
# With these PyTorch computes with fewer instructions than the processor has.
LIMITING_VARIABLES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
TOKENS, INPUTS, OUTPUTS = 64, 576, 768  # of the product that is timed
REPEATS = 3
# How many times as fast bfloat16 must be. Without instructions for it, it takes 5 to 60 times as
# long as float32, and with them about half as long.
LEAST_GAIN = 1.25


def load(
    name: str, *, device: str | None, dtype: NumberType, trust_remote_code: bool, **options: Any
) -> tuple[Any, Any]:
    """Return the model and the tokenizer of that name.

    Arguments and errors are those of `LanguageModel.from_pretrained`.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer  # `sift doctor` does without

    if dtype not in get_args(NumberType):
        known = ", ".join(map(repr, get_args(NumberType)))
        raise InvalidInputError(f"`dtype` must be one of {known}, got {short_repr(dtype)}")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if str(device).partition(":")[0] == "cpu":
        limit_torch_threads()
        dtype = cpu_number_type().name if dtype == "auto" else dtype
    asked_for, name = name, packaged_place(name)
    _check_no_gguf(name)
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
        advice = (
            "Pass a folder with a model of transformers, or an id that the hub knows and a network."
        )
        if asked_for == SMOLLM2:
            bundled = f"Without the hub: {INSTALL}"
            advice = bundled if name == SMOLLM2 else "If that folder is damaged, delete it."
        raise InvalidInputError(
            f"no causal language model {name!r} on device {device!r}: {reason_of(error)} {advice}"
        ) from error
    if loading["missing_keys"]:
        raise InvalidInputError(
            f"the weights of {name!r} are incomplete: {len(loading['missing_keys'])} are "
            f"missing, {sorted(loading['missing_keys'])[0]!r} the first; load the whole model"
        )
    return model, tokenizer


def _check_no_gguf(name: str) -> None:
    """Refuse a file of llama.cpp, or a folder that has weights of that form alone.

    Raises:
        InvalidInputError: If so.
    """
    folder = Path(name)
    files = sorted(folder.glob("*.gguf")) if folder.is_dir() else []
    if name.lower().endswith(".gguf") or (files and not any(folder.glob("*.safetensors"))):
        what = f"has only {files[0].name}, a file" if files else "is a file"
        raise InvalidInputError(
            f"{name!r} {what} of llama.cpp (GGUF), from which nothing can be learned; pass the "
            f"folder or the id of the model that it was made of, with config.json and safetensors"
        )


def merged(peft_model: Any) -> Any:
    """Return the model inside a `PeftModel`, with the active adapter in its weights.

    Raises:
        InvalidInputError: If the adapter is none that can be merged.
    """
    embeddings, head = peft_model.get_input_embeddings(), peft_model.get_output_embeddings()
    layers = [getattr(each, "base_layer", None) for each in (embeddings, head)]
    if layers != [None, None] and head is not None and head.weight is embeddings.weight:
        # A LoRA of one of two tied layers, merged, would change the other one too.
        weight = torch.nn.Parameter(head.weight.detach().clone(), requires_grad=False)
        (layers[1] or head).weight = weight
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

    _add_rows(model, Path(folder))
    return PeftModel.from_pretrained(model, folder)


def _add_rows(model: Any, folder: Path) -> None:
    """Give embeddings and head the rows that an adapter's file has, if its training added tokens.

    Raises:
        InvalidInputError: If the file has rows for one of the two alone, and they are not tied.
    """
    embeddings, head = model.get_input_embeddings(), model.get_output_embeddings()
    n_before, found = embeddings.num_embeddings, {}
    with safe_open(folder / WEIGHTS_NAME, "pt") as file:
        for name, module in model.named_modules():
            if module is embeddings or module is head:
                own = [each for each in file.keys() if each.startswith(f"{PREFIX}{name}.")]
                whole = [each for each in own if each.endswith("weight") and "lora_" not in each]
                found[name] = file.get_slice(whole[0]).get_shape()[0] if whole else None
    n_rows = max((n for n in found.values() if n is not None), default=n_before)
    if n_rows == n_before:
        return
    missing = [name for name, n in found.items() if n is None]
    if missing and head.weight is not embeddings.weight:
        raise InvalidInputError(
            f"the adapter in {str(folder)!r} has learned with {n_rows} tokens, its base has "
            f"{n_before}, and {WEIGHTS_NAME} lacks the other rows of {missing[0]!r}; save it with "
            f"modules_to_save={[*found]}"
        )
    model.resize_token_embeddings(n_rows, mean_resizing=False)


def check_model(model: Any, tokenizer: Any) -> None:
    """Refuse a model that lacks tokens of its tokenizer, or is spread over several devices.

    Raises:
        InvalidInputError: If it is either.
    """
    n_embedded = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > n_embedded:
        raise InvalidInputError(
            f"the tokenizer knows {len(tokenizer)} tokens, the model {n_embedded}; load both "
            f"from one place, and save adapters with `save_embedding_layers=True`"
        )
    devices = {str(parameter.device) for parameter in model.parameters()}
    if len(devices) > 1:
        raise InvalidInputError(
            f"the model's weights must be on one device, got {sorted(devices)}; load it in "
            f"four bits, or without `device_map`"
        )


@dataclass(frozen=True, kw_only=True)
class CpuNumberType:
    """A number type, and the reason for it.

    Args:
        name: "bfloat16" or "float32".
        reason: A clause that follows "because", for people.
    """

    name: Literal["bfloat16", "float32"]
    reason: str


@cache
def cpu_number_type() -> CpuNumberType:
    """Return the number type in which a model is fastest on this CPU.

    The processor's instruction sets decide. Where the system does not tell them, or PyTorch
    cannot use them all, small products of each type are timed once on this machine. That takes a
    tenth of a second, or half a second where bfloat16 is slow.
    """
    limit_torch_threads()
    limits = [name for name in LIMITING_VARIABLES if os.environ.get(name)]
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        limits.append("a build without oneDNN")
    circumstances = [
        torch.__version__,
        *(f"{name}={os.environ.get(name)}" for name in LIMITING_VARIABLES),
    ]
    slowdown = partial(measured_once, "bfloat16", circumstances, slowdown_of_bfloat16)
    return chosen_type(instructions(), limits, slowdown)


def chosen_type(
    known: frozenset[str] | None, limits: list[str], slowdown: Callable[[], float]
) -> CpuNumberType:
    """Return the number type for a processor.

    Args:
        known: Names of its instruction sets as Linux has them; None if nobody knows.
        limits: What keeps PyTorch from using all of them.
        slowdown: Returns how many times as long bfloat16 takes as float32. It is called where
            `known` does not decide.
    """
    if known is not None and not known & BFLOAT16_INSTRUCTIONS:
        return CpuNumberType(name="float32", reason="the CPU has no instructions for bfloat16")
    if known is not None and not limits:
        names = ", ".join(sorted(known & BFLOAT16_INSTRUCTIONS))
        return CpuNumberType(name="bfloat16", reason=f"the CPU has instructions for it ({names})")
    why = "the system does not tell the CPU's instructions"
    if limits:
        why = f"PyTorch is limited by {' and '.join(limits)}"
    times = slowdown()
    timed = f"{why}, and bfloat16 took {times:.2g} times as long as float32 when it was timed"
    return CpuNumberType(name="bfloat16" if times * LEAST_GAIN < 1 else "float32", reason=timed)


def slowdown_of_bfloat16() -> float:
    """Return how many times as long small products take in bfloat16 as in float32.

    The products are those of a linear layer and of its gradient. Of each type the fastest of
    `REPEATS` counts, so that a moment in which the machine is busy does not.
    """
    return _seconds(torch.bfloat16) / _seconds(torch.float32)


def _seconds(dtype: torch.dtype) -> float:
    with torch.inference_mode():
        inputs = torch.ones(TOKENS, INPUTS, dtype=dtype)
        weights = torch.ones(OUTPUTS, INPUTS, dtype=dtype)
        outputs = inputs @ weights.t()  # prepares what a first product prepares
        taken = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            torch.mm(inputs, weights.t())
            torch.mm(outputs, weights)
            taken.append(time.perf_counter() - started)
    return min(taken)
