"""The `sift` command: thin, over the public API.

Exit code 0: done; 1: a defect of ours; 2: bad input, a missing part, or a dead store; 130: stopped
by Ctrl-C.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from sift_core.cli.plain import one_line
from sift_core.errors import SiftError

_INTERRUPTED = 130  # as shells count a death by SIGINT


def run(command: Callable[[], Any]) -> int:
    """Return the exit code of a command; an error of ours becomes one line on stderr.

    Args:
        command: A Typer application or anything else to call without arguments.
    """
    for stream in (sys.stdout, sys.stderr):  # σ² must not end a run in a latin-1 terminal
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _note
            command()
    except SiftError as error:
        sys.stderr.write(f"error: {one_line(str(error))}\n")
        return 2
    except KeyboardInterrupt:
        return _INTERRUPTED
    except SystemError as error:
        # What Python makes of Ctrl-C inside compiled code.
        if isinstance(error.__cause__, KeyboardInterrupt):
            return _INTERRUPTED
        raise
    except SystemExit as stop:  # Typer's own way to end, also after a usage error
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0


def _note(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line, without the place in the code that Python would add."""
    sys.stderr.write(f"note: {one_line(str(message))}\n")


def _application() -> None:
    # Imported here: without the extra `cli` this raises an error for `run` to report.
    from sift_core.cli.application import app

    app()


def main() -> None:
    """Run the `sift` command."""
    try:
        sys.exit(run(_application))
    except Exception:
        traceback.print_exc()
        sys.stderr.write("This is a defect of sift-rerank: report it with the lines above.\n")
        sys.exit(1)
