"""The `sift` command: thin, over the public API.

Exit code 0: done; 1: a defect of ours; 2: bad input, a missing part, a dead store, or a system that
refuses (a full disk); 130: stopped by Ctrl-C; 141: nobody reads stdout any more.
"""

# What is imported here is imported before `main` can make Ctrl-C end in silence: next to nothing.
from __future__ import annotations

import gc
import os
import sys

from sift_core.cli.interrupts import die_of_interrupts

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_INTERRUPTED = 130  # as shells count a death by SIGINT
_COLLECT_AFTER = 50_000  # objects, in place of 700: imports make many and leave no garbage


def run(command: Callable[[], Any]) -> int:
    """Return the exit code of a command; an error of ours becomes one line on stderr.

    Args:
        command: A Typer application or anything else to call without arguments.
    """
    from sift_core.cli.streams import clean_streams

    with clean_streams():
        return _code_of(command)


def main() -> None:
    """Run the `sift` command."""
    gc.set_threshold(_COLLECT_AFTER)
    die_of_interrupts()
    from sift_core.cli.streams import clean_streams, open_closed_streams

    open_closed_streams()
    with clean_streams():
        try:
            code = _code_of(_application)
        except Exception:
            import traceback

            traceback.print_exc()
            sys.stderr.write("This is a defect of sift-rerank: report it with the lines above.\n")
            code = 1
    die_of_interrupts()
    if code == _INTERRUPTED:  # whoever stopped it waits for no thread that still computes
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _application() -> None:
    # Imported here: without the extra `cli` this raises an error for `run` to report.
    from sift_core.cli.application import app

    app()


def _code_of(command: Callable[[], Any]) -> int:
    import warnings

    from sift_core.errors import SiftError

    try:
        with warnings.catch_warnings():
            warnings.showwarning = _note
            try:
                command()
            finally:  # a full disk may show only now
                sys.stdout.flush()
    except SiftError as error:
        _tell("error", error)
        return 2
    except KeyboardInterrupt:
        return _INTERRUPTED
    except SystemExit as stop:  # Typer's own way to end, also after a usage error
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Exception as error:
        if _is_interrupt(error):
            return _INTERRUPTED
        if isinstance(error, OSError):  # of the machine: a full disk, a name that is too long
            _tell("error", _refusal(error))
            return 2
        raise
    return 0


def _is_interrupt(error: BaseException | None) -> bool:
    """Return whether an error is what compiled code or an import made of Ctrl-C."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _refusal(error: OSError) -> str:
    """Return what to say where the system refused something and nobody foresaw it."""
    try:
        os.getcwd()
    except OSError:
        return "the current folder is no longer there; go to one that is"
    return (
        f"the system refused: {error}; is the path right, is there space, and may this user read "
        f"and write there?"
    )


def _note(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line, without the place in the code that Python would add."""
    _tell("note", message)


def _tell(kind: str, message: object) -> None:
    from sift_core.cli.streams import one_line

    sys.stderr.write(f"{kind}: {one_line(str(message))}\n")
