"""Holding less for the backward pass: what is cheap to compute is computed again when it is due.

Autograd keeps the input of every layer that learns. Most of these are outputs of activation
functions and norms, whose own inputs are kept anyway: at GPT-2's size a third of all that is
held. They are made again from those inputs, bit for bit the same, at the cost of an elementwise
operation. GPT-2's GELU, which transformers spells out in seven operations whose results are kept,
is computed by PyTorch's one: another two fifths, and equal up to rounding.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from sift_core.errors import MissingDependencyError

try:
    import torch
    from torch.nn import functional
    from transformers import activations
    from transformers.activations import NewGELUActivation
except ImportError as error:
    raise MissingDependencyError("torch and transformers", extra="fine-tune") from error


@dataclass(frozen=True, kw_only=True, eq=False)
class _Recipe:
    """How to make an output again: a function and its input."""

    function: Callable[[torch.Tensor], torch.Tensor]
    x: torch.Tensor
    x_version: int
    output: weakref.ref[torch.Tensor]
    output_version: int

    def made(self, shape: torch.Size) -> torch.Tensor:
        if self.x._version != self.x_version:
            raise RuntimeError("an input was changed in place before its gradient was due")
        with torch.no_grad():
            return self.function(self.x).view(shape)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Kept:
    """Stands for a tensor that will be made again."""

    recipe: _Recipe
    shape: torch.Size


# Address of an output → how to make it again, while a forward pass runs in this flow of control.
_recipes: ContextVar[dict[int, _Recipe] | None] = ContextVar("sift_recipes", default=None)


@contextmanager
def recomputing() -> Iterator[None]:
    """Let a forward pass inside the `with` block hold less; the backward pass may be outside."""
    token = _recipes.set({})
    try:
        with torch.autograd.graph.saved_tensors_hooks(_pack, _unpack):
            yield
    finally:
        _recipes.reset(token)


def watch_cheap(module: Any) -> None:
    """Let `recomputing` make the outputs of a module again, if it is a norm or an activation."""
    if _note_output in module._forward_hooks.values() or next(module.children(), None):
        return
    name = type(module).__name__
    is_activation = type(module).__module__ in (activations.__name__, "torch.nn.modules.activation")
    if not (is_activation or name.endswith(("Norm", "Norm1d")) or "RMSNorm" in name):
        return
    if type(module) is NewGELUActivation:
        module.register_forward_pre_hook(_leave_to_torch)
    module.register_forward_hook(_note_output, with_kwargs=True)


def _leave_to_torch(_: Any, args: tuple[Any, ...]) -> tuple[torch.Tensor] | None:
    """Give GPT-2's GELU nothing to compute; `_note_output` gets the same empty tensor."""
    x = args[0]
    if _recipes.get() is None or not torch.is_grad_enabled() or len(args) != 1:
        return None
    empty = x.new_empty(0)
    empty.sift_input = x
    return (empty,)


def _note_output(
    module: Any, args: tuple[Any, ...], options: dict[str, Any], output: Any
) -> torch.Tensor | None:
    recipes = _recipes.get()
    if recipes is None or not torch.is_grad_enabled():
        return None
    if len(args) != 1 or options or not isinstance(output, torch.Tensor):
        return None
    x, function = args[0], module.forward
    if hasattr(x, "sift_input"):
        x, function = x.sift_input, _gelu
        output = _gelu(x)
    final: torch.Tensor = output
    if final.is_contiguous():
        kept = x.detach()
        recipes[final.data_ptr()] = _Recipe(
            function=function,
            x=kept,
            x_version=kept._version,
            output=weakref.ref(final),
            output_version=final._version,
        )
    return final


def _gelu(x: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x, approximate="tanh")


def _pack(tensor: torch.Tensor) -> torch.Tensor | _Kept:
    recipe = (_recipes.get() or {}).get(tensor.data_ptr())
    if recipe is None:
        return tensor
    output = recipe.output()  # None: another tensor has its address now
    if output is None or output._version != recipe.output_version:
        return tensor
    if output.numel() != tensor.numel() or not tensor.is_contiguous():
        return tensor
    return _Kept(recipe=recipe, shape=tensor.shape)


def _unpack(kept: torch.Tensor | _Kept) -> torch.Tensor:
    return kept.recipe.made(kept.shape) if isinstance(kept, _Kept) else kept
