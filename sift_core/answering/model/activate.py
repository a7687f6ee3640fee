"""Letting a flow of control compute with what was learned."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sift_core.answering.model.adapters import Adapter
from sift_core.answering.model.hooks import LoraPair, activate_copy, activate_pairs
from sift_core.answering.model.parts import ModelParts, parts_of
from sift_core.errors import InvalidInputError


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelCopy:
    """A private copy of a model, all of whose weights have learned.

    Args:
        model: The copy, float32.
        base: The model that it is a copy of.
        key: As an adapter's.
    """

    model: Any
    base: weakref.ref[Any]
    key: str = ""


@contextmanager
def activate(model: Any, learned: Adapter | ModelCopy | None) -> Iterator[None]:
    """Let this flow of control compute with what was learned for the `with` block, None: the base.

    Raises:
        InvalidInputError: If it was made for another model.
    """
    if isinstance(learned, ModelCopy):
        if learned.base() is not model:
            raise InvalidInputError("the copy was made for another model; fine-tune this one")
        with activate_copy(model, learned.model):
            yield
        return
    parts = parts_of(model)
    pairs: Mapping[Any, LoraPair] = {}
    if learned is not None:
        values = learned.values.to(model.device, model.dtype)
        pairs = {
            parts.module(name): _fitting(name, parts, LoraPair(a=a, b=b, scale=learned.scale))
            for name, (a, b) in learned.layout.pairs(values).items()
        }
    # The model itself, also inside the block of a copy.
    with activate_copy(model, model), activate_pairs(pairs, instead_of=parts.modules):
        yield


def _fitting(name: str, parts: ModelParts, pair: LoraPair) -> LoraPair:
    expected = parts.widths(name)
    if (pair.a.shape[-1], pair.b.shape[-2]) != expected:
        raise InvalidInputError(
            f"the adapter's layer {name!r} is {pair.a.shape[-1]} → {pair.b.shape[-2]}, the "
            f"model's {expected[0]} → {expected[1]}; use it with the model that it was made for"
        )
    return pair
