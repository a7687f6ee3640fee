"""What is searched for where a question follows others: "And how for a deletion?" says little."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from sift_core.answering.in_context import TextGenerator
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.request import AnswerRequest
from sift_core.answering.streams import OnStep, run_in_worker
from sift_core.checks import check_queries, short_repr
from sift_core.errors import AnswerError, InvalidInputError, SiftError
from sift_core.progress import timed
from sift_core.types import Message

Condense: TypeAlias = (
    Literal["join", "model"] | Callable[[Sequence[Message], str], str | Sequence[str]]
)
"""How a question that follows others is searched for.

"join": as two vectors, of both questions as one text and of the question, or as the first alone
where a selector of the engine takes one query. "model": as the language
model rewrites it, greedily, in one line of 64 tokens at most, or like "join" where that cannot be
meant; a model as small as the default one writes too much nonsense for it (decision 0027). A
function gets the history and the question and returns a text or a list of them; for the engine's
twins whose names begin with `a` it is called in another thread.
"""

WAYS = ("join", "model")
MOST_TOKENS = 64  # of what the model writes; a question has some twenty
N_TURNS = 3  # that the model reads: question and answer each
N_CHARACTERS = 400  # of a message that it reads; questions stand at the beginning or the end

_INSTRUCTION = (
    "Rewrite the last question so that it can be understood without the chat before it. "
    "Write the question alone. Do not answer it."
)
_SHOWN = (
    (
        "User: How do I feed a cat?\nAssistant: Twice a day, with wet food.\nUser: And a hamster?",
        "How do I feed a hamster?",
    ),
    (
        "User: Who wrote Faust?\nAssistant: Goethe.\nUser: When was he born?",
        "When was Goethe born?",
    ),
    (
        "User: How do I bake bread?\nAssistant: With flour, water and salt.\n"
        "User: How high is Mont Blanc?",
        "How high is Mont Blanc?",
    ),
)
# Four letters of a Latin word, two of others, at every place: what says what a text is about.
_PIECE = re.compile(r"(?=([a-z0-9_]{4}|[^\W\x00-\x7f]{2}))")


def check_condense(condense: object) -> None:
    """Refuse what is no way to search for a question that follows others.

    Raises:
        InvalidInputError: If so.
    """
    if condense is None or callable(condense) or condense in WAYS:
        return
    raise InvalidInputError(
        f"`condense` must be one of {', '.join(map(repr, WAYS))}, a function of history and "
        f"question, or None, got {short_repr(condense)}"
    )


@dataclass(frozen=True, eq=False)
class Condenser:
    """Says what is searched for.

    Args:
        condense: How.
        takes_several: Whether what chooses takes several queries; "join" is one text if not.
        language_model: Writes, where that is "model".
        generator: Writes in its place, if there is one.
    """

    condense: Condense | None
    takes_several: bool
    language_model: LanguageModel
    generator: TextGenerator | None = None

    def applies_to(self, request: AnswerRequest) -> bool:
        """Return whether a question follows another, and nothing says what is looked for."""
        return self.condense is not None and not request.queries and bool(_asked(request.history))

    def condensed(
        self, request: AnswerRequest, timings: dict[str, float], on_step: OnStep | None = None
    ) -> AnswerRequest:
        """Return a request that says what is looked for, where it did not.

        Args:
            request: What is asked.
            timings: Seconds by stage; this is "condense", where something is condensed.
            on_step: Called before each token that the model writes. What it raises ends that.

        Raises:
            InvalidInputError: If a function returns neither text nor a list of texts.
            AnswerError: If it raises something else than our errors, or the model fails.
        """
        if not self.applies_to(request):
            return request
        with timed(timings, "condense"):
            return replace(request, queries=self._texts(request, on_step))

    async def acondensed(self, request: AnswerRequest, timings: dict[str, float]) -> AnswerRequest:
        """Return what `condensed` returns, without blocking the event loop."""
        if callable(self.condense):
            return await asyncio.to_thread(self.condensed, request, timings)
        if self.condense != "model" or not self.applies_to(request):
            return self.condensed(request, timings)
        submit = self.language_model.submit
        return await run_in_worker(
            submit, lambda on_step: self.condensed(request, timings, on_step)
        )

    def _texts(self, request: AnswerRequest, on_step: OnStep | None) -> list[str]:
        question, last = request.question, _asked(request.history)[-1]
        if callable(self.condense):
            return _returned(self.condense, request.history, question)
        written = self._written(request, on_step) if self.condense == "model" else None
        # The question first in the joined text: embedders cut what is too long at its end.
        joined = [f"{question} {last}", question]
        return [written] if written else joined[: None if self.takes_several else 1]

    def _written(self, request: AnswerRequest, on_step: OnStep | None) -> str | None:
        """Return the question as the model writes it; None where that cannot be meant.

        Where the window does not hold the turns, fewer are read.
        """

        def go_on(*_: Any, **__: Any) -> bool:
            if on_step is not None:
                on_step(0.0)
            return False

        for n_turns in range(N_TURNS, 0, -1):
            prompt = _prompt(request, n_turns)
            n_tokens = len(self.language_model.prompt_ids(prompt)) + MOST_TOKENS
            if n_tokens <= self.language_model.window:
                break
        else:
            return None
        generation = (self.generator or self.language_model).generate(
            prompt, max_new_tokens=MOST_TOKENS, stop=["\n"], stopping_criteria=[go_on]
        )
        text = self._plain(generation.text)
        asked = f"{request.question} {_asked(request.history)[-1]}"
        is_cut = generation.finish_reason == "length"
        return None if is_cut or _is_absurd(text, asked) else text

    def _plain(self, text: str) -> str:
        """Return a text as one line without control tokens or what a model puts around it."""
        for token in self.language_model.tokenizer.all_special_tokens:
            text = text.replace(token, " ")
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return line.removeprefix("User:").strip(" \"'`*")


def _asked(history: Sequence[Message]) -> list[str]:
    """Return the questions that were asked before."""
    return [m["content"] for m in history if m["role"] == "user" and m["content"].strip()]


def _prompt(request: AnswerRequest, n_turns: int) -> list[Message]:
    """Return the task, examples of it, and the end of the chat."""
    said = [turn for turn in request.history if turn["role"] != "system"][-2 * n_turns :]
    said = [*said, {"role": "user", "content": request.question}]
    chat = "\n".join(f"{turn['role'].title()}: {_clipped(turn['content'])}" for turn in said)
    turns = [
        {"role": role, "content": content}
        for pair in (*_SHOWN, (chat, None))
        for role, content in zip(("user", "assistant"), pair, strict=True)
        if content is not None
    ]
    return [{"role": "system", "content": _INSTRUCTION}, *turns]


def _clipped(text: str) -> str:
    """Return a message as one line, of a long one both ends."""
    line, half = " ".join(text.split()), N_CHARACTERS // 2
    return line if len(line) <= N_CHARACTERS else f"{line[:half]} … {line[-half:]}"


def _is_absurd(text: str, asked: str) -> bool:
    """Return whether a text cannot be what was asked: it is empty, or about nothing of it."""
    about = _pieces(asked)
    return not text or bool(about and not about & _pieces(text))


def _pieces(text: str) -> set[str]:
    return set(_PIECE.findall(text.casefold()))


def _returned(
    condense: Callable[[Sequence[Message], str], str | Sequence[str]],
    history: Sequence[Message],
    question: str,
) -> list[str]:
    """Return what a caller's function says is to be looked for."""
    try:
        said = condense(history, question)
    except SiftError:
        raise
    except Exception as error:  # whatever the caller's code raises
        raise AnswerError(
            f"`condense` failed on {short_repr(question)}: {type(error).__name__}: {error}"
        ) from error
    texts = [said] if isinstance(said, str) else said
    try:
        check_queries(texts or None)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"`condense` must return a text that is not empty, or a list of such texts, got "
            f"{short_repr(said)} for {short_repr(question)}"
        ) from error
    return list(texts)
