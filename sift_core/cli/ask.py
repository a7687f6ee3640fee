"""`sift ask`: an answer from the index, by context, by fine-tuning, or as suits the question."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from sift_core.answering.answer import Answer
from sift_core.cli import options as flags
from sift_core.cli.engine import load_engine
from sift_core.cli.interrupts import die_of_interrupts, raise_interrupts
from sift_core.cli.learn import LearningProgress
from sift_core.cli.output import LEGEND, Terminal, Working, print_chunks, print_json, write
from sift_core.cli.stores import open_with_embedder
from sift_core.cli.streams import one_line, plain
from sift_core.errors import InvalidInputError, SiftError
from sift_core.left_out import left_out_line
from sift_core.options import ChoiceOptions
from sift_core.repeats import repeats_of
from sift_core.sources.metadata_filters import filter_for
from sift_core.types import AnswerMode, Message

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, AnswerStream

INTERRUPTED = 130  # 128 + SIGINT, as shells have it
N_SOURCES = 10  # that are listed; a fine-tuning may have learned from fifty
HISTORY_SHARE = 0.5  # of the window that history may take at most, so that chunks have room
PROMPT = "? "
HELP = (
    "/sources  the texts that the last answer rests on\n"
    "/reset    forget what was said\n"
    "/quit     end, as Ctrl-D does; Ctrl-C stops an answer"
)
_COMMAND = re.compile(r"/[a-z]+")  # alone on its line: a question may begin with a path

# Stages of `Answer.timings`, in the order of the work.
_STAGES = ("rewrite", "embed", "fetch", "select", "fine_tune", "generate")

ModeName = Literal["auto", "base", "context", "fine_tune", "both", "learned", "learned_context"]


@flags.with_flags(n_select="n_context", settings=("generator_window",))
def ask(
    question: Annotated[
        str | None,
        typer.Argument(metavar="QUESTION", help='In words; "-" reads it from stdin.'),
    ] = None,
    mode: Annotated[
        ModeName, typer.Option(help="How documents reach the model; auto chooses per question.")
    ] = "auto",
    model: flags.ModelOption = flags.DEFAULT_MODEL,
    chat: Annotated[
        bool, typer.Option("--chat", help="Go on asking: one question a line on stdin.")
    ] = False,
    store: flags.StoreOption = flags.DEFAULT_STORE,
    embedder: flags.EmbedderOption = None,
    queries: flags.QueryOption = None,
    filters: flags.FilterOption = None,
    *,
    layout: flags.StoreLayout,
    options: ChoiceOptions,
    answers: flags.AnswerOptions,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, help="Length of an answer at most, in tokens.")
    ] = 128,
    adapters: flags.AdaptersOption = flags.DEFAULT_ADAPTERS,
    json: flags.JsonOption = False,
) -> None:
    """Answer QUESTION from the index, and say from which chunks and why so.

    Examples:
    sift ask "How do I upload a file?"
    sift ask "How do I upload a file?" --mode fine_tune --effort thorough
    sift ask "Stream it, async or not?" --query "Stream a response" --query "async or def?"
    sift ask --chat --mode context
    sift ask "How do I upload a file?" --generator http://127.0.0.1:11434/v1 --generator-model qwen3
    """
    question = _checked_question(question, chat=chat)
    if queries and chat:
        raise InvalidInputError("--query is for one question; leave out --chat, or --query")
    conditions = flags.conditions_from(filters)
    searches = mode not in ("base", "learned")
    for option, value in (("--query", queries), ("--filter", filters)):
        if value and not searches:
            raise InvalidInputError(
                f"{option} is for a search, and mode {mode!r} searches nothing; leave out "
                f"{option}, or take another --mode"
            )
    about: dict[str, Any] = {"store": None, "embedder": None}
    opened = None
    with ExitStack() as stack:
        if searches:
            opened = stack.enter_context(open_with_embedder(store, embedder, layout))
            about = {"store": str(opened.address), "embedder": opened.embedder.name}
        engine = load_engine(
            model,
            opened,
            options=options,
            answers=answers,
            max_new_tokens=max_new_tokens,
            is_calibrated=mode == "auto",
            adapters=adapters if mode in ("learned", "learned_context") else None,
            calibrated_adapters=adapters,
        )
        session = Session(
            engine=engine,
            mode=mode,
            queries=queries or (),
            conditions=conditions,
            about={
                **({"queries": queries} if queries else {}),
                **about,
                "model": answers.generator_model or model,
            },
            as_json=json,
            is_chat=chat,
        )
        if chat:
            if session.chat(question) and not sys.stdin.isatty():
                raise typer.Exit(2)
        elif session.answer(str(question)) is None:
            raise typer.Exit(INTERRUPTED)


def _checked_question(question: str | None, *, chat: bool) -> str | None:
    """Return the question, read from stdin if that is asked for. A chat without one has None."""
    if question is None:
        if chat:
            return None
        raise InvalidInputError(
            "there is no question; pass one in quotes, - to read it from stdin, or --chat"
        )
    if question == "-" and chat:
        raise InvalidInputError("with --chat all of stdin is questions; leave out the -")
    return flags.question_from(question)


@dataclass(kw_only=True, eq=False)
class Session:
    """Answers questions as the options of the command say, and prints the answers.

    Args:
        engine: Answers; its model is used by one question at a time.
        mode: As for `AnswerEngine.answer`.
        queries: As for `AnswerEngine.answer`.
        conditions: From `--filter`. Chunks must meet all of them.
        about: What the JSON of every answer has beside it, such as the store.
        as_json: Whether an answer is printed as JSON.
        is_chat: Whether questions follow one another: then the JSON of each takes one line.
    """

    engine: AnswerEngine
    mode: str
    queries: Sequence[str]
    conditions: Mapping[str, Sequence[str | int | bool]]
    about: Mapping[str, Any]
    as_json: bool
    is_chat: bool
    _history: list[Message] = field(default_factory=list, init=False)  # oldest first
    _last: Answer | None = field(default=None, init=False)

    def answer(self, question: str) -> Answer | None:
        """Answer and print one question; return None where Ctrl-C stopped it."""
        try:
            answer, pace = self._written(question)
        except KeyboardInterrupt:
            return None
        if self.as_json:
            record = {"question": question, **self.about, **answer.as_dict(), **pace}
            print_json(record, one_a_line=self.is_chat)
        else:
            if answer.searched_for not in ((), (question,), tuple(self.queries)):
                searched = " | ".join(map(one_line, answer.searched_for))
                Terminal().say(f"searched for: {searched}", style="dim")
            _print_about(Terminal(), answer, pace, cite=self.engine.prompt.cite)
        return answer

    def _written(self, question: str) -> tuple[Answer, dict[str, Any]]:
        """Return the answer, its text written to stdout as it comes, and how fast that was."""
        started = first = time.perf_counter()
        with Working("Looking for chunks …") as status:
            stream = self._stream(question, status)
            with stopped_by_interrupts(stream):
                piece = next(stream, None)
                first = time.perf_counter()
        with stream, stopped_by_interrupts(stream):
            has_begun, held = False, ""  # space is written once something follows it
            while piece is not None:
                text = held + plain(piece) if has_begun else plain(piece).lstrip()
                held = text[len(text.rstrip()) :]
                has_begun = has_begun or bool(text)
                if not self.as_json:
                    write(text.rstrip())
                piece = next(stream, None)
            answer = stream.answer()
        tokens_per_s = None
        if has_begun and answer.n_new_tokens > 1:
            tokens_per_s = (answer.n_new_tokens - 1) / (time.perf_counter() - first)
        if not self.as_json:
            write("\n\n" if has_begun else "(the model wrote nothing)\n\n")
        return answer, {"first_token_s": first - started, "tokens_per_s": tokens_per_s}

    def _stream(self, question: str, status: Working) -> AnswerStream:
        """Return the answer while it is written; closing the stream ends learning and writing.

        Everything is computed in another thread, choosing included: Ctrl-C reaches the caller's
        alone, and an interrupt inside compiled code would be no KeyboardInterrupt any more.
        """
        from sift_core.answering import AnswerStream
        from sift_core.answering.streams import cancellable

        def answer(go_on: Callable[[float], object], **options: Any) -> Answer:
            choice = self.engine.choose(
                question,
                mode=self.mode,
                queries=self.queries,
                history=self._history,
                filter=filter_for(self.engine.source, self.conditions),
            )
            if self.conditions and self.engine.source is not None and not len(choice.pool):
                raise flags.no_match(self.conditions, self.engine.source, choice.query)
            go_on(0.0)  # leaves by an exception where the stream is closed
            status.update("Reading …" if choice.learned is None else "Fine-tuning …")
            progress = LearningProgress(status=status, n_steps=len(choice.learned or ()))

            def on_step(loss: float) -> None:
                go_on(loss)
                progress.step(loss)

            return self.engine.answer_from(choice, on_step=on_step, **options)

        return AnswerStream(cancellable(answer, {}), self.engine.language_model.submit)

    def chat(self, first: str | None) -> int:
        """Answer the first question, if any, and those on stdin; return how many failed."""
        if sys.stdin.isatty() and not self.as_json:
            Terminal(stderr=True).print(
                "One question a line; /help lists the commands.", style="dim"
            )
        n_failed = 0
        line = first if first is not None else self._next_line()
        while line is not None and (said := line.strip()) != "/quit":
            if _COMMAND.fullmatch(said):
                self._command(said)
            elif said:
                n_failed += not self._turn(said)
            line = self._next_line()
        return n_failed

    def _turn(self, question: str) -> bool:
        """Answer a question; return whether that did not fail."""
        if not sys.stdin.isatty() and not self.as_json:
            write(f"{PROMPT}{question}\n")  # a person has typed it there already
        try:
            answer = self.answer(question)
        except SiftError as error:  # of this question; the next one may do better
            message = one_line(str(error))
            if self.as_json:
                print_json({"question": question, "error": message}, one_a_line=True)
            Terminal(stderr=True).print(f"error: {message}", soft_wrap=True)
            return False
        if answer is not None:
            if not self.as_json:
                write("\n")
            self._remember(question, answer)
        return True

    def _remember(self, question: str, answer: Answer) -> None:
        """Keep a turn; the oldest go where history takes more than half of the model's window."""
        self._last = answer
        history, model = self._history, self.engine.language_model
        history += [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer.text},
        ]
        n_before = len(history)
        while history and model.n_prompt_tokens(history) > HISTORY_SHARE * model.window:
            del history[:2]
        if n_gone := (n_before - len(history)) // 2:
            Terminal(stderr=True).print(
                f"The {n_gone} oldest turns take too much of the window and are forgotten.",
                style="dim",
            )

    def _command(self, command: str) -> None:
        notes = Terminal(stderr=True)
        if command == "/reset":
            self._history.clear()
            self._last = None
            notes.print("Forgotten.", style="dim")
        elif command == "/sources":
            if self._last is None:
                notes.print("There is no answer yet.", style="dim")
            else:
                _print_sources(notes if self.as_json else Terminal(), self._last, in_full=True)
        else:
            unknown = "" if command == "/help" else f"There is no command {command}.\n"
            notes.print(f"{unknown}{HELP}")

    def _next_line(self) -> str | None:
        """Return the next line, or None at the end."""
        while True:
            try:
                if not sys.stdin.isatty():
                    return sys.stdin.readline() or None
                return self._typed_line()
            except EOFError:
                sys.stderr.write("\n")
                return None
            except KeyboardInterrupt:
                if not sys.stdin.isatty():
                    raise
                sys.stderr.write("\nCtrl-D or /quit ends the chat.\n")

    def _typed_line(self) -> str:
        if sys.stdout.isatty() and not self.as_json:
            with suppress(ImportError):  # on Windows
                import readline  # noqa: F401  # input() then has a history and can be edited
            return input(PROMPT)
        sys.stderr.write(PROMPT)
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line


@contextmanager
def stopped_by_interrupts(stream: AnswerStream) -> Iterator[None]:
    """Say at once that Ctrl-C was heard, and close the stream; a second one ends the process."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped\n")
        die_of_interrupts()
        stream.close()
        raise_interrupts()
        raise


def _print_about(console: Terminal, answer: Answer, pace: Mapping[str, Any], *, cite: bool) -> None:
    """Print everything about an answer but its text."""
    _print_sources(console, answer)
    about = Table.grid(padding=(0, 2, 0, 0))
    about.add_column(min_width=8)
    if cite and answer.n_read:
        named = ", ".join(f"[{mark}]" for mark in sorted({one.mark for one in answer.citations}))
        unknown = ", ".join(f"[{mark}]" for mark in answer.unknown_marks)
        is_no_source = "is no source" if len(answer.unknown_marks) == 1 else "are no sources"
        said = named or "none; the model put no mark of a source"
        about.add_row("cited", f"{said}; {unknown} {is_no_source}" if unknown else said)
    if answer.missing_names:
        about.add_row("missing", f"{', '.join(answer.missing_names)}: no candidate has it")
    if answer.left_out:
        about.add_row("left out", one_line(left_out_line(answer.left_out)))
    about.add_row("mode", answer.mode.value)
    about.add_row("reasons", "; ".join(answer.reasons))
    report = answer.fine_tuning
    if report is not None and report.losses:
        learned = "now" if report.source == "trained" else "before"
        loss = f"loss {fmean(report.losses):.2f} nats a token in the mean"
        said = f"{report.n_steps} steps" + (f" ({answer.effort})" if answer.effort else "")
        about.add_row("learning", f"{said}, learned {learned}; {loss}")
    if answer.chunks is not None and len(answer.chunks):
        about.add_row("σ²", _certainty(answer.standard_deviation))
    taken = [
        f"{stage} {answer.timings[stage]:.2f} s" for stage in _STAGES if stage in answer.timings
    ]
    about.add_row("timings", ", ".join(taken))
    speed = f"first token after {pace['first_token_s']:.1f} s"
    if pace["tokens_per_s"] is not None:
        per_s = pace["tokens_per_s"]
        speed += f", then {per_s:.{0 if per_s >= 10 else 1}f} tokens a second"
    about.add_row("speed", speed)
    if answer.finish_reason == "length":
        about.add_row("note", f"cut at {answer.n_new_tokens} tokens; --max-new-tokens allows more")
    console.print(about)


def _print_sources(console: Terminal, answer: Answer, *, in_full: bool = False) -> None:
    """Print the first distinct chunks that an answer rests on, or all of them with their texts."""
    if answer.chunks is None or not len(answer.chunks):
        why = "the model answered from what it knows"
        if answer.mode is AnswerMode.LEARNED:
            why = "the model answered from what it learned beforehand"
        if answer.is_refusal:
            why = "no model was asked; --mode context answers from the nearest chunks all the same"
        console.print(f"sources: none; {why}", style="dim")
        if answer.nearest is not None and len(answer.nearest):
            console.print("nearest", style="bold")
            print_chunks(console, answer.nearest, repeats=[None] * len(answer.nearest))
        return
    distinct, counts = answer.distinct_chunks()
    n_listed = len(distinct) if in_full else min(N_SOURCES, len(distinct))
    listed = distinct.take(range(n_listed))
    console.print("sources", style="bold")
    repeats = repeats_of(listed.embeddings, unrelated=answer.unrelated_cosine)
    print_chunks(console, listed, counts=counts, n_lines=6 * in_full, repeats=repeats)
    if n_listed < len(distinct):
        console.print(f"    … and {len(distinct) - n_listed} more", style="dim")
    if any(repeats):
        console.print(f"    {LEGEND}", style="dim")


def _certainty(sigma: float) -> str:
    """Return how σ² at the question fell; in the paper's setting it is 1 without sources."""
    share = 1.0 - sigma**2
    return f"1.00 → {sigma**2:.2f}: the sources explain {share:.0%} of what was uncertain"
