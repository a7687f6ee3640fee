"""In which precision a collection is embedded on this machine's CPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, TypeAlias

from sift_core.processor import EIGHT_BIT_INSTRUCTIONS, instructions
from sift_core.protocols import Embedder

Precision: TypeAlias = Literal["float32", "int8"]
LEAST_SAVING = 1 / 3  # of the time of float32, or its exact vectors are worth more
N_TEXTS, REPEATS = 8, 3  # that are timed: a second or two for a model of MiniLM's size
TEXT = "Seven of the 38 old ships were sold; nobody asked why, or at what price. " * 6


def eight_bit_instructions() -> list[str] | None:
    """Return the CPU's instructions for products of eight-bit numbers, by Linux' names.

    With one of them (VNNI, AMX, Arm's dot product) embedding in eight bits takes about half of the
    time of float32. Return None where the system does not tell the CPU's instructions.
    """
    known = instructions()
    return None if known is None else sorted(known & EIGHT_BIT_INSTRUCTIONS)


def saving_of_eight_bits(
    float32: Embedder, int8: Embedder, *, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the share of float32's time that eight bits save now, at most 1.

    Args:
        float32: Embeds in float32.
        int8: Embeds in eight bits.
        clock: Returns seconds.
    """
    texts = [f"{number}. {TEXT}" for number in range(N_TEXTS)]

    def seconds(embedder: Embedder) -> float:
        taken = []
        for _ in range(REPEATS):
            started = clock()
            embedder.embed_documents(texts)
            taken.append(clock() - started)
        return min(taken)  # a moment in which the machine is busy must not count

    return 1 - seconds(int8) / seconds(float32)
