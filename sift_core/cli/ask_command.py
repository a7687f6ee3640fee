"""`sift ask`: an answer from the index, by context, by fine-tuning, or as suits the question."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

from sift_core.cli.search_retrieval import embedder_of, question_from
from sift_core.cli.settings import (
    DEFAULT_STORE,
    EmbedderOption,
    JsonOption,
    ModelOption,
    StoreOption,
)
from sift_core.errors import InvalidInputError, MissingDependencyError

try:
    import typer
except ImportError as error:
    raise MissingDependencyError("typer", extra="cli") from error

if TYPE_CHECKING:
    from rich.status import Status

    from sift_core.answering import AnswerEngine, Choice
    from sift_core.cli.ask_running import Asking
    from sift_core.types import Answer

INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class ModeName(str, Enum):
    """Ways to answer."""

    AUTO = "auto"
    BASE = "base"
    CONTEXT = "context"
    FINE_TUNE = "fine_tune"
    BOTH = "both"


def ask(
    question: Annotated[
        str | None,
        typer.Argument(metavar="QUESTION", help='In words; "-" reads it from stdin.'),
    ] = None,
    mode: Annotated[
        ModeName, typer.Option(help="How documents reach the model; auto chooses per question.")
    ] = ModeName.AUTO,
    model: ModelOption = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Go on asking: one question a line on stdin.")
    ] = False,
    keep_documents: Annotated[
        bool,
        typer.Option(
            "--keep-documents",
            help="With --chat: choose (and learn) once, for the first question and all others.",
        ),
    ] = False,
    store: StoreOption = DEFAULT_STORE,
    embedder: EmbedderOption = None,
    n_context: Annotated[
        int, typer.Option("-n", "--n-context", min=1, help="Chunks in the prompt at most.")
    ] = 10,
    candidates: Annotated[
        int, typer.Option(min=1, help="How many of the nearest to choose from.")
    ] = 200,
    steps: Annotated[int, typer.Option(min=1, help="Training steps of a fine-tuning.")] = 50,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, help="Length of an answer at most, in tokens.")
    ] = 256,
    seconds: Annotated[
        float | None,
        typer.Option(help="How long you will wait; auto chooses by it.", show_default=False),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="cpu, cuda, mps; the fastest there is if left out.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Answer QUESTION from the index, and say from which chunks and why so.

    Examples:
    sift ask "How do I upload a file?" --model Qwen/Qwen2.5-0.5B-Instruct
    sift ask "How do I upload a file?" --mode fine_tune --steps 20
    sift ask --chat --mode context
    """
    question = _checked_question(question, chat=chat, keep_documents=keep_documents)
    if seconds is not None and not 0 < seconds < float("inf"):
        raise InvalidInputError(f"--seconds must be > 0 and finite, got {seconds}")
    with (
        _interruptible(),
        _retrieval(store, embedder, is_needed=mode is not ModeName.BASE) as known,
    ):
        from sift_core.cli.ask_running import Asking

        engine = _engine(
            model,
            device,
            times_modes=seconds is not None and mode is ModeName.AUTO,
            n_context=n_context,
            n_candidates=candidates,
            n_steps=steps,
            max_new_tokens=max_new_tokens,
            **known.pop("engine"),
        )
        asking = Asking(
            engine=engine, mode=mode.value, latency_s=seconds, keeps_documents=keep_documents
        )
        asked = {**known, "model": model}
        if chat:
            _chat(asking, question, asked, as_json=as_json)
        elif _answer(asking, str(question), asked, as_json=as_json) is None:
            raise typer.Exit(INTERRUPTED)


def _checked_question(question: str | None, *, chat: bool, keep_documents: bool) -> str | None:
    """Return the question, read from stdin where that is asked for; None for a chat without one."""
    if keep_documents and not chat:
        raise InvalidInputError("--keep-documents is for --chat: one question has its own anyway")
    if question is None and chat:
        return None
    if question is None:
        raise InvalidInputError(
            "there is no question; pass one in quotes, - to read it from stdin, or --chat"
        )
    if question == "-" and chat:
        raise InvalidInputError("with --chat all of stdin is questions; leave out the -")
    return question_from(question)


@contextmanager
def _interruptible() -> Iterator[None]:
    """End by Ctrl-C as shells expect it, without a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped\n")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _retrieval(store: str, embedder: str | None, *, is_needed: bool) -> Iterator[dict[str, Any]]:
    """Open the store and load the model of its vectors; without need neither of them.

    Yields:
        What is known for JSON ("store", "embedder"), and the engine's options ("engine").
    """
    if not is_needed:
        yield {"store": None, "embedder": None, "engine": {}}
        return
    from sift_core.cli.stores import StoreAddress, open_store

    address = StoreAddress.parse(store)
    with open_store(address, embedder_name=embedder) as source:
        loaded = embedder_of(source, address)
        yield {
            "store": str(address),
            "embedder": loaded.name,
            "engine": {"source": source, "embedder": loaded},
        }


def _engine(
    model: str | None, device: str | None, *, times_modes: bool, **options: Any
) -> AnswerEngine:
    """Return the engine; with what each mode costs on this machine where that is asked for."""
    from sift_core.cli.ask_model import load_language_model
    from sift_core.cli.showing_text import working

    with working("Loading the language model …") as status:
        language_model = load_language_model(model, device)
        cost_model = None
        if times_modes:
            from sift_core.answering import cached_cost_model

            status.update("Measuring what each mode takes on this machine (once) …")
            cost_model = cached_cost_model(language_model)
    from sift_core.answering import AnswerEngine

    return AnswerEngine(language_model=language_model, cost_model=cost_model, **options)


def _chat(asking: Asking, first: str | None, asked: dict[str, Any], *, as_json: bool) -> None:
    from sift_core.cli.ask_chat import Chat

    chat = Chat(
        asking=asking,
        answer=lambda question: _answer(asking, question, asked, as_json=as_json, in_chat=True),
        as_json=as_json,
    )
    if chat.run(first) and not chat.is_interactive:
        raise typer.Exit(2)


def _answer(
    asking: Asking, question: str, asked: dict[str, Any], *, as_json: bool, in_chat: bool = False
) -> Answer | None:
    """Answer and print one question; return None where Ctrl-C stopped it."""
    from sift_core.cli.ask_printing import answer_record, print_about
    from sift_core.cli.showing_text import print_json, stdout_console

    try:
        answer = _streamed(asking, question, shows_text=not as_json)
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped\n")
        return None
    if as_json:
        print_json(answer_record(question, answer, asked), one_a_line=in_chat)
    else:
        print_about(stdout_console(), answer)
    return answer


def _streamed(asking: Asking, question: str, *, shows_text: bool) -> Answer:
    """Return the answer, its text written to stdout as it comes."""
    from sift_core.cli.showing_text import plain, working

    with working("Looking for chunks …") as status:
        shown = _Progress(status)
        stream = asking.stream(question, on_choice=shown.choice, on_loss=shown.loss)
        try:
            piece = next(stream, None)
        except BaseException:
            stream.close()
            raise
    with stream:
        has_begun, held = False, ""  # space is written once something follows it
        while piece is not None:
            text = held + plain(piece) if has_begun else plain(piece).lstrip()
            held = text[len(text.rstrip()) :]
            has_begun = has_begun or bool(text)
            if shows_text:
                sys.stdout.write(text.rstrip())
                sys.stdout.flush()
            piece = next(stream, None)
        answer = stream.answer()
    if shows_text:
        sys.stdout.write("\n\n" if has_begun else "(the model wrote nothing)\n\n")
    return answer


class _Progress:
    """Shows in the status line how far the work before the first word is."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._n_steps = 0
        self._n_done = 0

    def choice(self, choice: Choice) -> None:
        self._n_steps = 0 if choice.learned is None else len(choice.learned)
        steps = f"Fine-tuning: {self._n_steps} steps …"
        self._status.update(steps if self._n_steps else "Reading …")

    def loss(self, loss: float) -> None:
        self._n_done += 1
        self._status.update(
            f"Fine-tuning: step {self._n_done} of {self._n_steps}, loss {loss:.2f} nats a token …"
        )
