"""Windows of tokens, in which every token of a text is predicted once, and their cross-entropy.

It is computed a few rows at a time, so that no whole matrix of logits is held: those of 1,024
tokens and GPT-2's vocabulary take 200 MB in float32, and a plain backward pass holds several
copies of them, most of what plain fine-tuning takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sift_core.answering.model.parts import ModelParts
from sift_core.errors import MissingDependencyError

try:
    import torch
    from torch.nn import functional
except ImportError as error:
    raise MissingDependencyError("torch", extra="fine-tune") from error

# 8 MiB in float32: 41 rows of GPT-2's vocabulary. On a GPU, where each block reads the whole head
# and memory is faster than it is scarce, 256 MiB: a guess.
LOGITS_PER_BLOCK = {"cpu": 2**21, "cuda": 2**26}


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


def target_losses(
    parts: ModelParts, model: Any, hidden: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """Return the cross-entropy of each target in nats, shape (n,), float32.

    Args:
        parts: The model's.
        model: The model.
        hidden: What `parts.hidden` returned where these targets follow, shape (n, width).
        targets: Token ids, shape (n,).
    """
    pieces = []
    for rows in _blocks(parts, hidden):
        logits = parts.logits(model, hidden[rows])
        pieces.append(functional.cross_entropy(logits, targets[rows], reduction="none"))
    return torch.cat(pieces)


def window_loss(parts: ModelParts, model: Any, window: TokenWindow) -> float:
    """Return the summed cross-entropy of a window's targets in nats; one forward pass."""
    inputs = torch.tensor([window.inputs], device=model.device)
    targets = torch.tensor(window.targets, device=model.device)
    hidden = parts.hidden(model, inputs, None)[0, target_rows(window)]
    return float(target_losses(parts, model, hidden, targets).sum())


def target_rows(window: TokenWindow) -> slice:
    """Return where in a window's hidden states its targets are predicted."""
    return slice(len(window.inputs) - len(window.targets), len(window.inputs))


def backward_through_head(
    parts: ModelParts,
    model: Any,
    hidden: torch.Tensor,
    targets: torch.Tensor,
    weights: torch.Tensor,
    *,
    ends_here: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each target's loss (n,), and the weighted loss's gradient at `hidden` (n, width).

    What is learned in the head itself gets its gradient on the way.

    Args:
        parts: The model's.
        model: The model.
        hidden: As for `target_losses`; no gradient flows beyond it.
        targets: Token ids, shape (n,).
        weights: Of each target in the loss, shape (n,), float32.
        ends_here: Whether nothing below the head learns; the gradient returned is empty then.
    """
    gradient = hidden.new_empty(0 if ends_here else hidden.shape)
    all_losses = []
    for rows in _blocks(parts, hidden):
        block = hidden[rows].detach().requires_grad_(not ends_here)
        logits = parts.logits(model, block)
        losses, logit_gradient = _losses_and_gradient(logits.detach(), targets[rows], weights[rows])
        logits.backward(logit_gradient)  # type: ignore[no-untyped-call]
        if block.grad is not None:
            gradient[rows] = block.grad
        all_losses.append(losses)
    return torch.cat(all_losses), gradient


def _losses_and_gradient(
    logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor
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
    return losses, gradient.mul_(weights[:, None])


def _blocks(parts: ModelParts, hidden: torch.Tensor) -> list[slice]:
    most = LOGITS_PER_BLOCK.get(hidden.device.type, LOGITS_PER_BLOCK["cpu"])
    n_rows = max(1, most // parts.n_vocabulary)
    return [slice(start, start + n_rows) for start in range(0, len(hidden), n_rows)]
