"""In which number type a model computes on this machine's CPU, and why."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal, TypeAlias, get_args

from sift_core.checks import short_repr
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.files import measured_once
from sift_core.processor import BFLOAT16_INSTRUCTIONS, instructions, limit_torch_threads

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("torch", extra="fine-tune") from error

NumberType: TypeAlias = Literal["auto", "float32", "bfloat16", "float16"]
# With these PyTorch computes with fewer instructions than the processor has.
LIMITING_VARIABLES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
TOKENS, INPUTS, OUTPUTS = 64, 576, 768  # of the product that is timed
REPEATS = 3
# How many times as fast bfloat16 must be. Without instructions for it, it takes 5 to 60 times as
# long as float32, and with them about half as long.
LEAST_GAIN = 1.25


@dataclass(frozen=True, kw_only=True)
class CpuNumberType:
    """A number type, and the reason for it.

    Args:
        name: "bfloat16" or "float32".
        reason: A clause that follows "because", for people.
    """

    name: Literal["bfloat16", "float32"]
    reason: str


def check_number_type(name: object) -> None:
    """Raise if a name is not a `NumberType`.

    Raises:
        InvalidInputError: If it is not.
    """
    if name not in get_args(NumberType):
        known = ", ".join(map(repr, get_args(NumberType)))
        raise InvalidInputError(f"`dtype` must be one of {known}, got {short_repr(name)}")


@cache
def cpu_number_type() -> CpuNumberType:
    """Return the number type in which a model is fastest on this CPU.

    The processor's instruction sets decide. Where the system does not tell them, or PyTorch
    cannot use them all, small products of each type are timed once on this machine. That takes a
    tenth of a second, or half a second where bfloat16 is slow.
    """
    limit_torch_threads()
    limits = [name for name in LIMITING_VARIABLES if os.environ.get(name)]
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        limits.append("a build without oneDNN")
    circumstances = [
        torch.__version__,
        *(f"{name}={os.environ.get(name)}" for name in LIMITING_VARIABLES),
    ]
    slowdown = partial(measured_once, "bfloat16", circumstances, slowdown_of_bfloat16)
    return chosen_type(instructions(), limits, slowdown)


def chosen_type(
    known: frozenset[str] | None, limits: list[str], slowdown: Callable[[], float]
) -> CpuNumberType:
    """Return the number type for a processor.

    Args:
        known: Names of its instruction sets as Linux has them; None if nobody knows.
        limits: What keeps PyTorch from using all of them.
        slowdown: Returns how many times as long bfloat16 takes as float32. It is called where
            `known` does not decide.
    """
    if known is not None and not known & BFLOAT16_INSTRUCTIONS:
        return CpuNumberType(name="float32", reason="the CPU has no instructions for bfloat16")
    if known is not None and not limits:
        names = ", ".join(sorted(known & BFLOAT16_INSTRUCTIONS))
        return CpuNumberType(name="bfloat16", reason=f"the CPU has instructions for it ({names})")
    why = "the system does not tell the CPU's instructions"
    if limits:
        why = f"PyTorch is limited by {' and '.join(limits)}"
    times = slowdown()
    timed = f"{why}, and bfloat16 took {times:.2g} times as long as float32 when it was timed"
    return CpuNumberType(name="bfloat16" if times * LEAST_GAIN < 1 else "float32", reason=timed)


def slowdown_of_bfloat16() -> float:
    """Return how many times as long small products take in bfloat16 as in float32.

    The products are those of a linear layer and of its gradient. Of each type the fastest of
    `REPEATS` counts, so that a moment in which the machine is busy does not.
    """
    return _seconds(torch.bfloat16) / _seconds(torch.float32)


def _seconds(dtype: torch.dtype) -> float:
    with torch.inference_mode():
        inputs = torch.ones(TOKENS, INPUTS, dtype=dtype)
        weights = torch.ones(OUTPUTS, INPUTS, dtype=dtype)
        outputs = inputs @ weights.t()  # prepares what a first product prepares
        taken = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            torch.mm(inputs, weights.t())
            torch.mm(outputs, weights)
            taken.append(time.perf_counter() - started)
    return min(taken)
