"""The chat of `sift ask`: one question a line, each with what was said before it."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from sift_core.answering.answer import Answer
from sift_core.cli.ask import Asking, print_sources
from sift_core.cli.output import print_json, stderr_console, stdout_console, write
from sift_core.cli.plain import one_line
from sift_core.errors import SiftError

HISTORY_SHARE = 0.5  # of the window that history may take at most, so that chunks have room
PROMPT = "? "
HELP = (
    "/sources  the texts that the last answer rests on\n"
    "/reset    forget what was said\n"
    "/quit     end, as Ctrl-D does; Ctrl-C stops an answer"
)
_COMMAND = re.compile(r"/[a-z]+")  # alone on its line: a question may begin with a path


@dataclass(kw_only=True, eq=False)
class Chat:
    """Asks one question a line, and keeps what was said.

    Args:
        asking: Answers, prints, and has the history.
    """

    asking: Asking
    _last: Answer | None = None

    def run(self, first: str | None) -> int:
        """Answer the first question, if any, and those on stdin; return how many failed."""
        if self.is_interactive and not self.asking.as_json:
            stderr_console().print("One question a line; /help lists the commands.", style="dim")
        n_failed = 0
        line = first if first is not None else self._next_line()
        while line is not None and line.strip() != "/quit":
            said = line.strip()
            if _COMMAND.fullmatch(said):
                self._command(said)
            elif said:
                n_failed += not self._turn(said)
            line = self._next_line()
        return n_failed

    @property
    def is_interactive(self) -> bool:
        """Return whether a person types the questions."""
        return sys.stdin.isatty()

    def _turn(self, question: str) -> bool:
        """Answer a question; return whether that did not fail."""
        as_json = self.asking.as_json
        if not self.is_interactive and not as_json:
            write(f"{PROMPT}{question}\n")  # a person has typed it there already
        try:
            answer = self.asking.answer(question)
        except SiftError as error:  # of this question; the next one may do better
            message = one_line(str(error))
            if as_json:
                print_json({"question": question, "error": message}, one_a_line=True)
            stderr_console().print(f"error: {message}", soft_wrap=True)
            return False
        if answer is not None:
            if not as_json:
                write("\n")
            self._remember(question, answer)
        return True

    def _remember(self, question: str, answer: Answer) -> None:
        """Keep a turn; the oldest go where history takes more than half of the model's window."""
        self._last = answer
        history, model = self.asking.history, self.asking.engine.language_model
        history += [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer.text},
        ]
        n_before = len(history)
        while history and len(model.prompt_ids(history)) > HISTORY_SHARE * model.window:
            del history[:2]
        if n_gone := (n_before - len(history)) // 2:
            stderr_console().print(
                f"The {n_gone} oldest turns take too much of the window and are forgotten.",
                style="dim",
            )

    def _command(self, command: str) -> None:
        notes = stderr_console()
        if command == "/reset":
            self.asking.history.clear()
            self._last = None
            notes.print("Forgotten.", style="dim")
        elif command == "/sources" and self._last is None:
            notes.print("There is no answer yet.", style="dim")
        elif command == "/sources" and self._last is not None:
            console = notes if self.asking.as_json else stdout_console()
            print_sources(console, self._last, in_full=True)
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
        if sys.stdout.isatty() and not self.asking.as_json:
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
