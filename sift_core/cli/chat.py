"""The questions of `sift ask`: answered one by one, stopped when asked to, or as a chat."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from sift_core.answering import AnswerEngine, AnswerStream, Choice, Session
from sift_core.answering.streams import followed
from sift_core.checks import check_question
from sift_core.cli.output import print_json, stderr_console, write
from sift_core.cli.plain import one_line
from sift_core.errors import SiftError
from sift_core.types import Answer, Message

HISTORY_SHARE = 0.5  # of the window that history may take at most, so that chunks have room
PROMPT = "? "
HELP = (
    "/sources  the texts that the last answer rests on\n"
    "/reset    forget what was said, and choose documents anew\n"
    "/quit     end, as Ctrl-D does; Ctrl-C stops an answer"
)
_COMMAND = re.compile(r"/[a-z]+")  # alone on its line: a question may begin with a path


@dataclass(kw_only=True, eq=False)
class Asking:
    """Answers questions as the options of the command say.

    Args:
        engine: Answers; its model is used by one question at a time.
        mode: As for `AnswerEngine.answer`.
        latency_s: As for `AnswerEngine.answer`.
        keeps_documents: Whether the documents of the first question serve all.
        history: What was said before, oldest first; grows by each answer that is kept.
    """

    engine: AnswerEngine
    mode: str
    latency_s: float | None = None
    keeps_documents: bool = False
    history: list[Message] = field(default_factory=list)
    _session: Session | None = None

    def stream(
        self,
        question: str,
        *,
        on_choice: Callable[[Choice], object],
        on_loss: Callable[[float], object],
    ) -> AnswerStream:
        """Return the answer while it is written; closing the stream ends learning and writing.

        Everything is computed in another thread, choosing included: Ctrl-C reaches the caller's
        alone, and an interrupt inside compiled code would be no KeyboardInterrupt any more.

        Args:
            question: In words, not empty.
            on_choice: Called in that thread when mode and documents are settled.
            on_loss: Called in that thread after each training step with the loss before it.
        """

        def answer(go_on: Callable[[float], object], **options: Any) -> Answer:
            choice = self._choose(question)
            go_on(0.0)  # leaves by an exception where the stream is closed
            on_choice(choice)

            def on_step(loss: float) -> None:
                go_on(loss)
                on_loss(loss)

            if not self.keeps_documents:
                return self.engine.answer_from(choice, on_step=on_step, **options)
            is_first = self._session is None
            session = self._session or self.engine.session_from(choice, on_step=on_step)
            self._session = session
            found = session.answer(choice.query.text, history=choice.query.history, **options)
            spent = session.timings if is_first else {}
            return replace(found, timings={**spent, **found.timings})

        return AnswerStream(followed(answer, {}), self.engine.language_model.submit)

    def _choose(self, question: str) -> Choice:
        """Return the mode and the documents for a question: new ones, or those that are kept."""
        if self._session is not None:
            check_question(question)
            kept = self._session.choice
            query = replace(kept.query, text=question, history=self.history)
            return replace(kept, query=query, timings={})
        return self.engine.choose(
            question, mode=self.mode, history=self.history, latency_s=self.latency_s
        )

    def remember(self, question: str, answer: Answer) -> int:
        """Add a question and its answer to the history; return how many old turns had to go.

        A turn goes where the history takes more than half of the model's window.
        """
        self.history += [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer.text},
        ]
        model = self.engine.language_model
        n_gone = 0
        while self.history and len(model.prompt_ids(self.history)) > HISTORY_SHARE * model.window:
            del self.history[:2]
            n_gone += 1
        return n_gone

    def forget(self) -> None:
        """Begin anew: without history, and with documents for the next question."""
        self.history.clear()
        self._session = None


@dataclass(kw_only=True, eq=False)
class Chat:
    """Asks one question a line, and keeps what was said.

    Args:
        asking: Answers.
        answer: Answers and prints one question; returns None where Ctrl-C stopped it.
        print_sources: Prints what an answer rests on.
        as_json: Whether stdout has nothing but one JSON line an answer.
    """

    asking: Asking
    answer: Callable[[str], Answer | None]
    print_sources: Callable[[Answer], object]
    as_json: bool = False
    last: Answer | None = None
    n_failed: int = 0

    def run(self, first: str | None) -> int:
        """Answer the first question, if any, and those on stdin; return how many failed."""
        if self.is_interactive and not self.as_json:
            stderr_console().print("One question a line; /help lists the commands.", style="dim")
        line = first if first is not None else self._next_line()
        while line is not None and line.strip() != "/quit":
            if line.strip():
                self._turn(line.strip())
            line = self._next_line()
        return self.n_failed

    @property
    def is_interactive(self) -> bool:
        """Return whether a person types the questions."""
        return sys.stdin.isatty()

    def _turn(self, line: str) -> None:
        if _COMMAND.fullmatch(line):
            self._command(line)
            return
        if not self.is_interactive and not self.as_json:
            write(f"{PROMPT}{line}\n")  # a person has typed it there already
        try:
            answer = self.answer(line)
        except SiftError as error:  # of this question; the next one may do better
            message = one_line(str(error))
            self.n_failed += 1
            if self.as_json:
                print_json({"question": line, "error": message}, one_a_line=True)
            stderr_console().print(f"error: {message}", soft_wrap=True)
            return
        if answer is None:
            return
        if not self.as_json:
            write("\n")
        self.last = answer
        n_gone = self.asking.remember(line, answer)
        if n_gone:
            stderr_console().print(
                f"The {n_gone} oldest turns take too much of the window and are forgotten.",
                style="dim",
            )

    def _command(self, command: str) -> None:
        notes = stderr_console()
        if command == "/reset":
            self.asking.forget()
            self.last = None
            notes.print("Forgotten.", style="dim")
        elif command == "/sources" and self.last is None:
            notes.print("There is no answer yet.", style="dim")
        elif command == "/sources" and self.last is not None:
            self.print_sources(self.last)
        elif command == "/help":
            notes.print(HELP)
        else:
            notes.print(f"There is no command {command}.\n{HELP}")

    def _next_line(self) -> str | None:
        """Return the next line; None at the end."""
        while True:
            try:
                if not self.is_interactive:
                    return sys.stdin.readline() or None
                return self._typed_line()
            except EOFError:
                sys.stderr.write("\n")
                return None
            except KeyboardInterrupt:
                if not self.is_interactive:
                    raise
                sys.stderr.write("\nCtrl-D or /quit ends the chat.\n")

    def _typed_line(self) -> str:
        if sys.stdout.isatty() and not self.as_json:
            try:
                import readline  # noqa: F401  # input() then has a history and can be edited
            except ImportError:  # not on Windows
                pass
            return input(PROMPT)
        sys.stderr.write(PROMPT)
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line
