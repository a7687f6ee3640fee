"""Whether a base model is bit for bit what it was, and a name for what it is."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias

from sift_core.errors import AnswerError, InvalidInputError, MissingDependencyError
from sift_core.processor import n_threads

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("torch", extra="fine-tune") from error

SAMPLE_SIZE = 16  # merging and unmerging a LoRA changes a quarter of a tensor: seen in 99 of 100
# What a configuration has beside what the model computes.
_NOT_COMPUTED = ("_name_or_path", "transformers_version", "use_cache")
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


class BaseCheck:
    """What a model was when the check was made, to be compared with what it is.

    Several threads may use one check while others compute with the model.

    Args:
        model: Any model of transformers. It is only read.

    Raises:
        InvalidInputError: If weights are not in memory.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._tensors = _tensors(model)
        self._marks = {name: _mark(tensor) for name, tensor in self._tensors.items()}
        self._samples = _samples(self._tensors)
        self._reference: tuple[dict[str, str], str] | None = None
        self._lock = threading.Lock()

    @property
    def fingerprint(self) -> str:
        """A hash of the model's class, configuration and weights, 64 hexadecimal digits.

        Covers the name and shape of each parameter and persistent buffer, and its values as they
        are in bfloat16. It does not cover the device and the number type: a model has one
        fingerprint in float32 and bfloat16, so that an adapter learned in either fits the other.
        In float16 small weights are rounded, and the fingerprint may be another one. Computed when
        it is first asked for: about 0.6 s for 500 MB on one core, and it uses up to eight.

        Raises:
            AnswerError: If the model has visibly changed before that.
        """
        return self._digests_and_fingerprint()[1]

    def cheap(self) -> None:
        """Refuse a model that was written to in one of the ways that happen.

        Compares which tensors there are, their versions, addresses and flags, and the bits of
        `SAMPLE_SIZE` elements of each. A write through `.data` to a few other elements is not
        seen. Takes about 1 ms for 150 tensors, and waits for what a GPU has to do before.

        Raises:
            AnswerError: If something differs; the message names it.
        """
        found = _tensors(self._model)
        _compare_names(self._tensors, found)
        for name, tensor in found.items():
            now, before = _mark(tensor), self._marks[name]
            if now != before:
                changed = [what for what, a, b in zip(_MARKS, now, before, strict=True) if a != b]
                raise _changed(f"{', '.join(changed)} of {name!r} changed")
        for kind, sample in _samples(self._tensors).items():
            before_sample = self._samples[kind]
            if not torch.equal(sample, before_sample):
                byte = int((sample != before_sample).nonzero()[0])
                raise _changed(f"bits of {_owner(self._tensors, kind, byte)!r} changed")

    def exact(self) -> None:
        """Refuse a model of which a single bit differs, or that would learn.

        The first call, unless `fingerprint` was asked for before, only takes what later ones
        compare with, after `cheap`. Takes as long as `fingerprint`. A model that was moved to
        another device passes.

        Raises:
            AnswerError: If something differs; the message names it.
        """
        is_first = self._reference is None
        expected, _ = self._digests_and_fingerprint()
        found = expected if is_first else _digests(self._model)
        _compare_names(expected, found)
        for name, digest in found.items():
            if digest != expected[name]:
                raise _changed(f"bits, shape or dtype of {name!r} changed")
        for name, tensor in _tensors(self._model).items():
            if tensor.requires_grad != self._marks[name][-1]:
                raise _changed(f"requires_grad of {name!r} changed")

    def _digests_and_fingerprint(self) -> tuple[dict[str, str], str]:
        with self._lock:
            if self._reference is None:
                self.cheap()
                digests = _digests(self._model)
                in_bfloat16 = digests | _digests(self._model, rounded=True)
                self._reference = (digests, _fingerprint(self._model, in_bfloat16))
            return self._reference


def _changed(what: str) -> AnswerError:
    return AnswerError(
        f"the base model is not what it was: {what}. Its answers cannot be trusted; load it "
        f"again, or make a new LanguageModel if the change was meant"
    )


def _compare_names(before: Iterable[str], now: Iterable[str]) -> None:
    for name in set(before) - set(now):
        raise _changed(f"{name!r} is gone")
    for name in set(now) - set(before):
        raise _changed(f"{name!r} was added")


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


_MARKS = ("identity", "version", "address", "strides", "dtype", "device", "requires_grad")


def _mark(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return what changes with most writes, in the order of `_MARKS`."""
    return (
        id(tensor),
        None if tensor.is_inference() else tensor._version,  # in-place writes, not through .data
        tensor.data_ptr(),
        tensor.stride(),
        tensor.dtype,
        tensor.device,
        tensor.requires_grad,
    )


_Kind: TypeAlias = tuple[torch.dtype, torch.device]


def _samples(tensors: Mapping[str, torch.Tensor]) -> dict[_Kind, torch.Tensor]:
    """Return the bytes of elements at fixed places, copied at once for each kind of tensor."""
    groups: dict[_Kind, list[torch.Tensor]] = {}
    for tensor in tensors.values():
        groups.setdefault((tensor.dtype, tensor.device), []).append(_sampled(tensor))
    return {kind: torch.cat(group).cpu().view(torch.uint8) for kind, group in groups.items()}


def _owner(tensors: Mapping[str, torch.Tensor], kind: _Kind, byte: int) -> str:
    """Return the name of the tensor that a sampled byte is of."""
    names = [
        name
        for name, tensor in tensors.items()
        if (tensor.dtype, tensor.device) == kind
        for _ in range(_sampled(tensor).numel())
    ]
    return names[byte // kind[0].itemsize]


def _sampled(tensor: torch.Tensor) -> torch.Tensor:
    """Return evenly spread elements, shape (up to `SAMPLE_SIZE`,)."""
    n = min(SAMPLE_SIZE, tensor.numel())
    step = max(1, tensor.numel() // max(1, n) - 1 | 1)  # odd: not always the same column
    if tensor.is_contiguous():
        return tensor.detach().as_strided((n,), (step,))
    return tensor.detach().reshape(-1)[::step][:n]


def _digests(model: Any, *, rounded: bool = False) -> dict[str, str]:
    """Return a hash of everything that the model would store, by name; what is tied once.

    Args:
        model: The model.
        rounded: Whether to hash what rounding to bfloat16 changes, rounded, and nothing else.
    """
    tensors = _tensors(model)
    if rounded:
        tensors = {name: one for name, one in tensors.items() if _is_finer(one)}
    with ThreadPoolExecutor(max_workers=min(8, n_threads())) as pool:
        digests = pool.map(partial(_digest, rounded=rounded), tensors, tensors.values())
        return dict(zip(tensors, digests, strict=True))


def _is_finer(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has numbers that are finer than bfloat16's."""
    return tensor.is_floating_point() and tensor.itemsize > 1 and tensor.dtype != torch.bfloat16


def _digest(name: str, tensor: torch.Tensor, *, rounded: bool) -> str:
    tensor = tensor.detach().to(torch.bfloat16) if rounded else tensor.detach()
    content: Any = tensor.reshape(-1).cpu().contiguous().view(torch.uint8).numpy()
    shape = str(tuple(tensor.shape))
    return digest_of([name, str(tensor.dtype), shape, hashlib.sha256(content).digest()])


def _fingerprint(model: Any, digests: Mapping[str, str]) -> str:
    config = _in_bfloat16(model.config.to_dict())
    for name in _NOT_COMPUTED:
        config.pop(name, None)
    described = json.dumps(config, sort_keys=True, default=str)
    return digest_of([type(model).__qualname__, described, *digests.values()])


def _in_bfloat16(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration, and those within it, as that of a model in bfloat16."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if name in _NUMBER_TYPE:
            found[name] = "bfloat16"
        else:
            found[name] = _in_bfloat16(value) if isinstance(value, Mapping) else value
    return found
