"""Continue code and text in the style of a collection: the text before a cursor, and what helps.

A model that continues a text gets it as it stands, behind chunks that were found by its last lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from sift_core.answering.answer import Answer
from sift_core.answering.behind_cursor import may_be_read
from sift_core.answering.in_context import PromptOptions
from sift_core.answering.model.text_model import check_stop
from sift_core.answering.request import AnswerRequest
from sift_core.answering.streams import AnswerStream, OnStep, OnText, cancellable
from sift_core.checks import as_count, check_text, short_repr
from sift_core.errors import InvalidInputError
from sift_core.sources.filtered import FilteredSource, Keep
from sift_core.types import AnswerMode

if TYPE_CHECKING:
    from sift_core.answering.choosing import Choice
    from sift_core.answering.engine import AnswerEngine

PROMPT_TOKENS = 512  # of the text before the cursor; a guess, since each is read at each call
N_CHUNKS = 4  # that are read; a guess, for the same reason
PROSE_LINES, QUERY_CHARACTERS = 10, 2000  # that are searched for, the last ones; guesses
CODE_LINES = 5  # that are searched for, behind those of the blocks around them; decision 0039
CODE_ENDS = (";", ":", "{", "}", "(", ")", "]", "=")  # of lines of code
CODE_SHARE = 0.2  # of the lines that end so, at least, in code of an unknown file; a guess
STOP_CHARACTERS = 200  # of the line behind the cursor; a guess
CHARACTERS_A_TOKEN = 12  # more than texts have, so that megabytes are cut before they are counted

Until: TypeAlias = Literal["block", "line", "length"]
"""Where a continuation ends, unless the model or a stop string ends it before."""

CLOSERS = ")]}"


@dataclass(frozen=True, kw_only=True)
class CompletionPrompt:
    r"""The text before a cursor, and what is known of the file.

    Args:
        before: All text before the cursor, not empty.
        after: The text behind the cursor. The model does not read it. A continuation ends where it
            comes to the first line of it, and no chunk is read that holds some of it. Default:
            unknown.
        path: The file's path, by which its own chunks are known in the index. A chunk of the file
            is read only if it stands word for word before the part that the model reads anyway.
            Copies of the file under other names are read. Default: unknown. Chunks are then
            compared with `after`, as are those whose file the index does not name.

    Raises:
        InvalidInputError: If `before` has nothing but whitespace.
    """

    before: str
    after: str = ""
    path: str | None = None

    def __post_init__(self) -> None:
        check_text("before", self.before)
        check_text("after", self.after)
        if not self.before.strip():
            raise InvalidInputError(
                "there is no text before the cursor; put it behind a line that says what follows"
            )

    @classmethod
    def at_line(
        cls, text: str, line: int | None = None, *, path: str | None = None
    ) -> CompletionPrompt:
        """Return the prompt with the cursor at the end of a line of a file.

        Args:
            text: The whole file.
            line: From 1. Default: the end of the file.
            path: The file's path. Default: unknown.

        Raises:
            InvalidInputError: If there is no such line, or no text before the cursor.
        """
        if line is None:
            return cls(before=text, path=path)
        lines = text.split("\n")
        if not 1 <= as_count("line", line, minimum=0) <= len(lines):
            raise InvalidInputError(f"there is no line {line}; the text has {len(lines):,} lines")
        before = "\n".join(lines[:line]).removesuffix("\r")
        return cls(before=before, after=text[len(before) :], path=path)

    @cached_property
    def is_code(self) -> bool:
        """Whether the text is code rather than prose, as far as path or text say it."""
        suffix = PurePath(self.path or "").suffix.lower()
        if suffix:
            return suffix not in (".md", ".markdown", ".rst", ".txt", ".html", ".htm")
        lines = [line.rstrip() for line in self.before.splitlines() if line.strip()]
        n_code = sum(line.endswith(CODE_ENDS) for line in lines)
        return n_code >= CODE_SHARE * len(lines)

    def query(self) -> str:
        """Return what chunks are searched for by.

        Of code it is the last five lines, behind those that begin a block around the cursor, such
        as the lines of its class and its function. Of prose it is the last ten lines. Blank lines
        do not count.
        """
        lines = [line for line in self.before.splitlines() if line.strip()]
        if self.is_code:
            last = range(len(lines))[-CODE_LINES:]
            lines = [lines[row] for row in sorted({*_block_beginnings(lines), *last})]
        else:
            lines = lines[-PROSE_LINES:]
        return "\n".join(lines)[-QUERY_CHARACTERS:]

    def tail(self, n_tokens: int, count: Callable[[str], int]) -> str:
        """Return the last lines that have at most so many tokens, and the last one in any case.

        A last line that is too long is cut at its beginning.

        Args:
            n_tokens: At most, >= 1.
            count: Counts the tokens of a text.
        """
        shown = self.before[-CHARACTERS_A_TOKEN * n_tokens :]
        starts = [
            0,
            *(match.end() for match in re.finditer("\n", shown) if match.end() < len(shown)),
        ]
        if len(shown) < len(self.before):
            starts = starts[1:] or starts
        low, high = 0, len(starts) - 1
        while low < high:  # the first start behind which the text fits
            middle = (low + high) // 2
            if count(shown[starts[middle] :]) <= n_tokens:
                high = middle
            else:
                low = middle + 1
        shown = shown[starts[low] :]
        while count(shown) > n_tokens and len(shown) > 1:
            shown = shown[len(shown) // 4 + 1 :]
        return shown

    def may_be_read(self, tail: str) -> Keep:
        """Return what says of a chunk's text and metadata whether it may be read.

        Args:
            tail: From `tail`: the part that the model reads anyway.
        """
        hidden = self.before[: len(self.before) - len(tail)]
        return may_be_read(before=hidden, shown=tail, after=self.after, path=self.path)

    def stops(self) -> list[str]:
        """Return the text behind the cursor at which a continuation ends: its first line.

        Of a longer line the first 200 characters count, as all that is written is compared.
        """
        first = next((line for line in self.after.splitlines() if line.strip()), "")
        end = "\n" if len(first) <= STOP_CHARACTERS else ""
        return [f"\n{first[:STOP_CHARACTERS]}{end}"] if first.strip() else []


def prepare_completion(
    engine: AnswerEngine,
    prompt: CompletionPrompt,
    *,
    mode: AnswerMode | str | None = None,
    n_prompt_tokens: int = PROMPT_TOKENS,
    read_on: bool | None = None,
    **fields: Any,
) -> tuple[AnswerEngine, AnswerRequest]:
    """Return an engine that continues texts as they stand, and the request to continue one.

    Args:
        engine: Has the model, the source and what was learned beforehand; it stays as it is.
        prompt: What to continue.
        mode: As in `AnswerRequest`, but "auto". Default: the best by `benchmarks.completion` that
            the engine can do: "learned_context", else "context", else "base".
        n_prompt_tokens: Tokens of the text before the cursor that the model reads at most, >= 1;
            half of the window at most. Default: 512.
        read_on: As in `AnswerEngine`. Default: on for code, where it helps (decision 0039).
        **fields: Fields of `AnswerRequest` and of `ChoiceOptions`, and settings of generation.

    Raises:
        InvalidInputError: If an argument cannot be used.
    """
    mode = _mode(engine, mode)
    writer = replace(
        engine,
        prompt=PromptOptions(raw=True),
        query_rewriting=None,
        read_on=prompt.is_code if read_on is None else read_on,
    )
    model = writer.answerer_for(AnswerRequest(question="text")).writer
    n_tokens = min(as_count("n_prompt_tokens", n_prompt_tokens, minimum=1), model.window // 2)
    tail = prompt.tail(n_tokens, model.n_tokens)
    if engine.source is not None:
        source = FilteredSource(engine.source, prompt.may_be_read(tail))
        writer = replace(writer, source=source)
    stop = fields.pop("stop", ())
    check_stop(stop)
    stop = [*stop, *prompt.stops()]
    request = AnswerRequest.of(
        tail,
        {"queries": [prompt.query()], **fields, "mode": mode, **({"stop": stop} if stop else {})},
    )
    return writer, request


def _mode(engine: AnswerEngine, mode: AnswerMode | str | None) -> AnswerMode | str:
    if mode == AnswerMode.AUTO:
        raise InvalidInputError(
            'mode "auto" is for questions; name another to continue a text, or leave it out'
        )
    if mode is not None:
        return mode
    if engine.source is None or engine.embedder is None:
        return AnswerMode.BASE if engine.learning.adapter is None else AnswerMode.LEARNED
    if engine.learning.adapter is None:
        return AnswerMode.CONTEXT
    return AnswerMode.LEARNED_CONTEXT


def complete(
    engine: AnswerEngine,
    prompt: CompletionPrompt,
    *,
    until: Until = "block",
    on_text: OnText | None = None,
    on_step: OnStep | None = None,
    on_choice: Callable[[Choice], object] | None = None,
    **fields: Any,
) -> Answer:
    """Return the continuation of a text.

    Args:
        engine: As for `prepare_completion`, like `prompt`.
        prompt: What to continue.
        until: Where it ends: "block" behind the block, at a blank line or where code is indented
            less than at the cursor; "line" at the end of the line; "length" at `max_new_tokens`.
            The model's own end and `stop` end it in any case. Default: "block".
        on_text: Called with each piece of the text. What it raises ends the continuation.
        on_step: Called after each training step with the loss before it.
        on_choice: Called with what was chosen, before the model runs.
        **fields: As for `prepare_completion`.

    Raises:
        InvalidInputError: If an argument cannot be used.
        CandidateSourceError: If the store fails.
        AnswerError: If the model fails; it is as before.
    """
    ending = Ending(prompt, until, on_text)
    writer, request = prepare_completion(engine, prompt, **fields)
    choice = writer.choose(request)
    if on_choice is not None:
        on_choice(choice)
    criteria = [*(choice.generation.get("stopping_criteria") or []), ending.is_reached]
    answer = writer.answer_from(
        choice, on_text=ending.read, on_step=on_step, stopping_criteria=criteria
    )
    return ending.finished(answer)


def stream_completion(
    engine: AnswerEngine, prompt: CompletionPrompt, **options: Any
) -> AnswerStream:
    """Return what `complete` returns in pieces of text, as the model writes it.

    Everything is computed in another thread. Closing the stream ends it, learning included.
    """
    on_step = options.pop("on_step", None)

    def continued(go_on: Callable[[float], object], **own: Any) -> Answer:
        def step(loss: float) -> None:
            go_on(loss)  # leaves by an exception where the stream is closed
            if on_step is not None:
                on_step(loss)

        return complete(engine, prompt, on_step=step, **{**options, **own})

    return AnswerStream(cancellable(continued, {}), engine.language_model.submit)


class Ending:
    """Ends a continuation behind its block or line, and passes on the text before that.

    Args:
        prompt: What is continued.
        until: Where the continuation ends.
        on_text: Called with each piece. Default: nothing is passed on.

    Raises:
        InvalidInputError: If there is no such `until`.
    """

    def __init__(
        self, prompt: CompletionPrompt, until: Until, on_text: OnText | None = None
    ) -> None:
        if until not in get_args(Until):
            raise InvalidInputError(
                f'`until` must be "block", "line" or "length", got {short_repr(until)}'
            )
        self._until, self._on_text = until, on_text
        self._least = _least_indentation(prompt.before) if prompt.is_code else 0
        self._line_break = "\n" * prompt.before.endswith("\n")  # the text begins a line
        self._text, self._n_passed_on, self._is_over = "", 0, False

    def read(self, piece: str) -> None:
        """Pass on of a piece what is certain to belong to the continuation."""
        self._text += piece
        end = self._end(self._text)
        self._is_over = end is not None
        self._pass_on(self._text[:end] if self._is_over else self._text.rstrip())

    def is_reached(self, *_: Any, **__: Any) -> bool:
        """Return whether the end was read: a stopping criterion of `transformers`."""
        return self._is_over

    def finished(self, answer: Answer) -> Answer:
        """Return the answer up to the end, after the rest of it was passed on."""
        end = self._end(answer.text)
        text = answer.text[:end].rstrip(" \t") if end is not None else answer.text
        self._pass_on(text)
        if end is None:
            return answer
        return replace(answer, text=text, finish_reason="stop")

    def _end(self, text: str) -> int | None:
        if self._until == "length":
            return None
        if self._until == "line":
            found = re.search(r"(?<=\S)[ \t]*\n", text)
            return None if found is None else found.start()
        end = block_end(self._line_break + text, self._least)
        return None if end is None else end - len(self._line_break)

    def _pass_on(self, text: str) -> None:
        if self._on_text is not None and len(text) > self._n_passed_on:
            piece = text[self._n_passed_on :]
            self._n_passed_on = len(text)
            self._on_text(piece)


def block_end(text: str, least: int = 0) -> int | None:
    """Return where the first block of a text ends, before its line break; None if it goes on.

    It ends at a blank line, and at a line that is indented less than `least` characters, or less
    than its first line. A line that closes a bracket may be indented less than the block.

    Args:
        text: What was written so far, perhaps from the middle of a line on.
        least: Indentation of the block at the cursor. Default: 0.
    """
    visible = re.search(r"\S", text)
    if visible is None:
        return None
    line = text.rfind("\n", 0, visible.start()) + 1
    if line:
        least = min(least, visible.start() - line)
    for found in re.finditer(r"[ \t\r]*\n([ \t]*)(\r?\n|\S)", text[visible.start() :]):
        indentation, sign = found.groups()
        is_closer = sign in CLOSERS
        if not sign.strip() or (len(indentation) < least and not is_closer):
            return visible.start() + found.start()
    return None


def _block_beginnings(lines: Sequence[str]) -> list[int]:
    """Return the rows of the lines that begin a block around the end of a text, outermost first.

    Each is indented less than the next. A line that closes a bracket begins none.

    Args:
        lines: None is blank.
    """
    found: list[int] = []
    least = _n_indented(lines[-1]) + _begins_block(lines[-1])
    for row in reversed(range(len(lines))):
        if _n_indented(lines[row]) < least and lines[row].lstrip()[0] not in CLOSERS:
            found.insert(0, row)
            least = _n_indented(lines[row])
    return found


def _n_indented(line: str) -> int:
    return len(line) - len(line.lstrip())


def _begins_block(line: str) -> bool:
    return line.rstrip().endswith((":", "{", "(", "["))


def _least_indentation(before: str) -> int:
    """Return how far the lines of the block at the cursor are indented at least."""
    lines = before.split("\n")
    if not lines[-1].strip() and lines[-1]:  # the cursor's line has its indentation already
        return len(lines[-1])
    last = next(line for line in reversed(lines) if line.strip())
    return _n_indented(last) + _begins_block(last)
