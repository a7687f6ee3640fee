"""Windows of tokens, passes over them, and the LoRA in float32 that learns from the gradients.

Cross-entropy is computed a few rows at a time, so that no whole matrix of logits is held: those of
1,024 tokens and GPT-2's vocabulary take 200 MB in float32, and a plain backward pass holds several
copies of them, most of what plain fine-tuning takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from typing import Any

from sift_core.answering.model.adapters import Adapter, AdapterLayout
from sift_core.answering.model.layers import LoraPair, ModelLayers, activate_pairs, active_pairs
from sift_core.errors import MissingDependencyError

try:
    import torch
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint
except ImportError as error:
    raise MissingDependencyError("torch", extra="fine-tune") from error

# 32 MiB in float32: 170 rows of a vocabulary of 49,152, since each block reads the whole head and
# 41 rows of it are read more slowly than multiplied. On a GPU, where memory is faster than it is
# scarce, 256 MiB: a guess.
LOGITS_PER_BLOCK = {"cpu": 2**23, "cuda": 2**26}


@dataclass(frozen=True, kw_only=True)
class TokenWindow:
    """One forward pass: the inputs, and the targets of the last `len(targets)` of them."""

    inputs: Sequence[int]
    targets: Sequence[int]

    def losses_and_gradient(
        self, logits: torch.Tensor, rows: slice, weight: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return some targets' losses (n,) in nats, and their gradient at the logits.

        Args:
            logits: Where those targets follow, shape (n, vocabulary), float32. Not changed.
            rows: Which of the targets.
            weight: Of each loss in what the gradient is of.
        """
        targets = torch.tensor(self.targets[rows], device=logits.device)
        return _losses_and_gradient(logits, targets, weight)


def rolling_windows(
    ids: Sequence[int], lead: Sequence[int], *, width: int, keep_lead: bool
) -> Iterator[TokenWindow]:
    """Yield windows of at most `width` inputs that cover `ids` once, in order.

    Args:
        ids: What is predicted.
        lead: What the first token is predicted from, not empty, at most `width` long.
        width: Inputs of one window.
        keep_lead: Whether every window begins with `lead`; if not, later ones hold as much of
            the earlier tokens as fits, as in lm-evaluation-harness.
    """
    room = width - len(lead) + 1  # targets of one window; the last is no input
    first = min(room, len(ids))
    if first:
        yield TokenWindow(inputs=[*lead, *ids[: first - 1]], targets=ids[:first])
    for start in range(first, len(ids), room):
        end = min(start + room, len(ids))
        kept = list(lead) if keep_lead else []
        inputs = [*kept, *ids[max(0, end - 1 - width + len(kept)) : end - 1]]
        yield TokenWindow(inputs=inputs, targets=ids[start:end])


def target_losses(layers: ModelLayers, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of each target in nats, shape (n,), float32.

    Args:
        layers: The model's.
        hidden: What `layers.hidden` returned where these targets follow, shape (n, width).
        targets: Token ids, shape (n,).
    """
    pieces = []
    for rows in _blocks(layers, hidden):
        logits = layers.logits(hidden[rows])
        pieces.append(functional.cross_entropy(logits, targets[rows], reduction="none"))
    return torch.cat(pieces)


def window_loss(layers: ModelLayers, window: TokenWindow) -> float:
    """Return the summed cross-entropy of a window's targets in nats; one forward pass."""
    inputs, targets = _tensors(layers, window)
    hidden = layers.hidden(inputs)[0, _target_rows(window)]
    return float(target_losses(layers, hidden, targets).sum())


def _tensors(layers: ModelLayers, window: TokenWindow) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a window's inputs, shape (1, n), and its targets."""
    device = layers.model().device  # type: ignore[union-attr]  # it computes
    inputs = torch.tensor([window.inputs], device=device)
    return inputs, torch.tensor(window.targets, device=device)


def _target_rows(window: TokenWindow) -> slice:
    """Return where in a window's hidden states its targets are predicted."""
    return slice(len(window.inputs) - len(window.targets), len(window.inputs))


def backward(
    layers: ModelLayers, window: TokenWindow, weight: float, *, checkpointing: bool
) -> float:
    """Add the gradient of a window's weighted loss to what learns; return the weighted loss.

    Args:
        layers: The model's; it computes with what is active in this flow of control.
        window: What is read and predicted.
        weight: Of each target in the loss.
        checkpointing: Whether to compute activations again, one layer at a time.
    """
    if checkpointing:
        forwards = {layer: partial(_checkpointed, layer.forward) for layer in layers.decoder_layers}
    else:
        forwards = dict.fromkeys(layers.slow_gelus, partial(functional.gelu, approximate="tanh"))
    with torch.inference_mode(False), torch.enable_grad():  # also inside a server's no_grad
        inputs, _ = _tensors(layers, window)
        with _computed_by(forwards):
            hidden = layers.hidden(inputs)[0, _target_rows(window)]
        losses, gradient = _backward_through_head(layers, hidden, window, weight)
        if hidden.requires_grad:
            hidden.backward(gradient)  # type: ignore[no-untyped-call]
    return float((losses * weight).sum())


def _backward_through_head(
    layers: ModelLayers, hidden: torch.Tensor, window: TokenWindow, weight: float
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return each target's loss (n,), and the weighted loss's gradient at `hidden` (n, width).

    An adapter on the head gets its gradient on the way. The gradient is None if nothing below the
    head learns.
    """
    gradient = torch.empty_like(hidden) if hidden.requires_grad else None
    all_losses = []
    for rows in _blocks(layers, hidden):
        block = hidden[rows].detach().requires_grad_(hidden.requires_grad)
        logits = layers.logits(block)
        losses, logit_gradient = window.losses_and_gradient(logits.detach(), rows, weight)
        logits.backward(logit_gradient)  # type: ignore[no-untyped-call]
        if gradient is not None and block.grad is not None:
            gradient[rows] = block.grad
        all_losses.append(losses)
    return torch.cat(all_losses), gradient


def _losses_and_gradient(
    logits: torch.Tensor, targets: torch.Tensor, weight: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cross-entropies (n,), and the weighted loss's gradient at `logits` (n, vocabulary).

    The gradient is softmax minus one-hot, made in place of the softmax: one tensor of the logits'
    size, where autograd takes two. ln Σ exp comes from the largest probability, which is at
    least 1 / vocabulary and so has a precise logarithm.
    """
    probabilities = torch.softmax(logits, dim=-1)
    log_sums = logits.amax(dim=-1) - probabilities.amax(dim=-1).log()
    at_targets = targets[:, None]
    losses = log_sums - logits.gather(-1, at_targets).squeeze(-1)
    minus_one = torch.full_like(at_targets, -1, dtype=probabilities.dtype)
    gradient = probabilities.scatter_add_(-1, at_targets, minus_one)
    return losses, gradient.mul_(weight)


def _blocks(layers: ModelLayers, hidden: torch.Tensor) -> list[slice]:
    most = LOGITS_PER_BLOCK.get(hidden.device.type, LOGITS_PER_BLOCK["cpu"])
    n_rows = max(1, most // layers.n_vocabulary)
    return [slice(start, start + n_rows) for start in range(0, len(hidden), n_rows)]


@contextmanager
def _computed_by(forwards: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """Let modules compute by other functions for the `with` block, under the model's lock."""
    own = {module: vars(module).get("forward") for module in forwards}
    try:
        for module, forward in forwards.items():
            module.forward = forward
        yield
    finally:
        for module, forward in own.items():
            if forward is None:
                vars(module).pop("forward", None)
            else:
                module.forward = forward


def _checkpointed(forward: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return what a layer computes; it keeps its input alone, and runs again for its gradient.

    On a GPU it runs again in a thread of autograd's, which is in no query's context. So it is given
    the adapter of its first run.
    """
    again = partial(activate_pairs, active_pairs(), instead_of=frozenset())
    return checkpoint(
        forward,
        *args,
        use_reentrant=False,
        preserve_rng_state=False,
        context_fn=lambda: (nullcontext(), again()),
        **options,
    )


class LoraLearner:
    """A LoRA in float32, its gradient and Adam's moments; computed with in the model's precision.

    Holds five times the adapter's weights: parameters, gradient, Adam's two moments, and the
    parameters before the last step.

    Args:
        layers: Those of the frozen model.
        start_from: What it begins with, its layout that of the layers. Its values become the
            learner's own and change.
        learning_rate: Of Adam.
    """

    def __init__(self, layers: ModelLayers, start_from: Adapter, learning_rate: float) -> None:
        self._layers, self._layout, self._learning_rate = layers, start_from.layout, learning_rate
        model: Any = layers.model()
        with torch.inference_mode(False), torch.no_grad():
            self._values = torch.nn.Parameter(start_from.values.to(model.device))
            self._adapter = replace(start_from, values=self._values.data)
            self._before: torch.Tensor | None = None
            self._gradient: torch.Tensor | None = None  # its memory, kept from step to step
            # As autograd sees them, in the model's precision; in float32 the same memory.
            self._computed = self._values.data.to(model.dtype)
            self._leaves = {
                name: (a.detach().requires_grad_(), b.detach().requires_grad_())
                for name, (a, b) in self._layout.pairs(self._computed).items()
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
        return replace(self._adapter, key=key)

    def _pairs(self) -> Mapping[Any, LoraPair]:
        """Return layer → the update that is computed with."""
        scale = self._adapter.scale
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


def fresh_values(layout: AdapterLayout, seed: int) -> torch.Tensor:
    """Return a fresh adapter's weights, shape (n_values,): A as PEFT draws it, B zero."""
    values = torch.zeros(layout.n_values)
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
