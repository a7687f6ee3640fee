"""What callers may ask of a model's `generate`, sampling by a seed, and errors of it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from functools import lru_cache
from numbers import Real
from typing import Any

from sift_core.answering.model.text_model import check_stop
from sift_core.answering.model.thoughts import check_template_settings
from sift_core.checks import as_count, as_number, short_repr
from sift_core.errors import AnswerError, InvalidInputError, MissingDependencyError
from sift_core.options import ChoiceOptions

try:
    import torch
    import transformers
    from transformers import LogitsProcessor
except ImportError as error:
    raise MissingDependencyError("torch and transformers", extra="fine-tune") from error

MAX_SEED = 2**63 - 1
LEAST_TEMPERATURE = 1e-6  # logits over 1e-38 leave the range of float32, and any token wins

# Settled here or by the caller. `assistant_early_exit` takes layers out of the model for everyone;
# `stop_strings` needs a tokenizer, which is what `stop` is for.
_OURS = frozenset(
    {"inputs", "input_ids", "inputs_embeds", "attention_mask", "labels", "max_new_tokens"}
    | {"assistant_early_exit", "stop_strings"}
)
_NOT_OF_MODELS = frozenset({"stop", "chat_template_kwargs"})  # what callers may pass all the same
_LISTENERS = frozenset({"on_text", "on_step"})
_OF_REQUESTS = ("mode", "filter", "history", "latency_s", "max_new_tokens")
# What reads a setting, and so knows which values there are. Each is None where it has no effect.
_READERS = {
    "temperature": "TemperatureLogitsWarper",
    "top_k": "TopKLogitsWarper",
    "top_p": "TopPLogitsWarper",
    "min_p": "MinPLogitsWarper",
    "typical_p": "TypicalLogitsWarper",
    "repetition_penalty": "RepetitionPenaltyLogitsProcessor",
    "no_repeat_ngram_size": "NoRepeatNGramLogitsProcessor",
}
_NO_EFFECT: Mapping[str, Any] = {"top_k": 0, "no_repeat_ngram_size": 0, "typical_p": 1.0}
# What callers call the options of a choice; the first two are those of flags and of frameworks.
_OF_CHOICES = {
    **dict.fromkeys(("n_context", "k", "top_n", "n_chunks", "n_documents", "n"), "n_select"),
    **dict.fromkeys(("fetch_k", "candidates"), "n_candidates"),
    "max_context_tokens": "max_tokens",
}
_SAMPLING = frozenset({"temperature", "top_k", "top_p", "min_p", "typical_p"})


def check_options(model: Any, tokenizer: Any, options: Mapping[str, Any]) -> None:
    """Refuse settings of generation that cannot be used, as far as that shows without the model.

    Args:
        model: A causal LM of transformers.
        tokenizer: The model's.
        options: What its `generate` is to take, `stop`, and `chat_template_kwargs`.

    Raises:
        InvalidInputError: If one is unknown or out of its range, or it is not for callers.
    """
    if listeners := sorted(_LISTENERS & options.keys()):
        raise InvalidInputError(
            f"there is no {listeners} here: they are for `answer` and `answer_from`; the pieces of "
            f"a stream are what `on_text` is called with"
        )
    _check_names(_option_names(type(model)), options)  # type: ignore[arg-type]  # has a hash
    check_stop(options.get("stop", ()))
    check_template_settings(tokenizer, options.get("chat_template_kwargs"))
    for name in ("num_beams", "num_return_sequences"):
        if options.get(name) is not None:
            as_count(name, options[name], minimum=1)
    settings = {name: value for name, value in options.items() if name not in _NOT_OF_MODELS}
    with generation_errors(options):
        copy.deepcopy(model.generation_config).update(**{"do_sample": False, **settings})
        for name, reader in _READERS.items():
            value = options.get(name)
            is_used = name not in _SAMPLING or options.get("do_sample")
            if is_used and value is not None and value != _NO_EFFECT.get(name):
                getattr(transformers, reader)(value)


def _check_names(known: Collection[str], options: Mapping[str, Any]) -> None:
    """Refuse options of unknown names, and those of sampling where nothing is sampled.

    Raises:
        InvalidInputError: If there is one.
    """
    for name in options:
        if name not in known:
            ours = [*_OF_REQUESTS, *(each.name for each in fields(ChoiceOptions))]
            near = get_close_matches(str(name), [*known, *ours], n=1)
            near = [_OF_CHOICES[name]] if name in _OF_CHOICES else near
            advice = "see ChoiceOptions and transformers.GenerationConfig"
            if near:
                advice = f"did you mean `{near[0]}`?"
            raise InvalidInputError(
                f"there is no option `{name}` of a choice or of generation; {advice}"
            )
    if {"do_sample", "generation_config", "penalty_alpha"}.isdisjoint(options):
        for name in sorted(_SAMPLING & options.keys()):
            value = options[name]
            is_neutral = isinstance(value, Real) and value in (_NO_EFFECT.get(name, 1.0), 0)
            if value is not None and not is_neutral:
                raise InvalidInputError(
                    f"`{name}` is for sampling, got {short_repr(value)} without "
                    f"`do_sample`; pass `do_sample=True` too, or leave `{name}` out"
                )


@lru_cache
def _option_names(kind: type) -> frozenset[str]:
    """Return the names of what callers may pass to `generate` of a class of models."""
    config: Any = transformers.GenerationConfig
    names = {name for name in vars(config()) if name[0] != "_"}
    for method in ("generate", "prepare_inputs_for_generation", "forward"):
        names |= inspect.signature(getattr(kind, method)).parameters.keys()
    return frozenset(names | _NOT_OF_MODELS) - _OURS - {"self", "kwargs"}


class ListenerError(Exception):
    """Carries what `on_text` raised past those who catch a model's own errors.

    Args:
        error: What was raised.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


@contextmanager
def generation_errors(options: Mapping[str, Any]) -> Iterator[None]:
    """Turn what transformers and torch raise into errors of ours, and let a listener's pass."""
    try:
        yield
    except ListenerError as stopped:
        raise stopped.error from None
    except RuntimeError as error:
        raise AnswerError(f"the model could not generate: {error}") from error
    except InvalidInputError:
        raise
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        raise InvalidInputError(
            f"the model cannot generate with {sorted(options)}: {error}; see "
            f"transformers.GenerationConfig for what there is"
        ) from error


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
    return {"do_sample": False, "logits_processor": transformers.LogitsProcessorList([noise])}


class GumbelNoise(LogitsProcessor):
    """Adds the noise, after the temperature and the cut of unlikely tokens.

    Args:
        temperature: As for `seeded`, like the others, which can be read here.
        top_p: As for `seeded`.
        seed: As for `seeded`.
    """

    def __init__(self, *, temperature: float, top_p: float, seed: int) -> None:
        self.temperature: float = temperature
        self.top_p: float = top_p
        self.seed: int = seed
        self._generator = torch.Generator().manual_seed(seed)
        self._warpers: list[Any] = []
        if temperature != 1.0:
            least = max(float(temperature), LEAST_TEMPERATURE)
            self._warpers.append(transformers.TemperatureLogitsWarper(least))
        if top_p < 1.0:
            self._warpers.append(transformers.TopPLogitsWarper(top_p))

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Return the scores (rows, tokens), warped and with noise."""
        warped: Any = scores.float()
        for warper in self._warpers:
            warped = warper(input_ids, warped)
        uniform = torch.rand(warped.shape, generator=self._generator, dtype=torch.float64)
        noise = -torch.log(-torch.log(uniform.clamp(1e-300, 1 - 1e-16)))
        noised: torch.FloatTensor = warped + noise.to(warped)
        return noised
