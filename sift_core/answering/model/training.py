"""Windows of tokens, and forward and backward passes over them.

Cross-entropy is computed a few rows at a time, so that no whole matrix of logits is held: those of
1,024 tokens and GPT-2's vocabulary take 200 MB in float32, and a plain backward pass holds several
copies of them, most of what plain fine-tuning takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from sift_core.answering.model.hooks import activate_pairs, active_pairs
from sift_core.answering.model.layers import ModelLayers
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
        inputs, targets = _tensors(layers, window)
        with _computed_by(forwards):
            hidden = layers.hidden(inputs)[0, _target_rows(window)]
        losses, gradient = _backward_through_head(layers, hidden, targets, weight)
        if hidden.requires_grad:
            hidden.backward(gradient)  # type: ignore[no-untyped-call]
    return float((losses * weight).sum())


def _backward_through_head(
    layers: ModelLayers, hidden: torch.Tensor, targets: torch.Tensor, weight: float
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
        losses, logit_gradient = _losses_and_gradient(logits.detach(), targets[rows], weight)
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
