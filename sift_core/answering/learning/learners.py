"""What learns: a LoRA's matrices, or every weight of a private copy of the model."""

from __future__ import annotations

import copy
import math
import sys
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, Protocol

from sift_core.answering.learning.passes import ActivationCache, Passes, WeightedWindow
from sift_core.answering.learning.settings import FineTuningSettings
from sift_core.answering.model.activate import ModelCopy
from sift_core.answering.model.adapters import Adapter, AdapterLayout
from sift_core.answering.model.hooks import LoraPair, activate_pairs
from sift_core.answering.model.parts import ModelParts, parts_of
from sift_core.answering.model.windows import TokenWindow
from sift_core.errors import InvalidInputError, MissingDependencyError

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("torch", extra="fine-tune") from error


class Learner(Protocol):
    """Parameters, their gradient and Adam's moments, for one query."""

    def backward(self, rows: Sequence[WeightedWindow], *, checkpointing: bool) -> float:
        """Add the gradient of the rows' weighted loss; return the loss."""
        ...

    def loss(self, window: TokenWindow) -> float:
        """Return the summed cross-entropy of a window's targets in nats; nothing is learned."""
        ...

    def drop_gradient(self) -> None:
        """Forget the gradient."""
        ...

    def has_finite_gradient(self) -> bool:
        """Return whether every number of the gradient is finite."""
        ...

    def step(self, n_steps: int) -> None:
        """Take steps along the gradient, then forget it."""
        ...

    def fall_back(self) -> int:
        """Go back to parameters that gave a finite loss; return how many steps that undoes."""
        ...

    def is_finite(self) -> bool:
        """Return whether every parameter is finite."""
        ...

    def so_far(self, key: str) -> Adapter | ModelCopy:
        """Return what is learned now; the next step changes it in place."""
        ...

    def learned(self, key: str) -> Adapter | ModelCopy:
        """Return what was learned; no further step may be taken."""
        ...


class LoraLearner:
    """A LoRA in float32; computed with in the model's own precision.

    Holds four times the adapter's weights: parameters, gradient, Adam's two moments; and the
    parameters before the last step.

    Args:
        model: The frozen model.
        settings: How it learns.
        kept: Activations of the layers that do not learn.
        base_name: The model's name.
    """

    def __init__(
        self, model: Any, settings: FineTuningSettings, kept: ActivationCache, base_name: str
    ) -> None:
        parts = parts_of(model)
        head = settings.kind == "head"
        layout = parts.layout(
            rank=settings.rank, n_top_layers=settings.n_top_layers, head=head, lora=settings.lora
        )
        self.layout, self._parts = layout, parts
        self._alpha, self._base_name = settings.alpha, base_name
        with torch.inference_mode(False), torch.no_grad():
            self._values = torch.nn.Parameter(_fresh(layout, settings.seed, model.device))
            self._before: torch.Tensor | None = None
            self._computed = LeafPairs(layout, self._values.data, model.dtype, settings.alpha)
        self._optimizer = torch.optim.Adam([self._values], lr=settings.step_size, fused=True)
        self._passes = Passes(
            model=model, parts=parts, kept=kept, n_top_layers=0 if head else settings.n_top_layers
        )

    def backward(self, rows: Sequence[WeightedWindow], *, checkpointing: bool) -> float:
        """Add the gradient of the rows' weighted loss; return the loss."""
        with self._activated():
            losses = self._passes.backward(rows, checkpointing=checkpointing)
        self._values.grad = self._computed.take_gradient(self._values.grad)
        return sum(losses)

    def loss(self, window: TokenWindow) -> float:
        """Return the summed cross-entropy of a window's targets in nats; nothing is learned."""
        with self._activated():
            return self._passes.loss(window)

    def drop_gradient(self) -> None:
        """Forget the gradient."""
        self._values.grad = None
        self._computed.drop_gradient()

    def has_finite_gradient(self) -> bool:
        """Return whether every number of the gradient is finite."""
        gradient = self._values.grad
        return gradient is not None and math.isfinite(float(torch.linalg.vector_norm(gradient)))

    def step(self, n_steps: int) -> None:
        """Take steps along the gradient, then forget it."""
        with torch.inference_mode(False), torch.no_grad():
            # In the precision that the model computes in: the loss was that of these numbers.
            if self._before is None:
                self._before = self._values.data.to(self._computed.dtype, copy=True)
            else:
                self._before.copy_(self._values.data)
            for _ in range(n_steps):
                self._optimizer.step()
            self._values.grad = None
            self._computed.refresh(self._values.data)

    def fall_back(self) -> int:
        """Go back to the parameters of the last finite loss, as the model computed with them."""
        if self._before is None:
            return 0
        with torch.inference_mode(False), torch.no_grad():
            self._values.data.copy_(self._before)
            self._computed.refresh(self._values.data)
        return 1

    def is_finite(self) -> bool:
        """Return whether every parameter is finite."""
        return math.isfinite(float(torch.linalg.vector_norm(self._values.data)))

    def so_far(self, key: str) -> Adapter:
        """Return the LoRA as it is now; the next step changes it in place."""
        return self.learned(key)

    def learned(self, key: str) -> Adapter:
        """Return the LoRA."""
        return Adapter(
            layout=self.layout,
            alpha=self._alpha,
            values=self._values.data,
            key=key,
            base_name=self._base_name,
        )

    def _activated(self) -> AbstractContextManager[None]:
        return activate_pairs(self._computed.by_module(self._parts), instead_of=self._parts.modules)


class LeafPairs:
    """A and B of every layer as autograd sees them, in the precision that they are computed in.

    Args:
        layout: Of `values`.
        values: Shape (n_values,), float32. In float32 the pairs are views of it.
        dtype: What is computed in.
        alpha: Output scaling.
    """

    def __init__(
        self, layout: AdapterLayout, values: torch.Tensor, dtype: torch.dtype, alpha: float
    ) -> None:
        self.dtype, self._scale = dtype, alpha / layout.rank
        self._computed = values.to(dtype)
        self._leaves = {
            name: (a.detach().requires_grad_(), b.detach().requires_grad_())
            for name, (a, b) in layout.pairs(self._computed).items()
        }

    def by_module(self, parts: ModelParts) -> dict[Any, LoraPair]:
        """Return layer → what is computed with."""
        return {
            parts.module(name): LoraPair(a=a, b=b, scale=self._scale)
            for name, (a, b) in self._leaves.items()
        }

    def take_gradient(self, gradient: torch.Tensor | None) -> torch.Tensor:
        """Return float32 `gradient` with that of the leaves added, and forget theirs."""
        pieces = [
            leaf.new_zeros(leaf.shape) if leaf.grad is None else leaf.grad
            for pair in self._leaves.values()
            for leaf in pair
        ]
        joined = torch.cat([piece.flatten() for piece in pieces]).float()
        self.drop_gradient()
        return joined if gradient is None else gradient.add_(joined)

    def drop_gradient(self) -> None:
        """Forget the gradient of the leaves."""
        for pair in self._leaves.values():
            for leaf in pair:
                leaf.grad = None

    def refresh(self, values: torch.Tensor) -> None:
        """Compute with these values from now on."""
        if self._computed.data_ptr() != values.data_ptr():
            self._computed.copy_(values)


class FullLearner:
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
        self._parameters = [p for p in self._copy.parameters() if p.requires_grad]
        self._optimizer = torch.optim.Adam(self._parameters, lr=settings.step_size)
        self._passes = Passes(
            model=self._copy, parts=parts_of(self._copy), kept=ActivationCache(max_bytes=0)
        )

    def backward(self, rows: Sequence[WeightedWindow], *, checkpointing: bool) -> float:
        """Add the gradient of the rows' weighted loss; return the loss."""
        with activate_pairs({}, instead_of=self._passes.parts.modules):
            return sum(self._passes.backward(rows, checkpointing=checkpointing))

    def loss(self, window: TokenWindow) -> float:
        """Return the summed cross-entropy of a window's targets in nats; nothing is learned."""
        with activate_pairs({}, instead_of=self._passes.parts.modules):
            return self._passes.loss(window)

    def drop_gradient(self) -> None:
        """Forget the gradient."""
        self._optimizer.zero_grad(set_to_none=True)

    def has_finite_gradient(self) -> bool:
        """Return whether every number of the gradient is finite."""
        return math.isfinite(_norm([p.grad for p in self._parameters if p.grad is not None]))

    def step(self, n_steps: int) -> None:
        """Take steps along the gradient, then forget it."""
        with torch.inference_mode(False), torch.no_grad():
            for _ in range(n_steps):
                self._optimizer.step()
            self.drop_gradient()

    def fall_back(self) -> int:
        """Go back to the model's own weights: a copy before each step would cost as much as it."""
        _copy_weights(self._base, self._copy)
        return sys.maxsize

    def is_finite(self) -> bool:
        """Return whether every parameter is finite."""
        return math.isfinite(_norm([p.data for p in self._parameters]))

    def so_far(self, key: str) -> ModelCopy:
        """Return the copy as it is now; the next step changes it in place."""
        return ModelCopy(model=self._copy, base=weakref.ref(self._base), key=key)

    def learned(self, key: str) -> ModelCopy:
        """Return the copy; no further step may be taken."""
        self._copy.requires_grad_(False)
        return self.so_far(key)


def _fresh(layout: AdapterLayout, seed: int, device: torch.device) -> torch.Tensor:
    """Return a fresh adapter's weights, shape (n_values,)."""
    values = torch.zeros(layout.n_values, device=device)
    halves = _random_halves(layout, seed)
    for name, (a, _) in layout.pairs(values).items():
        a.copy_(halves[name])
    return values


@lru_cache(maxsize=1)
def _random_halves(layout: AdapterLayout, seed: int) -> dict[str, torch.Tensor]:
    """Return each A of a fresh adapter, kept, since drawing them takes longer than a copy."""
    return {name: a.clone() for name, (a, _) in layout.pairs(layout.initial(seed)).items()}


def _copy_weights(model: Any, into: Any) -> None:
    with torch.inference_mode(False), torch.no_grad():
        for target, source in zip(into.parameters(), model.parameters(), strict=True):
            target.copy_(source)


def _norm(tensors: Sequence[torch.Tensor]) -> float:
    return float(torch.nn.utils.get_total_norm(tensors))
