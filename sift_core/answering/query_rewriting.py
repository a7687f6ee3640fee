"""Rewrite a follow-up question for the search: "And how for a deletion?" says little."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from sift_core.answering.answer_spans import write_traced
from sift_core.answering.model.text_model import TextGenerator, TextModel
from sift_core.answering.request import AnswerRequest
from sift_core.answering.streams import OnStep, run_in_worker
from sift_core.checks import check_queries, short_repr
from sift_core.errors import AnswerError, InvalidInputError, SiftError
from sift_core.progress import timed
from sift_core.types import Message

QueryRewriting: TypeAlias = (
    Literal["join", "model"] | Callable[[Sequence[Message], str], str | Sequence[str]]
)
"""How to search for a follow-up question.

"join" searches for two texts, both questions together and the last one alone, or for the first text
alone where a selector of the engine takes one query. "model" has the language model rewrite the
question, greedily, in one line of at most 64 tokens. It joins where the model's text is absurd; a
model as small as the default one often writes nonsense (decision 0027). A function gets the
history and the question and returns a text or a list of texts. The engine's twins whose names
begin with `a` call it in another thread.
"""

METHODS = ("join", "model")
MOST_TOKENS = 64  # of what the model writes; a question has some twenty
N_TURNS = 3  # that the model reads: question and answer each
N_CHARACTERS = 400  # of a message that it reads; questions stand at the beginning or the end

_INSTRUCTION = (
    "Rewrite the last question so that it can be understood without the chat before it. "
    "Write the question alone. Do not answer it."
)
_EXAMPLES = (
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


def check_query_rewriting(rewriting: object) -> None:
    """Check how questions are to be rewritten.

    Raises:
        InvalidInputError: If so.
    """
    is_method = isinstance(rewriting, str) and rewriting in METHODS
    if rewriting is None or callable(rewriting) or is_method:
        return
    raise InvalidInputError(
        f"`query_rewriting` must be one of 'join', 'model', a function of history and question, or "
        f"None, got {short_repr(rewriting)}"
    )


@dataclass(frozen=True, eq=False)
class QueryRewriter:
    """Rewrites the question of a request for the search.

    Args:
        rewriting: How; None leaves the question as it is.
        takes_several: Whether selectors take several queries; "join" makes one text if not.
        language_model: Writes for "model".
        generator: Writes in its place. Default: the language model itself.
    """

    rewriting: QueryRewriting | None
    takes_several: bool
    language_model: TextModel
    generator: TextGenerator | None = None

    def applies_to(self, request: AnswerRequest) -> bool:
        """Return whether a question follows another, and the request names no `queries`."""
        follows = bool(_earlier_questions(request.history))
        return self.rewriting is not None and not request.queries and follows

    def rewrite(
        self, request: AnswerRequest, timings: dict[str, float], on_step: OnStep | None = None
    ) -> AnswerRequest:
        """Return a request with `queries`, if it is a follow-up without them.

        Args:
            request: The question and its history.
            timings: Seconds by stage; gets "rewrite".
            on_step: Called before each token that the model writes. What it raises ends that.

        Raises:
            InvalidInputError: If a function returns neither text nor a list of texts.
            AnswerError: If it raises something else than our errors, or the model fails.
        """
        if not self.applies_to(request):
            return request
        with timed(timings, "rewrite"):
            return replace(request, queries=self._texts(request, on_step))

    async def arewrite(self, request: AnswerRequest, timings: dict[str, float]) -> AnswerRequest:
        """Return what `rewrite` returns, without blocking the event loop."""
        if callable(self.rewriting):
            return await asyncio.to_thread(self.rewrite, request, timings)
        if self.rewriting != "model" or not self.applies_to(request):
            return self.rewrite(request, timings)
        submit = self.language_model.submit
        return await run_in_worker(submit, lambda on_step: self.rewrite(request, timings, on_step))

    def _texts(self, request: AnswerRequest, on_step: OnStep | None) -> list[str]:
        question, last = request.question, _earlier_questions(request.history)[-1]
        if callable(self.rewriting):
            return _call(self.rewriting, request.history, question)
        written = self._write(request, on_step) if self.rewriting == "model" else None
        # The question first in the joined text: embedders cut what is too long at its end.
        joined = [f"{question} {last}", question]
        return [written] if written else joined[: None if self.takes_several else 1]

    def _write(self, request: AnswerRequest, on_step: OnStep | None) -> str | None:
        """Return the question as the model writes it; None where that cannot be meant.

        Where the window does not hold the turns, fewer are read.
        """

        def go_on(*_: Any, **__: Any) -> bool:
            if on_step is not None:
                on_step(0.0)
            return False

        for n_turns in range(N_TURNS, 0, -1):
            prompt = _prompt(request, n_turns)
            n_tokens = self.language_model.n_prompt_tokens(prompt) + MOST_TOKENS
            if n_tokens <= self.language_model.window:
                break
        else:
            return None
        generation = write_traced(
            self.generator or self.language_model,
            self.language_model.name,
            prompt,
            max_new_tokens=MOST_TOKENS,
            stop=["\n"],
            stopping_criteria=[go_on],
        )
        text = self._plain(generation.text)
        asked = f"{request.question} {_earlier_questions(request.history)[-1]}"
        is_cut = generation.finish_reason == "length"
        return None if is_cut or _is_absurd(text, asked) else text

    def _plain(self, text: str) -> str:
        """Return a text as one line without control tokens or what a model puts around it."""
        tokenizer = getattr(self.language_model, "tokenizer", None)  # a server's model has none
        for token in getattr(tokenizer, "all_special_tokens", ()):
            text = text.replace(token, " ")
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return line.removeprefix("User:").strip(" \"'`*")


def _earlier_questions(history: Sequence[Message]) -> list[str]:
    """Return the questions that were asked before."""
    return [m["content"] for m in history if m["role"] == "user" and m["content"].strip()]


def _prompt(request: AnswerRequest, n_turns: int) -> list[Message]:
    """Return the task, examples of it, and the end of the chat."""
    turns = [turn for turn in request.history if turn["role"] != "system"][-2 * n_turns :]
    turns = [*turns, {"role": "user", "content": request.question}]
    chat = "\n".join(f"{turn['role'].title()}: {_clip(turn['content'])}" for turn in turns)
    examples = [
        {"role": role, "content": content}
        for pair in (*_EXAMPLES, (chat, None))
        for role, content in zip(("user", "assistant"), pair, strict=True)
        if content is not None
    ]
    return [{"role": "system", "content": _INSTRUCTION}, *examples]


def _clip(text: str) -> str:
    """Return a message as one line, of a long one both ends."""
    line, half = " ".join(text.split()), N_CHARACTERS // 2
    return line if len(line) <= N_CHARACTERS else f"{line[:half]} … {line[-half:]}"


def _is_absurd(text: str, asked: str) -> bool:
    """Return whether a text cannot be what was asked: it is empty, or about nothing of it."""
    about = _pieces(asked)
    return not text or bool(about and not about & _pieces(text))


def _pieces(text: str) -> set[str]:
    return set(_PIECE.findall(text.casefold()))


def _call(
    rewriting: Callable[[Sequence[Message], str], str | Sequence[str]],
    history: Sequence[Message],
    question: str,
) -> list[str]:
    """Return the texts of a caller's function."""
    try:
        result = rewriting(history, question)
    except SiftError:
        raise
    except Exception as error:  # whatever the caller's code raises
        raise AnswerError(
            f"`query_rewriting` failed on {short_repr(question)}: {type(error).__name__}: {error}"
        ) from error
    texts = [result] if isinstance(result, str) else result
    try:
        check_queries(texts or None)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"`query_rewriting` must return a text that is not empty, or a list of such texts, got "
            f"{short_repr(result)} for {short_repr(question)}"
        ) from error
    return list(texts)
