"""Windows of tokens, and forward and backward passes over them, for each scope of learning.

Cross-entropy is computed a few rows at a time, so that no whole matrix of logits is held: those of
1,024 tokens and GPT-2's vocabulary take 200 MB in float32, and a plain backward pass holds several
copies of them, most of what plain fine-tuning takes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from sift_core.answering.model.hooks import LayerCall, LayerReachedError, LayerRecorder
from sift_core.answering.model.parts import ModelParts
from sift_core.answering.model.recomputing import recomputing
from sift_core.errors import MissingDependencyError

try:
    import torch
    from cachetools import LRUCache
    from torch.nn import functional
except ImportError as error:
    raise MissingDependencyError("torch and cachetools", extra="fine-tune") from error

# 32 MiB in float32: 170 rows of a vocabulary of 49,152, since each block reads the whole head and
# 41 rows of it are read more slowly than multiplied. On a GPU, where memory is faster than it is
# scarce, 256 MiB: a guess.
LOGITS_PER_BLOCK = {"cpu": 2**23, "cuda": 2**26}
ACTIVATION_BYTES = 2**28  # guess: 340 chunks of 512 tokens at GPT-2's width in bfloat16

Ending: TypeAlias = Callable[[torch.Tensor], object]
"""Takes the gradient at the hidden states of the targets on through the model."""


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


@dataclass(frozen=True, kw_only=True)
class WeightedWindow:
    """A window, and what each of its targets weighs in the loss."""

    window: TokenWindow
    weight: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Activations:
    """What the frozen part of a model makes of one window.

    Args:
        hidden: The hidden state from which on things are learned, shape (1, n, width).
        calls: The calls that lead from it to the head; none if it is the head's input.
    """

    hidden: torch.Tensor
    calls: Sequence[LayerCall] = ()

    @property
    def n_bytes(self) -> int:
        """Return the memory of the hidden state and of what else the calls are given."""
        tensors = {self.hidden.data_ptr(): self.hidden}
        for call in self.calls:
            tensors.update((tensor.data_ptr(), tensor) for tensor in call.tensors())
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


class ActivationCache:
    """Activations of the windows used last, by window and scope. They hold for every query.

    Args:
        max_bytes: What is kept at most.
    """

    def __init__(self, max_bytes: int = ACTIVATION_BYTES) -> None:
        self._kept: LRUCache[tuple[object, ...], Activations] = LRUCache(
            max_bytes, getsizeof=lambda activations: activations.n_bytes
        )
        self._lock = threading.Lock()

    def get(self, key: tuple[object, ...]) -> Activations | None:
        """Return what is kept under a key, None if nothing is."""
        with self._lock:
            return self._kept.get(key)

    def put(self, key: tuple[object, ...], activations: Activations) -> None:
        """Keep activations; those used longest ago make room for them."""
        with self._lock, suppress(ValueError):  # larger than the cache
            self._kept[key] = activations


_caches: WeakKeyDictionary[Any, ActivationCache] = WeakKeyDictionary()  # one a model


def activations_of(model: Any) -> ActivationCache:
    """Return the activations that are kept of a model's frozen layers."""
    return _caches.setdefault(model, ActivationCache())


@dataclass(frozen=True, kw_only=True, eq=False)
class Passes:
    """Forward and backward passes of one model with what is active in this flow of control.

    Args:
        model: The model, or its private copy.
        parts: Its parts.
        kept: Activations of the part that does not learn.
        n_top_layers: How many layers learn; None if all do, 0 if only the head does.
    """

    model: Any
    parts: ModelParts
    kept: ActivationCache
    n_top_layers: int | None = None

    def backward(
        self, rows: Sequence[WeightedWindow], *, checkpointing: bool = False
    ) -> list[float]:
        """Add the gradient of the rows' weighted loss to what learns; return each row's part.

        Args:
            rows: Windows, computed in one pass; padded on the right to the longest.
            checkpointing: Whether to compute activations again, one layer at a time.
        """
        device = self.model.device
        with torch.inference_mode(False), torch.enable_grad():  # also inside a server's no_grad
            targets = torch.tensor([t for row in rows for t in row.window.targets], device=device)
            weights = torch.tensor(
                [row.weight for row in rows for _ in row.window.targets], device=device
            )
            with recomputing():
                hidden, ending = self._forward([row.window for row in rows], checkpointing)
            losses, gradient = backward_through_head(
                self.parts,
                self.model,
                hidden.detach(),
                targets,
                weights,
                ends_here=not hidden.requires_grad,
            )
            if hidden.requires_grad:
                ending(gradient)
        sizes = [len(row.window.targets) for row in rows]
        return [float(part.sum()) for part in torch.split(losses * weights, sizes)]

    def loss(self, window: TokenWindow) -> float:
        """Return the summed cross-entropy of a window's targets in nats."""
        with torch.inference_mode(False), torch.no_grad():
            return window_loss(self.parts, self.model, window)

    def _forward(
        self, windows: Sequence[TokenWindow], checkpointing: bool
    ) -> tuple[torch.Tensor, Ending]:
        """Return the hidden states of all targets (n, width), and the way back from them."""
        if self.n_top_layers is not None and self.parts.can_repeat(self.model):
            hidden = [self._from_kept(window) for window in windows]
        elif checkpointing and self.parts.can_repeat(self.model):
            return self._checkpointed(windows)
        else:
            inputs, mask = padded([window.inputs for window in windows], self.model.device)
            whole = self.parts.hidden(self.model, inputs, mask)
            hidden = [whole[i, target_rows(window)] for i, window in enumerate(windows)]
        joined = hidden[0] if len(hidden) == 1 else torch.cat(hidden)
        return joined, joined.backward

    def _from_kept(self, window: TokenWindow) -> torch.Tensor:
        """Return the hidden states of a window's targets, from the first layer that learns on."""
        key = (self.n_top_layers, self.model.dtype, self.model.device, tuple(window.inputs))
        kept = self.kept.get(key)
        if kept is None:
            kept = self._activations(window)
            self.kept.put(key, kept)
        hidden = kept.hidden
        for call in kept.calls:
            hidden = call.repeated(hidden)
        return hidden[0, target_rows(window)]

    def _activations(self, window: TokenWindow) -> Activations:
        inputs = torch.tensor([window.inputs], device=self.model.device)
        if not self.n_top_layers:
            with torch.no_grad():
                return Activations(hidden=self.parts.hidden(self.model, inputs, None))
        layers, behind = self._recorded(inputs, None)
        calls = layers[-self.n_top_layers :]
        return Activations(
            hidden=calls[0].hidden, calls=[call.bare() for call in (*calls, *behind)]
        )

    def _recorded(
        self, inputs: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[list[LayerCall], list[LayerCall]]:
        recorder = self.parts.recorder()
        with recorder.activated(), torch.no_grad():
            self.parts.hidden(self.model, inputs, mask)
        return self.parts.split(recorder.calls)

    def _checkpointed(self, windows: Sequence[TokenWindow]) -> tuple[torch.Tensor, Ending]:
        """Keep each layer's input alone, and run it again when its gradient is due.

        Layer by layer from here rather than by `torch.utils.checkpoint`, whose second forward pass
        runs in a thread of autograd's, which is in no query's context.
        """
        inputs, mask = padded([window.inputs for window in windows], self.model.device)
        layers, behind = self._recorded(inputs, mask)
        last = (behind[0].hidden if behind else layers[-1].repeated(layers[-1].hidden)).detach()
        last.requires_grad_()
        whole = last
        for call in behind:
            whole = call.repeated(whole)
        joined = torch.cat([whole[i, target_rows(window)] for i, window in enumerate(windows)])

        def ending(gradient: torch.Tensor) -> None:
            joined.backward(gradient)  # type: ignore[no-untyped-call]
            flowing = last.grad
            while layers:
                call = layers.pop()
                hidden = call.hidden.detach().requires_grad_()
                call.repeated(hidden).backward(flowing)  # type: ignore[no-untyped-call]
                flowing = hidden.grad
            front = self._front(inputs, mask)
            if front.requires_grad:  # embeddings that learn, or linear layers before the layers
                front.backward(flowing)  # type: ignore[no-untyped-call]

        return joined, ending

    def _front(self, inputs: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Return what the first layer is given."""
        first = self.parts.layers[0]
        recorder = LayerRecorder(modules=frozenset([first]), stops_at=first)
        try:
            with recorder.activated():
                return self.parts.hidden(self.model, inputs, mask)
        except LayerReachedError as reached:
            return reached.hidden


def padded(rows: Sequence[Sequence[int]], device: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return token ids (rows, longest), padded on the right, and their mask; None if none is."""
    longest = max(len(row) for row in rows)
    inputs = torch.tensor([[*row, *([0] * (longest - len(row)))] for row in rows], device=device)
    if all(len(row) == longest for row in rows):
        return inputs, None
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return inputs, (torch.arange(longest, device=device) < lengths[:, None]).long()
