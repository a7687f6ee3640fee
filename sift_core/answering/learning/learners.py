"""What learns: a LoRA's matrices, or every weight of a private copy of the model."""

from __future__ import annotations

import copy
import math
import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from sift_core.answering.learning.settings import FineTuningSettings
from sift_core.answering.model.adapters import Adapter, AdapterLayout, ModelCopy
from sift_core.answering.model.hooks import LoraPair, activate_pairs
from sift_core.answering.model.parts import parts_of
from sift_core.answering.model.passes import (
    ActivationCache,
    Passes,
    TokenWindow,
    WeightedWindow,
    activations_of,
)
from sift_core.errors import InvalidInputError, MissingDependencyError

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("torch", extra="fine-tune") from error


class Learner(ABC):
    """Parameters, their gradient and Adam's moments, for one query.

    Args:
        parameters: What learns.
        learning_rate: Of Adam.
        passes: Of the model that computes the loss.
    """

    def __init__(
        self, parameters: Iterable[torch.nn.Parameter], learning_rate: float, passes: Passes
    ) -> None:
        self._parameters = list(parameters)
        fused = len(self._parameters) == 1  # a LoRA; of no use to the parameters of a whole model
        self._learning_rate = learning_rate
        self._optimizer = torch.optim.Adam(self._parameters, lr=learning_rate, fused=fused)
        self._passes = passes

    def backward(self, rows: Sequence[WeightedWindow], *, checkpointing: bool) -> float:
        """Add the gradient of the rows' weighted loss; return the loss."""
        with activate_pairs(self._pairs(), instead_of=self._passes.parts.modules):
            losses = self._passes.backward(rows, checkpointing=checkpointing)
        self._collect_gradient()
        return sum(losses)

    def loss(self, window: TokenWindow) -> float:
        """Return the summed cross-entropy of a window's targets in nats; nothing is learned."""
        with activate_pairs(self._pairs(), instead_of=self._passes.parts.modules):
            return self._passes.loss(window)

    def drop_gradient(self) -> None:
        """Forget the gradient."""
        self._optimizer.zero_grad(set_to_none=True)

    def has_finite_gradient(self) -> bool:
        """Return whether every number of the gradient is finite."""
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        return bool(gradients) and _is_finite(gradients)

    def is_finite(self) -> bool:
        """Return whether every parameter is finite."""
        return _is_finite([p.data for p in self._parameters])

    def step(self, shares: Sequence[float]) -> None:
        """Take a step for each share of the learning rate along the gradient, then forget it."""
        with torch.inference_mode(False), torch.no_grad():
            for share in shares:
                self._optimizer.param_groups[0]["lr"] = share * self._learning_rate
                self._optimizer.step()
            self.drop_gradient()

    @abstractmethod
    def fall_back(self) -> int:
        """Go back to parameters that gave a finite loss; return how many steps that undoes."""

    @abstractmethod
    def learned(self, key: str) -> Adapter | ModelCopy:
        """Return what is learned now; a further step changes it in place."""

    @abstractmethod
    def _pairs(self) -> Mapping[Any, LoraPair]:
        """Return layer → the update that is computed with."""

    @abstractmethod
    def _collect_gradient(self) -> None:
        """Bring the gradient of a backward pass to the parameters."""


class LoraLearner(Learner):
    """A LoRA in float32; computed with in the model's own precision.

    Holds four times the adapter's weights: parameters, gradient, Adam's two moments; and the
    parameters before the last step.

    Args:
        model: The frozen model.
        settings: How it learns.
        base_name: The model's name.
        start_from: What it begins with, and where rank and alpha come from; a fresh LoRA of the
            settings' if None.

    Raises:
        InvalidInputError: If `start_from` is on other layers than the settings name.
    """

    def __init__(
        self,
        model: Any,
        settings: FineTuningSettings,
        base_name: str,
        start_from: Adapter | None = None,
    ) -> None:
        parts = parts_of(model)
        head = settings.kind == "head"
        layout = parts.layout(
            rank=settings.rank if start_from is None else start_from.rank,
            n_top_layers=settings.n_top_layers,
            head=head,
            lora=settings.lora,
        )
        self._layout, self._parts = layout, parts
        self._alpha = settings.alpha if start_from is None else start_from.alpha
        self._base_name = base_name
        with torch.inference_mode(False), torch.no_grad():
            values = (
                _fresh(layout, settings.seed, model.device)
                if start_from is None
                else start_from.arranged(layout).to(model.device)
            )
            self._values = torch.nn.Parameter(values)
            self._before: torch.Tensor | None = None
            self._gradient: torch.Tensor | None = None  # its memory, kept from step to step
            # As autograd sees them, in the model's precision; in float32 the same memory.
            self._computed = self._values.data.to(model.dtype)
            self._leaves = {
                name: (a.detach().requires_grad_(), b.detach().requires_grad_())
                for name, (a, b) in layout.pairs(self._computed).items()
            }
        passes = Passes(
            model=model,
            parts=parts,
            kept=activations_of(model),
            n_top_layers=0 if head else settings.n_top_layers,
        )
        super().__init__([self._values], settings.step_size, passes)

    def drop_gradient(self) -> None:
        """Forget the gradient."""
        self._values.grad = None
        for leaf in self._flat_leaves():
            leaf.grad = None

    def step(self, shares: Sequence[float]) -> None:
        """Take a step for each share of the learning rate along the gradient, then forget it."""
        with torch.inference_mode(False), torch.no_grad():
            # In the precision that the model computes in: the loss was that of these numbers.
            if self._before is None:
                self._before = self._computed.clone()
            else:
                self._before.copy_(self._computed)
            super().step(shares)
            self._refresh()

    def fall_back(self) -> int:
        """Go back to the parameters of the last finite loss, as the model computed with them."""
        if self._before is None:
            return 0
        with torch.inference_mode(False), torch.no_grad():
            self._values.data.copy_(self._before)
            self._refresh()
        return 1

    def learned(self, key: str) -> Adapter:
        """Return the LoRA as it is now; a further step changes it in place."""
        return Adapter(
            layout=self._layout,
            alpha=self._alpha,
            values=self._values.data,
            key=key,
            base_name=self._base_name,
        )

    def _pairs(self) -> Mapping[Any, LoraPair]:
        scale = self._alpha / self._layout.rank
        return {
            self._parts.module(name): LoraPair(a=a, b=b, scale=scale)
            for name, (a, b) in self._leaves.items()
        }

    def _collect_gradient(self) -> None:
        """Add the gradient of the leaves to the float32 one, and forget theirs."""
        is_first = self._values.grad is None
        if self._gradient is None:
            self._gradient = torch.empty_like(self._values.data)
        pairs = self._layout.pairs(self._gradient).values()
        for leaf, place in zip(self._flat_leaves(), chain.from_iterable(pairs), strict=True):
            if leaf.grad is not None and is_first:
                place.copy_(leaf.grad)
            elif leaf.grad is not None:
                place.add_(leaf.grad)
            elif is_first:
                place.zero_()
        self.drop_gradient()
        self._values.grad = self._gradient

    def _flat_leaves(self) -> list[torch.Tensor]:
        return [leaf for pair in self._leaves.values() for leaf in pair]

    def _refresh(self) -> None:
        """Compute with the present values from now on."""
        if self._computed.data_ptr() != self._values.data_ptr():
            self._computed.copy_(self._values.data)


class FullLearner(Learner):
    """Every weight of a private copy of the model. Holds five times the model in float32.

    The model itself is never written to, so that there is nothing to restore.

    Args:
        model: The model; its weights must be floating point numbers.
        settings: How it learns.

    Raises:
        InvalidInputError: If the model is quantised.
    """

    def __init__(self, model: Any, settings: FineTuningSettings) -> None:
        if parts_of(model).is_quantized:
            raise InvalidInputError(
                'a quantised model cannot learn in all its weights; pass the scope "all"'
            )
        self._base = model
        with torch.inference_mode(False), torch.no_grad():
            self._copy = copy.deepcopy(model).float().eval().requires_grad_(True)
        nothing_kept = ActivationCache(max_bytes=0)
        passes = Passes(model=self._copy, parts=parts_of(self._copy), kept=nothing_kept)
        super().__init__(self._copy.parameters(), settings.step_size, passes)

    def fall_back(self) -> int:
        """Go back to the model's own weights: a copy before each step would cost as much as it."""
        with torch.inference_mode(False), torch.no_grad():
            for ours, base in zip(self._copy.parameters(), self._base.parameters(), strict=True):
                ours.copy_(base)
        return sys.maxsize

    def learned(self, key: str) -> ModelCopy:
        """Return the copy as it is now; a further step changes it in place."""
        return ModelCopy(model=self._copy, base=weakref.ref(self._base), key=key)

    def _pairs(self) -> Mapping[Any, LoraPair]:
        return {}

    def _collect_gradient(self) -> None:
        """Do nothing: the gradient is where it belongs."""


def _fresh(layout: AdapterLayout, seed: int, device: torch.device) -> torch.Tensor:
    """Return a fresh adapter's weights, shape (n_values,): A as PEFT draws it, B zero."""
    values = torch.zeros(layout.n_values, device=device)
    halves = _random_halves(layout, seed)
    for name, (a, _) in layout.pairs(values).items():
        a.copy_(halves[name])
    return values


@lru_cache(maxsize=1)
def _random_halves(layout: AdapterLayout, seed: int) -> dict[str, torch.Tensor]:
    """Return each A of a fresh adapter, kept, since drawing them takes longer than a copy."""
    generator = torch.Generator().manual_seed(seed)
    halves = {layer.name: torch.empty(layout.rank, layer.n_in) for layer in layout.layers}
    for half in halves.values():
        torch.nn.init.kaiming_uniform_(half, a=math.sqrt(5), generator=generator)
    return halves


def _is_finite(tensors: Sequence[torch.Tensor]) -> bool:
    return math.isfinite(float(torch.nn.utils.get_total_norm(tensors)))
