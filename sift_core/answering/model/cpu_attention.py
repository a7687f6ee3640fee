"""Causal attention of a model in bfloat16 on a CPU, by whole matrix products.

PyTorch's fused attention multiplies blocks that are too small for the processor's bfloat16
instructions: it takes twice as long to read and three times as long to learn as the same products
in one piece each (`benchmarks.fine_tuning` of the tag evidence-2026-11). Whatever else a model
asks for (a mask, a window, a cache, dropout) goes to the fused one, as in `transformers`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sift_core.errors import MissingDependencyError

try:
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
except ImportError as error:
    raise MissingDependencyError("torch and transformers", extra="fine-tune") from error

NAME = "sift_cpu"
FUSED = "sdpa"
# Tokens. Learning holds each head's shares, n² numbers: 2.5 MiB a layer at 384 and nine heads.
LONGEST_LEARNED = 384
OTHERS = ("softcap", "position_bias", "cache", "s_aux")  # what only some models ask for
ROWS = 64  # queries that are read at a time, so that their shares stay in the processor's cache


def attend_by_products(model: Any) -> None:
    """Let a model that attends by PyTorch's fused attention attend by `NAME`, where it pays."""
    config = model.config
    if (
        model.device.type == "cpu"
        and model.dtype == torch.bfloat16
        and config._attn_implementation == FUSED
    ):
        config._attn_implementation = NAME


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Return what transformers' attention functions return, shape (rows, n, heads, width)."""
    n, width = query.shape[-2:]
    is_plain = (
        attention_mask is None
        and n > 1
        and key.shape[-2] == n
        and value.shape[-1] == key.shape[-1] == width
        and query.dtype == torch.bfloat16
        and query.device.type == "cpu"
        and not dropout
        and options.get("is_causal") is not False
        and getattr(module, "is_causal", True)
        and all(options.get(name) is None for name in OTHERS)
    )
    learns = torch.is_grad_enabled() and (
        query.requires_grad or key.requires_grad or value.requires_grad
    )
    if is_plain and (n <= LONGEST_LEARNED or not learns):
        scale = width**-0.5 if scaling is None else scaling
        attend = _Learned.apply if learns else _read
        return attend(query, key, value, scale).transpose(1, 2).contiguous(), None
    found: tuple[torch.Tensor, None] = sdpa_attention_forward(
        module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
    )
    return found


def _read(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
) -> torch.Tensor:
    """Return what each query reads; shapes as in `_Learned`."""
    q, k, v = _grouped(query * scale, key, value)
    n_groups, n_heads, n, width = q.shape
    read = torch.empty(q.shape, dtype=q.dtype)
    for start in range(0, n, ROWS):
        end = min(start + ROWS, n)
        block = q[:, :, start:end].reshape(n_groups, -1, width)
        scores = torch.bmm(block, k[:, :end].transpose(1, 2))
        within = scores.view(n_groups, n_heads, end - start, end)[..., start:]
        within.add_(_after(end - start, scores.dtype))
        shares = torch.softmax(scores, dim=-1)
        read[:, :, start:end] = torch.bmm(shares, v[:, :end]).view(n_groups, n_heads, -1, width)
    return read.reshape(query.shape)


class _Learned(torch.autograd.Function):
    """Causal attention with a gradient; keys and values may be shared by a group of heads.

    Shapes: query (rows, heads, n, width), key and value (rows, groups, n, width).
    """

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, scale: float) -> torch.Tensor:
        q, k, v = _grouped(query * scale, key, value)
        n_groups, _, n, width = q.shape
        q = q.reshape(n_groups, -1, width)
        scores = torch.bmm(q, k.transpose(1, 2))
        scores.view(n_groups, -1, n, n).add_(_after(n, scores.dtype))
        shares = torch.softmax(scores, dim=-1)
        ctx.save_for_backward(q, k, v, shares)
        ctx.scale = scale
        return torch.bmm(shares, v).reshape(query.shape)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        q, k, v, shares = ctx.saved_tensors
        flowing = gradient.reshape(q.shape)
        at_shares = torch.bmm(flowing, v.transpose(1, 2))
        at_scores = torch.ops.aten._softmax_backward_data(at_shares, shares, -1, shares.dtype)
        at_query = torch.bmm(at_scores, k).mul_(ctx.scale)
        at_key = torch.bmm(at_scores.transpose(1, 2), q)
        at_value = torch.bmm(shares.transpose(1, 2), flowing)
        per_key = (gradient.shape[0], -1, *k.shape[1:])
        return at_query.view(gradient.shape), at_key.view(per_key), at_value.view(per_key), None


def _grouped(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return queries (groups, heads of one, n, width), and keys and values (groups, n, width)."""
    n, width = query.shape[-2:]
    k, v = key.reshape(-1, n, width), value.reshape(-1, n, width)
    return query.reshape(len(k), -1, n, width), k, v


@lru_cache(maxsize=8)
def _after(n: int, dtype: torch.dtype) -> torch.Tensor:
    """Return what keeps a token from those after it, shape (n, n): 0 and -inf."""
    with torch.inference_mode(False):
        return torch.full((n, n), -torch.inf, dtype=dtype).triu_(1)


ALL_ATTENTION_FUNCTIONS.register(NAME, _attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, sdpa_mask)
