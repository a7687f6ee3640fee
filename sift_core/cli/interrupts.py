"""Ctrl-C: end the process at once, or raise KeyboardInterrupt."""

# Imported before Ctrl-C can end in silence, so it imports next to nothing.
from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # built in; `signal` imports more


def raise_interrupts() -> None:
    """Have Ctrl-C raise KeyboardInterrupt again, after `die_of_interrupts`."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def die_of_interrupts() -> None:
    """Have Ctrl-C end the process without a word while there is nothing to tidy up.

    An exception inside an import or while Python ends would be shown with its traceback. Where
    Ctrl-C is ignored, as in a shell's background, it stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
