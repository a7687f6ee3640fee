"""Adapters of one flow of control alone, and recorders of what layers are given.

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
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from sift_core.answering.model.adapters import Adapter, ModelCopy
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
_recorder: ContextVar[LayerRecorder | None] = ContextVar("sift_layer_recorder", default=None)
_learned: ContextVar[Mapping[Any, Adapter | ModelCopy | None]] = ContextVar(
    "sift_learned", default=MappingProxyType({})
)


def active(model: Any) -> Adapter | ModelCopy | None:
    """Return what a model computes with in this flow of control; None for the model as it is."""
    return _learned.get().get(model)


@contextmanager
def activate(model: Any, learned: Adapter | ModelCopy | None) -> Iterator[None]:
    """Let `active` return what was learned for the `with` block, in this flow of control alone."""
    token = _learned.set({**_learned.get(), model: learned})
    try:
        yield
    finally:
        _learned.reset(token)


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
    others = {m: pair for m, pair in (_pairs.get() or {}).items() if m not in instead_of}
    token = _pairs.set({**others, **modules} or None)
    try:
        yield
    finally:
        _pairs.reset(token)


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerCall:
    """One call of a layer or a module behind the layers, without the hidden state."""

    module: Any
    args: tuple[Any, ...]
    options: Mapping[str, Any]
    hidden: torch.Tensor

    def bare(self) -> LayerCall:
        """Return the call without its hidden state, which is as large as all else together."""
        return replace(self, hidden=torch.empty(0))

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield the tensors among the arguments, those in containers included."""
        waiting: list[Any] = [*self.args, *self.options.values()]
        while waiting:
            value = waiting.pop()
            if isinstance(value, torch.Tensor):
                yield value
            elif isinstance(value, list | tuple):
                waiting += value
            elif isinstance(value, dict):
                waiting += value.values()

    def repeated(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what the module makes of another hidden state, all else being equal."""
        result = self.module(hidden, *self.args, **self.options)
        output: torch.Tensor = result[0] if isinstance(result, tuple) else result
        return output


class LayerReachedError(Exception):
    """Ends a forward pass before a layer; carries the hidden state that the layer was given."""

    def __init__(self, hidden: torch.Tensor) -> None:
        super().__init__()
        self.hidden = hidden


@dataclass(kw_only=True, eq=False)
class LayerRecorder:
    """Notes the calls of some modules while it is activated.

    Args:
        modules: Whose calls to note.
        stops_at: The module whose call ends the forward pass by `LayerReachedError`.
    """

    modules: frozenset[Any]
    stops_at: Any = None
    calls: list[LayerCall] = field(default_factory=list)

    @contextmanager
    def activated(self) -> Iterator[None]:
        """Note calls for the `with` block, of this flow of control alone."""
        token = _recorder.set(self)
        try:
            yield
        finally:
            _recorder.reset(token)


def watch_linear(module: Any) -> None:
    """Let adapters add to what a linear layer puts out."""
    if _add_update not in module._forward_hooks.values():  # a copied model has its hooks already
        module.register_forward_hook(_add_update, with_kwargs=True)


def watch_calls(module: Any) -> None:
    """Let recorders note the calls of a module."""
    if _note_call not in module._forward_pre_hooks.values():
        module.register_forward_pre_hook(_note_call, with_kwargs=True)


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


def _note_call(module: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    recorder = _recorder.get()
    if recorder is None or module not in recorder.modules:
        return
    if args:
        hidden, args = args[0], args[1:]
    else:
        options = dict(options)
        hidden = options.pop("hidden_states", None)
    if isinstance(hidden, torch.Tensor):
        if module is recorder.stops_at:
            raise LayerReachedError(hidden)
        recorder.calls.append(LayerCall(module=module, args=args, options=options, hidden=hidden))
