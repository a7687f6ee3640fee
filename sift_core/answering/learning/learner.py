"""The learner of one query: the matrices of a LoRA, in float32."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any

from sift_core.answering.learning.settings import FineTuningSettings
from sift_core.answering.model.adapters import Adapter, AdapterLayout
from sift_core.answering.model.hooks import LoraPair, activate_pairs
from sift_core.answering.model.layers import layers_of
from sift_core.answering.model.training import TokenWindow, backward, window_loss
from sift_core.errors import MissingDependencyError

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("torch", extra="fine-tune") from error


class LoraLearner:
    """A LoRA in float32, its gradient and Adam's moments; computed with in the model's precision.

    Holds five times the adapter's weights: parameters, gradient, Adam's two moments, and the
    parameters before the last step.

    Args:
        model: The frozen model.
        settings: How it learns.
        base_name: The model's name.
        start_from: What it begins with, and where rank and alpha come from. Default: a fresh LoRA
            of the settings'.

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
        self._layers, self._base_name = layers_of(model), base_name
        rank = settings.rank if start_from is None else start_from.rank
        self._layout = layout = self._layers.layout(rank=rank, lora=settings.lora)
        self._alpha = settings.alpha if start_from is None else start_from.alpha
        self._learning_rate = settings.step_size
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
        self._optimizer = torch.optim.Adam([self._values], lr=self._learning_rate, fused=True)

    def backward(self, window: TokenWindow, weight: float, *, checkpointing: bool) -> float:
        """Add the gradient of a window's weighted loss; return the weighted loss."""
        with activate_pairs(self._pairs(), instead_of=self._layers.modules):
            loss = backward(self._layers, window, weight, checkpointing=checkpointing)
        self._collect_gradient()
        return loss

    def loss(self, window: TokenWindow) -> float:
        """Return the summed cross-entropy of a window's targets in nats; nothing is learned."""
        with (
            activate_pairs(self._pairs(), instead_of=self._layers.modules),
            torch.inference_mode(False),
            torch.no_grad(),
        ):
            return window_loss(self._layers, window)

    def drop_gradient(self) -> None:
        """Forget the gradient."""
        self._values.grad = None
        for leaf in self._flat_leaves():
            leaf.grad = None

    def has_finite_gradient(self) -> bool:
        """Return whether every number of the gradient is finite."""
        return self._values.grad is not None and _is_finite(self._values.grad)

    def is_finite(self) -> bool:
        """Return whether every parameter is finite."""
        return _is_finite(self._values.data)

    def step(self, share: float) -> None:
        """Take a step with a share of the learning rate along the gradient, then forget it."""
        with torch.inference_mode(False), torch.no_grad():
            # In the precision that the model computes in: the loss was that of these numbers.
            if self._before is None:
                self._before = self._computed.clone()
            else:
                self._before.copy_(self._computed)
            self._optimizer.param_groups[0]["lr"] = share * self._learning_rate
            self._optimizer.step()
            self.drop_gradient()
            self._refresh()

    def fall_back(self) -> bool:
        """Go back to the parameters of the last finite loss; return whether that undoes a step.

        They are as the model computed with them.
        """
        if self._before is None:
            return False
        with torch.inference_mode(False), torch.no_grad():
            self._values.data.copy_(self._before)
            self._refresh()
        return True

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
        """Return layer → the update that is computed with."""
        scale = self._alpha / self._layout.rank
        return {
            self._layers.module(name): LoraPair(a=a, b=b, scale=scale)
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

    def _flat_leaves(self) -> Iterator[torch.Tensor]:
        return chain.from_iterable(self._leaves.values())

    def _refresh(self) -> None:
        """Compute with the present values from now on."""
        if self._computed.data_ptr() != self._values.data_ptr():
            self._computed.copy_(self._values.data)


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


def _is_finite(tensor: torch.Tensor) -> bool:
    return math.isfinite(float(torch.nn.utils.get_total_norm([tensor])))
