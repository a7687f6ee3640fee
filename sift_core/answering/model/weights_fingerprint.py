"""A name for a model's weights, and whether they are still what they were."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

from sift_core.errors import AnswerError, InvalidInputError, MissingDependencyError
from sift_core.processor import n_threads

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("torch", extra="fine-tune") from error

# PEFT merges through `.data`, which has no version. Merging and unmerging a LoRA changes a quarter
# of a tensor, and 16 elements of it show that in 99 cases of 100.
SAMPLE_SIZE = 16
_NOT_COMPUTED = ("_name_or_path", "transformers_version", "use_cache")  # of a configuration
_NUMBER_TYPE = ("dtype", "torch_dtype")  # the second in older versions of transformers


def digest_of(parts: Iterable[str | bytes]) -> str:
    """Return the SHA-256 of a list as 64 hexadecimal digits.

    Each part goes in after its kind and length: ("ab", "c") and ("a", "bc") differ.
    """
    total = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        total.update(b"s" if isinstance(part, str) else b"b")
        total.update(len(content).to_bytes(8, "big"))
        total.update(content)
    return total.hexdigest()


class BaseWeights:
    """The weights of a model as they were when this object was made.

    Several threads may use one object while others compute with the model.

    Args:
        model: Any model of transformers. It is only read.

    Raises:
        InvalidInputError: If weights are not in memory.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._marks = _marks(model)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the model's class, configuration and weights, 64 hexadecimal digits.

        Covers the name and shape of each parameter and persistent buffer, and its values as they
        are in bfloat16. It does not cover the device and the number type: a model has one
        fingerprint in float32 and bfloat16, so that an adapter learned in either fits the other.
        In float16 small weights are rounded, and the fingerprint may be another one. Computed when
        it is first asked for: about 0.6 s for 500 MB on one core, and it uses up to eight.

        Raises:
            AnswerError: If the model has changed before that.
        """
        self.verify()
        tensors = _tensors(self._model)
        with ThreadPoolExecutor(max_workers=min(8, n_threads())) as pool:
            digests = list(pool.map(_digest, tensors, tensors.values()))
        config = _in_bfloat16(self._model.config.to_dict())
        for name in _NOT_COMPUTED:
            config.pop(name, None)
        described = json.dumps(config, sort_keys=True, default=str)
        return digest_of([type(self._model).__qualname__, described, *digests])

    def verify(self) -> None:
        """Refuse a model whose weights were written to.

        Compares which tensors there are, PyTorch's count of writes to each, addresses, flags, and
        the bits of `SAMPLE_SIZE` elements of each. A write through `.data` to a few other elements
        is not seen. Takes 6 ms for 270 tensors.

        Raises:
            AnswerError: If something differs; the message names it.
        """
        found = _marks(self._model)
        for name in {**self._marks, **found}:
            before, now = self._marks.get(name), found.get(name)
            if before == now:
                continue
            if before is None or now is None:
                what = f"{name!r} {'was added' if before is None else 'is gone'}"
            else:
                changed = [mark for mark, value in now.items() if value != before[mark]]
                what = f"{', '.join(changed)} of {name!r} changed"
            raise AnswerError(
                f"the base model is not what it was: {what}. Its answers cannot be trusted; load "
                f"it again, or make a new LanguageModel if the change was meant"
            )


def _tensors(model: Any) -> dict[str, torch.Tensor]:
    """Return parameters and persistent buffers by name; a tied one once, under its first name.

    A rotary embedding's buffer is computed, and not among them.
    """
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if isinstance(value, torch.Tensor):  # quantised layers store how to read them, too
            if value.is_meta:
                raise InvalidInputError(
                    f"the weights {name!r} are not in memory, and cannot be checked; load the "
                    f"model without offloading"
                )
            found.setdefault(id(value), (name, value))
    return dict(found.values())


def _marks(model: Any) -> dict[str, dict[str, Any]]:
    """Return what changes with most writes, by name of the tensor."""
    return {
        name: {
            "identity": id(tensor),
            "version": None if tensor.is_inference() else tensor._version,
            "address": tensor.data_ptr(),
            "strides": tensor.stride(),
            "dtype": tensor.dtype,
            "device": tensor.device,
            "requires_grad": tensor.requires_grad,
            "bits": _bytes(_sampled(tensor)).tobytes(),
        }
        for name, tensor in _tensors(model).items()
    }


def _sampled(tensor: torch.Tensor) -> torch.Tensor:
    """Return evenly spread elements, shape (up to `SAMPLE_SIZE`,)."""
    n = min(SAMPLE_SIZE, tensor.numel())
    step = max(1, tensor.numel() // max(1, n) - 1 | 1)  # odd: not always the same column
    if tensor.is_contiguous():
        return tensor.detach().as_strided((n,), (step,))
    return tensor.detach().reshape(-1)[::step][:n]


def _bytes(tensor: torch.Tensor) -> Any:
    """Return the bytes of a tensor as an array of NumPy."""
    return tensor.reshape(-1).cpu().contiguous().view(torch.uint8).numpy()


def _digest(name: str, tensor: torch.Tensor) -> str:
    """Return a hash of a tensor as it is in bfloat16."""
    is_finer = tensor.is_floating_point() and tensor.itemsize > 1
    tensor = tensor.detach().to(torch.bfloat16) if is_finer else tensor.detach()
    digest = hashlib.sha256(_bytes(tensor)).digest()
    return digest_of([name, str(tensor.dtype), str(tuple(tensor.shape)), digest])


def _in_bfloat16(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration, and those within it, as that of a model in bfloat16."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if name in _NUMBER_TYPE:
            found[name] = "bfloat16"
        else:
            found[name] = _in_bfloat16(value) if isinstance(value, Mapping) else value
    return found
