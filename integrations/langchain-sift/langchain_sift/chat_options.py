"""What a chat model is told about one answer, in LangChain's words, for the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sift_core import InvalidInputError

GREEDY = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
_NOT_HERE = ("tools", "tool_choice", "functions", "function_call", "response_format")
_OF_REMOTE_MODELS = ("api_key", "max_retries", "streaming", "timeout")


def constructor_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat model's arguments under the names of its fields.

    `max_tokens` is `max_new_tokens`. What concerns models behind a network, and `streaming`,
    which is for `stream` to say, have no meaning here and are left out.

    Raises:
        InvalidInputError: If the length is said twice.
    """
    return _with_length({k: v for k, v in values.items() if k not in _OF_REMOTE_MODELS})


def call_options(options: Mapping[str, Any], model_name: str) -> dict[str, Any]:
    """Return what one call says about its answer, under the names of the fields.

    Raises:
        InvalidInputError: If it asks for another model, for tools or for a format, or says the
            length twice.
    """
    refused = sorted(name for name in _NOT_HERE if options.get(name))
    if refused:
        raise InvalidInputError(
            f"this model has no use for {refused}: it writes text alone; leave them out"
        )
    if options.get("model", model_name) != model_name:
        raise InvalidInputError(
            f"this chat model is {model_name!r} alone, got `model`={options['model']!r}; construct "
            f"another with an engine over that model"
        )
    return _with_length({k: v for k, v in options.items() if k not in (*_NOT_HERE, "model")})


def generation_options(
    *, max_new_tokens: int | None, temperature: float | None, stop: Sequence[str] | None
) -> dict[str, Any]:
    """Return how to generate, as the engine takes it; what is None is for the engine to say.

    Args:
        max_new_tokens: Length at most.
        temperature: 0 for greedy, else sampled.
        stop: Texts that end the answer; none if empty.

    Raises:
        InvalidInputError: If the temperature is negative.
    """
    generation: dict[str, Any] = {}
    if max_new_tokens is not None:
        generation["max_new_tokens"] = max_new_tokens
    if stop is not None:
        generation["stop"] = stop
    if temperature is not None:
        if not temperature >= 0:  # also refuses NaN
            raise InvalidInputError(f"`temperature` must be >= 0, got {temperature}")
        sampled = {"do_sample": True, "temperature": float(temperature)}
        generation |= sampled if temperature > 0 else GREEDY
    return generation


def _with_length(values: dict[str, Any]) -> dict[str, Any]:
    if "max_tokens" not in values:
        return values
    if "max_new_tokens" in values:
        raise InvalidInputError("pass `max_new_tokens` or `max_tokens`, which mean the same")
    values["max_new_tokens"] = values.pop("max_tokens")
    return values
