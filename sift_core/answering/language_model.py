"""A causal language model with its tokenizer: score a text, continue a prompt."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sift_core.answering.generation import (
    CHUNK_SEPARATOR,
    Generation,
    ListenerError,
    Prompt,
    TextWatcher,
    as_conversation,
    as_plain_text,
)
from sift_core.answering.model_guard import WAITS_FOR_ITSELF, guard_of
from sift_core.errors import AnswerError, InvalidInputError, MissingDependencyError
from sift_core.types import as_count, check_text

try:
    import torch
    from jinja2 import TemplateError
    from safetensors import SafetensorError
    from torch.nn import functional
    from transformers import AutoModelForCausalLM, AutoTokenizer, StoppingCriteriaList
except ImportError as error:
    raise MissingDependencyError("torch and transformers", extra="fine-tune") from error

# No such model, no such device, a broken file, a missing tokenizer backend, other shapes.
_LOADING_ERRORS = (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError)


@dataclass(frozen=True, kw_only=True)
class TokenWindow:
    """One forward pass: the inputs, and the targets of the last `len(targets)` of them."""

    inputs: Sequence[int]
    targets: Sequence[int]


class LanguageModel:
    """A frozen causal LM of transformers and its tokenizer.

    One thread uses a model at a time, and whoever changes it for a while (`fine_tuned`)
    keeps others out meanwhile: threads wait, and other asyncio tasks of the same thread,
    which cannot wait without blocking the loop, get an `AnswerError`. So answers asked
    for concurrently equal those asked for one after another.

    Args:
        model: Any causal LM of transformers. It is set to evaluation mode and frozen.
        tokenizer: The tokenizer it was trained with, with a BOS or EOS token.

    Raises:
        InvalidInputError: If the tokenizer has neither, or knows more tokens than the
            model, or the model carries an adapter already.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        prefix = tokenizer.bos_token_id
        if prefix is None:
            prefix = tokenizer.eos_token_id
        if prefix is None:
            raise InvalidInputError(
                "the tokenizer must have a BOS or EOS token to start a text with; set "
                "`tokenizer.bos_token`"
            )
        if hasattr(model, "peft_config"):
            raise InvalidInputError(
                "the model carries a PEFT adapter; pass `model.merge_and_unload()` instead"
            )
        n_embedded = model.get_input_embeddings().num_embeddings
        if len(tokenizer) > n_embedded:
            raise InvalidInputError(
                f"the tokenizer knows {len(tokenizer)} tokens, the model {n_embedded}; "
                f"load both from one place"
            )
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self._prefix_id: int = prefix
        self._guard = guard_of(self.model)

    @classmethod
    def from_pretrained(cls, name: str | Path, *, device: str | None = None) -> LanguageModel:
        """Return the model of that name, in float32 on a CPU and as stored on a GPU.

        Only safetensors weights are read and no code of the repository runs.

        Args:
            name: Folder or id on the hub.
            device: As in torch; a GPU where there is one if None.

        Raises:
            InvalidInputError: If there is no such model, or it is not a causal LM.
        """
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(name))
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                str(name),
                dtype=torch.float32 if device == "cpu" else "auto",
                use_safetensors=True,
                output_loading_info=True,
            )
            model, loading = loaded
            model.to(device)
        except _LOADING_ERRORS as error:
            first_line = str(error).strip().split("\n")[0]
            raise InvalidInputError(
                f"no causal language model {str(name)!r} on device {device!r}: {first_line} Pass "
                f"a folder with a model of transformers, or an id that the hub knows and a network."
            ) from error
        if loading["missing_keys"]:
            raise InvalidInputError(
                f"the weights of {str(name)!r} are incomplete: {len(loading['missing_keys'])} are "
                f"missing, {sorted(loading['missing_keys'])[0]!r} the first; load the whole model"
            )
        return cls(model, tokenizer)

    @contextmanager
    def using(self) -> Iterator[None]:
        """Hold the model for the `with` block; other threads wait.

        Raises:
            AnswerError: If another flow of control of this thread has changed the model.
            InvalidInputError: If this flow of control holds it in another thread.
        """
        with self._guard.held():
            if self._guard.is_changed_by_others:
                raise AnswerError(
                    "the model is fine-tuned for another task of this thread; await that first, "
                    "or run answers in threads"
                )
            yield

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the model for the `with` block, for changes that end with it.

        Raises:
            InvalidInputError: If it is changed already by this thread, or this flow of control
                holds it in another one.
        """
        with self._guard.held() as hold:
            if self._guard.changed_by is not None:
                raise InvalidInputError(
                    "the model is fine-tuned already; leave that `with` block first"
                )
            self._guard.changed_by = hold
            try:
                yield
            finally:
                self._guard.changed_by = None

    @property
    def window(self) -> int:
        """Number of tokens that the model sees at once, prompt and answer together."""
        limits = [getattr(self.model.config, "max_position_embeddings", None)]
        limits.append(self.tokenizer.model_max_length)  # a huge number where none is known
        known = [int(limit) for limit in limits if limit is not None and limit < 10**9]
        return min(known) if known else 2048  # guess, for models that state no limit

    def token_ids(self, text: str) -> list[int]:
        """Return the text's tokens without any added at its ends.

        Raises:
            InvalidInputError: If it is not text.
        """
        check_text("text", text)
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def n_tokens(self, text: str) -> int:
        """Return how many tokens the text takes."""
        return len(self.token_ids(text))

    def windows(self, text: str, *, context: str = "") -> list[TokenWindow]:
        """Return the forward passes in which every token of `text` is predicted once.

        Without a context these are the rolling windows of lm-evaluation-harness: the
        text follows the BOS (or EOS) token, and a later window predicts its tokens with
        as much of the earlier text as fits. With one, every window begins with it.

        Raises:
            InvalidInputError: If the context leaves no room for a token of `text`.
        """
        ids = self.token_ids(text)
        lead: list[int] = [self._prefix_id]
        if context:
            lead += self.token_ids(context + CHUNK_SEPARATOR)
        room = self.window - len(lead) + 1  # targets of one window; the last is no input
        if room < 1:
            raise InvalidInputError(
                f"a context of {len(lead)} tokens leaves no room for text in a window of "
                f"{self.window}; pass fewer or shorter chunks"
            )
        return list(_rolling_windows(ids, lead, room=room, keep_lead=bool(context)))

    def bits_per_byte(self, text: str, *, context: str = "") -> float:
        """Return the code length of `text` under the model, in bits per UTF-8 byte.

        Lower is better. Costs one forward pass a window.

        Args:
            text: What to predict, not empty.
            context: What the model may read first; its own tokens do not count.

        Raises:
            InvalidInputError: If `text` is empty or `context` fills the window.
            AnswerError: If the model fails.

        References:
            Gao et al. (2020), The Pile, section 3.1.
        """
        windows = self.windows(text, context=context)
        if not windows:
            raise InvalidInputError("`text` must not be empty: it has no bits per byte")
        try:
            with self.using(), torch.inference_mode():
                nats = sum(float(self.loss_sum(window)) for window in windows)
        except RuntimeError as error:  # out of memory is one of them
            raise AnswerError(f"the model could not score a text: {error}") from error
        return nats / math.log(2) / len(text.encode())

    def loss_sum(self, window: TokenWindow) -> torch.Tensor:
        """Return the summed cross-entropy of a window's targets in nats, a scalar.

        The caller holds the model (`using` or `changing`).
        """
        inputs = torch.tensor([window.inputs], device=self.model.device)
        targets = torch.tensor(window.targets, device=self.model.device)
        logits = self.model(input_ids=inputs, use_cache=False).logits[0, -len(targets) :]
        return functional.cross_entropy(logits.float(), targets, reduction="sum")

    def generate(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int = 64,
        stop: Sequence[str] = (),
        on_text: Callable[[str], object] | None = None,
        **options: Any,
    ) -> Generation:
        """Return the model's continuation of `prompt`, greedy unless `options` say otherwise.

        Args:
            prompt: A text, or the messages of a chat, the last of which is answered. Where
                the tokenizer has a chat template it spells them; elsewhere a text stands as
                it is.
            max_new_tokens: Length of the continuation at most, >= 1.
            stop: Texts that end the continuation; what is returned ends before them.
            on_text: Called with each new piece of the text as soon as it is certain; the
                pieces add up to the whole. What it raises ends the generation and passes on.
            **options: Passed to `transformers`' `generate` as they are. Beams are not
                followed: their text comes in one piece at the end.

        Raises:
            InvalidInputError: If prompt and continuation do not fit into the window, a stop
                string is empty, or an option is unknown or out of its range.
            AnswerError: If the model fails.
        """
        ids = self.check_prompt(prompt, max_new_tokens)
        inputs = torch.tensor([ids], device=self.model.device)
        watcher = TextWatcher(self.tokenizer, n_prompt_tokens=len(ids), stop=stop, on_text=on_text)
        criteria = [*(options.pop("stopping_criteria", None) or []), watcher]
        settings = {"do_sample": False, "pad_token_id": self._prefix_id, **options}
        try:
            with self.using(), torch.inference_mode():
                output = self.model.generate(
                    inputs,
                    attention_mask=torch.ones_like(inputs),
                    max_new_tokens=max_new_tokens,
                    stopping_criteria=StoppingCriteriaList(criteria),
                    **settings,
                )
            new_ids = output[0, len(ids) :].tolist()
            ends = settings.get("eos_token_id", self.model.generation_config.eos_token_id)
            return watcher.finished(new_ids, max_new_tokens=max_new_tokens, ends=ends)
        except ListenerError as stopped:
            raise stopped.error from None
        except RuntimeError as error:
            raise AnswerError(f"the model could not generate: {error}") from error
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"the model cannot generate with {sorted(options)}: {error}; see "
                f"transformers.GenerationConfig for what there is"
            ) from error

    def check_prompt(self, prompt: Prompt, max_new_tokens: int) -> list[int]:
        """Return the prompt's tokens if they and an answer fit into the window.

        Raises:
            InvalidInputError: If they don't, or `max_new_tokens` < 1.
        """
        n_new = as_count("max_new_tokens", max_new_tokens, minimum=1)
        ids = self.prompt_ids(prompt)
        if len(ids) + n_new > self.window:
            raise InvalidInputError(
                f"a prompt of {len(ids)} tokens and {n_new} new ones do not fit into the model's "
                f"window of {self.window}; shorten one of them"
            )
        return ids

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """Return the tokens that `generate` starts from.

        Raises:
            InvalidInputError: If the prompt is none, or the chat template refuses it.
        """
        messages = as_conversation(prompt)
        if getattr(self.tokenizer, "chat_template", None):
            try:
                encoded = self.tokenizer.apply_chat_template(
                    [dict(message) for message in messages],
                    add_generation_prompt=True,
                    return_dict=True,
                )
            except (TemplateError, TypeError, ValueError) as error:
                roles = [message["role"] for message in messages]
                raise InvalidInputError(
                    f"the model's chat template refuses messages of the roles {roles}: {error}; "
                    f"many want no system message, and user and assistant in turn"
                ) from error
            return list(encoded["input_ids"])
        return [self._prefix_id, *self.token_ids(as_plain_text(messages))]

    @property
    def worker(self) -> ThreadPoolExecutor:
        """The one thread in which answers of this model are computed beside the caller.

        One is enough, since the model gives one answer at a time.
        """
        return self._guard.worker

    def refuse_if_held_here(self) -> None:
        """Refuse what would wait for a block that this flow of control itself has to end.

        Raises:
            InvalidInputError: Inside a `with` block of `using` or `changing`, and so in what
                is called back while the model writes.
        """
        if self._guard.is_held_here:
            raise InvalidInputError(WAITS_FOR_ITSELF)


def _rolling_windows(
    ids: Sequence[int], lead: Sequence[int], *, room: int, keep_lead: bool
) -> Iterator[TokenWindow]:
    """Yield windows of at most `room` targets that cover `ids` once, in order."""
    first = min(room, len(ids))
    if first:
        yield TokenWindow(inputs=[*lead, *ids[: first - 1]], targets=ids[:first])
    for start in range(first, len(ids), room):
        end = min(start + room, len(ids))
        kept = list(lead) if keep_lead else []
        width = len(lead) + room - 1 - len(kept)  # inputs left for the text itself
        inputs = [*kept, *ids[max(0, end - 1 - width) : end - 1]]
        yield TokenWindow(inputs=inputs, targets=ids[start:end])
