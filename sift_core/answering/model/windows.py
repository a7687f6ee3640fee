"""Windows of tokens: the forward passes in which every token of a text is predicted once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


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
