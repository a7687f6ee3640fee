"""`sift ask`: an answer from the index, by context, by fine-tuning, or as suits the question."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from enum import Enum
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.status import Status

from sift_core.answering.policy import VariancePolicy
from sift_core.cli.models import load_language_model
from sift_core.cli.output import (
    LEGEND,
    Terminal,
    chunk_records,
    number_or_none,
    print_chunks,
    print_json,
    repeats_of,
    stderr_console,
    stdout_console,
    working,
    write,
)
from sift_core.cli.plain import plain
from sift_core.cli.settings import (
    DEFAULT_STORE,
    EmbedderOption,
    JsonOption,
    ModelOption,
    StoreOption,
    question_from,
)
from sift_core.cli.stores import StoreAddress, embedder_of, open_store
from sift_core.errors import InvalidInputError
from sift_core.types import Answer, CandidatePool

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, Choice
    from sift_core.cli.chat import Asking

INTERRUPTED = 130  # 128 + SIGINT, as shells have it
N_SOURCES = 10  # that are listed; a fine-tuning may have learned from fifty

# Stage of `Answer.timings` → what a reader calls it, in the order of the work.
_STAGES = {
    "embed": "embedding",
    "fetch": "retrieval",
    "select": "selection",
    "fine_tune": "fine-tuning",
    "read": "reading",
    "generate": "generation",
}


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
    json: JsonOption = False,
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
    with _retrieval(store, embedder, is_needed=mode is not ModeName.BASE) as known:
        from sift_core.cli.chat import Asking  # with torch

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
            _chat(asking, question, asked, as_json=json)
        elif _answer(asking, str(question), asked, as_json=json) is None:
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
def _retrieval(store: str, embedder: str | None, *, is_needed: bool) -> Iterator[dict[str, Any]]:
    """Open the store and load the model of its vectors; without need neither of them.

    Yields:
        What is known for JSON ("store", "embedder"), and the engine's options ("engine").
    """
    if not is_needed:
        yield {"store": None, "embedder": None, "engine": {}}
        return
    address = StoreAddress.parse(store)
    with open_store(address, embedder_name=embedder) as source:
        loaded = embedder_of(source, address, embedder)
        yield {
            "store": str(address),
            "embedder": loaded.name,
            "engine": {"source": source, "embedder": loaded},
        }


def _engine(
    model: str | None, device: str | None, *, times_modes: bool, **options: Any
) -> AnswerEngine:
    """Return the engine; with what each mode costs on this machine where that is asked for."""
    from sift_core.answering import AnswerEngine

    with working("Loading the language model …") as status:
        language_model = load_language_model(model, device)
        cost_model = None
        if times_modes:
            from sift_core.answering import cached_cost_model

            status.update("Measuring what each mode takes on this machine (once) …")
            cost_model = cached_cost_model(language_model)
    return AnswerEngine(language_model=language_model, cost_model=cost_model, **options)


def _chat(asking: Asking, first: str | None, asked: dict[str, Any], *, as_json: bool) -> None:
    from sift_core.cli.chat import Chat

    console = stderr_console() if as_json else stdout_console()
    chat = Chat(
        asking=asking,
        answer=lambda question: _answer(asking, question, asked, as_json=as_json, in_chat=True),
        print_sources=lambda answer: _print_sources(console, answer, n_lines=6, all_of_them=True),
        as_json=as_json,
    )
    if chat.run(first) and not chat.is_interactive:
        raise typer.Exit(2)


def _answer(
    asking: Asking, question: str, asked: dict[str, Any], *, as_json: bool, in_chat: bool = False
) -> Answer | None:
    """Answer and print one question; return None where Ctrl-C stopped it."""
    try:
        answer = _streamed(asking, question, shows_text=not as_json)
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped\n")
        return None
    if as_json:
        print_json(_record(question, answer, asked), one_a_line=in_chat)
    else:
        _print_about(stdout_console(), answer)
    return answer


def _streamed(asking: Asking, question: str, *, shows_text: bool) -> Answer:
    """Return the answer, its text written to stdout as it comes."""
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
                write(text.rstrip())
            piece = next(stream, None)
        answer = stream.answer()
    if shows_text:
        write("\n\n" if has_begun else "(the model wrote nothing)\n\n")
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


def _record(question: str, answer: Answer, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer for JSON, unshortened.

    Args:
        question: What was asked.
        answer: The answer.
        asked: What else is known about the question, such as the store.
    """
    return {
        "question": question,
        **asked,
        "text": answer.text,
        "mode": answer.mode.value,
        "reasons": list(answer.reasons),
        "finish_reason": answer.finish_reason,
        "standard_deviation": number_or_none(answer.standard_deviation),
        "n_prompt_tokens": answer.n_prompt_tokens,
        "n_new_tokens": answer.n_new_tokens,
        "timings": dict(answer.timings),
        "fine_tuning": None if answer.fine_tuning is None else asdict(answer.fine_tuning),
        "chunks": [] if answer.chunks is None else _source_records(answer.chunks, answer.n_read),
    }


def _source_records(chunks: CandidatePool, n_read: int) -> list[dict[str, Any]]:
    """Return each chunk once for JSON, with what it was used for."""
    distinct, _ = _distinct(chunks)
    read = set(chunks.document_ids[:n_read])
    n_learned = Counter(chunks.document_ids[n_read:])
    return [
        {**record, "is_read": key in read, "n_times_learned": n_learned[key]}
        for key, record in zip(distinct.document_ids, chunk_records(distinct), strict=True)
    ]


def _print_about(console: Terminal, answer: Answer) -> None:
    """Print everything about an answer but its text."""
    _print_sources(console, answer, n_lines=0)
    _print_pair(console, "mode", f"{answer.mode.value}: {'; '.join(answer.reasons)}")
    report = answer.fine_tuning
    if report is not None and report.losses:
        learned = "learned before" if report.source != "trained" else "learned now"
        _print_pair(
            console,
            "learning",
            f"{report.n_steps} steps, {learned}; loss {fmean(report.losses):.2f} nats a token in "
            f"the mean",
        )
    if answer.chunks is not None and len(answer.chunks):
        _print_pair(console, "σ²", _certainty(answer.standard_deviation))
    _print_pair(console, "time", _times(answer))
    if answer.finish_reason == "length":
        _print_pair(
            console, "note", f"cut at {answer.n_new_tokens} tokens; --max-new-tokens allows more"
        )


def _print_sources(
    console: Terminal, answer: Answer, *, n_lines: int, all_of_them: bool = False
) -> None:
    """Print the distinct chunks that an answer rests on, in order of choice.

    Args:
        console: Where.
        answer: The answer.
        n_lines: Lines of text of each at most.
        all_of_them: Whether to print more than the first ten.
    """
    if answer.chunks is None or not len(answer.chunks):
        console.print("sources: none; the model answered from what it knows", style="dim")
        return
    distinct, counts = _distinct(answer.chunks)
    n_shown = len(distinct) if all_of_them else min(N_SOURCES, len(distinct))
    shown = distinct.take(range(n_shown))
    console.print("sources", style="bold")
    print_chunks(console, shown, counts=counts, n_lines=n_lines)
    if n_shown < len(distinct):
        console.print(f"    … and {len(distinct) - n_shown} more", style="dim")
    if any(repeats_of(shown.embeddings)):
        console.print(f"    {LEGEND}", style="dim")


def _distinct(chunks: CandidatePool) -> tuple[CandidatePool, list[int]]:
    """Return each chunk once where it came first, and how often it came."""
    counts = Counter(chunks.document_ids)
    first = {document_id: i for i, document_id in reversed(list(enumerate(chunks.document_ids)))}
    positions = sorted(first.values())
    return chunks.take(positions), [counts[chunks.document_ids[i]] for i in positions]


def _certainty(sigma: float) -> str:
    """Return what σ² at the question means; in the paper's setting it is 1 without sources."""
    share = 1.0 - sigma**2
    little = "" if share >= VariancePolicy().min_explained else "; they may be off the topic"
    return (
        f"1.00 → {sigma**2:.2f}: the sources explain {share:.0%} of what is uncertain about the "
        f"question{little}"
    )


def _times(answer: Answer) -> str:
    parts = [
        f"{name} {answer.timings[stage]:.2f} s"
        for stage, name in _STAGES.items()
        if stage in answer.timings
    ]
    if seconds := answer.timings.get("generate", 0.0):
        parts[-1] += f" ({answer.n_new_tokens / seconds:.0f} tokens a second)"
    return ", ".join(parts)


def _print_pair(console: Terminal, name: str, text: str) -> None:
    """Print a name and, in a column of its own, what is said under it."""
    filled = textwrap.fill(
        plain(text),
        max(console.width, 40),
        initial_indent=f"{name:<10}",
        subsequent_indent=" " * 10,
    )
    console.print(filled, soft_wrap=True)
