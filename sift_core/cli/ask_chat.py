"""The chat of `sift ask`: questions from a terminal or a pipe until there are no more."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass

from sift_core.cli.ask_printing import print_sources
from sift_core.cli.ask_running import Asking
from sift_core.cli.showing_text import plain, print_json, stderr_console, stdout_console
from sift_core.errors import SiftError
from sift_core.types import Answer

PROMPT = "? "
HELP = (
    "/sources  the texts that the last answer rests on\n"
    "/reset    forget what was said, and choose documents anew\n"
    "/quit     end, as Ctrl-D does; Ctrl-C stops an answer"
)
_COMMAND = re.compile(r"/[a-z]+")  # alone on its line: a question may begin with a path


@dataclass(kw_only=True, eq=False)
class Chat:
    """Asks one question a line, and keeps what was said.

    Args:
        asking: Answers.
        answer: Answers and prints one question; returns None where Ctrl-C stopped it.
        as_json: Whether stdout has nothing but one JSON line an answer.
    """

    asking: Asking
    answer: Callable[[str], Answer | None]
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
            sys.stdout.write(f"{PROMPT}{plain(line)}\n")  # a person has typed it there already
        try:
            answer = self.answer(line)
        except SiftError as error:  # of this question; the next one may do better
            message = " ".join(str(error).split())
            self.n_failed += 1
            if self.as_json:
                print_json({"question": line, "error": message}, one_a_line=True)
            sys.stderr.write(f"error: {message}\n")
            return
        if answer is None:
            return
        if not self.as_json:
            sys.stdout.write("\n")
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
            console = stderr_console() if self.as_json else stdout_console()
            print_sources(console, self.last, n_lines=6, all_of_them=True)
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
