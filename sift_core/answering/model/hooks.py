"""Adapters of one flow of control alone.

Every linear layer of a model has one hook for good. It asks a context variable for the adapter
of the thread or asyncio task that is computing, so that nobody sees another one's and nothing
has to be put back. Nothing is merged, wrapped or written to.

This is why PEFT's layers are not used: they hold their adapters in the model, where two threads
see each other's, and `disable_adapter` switches for everyone at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sift_core.answering.model.adapters import Adapter
from sift_core.errors import MissingDependencyError

try:
    import torch
    from torch.nn import functional
    from transformers.pytorch_utils import Conv1D
except ImportError as error:
    raise MissingDependencyError("torch and transformers", extra="fine-tune") from error


@dataclass(frozen=True, kw_only=True, eq=False)
class LoraPair:
    """A and B of one layer as they are computed with.

    Args:
        a: Shape (rank, n_in).
        b: Shape (n_out, rank).
        scale: What the update is multiplied by.
    """

    a: torch.Tensor
    b: torch.Tensor
    scale: float

    def added_to(self, output: torch.Tensor, x: torch.Tensor, *, in_place: bool) -> torch.Tensor:
        """Return output + scale x Aᵀ Bᵀ; x (..., n_in), output (..., n_out)."""
        x = x.to(self.a.dtype)
        low = functional.linear(x, self.a).flatten(0, -2)
        flat = output.flatten(0, -2)
        if output.dtype != self.a.dtype:
            return output.add((low @ self.b.t()).view_as(output).to(output.dtype), alpha=self.scale)
        if in_place:
            flat.addmm_(low, self.b.t(), alpha=self.scale)
            return output
        return torch.addmm(flat, low, self.b.t(), alpha=self.scale).view_as(output)


_pairs: ContextVar[Mapping[Any, LoraPair] | None] = ContextVar("sift_lora_pairs", default=None)
_learned: ContextVar[Mapping[Any, Adapter | None]] = ContextVar(
    "sift_learned", default=MappingProxyType({})
)


def active(model: Any) -> Adapter | None:
    """Return what a model computes with in this flow of control; None for the model as it is."""
    return _learned.get().get(model)


@contextmanager
def activate(model: Any, learned: Adapter | None) -> Iterator[None]:
    """Let `active` return what was learned for the `with` block, in this flow of control alone."""
    token = _learned.set({**_learned.get(), model: learned})
    try:
        yield
    finally:
        _learned.reset(token)


def active_pairs() -> Mapping[Any, LoraPair]:
    """Return layer → the update that it adds in this flow of control, of all models."""
    return _pairs.get() or {}


@contextmanager
def activate_pairs(
    modules: Mapping[Any, LoraPair], *, instead_of: frozenset[Any]
) -> Iterator[None]:
    """Let layers add these updates for the `with` block, in this flow of control alone.

    Args:
        modules: Layer → its update.
        instead_of: Layers of the same model; an update of theirs that is active is not,
            meanwhile.
    """
    others = {m: pair for m, pair in active_pairs().items() if m not in instead_of}
    token = _pairs.set({**others, **modules} or None)
    try:
        yield
    finally:
        _pairs.reset(token)


def watch_linear(module: Any) -> None:
    """Let adapters add to what a linear layer puts out."""
    if _add_update not in module._forward_hooks.values():  # a copied model has its hooks already
        module.register_forward_hook(_add_update, with_kwargs=True)


def _add_update(
    module: Any, args: tuple[Any, ...], options: dict[str, Any], output: torch.Tensor
) -> torch.Tensor | None:
    pairs = _pairs.get()
    if pairs is None:
        return None
    pair = pairs.get(module)
    if pair is None:
        return None
    # The output of these two is nobody's but ours; a quantised layer's may be a view.
    x = args[0] if args else next(iter(options.values()))
    return pair.added_to(output, x, in_place=type(module) in (torch.nn.Linear, Conv1D))
