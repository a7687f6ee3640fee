"""Any server of OpenAI's protocol as the model of an engine: it writes, and learns nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

from sift_core.answering.model.fair_lock import Submit, lock_and_workers
from sift_core.answering.model.text_model import Generation, Prompt, as_conversation, check_stop
from sift_core.answering.servers.connection import Connection, check_url, latch
from sift_core.answering.servers.sampling import sampling_fields
from sift_core.checks import as_count, check_text, short_repr
from sift_core.errors import GeneratorError, InvalidInputError
from sift_core.token_estimate import estimated_tokens

if TYPE_CHECKING:
    import openai

logger: logging.Logger = logging.getLogger(__name__)

DEFAULT_WINDOW = 4096  # guess: Ollama's, which cuts longer prompts without a word
_WINDOWS = ("max_model_len", "context_length", "context_window", "max_context_length")
_AROUND_PROMPT, _AROUND_MESSAGE = 64, 8  # tokens that chat templates add; guesses
_NO_MODEL_TOO = (404, 405, 501)  # of servers that do not list their models
_FOR_NOW = (None, 401, 403, 408, 429, 502, 503, 504)  # a later answer may have the window
_MAX_LISTED = 20
# Fields of ours that some hosted models refuse → what goes in their place.
_SUBSTITUTES = {"max_tokens": "max_completion_tokens", "stream_options": None, "temperature": None}


class OpenAIGenerator:
    """Write the texts of an `AnswerEngine` by any server of OpenAI's chat API.

    Ollama, llama.cpp, LM Studio, vLLM, `sift serve` and hosted models have it. Choosing stays
    here, and nothing learns: there are the modes "context" and "base", and "auto" reads what fits.
    torch is not needed. Threads may share a generator. Closing a stream of the engine disconnects
    at once, also before the first piece and between two tries.

    Lengths are estimated on the long side for every script, unless `count_tokens` counts them.
    What a text of the documents spells like a control token is the server's to guard.

    Thoughts between <think> and </think>, in `reasoning_content` or in `reasoning` become
    `Answer.thoughts`. Greedy texts ask for the temperature 0, left out if the model takes none.

    Args:
        base_url: Address of the API, for instance "http://127.0.0.1:11434/v1". A host without a
            path gets /v1.
        model: Name that the server knows the model by.
        api_key: Its key, which no message shows. Default: none.
        window: Tokens that the model sees at once, as the server runs it. Default: the number that
            the server lists for the model, asked for at the first question, or else 4096.
        count_tokens: Returns the number of tokens of a text. Default: an estimate.
        extra_body: More fields for each request, such as {"reasoning_effort": "low"}. They go
            before ours. Default: none.
        timeout_s: Seconds to wait for the first piece of a text, and between two, > 0.
            Default: 120.
        max_retries: Further tries before a text begins, after 408, 409, 429, 5xx, a time-out or a
            lost connection. `retry-after` is obeyed. Default: 2.

    Raises:
        InvalidInputError: If an argument cannot be used.

    Example:
        >>> ollama = OpenAIGenerator("http://localhost:11434/v1", "llama3.2", window=8192)
        >>> engine = AnswerEngine(generator=ollama, source=source, embedder=embedder)
        >>> engine.choose(question, mode="context", n_select=1).read.chunks.texts
        ('A ticket for the ferry costs four crowns.',)
    """

    takes_adapters = False  # as of `TextModel`
    provider_name = "openai"  # in traces: whose API it is

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        window: int | None = None,
        count_tokens: Callable[[str], int] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        timeout_s: float = 120.0,  # guess: a CPU reads 50 tokens a second
        max_retries: int = 2,
    ) -> None:
        check_text("model", model)
        if not model.strip():
            raise InvalidInputError("`model` must be as the server lists it, got no name")
        if count_tokens is not None and not callable(count_tokens):
            raise InvalidInputError(
                f"`count_tokens` must be a function of a text, got {short_repr(count_tokens)}"
            )
        self.name = model
        self._window = None if window is None else as_count("window", window, minimum=1)
        self._count_tokens = count_tokens or estimated_tokens
        self._extra = _as_fields(extra_body)
        url = check_url("base_url", base_url)
        self._connection = Connection(
            str(url) if url.path.strip("/") else f"{str(url).rstrip('/')}/v1",
            called="the server",
            error=GeneratorError,
            api_key=api_key,
            timeout_s=timeout_s,
            max_retries=max_retries,
        )
        self.submit: Submit = lock_and_workers(self)[1].submit
        self._refused: set[str] = set()  # fields that the model takes no more
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"OpenAIGenerator({self._connection.url!r}, {self.name!r})"

    def check(self) -> list[str]:
        """Return the names of the server's models; none if it does not list them.

        Raises:
            GeneratorError: If the server is gone, late, or refuses.
        """
        try:
            return [card["id"] for card in self._connection.models(self._advise)]
        except GeneratorError as error:
            if error.status in _NO_MODEL_TOO:
                return []
            raise

    @property
    def window(self) -> int:
        """Tokens that the model sees at once, prompt and answer together.

        Raises:
            GeneratorError: If the server has to be asked, and is gone, busy, or wants a key.
        """
        with self._lock:
            if self._window is None:
                self._window = self._window_there() or DEFAULT_WINDOW
            return self._window

    def n_tokens(self, text: str) -> int:
        """Return about how many tokens a text takes, by `count_tokens`."""
        check_text("text", text)
        return as_count("count_tokens(…)", self._count_tokens(text), minimum=0)

    def n_prompt_tokens(self, prompt: Prompt, template: Mapping[str, Any] | None = None) -> int:
        """Return about how many tokens a prompt takes, with what a chat template adds."""
        messages = as_conversation(prompt)
        texts = sum(self.n_tokens(message["content"]) for message in messages)
        return _AROUND_PROMPT + _AROUND_MESSAGE * len(messages) + texts

    def check_prompt(
        self, prompt: Prompt, max_new_tokens: int, template: Mapping[str, Any] | None = None
    ) -> int:
        """Return about how many tokens a prompt takes, if it and an answer fit into the window.

        Raises:
            InvalidInputError: If they don't, or `max_new_tokens` < 1.
            GeneratorError: As `window`.
        """
        n_new = as_count("max_new_tokens", max_new_tokens, minimum=1)
        n = self.n_prompt_tokens(prompt)
        if n + n_new > self.window:
            raise InvalidInputError(
                f"a prompt of about {n} tokens and {short_repr(n_new)} new ones do not fit into "
                f"the window of {self.window} of {self.name!r}; shorten one of them, or pass the "
                f"server's as `window`"
            )
        return n

    def check_generation(self, options: Mapping[str, Any]) -> None:
        """Refuse options of `generate`, and `stop`, that a server is not asked for.

        Raises:
            InvalidInputError: If there is one, or one is out of its range.
        """
        rest = {**options}
        check_stop(rest.pop("stop", ()))
        rest.pop("stopping_criteria", None)
        _as_fields(rest.pop("chat_template_kwargs", None))
        sampling_fields(rest, "the server")

    def adapted(self, learned: object) -> AbstractContextManager[None]:
        """Return a block in which nothing is adapted.

        Raises:
            InvalidInputError: If something was learned.
        """
        if learned is not None:
            raise InvalidInputError(f"the server of {self.name!r} takes no adapter")
        return nullcontext()

    def generate(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int = 64,
        stop: Sequence[str] = (),
        on_text: Callable[[str], object] | None = None,
        prefix: object = None,
        **options: Any,
    ) -> Generation:
        """Return the server's continuation of `prompt`. It is greedy by default.

        Args:
            prompt: A text, or the messages of a chat, the last of which is answered.
            max_new_tokens: Greatest length of the continuation in tokens, thoughts included.
                Default: 64.
            stop: Texts that end the continuation. Default: none.
            on_text: Function that is called with each piece of the text. An exception that it
                raises ends the text. Default: None.
            prefix: Not used, since servers cache prefixes themselves.
            **options: `do_sample`, `temperature`, `top_p`, `top_k`, `min_p`, `seed`,
                `repetition_penalty`, the result of `seeded`, `chat_template_kwargs`, and
                `stopping_criteria`. Those are called at least each 50 ms with None twice.

        Raises:
            InvalidInputError: If prompt and continuation exceed the window, or an option cannot
                be used.
            GeneratorError: If the server is gone, late, refuses, breaks off, or writes nothing.
        """
        self.check_generation({**options, "stop": stop})
        n_read = self.check_prompt(prompt, max_new_tokens)
        is_unwanted = latch(options.pop("stopping_criteria", None) or [])
        template = options.pop("chat_template_kwargs", None)
        turns = as_conversation(prompt)
        body = {
            "model": self.name,
            "messages": [{"role": turn["role"], "content": turn["content"]} for turn in turns],
            "max_tokens": max_new_tokens,
            "stream_options": {"include_usage": True},
            **sampling_fields(options, "the server"),
            **({"stop": [*stop]} if stop else {}),
            **({"chat_template_kwargs": template} if template else {}),
            **self._extra,
        }
        written = self._written(body, is_unwanted, on_text)
        if not (written.text.strip() or stop or is_unwanted()):
            raise self._connection.failure(f"wrote an empty answer; {_why_empty(written)}")
        return Generation(**{**vars(written), "n_prompt_tokens": written.n_prompt_tokens or n_read})

    def _written(
        self,
        body: dict[str, Any],
        is_unwanted: Callable[[], bool],
        on_text: Callable[[str], object] | None,
    ) -> Generation:
        """Return what the server writes, asked again without a field of ours that it refuses."""
        is_sampled = body.get("temperature") != 0.0
        for field in [*self._refused]:
            _substitute(body, field)
        while True:
            try:
                return self._connection.write(
                    "chat/completions", body, self._advise, is_unwanted=is_unwanted, on_text=on_text
                )
            except GeneratorError as error:
                named = str(getattr(error.__cause__, "param", None))
                is_ours = named in _SUBSTITUTES and not (named == "temperature" and is_sampled)
                if error.status not in (400, 422) or not is_ours or named not in body:
                    raise
                self._refused.add(named)
                _substitute(body, named)
                logger.warning("%s: asked again without `%s`", error, named)

    def _window_there(self) -> int | None:
        """Return the window that the server names, in any of the fields that there are."""
        try:
            cards = self._connection.models(self._advise)
        except GeneratorError as error:
            if error.status in _FOR_NOW:
                raise
            return None
        for card in cards:
            known = [card[name] for name in _WINDOWS if type(card.get(name)) is int]
            if card["id"] == self.name and known and known[0] > 0:
                return int(known[0])
        return None

    def _advise(self, error: openai.APIStatusError, message: str | None) -> str:
        """Return what to do about a refusal."""
        status, said = error.status_code, (message or "").lower()
        if status in (401, 403):
            return "pass its key as `api_key`; commands read it from SIFT_GENERATOR_API_KEY"
        if "context" in said and any(word in said for word in ("length", "size", "window")):
            return "pass the window that the server was started with as `window`"
        if status == 404 and error.request.method == "POST":
            with suppress(GeneratorError):
                names = self.check()
                if names and self.name not in names:
                    listed = self._connection.clean(", ".join(sorted(names)[:_MAX_LISTED]))
                    return f"there is no model {self.name!r}; there are {listed}"
        if status in (404, 405):
            return "is this the address of an API, which mostly ends in /v1?"
        if status in (408, 429) or status >= 500:
            return "ask again later, or see its log"
        return "correct what it names"


def _as_fields(fields: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return fields for a request.

    Raises:
        InvalidInputError: If they are no mapping of names to values that JSON takes.
    """
    try:
        json.dumps(fields, allow_nan=False).encode()
        if fields is None or (isinstance(fields, Mapping) and all(map(str.isidentifier, fields))):
            return {**(fields or {})}
    except (TypeError, ValueError, RecursionError):
        pass
    raise InvalidInputError(
        f"fields of a request must be a mapping of names to values of JSON, got "
        f"{short_repr(fields)}"
    )


def _substitute(body: dict[str, Any], field: str) -> None:
    """Take a field out of a request, in favour of its substitute."""
    value, other = body.pop(field, None), _SUBSTITUTES[field]
    if value is not None and other is not None:
        body[other] = value


def _why_empty(written: Generation) -> str:
    if written.thoughts:
        return (
            f"it thought for all of its {written.n_new_tokens} tokens: raise `max_new_tokens`, or "
            f"have it think less, by `chat_template_kwargs` or `extra_body`"
        )
    return "ask in other words, or see the server's log"
