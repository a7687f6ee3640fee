"""Sampling with a generator of its own: the same seed, the same text, whoever else samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sift_core.checks import as_count, as_number
from sift_core.errors import MissingDependencyError

try:
    import torch
    from transformers import (
        LogitsProcessor,
        LogitsProcessorList,
        TemperatureLogitsWarper,
        TopPLogitsWarper,
    )
except ImportError as error:
    raise MissingDependencyError("torch and transformers", extra="fine-tune") from error

MAX_SEED = 2**63 - 1
LEAST_TEMPERATURE = 1e-6  # logits over 1e-38 leave the range of float32, and any token wins


def seeded(*, temperature: float = 1.0, top_p: float = 1.0, seed: int) -> Mapping[str, Any]:
    """Return settings of generation that sample with a generator of their own.

    `generate` samples from torch's one generator, which all threads share: a seed would say
    nothing beside other answers. Here Gumbel noise is added to the logits, whose largest is then
    distributed as a sample from their softmax, and the search is greedy. For one answer each.

    Args:
        temperature: > 0; one below 1e-6 draws as 1e-6 does, the likeliest token.
        top_p: In (0, 1]: only the likeliest tokens that together have this probability.
        seed: In [0, 2**63).

    Raises:
        InvalidInputError: If a number is out of its range.

    References:
        Maddison, Tarlow and Minka (2014), A* Sampling, section 2.
    """
    as_number("temperature", temperature, above=0)
    as_number("top_p", top_p, above=0, maximum=1)
    as_count("seed", seed, minimum=0, maximum=MAX_SEED)
    noise = GumbelNoise(temperature=temperature, top_p=top_p, seed=seed)
    return {"do_sample": False, "logits_processor": LogitsProcessorList([noise])}


class GumbelNoise(LogitsProcessor):
    """Adds the noise, after the temperature and the cut of unlikely tokens.

    Args:
        temperature: As for `seeded`, like the others, which can be read here.
        top_p: Likewise.
        seed: Likewise.
    """

    def __init__(self, *, temperature: float, top_p: float, seed: int) -> None:
        self.temperature, self.top_p, self.seed = temperature, top_p, seed
        self._generator = torch.Generator().manual_seed(seed)
        self._warpers: list[Any] = []
        if temperature != 1.0:
            least = max(float(temperature), LEAST_TEMPERATURE)
            self._warpers.append(TemperatureLogitsWarper(least))
        if top_p < 1.0:
            self._warpers.append(TopPLogitsWarper(top_p))

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Return the scores (rows, tokens), warped and with noise."""
        warped: Any = scores.float()
        for warper in self._warpers:
            warped = warper(input_ids, warped)
        uniform = torch.rand(warped.shape, generator=self._generator, dtype=torch.float64)
        noise = -torch.log(-torch.log(uniform.clamp(1e-300, 1 - 1e-16)))
        noised: torch.FloatTensor = warped + noise.to(warped)
        return noised
