"""How a fine-tuning gets on, for whoever waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sift_core.cli.output import Terminal
from sift_core.errors import MissingDependencyError

try:
    from rich.status import Status
except ImportError as error:
    raise MissingDependencyError("rich", extra="cli") from error

LONG_S = 5.0  # a fine-tuning that takes longer says how long
EVERY_S = 10.0  # in a pipe, where no line can be written over


@dataclass(kw_only=True)
class LearningProgress:
    """Tells of each training step: the line of a terminal, and in a pipe a line now and then.

    Args:
        status: The line.
        console: Where lines are written if it is no terminal.
        n_steps: How many steps there will be, unless time is over before.
        clock: Seconds.
    """

    status: Status
    console: Terminal
    n_steps: int
    clock: Callable[[], float] = time.monotonic
    _n: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._started = self._told = self.clock()

    def step(self, loss: float) -> None:
        """Note a step that was taken, with the loss before it in nats a token."""
        self._n += 1
        now = self.clock()
        left = (now - self._started) / self._n * (self.n_steps - self._n)
        self.status.update(
            f"Fine-tuning: step {self._n} of {self.n_steps}, about {left:.0f} s left, loss "
            f"{loss:.2f} nats a token …"
        )
        if self.console.is_terminal:
            return
        if self._n == 1 and left > LONG_S:
            self.console.say(f"Fine-tuning on {self.n_steps} chunks: about {left:.0f} s.")
        elif self._n > 1 and now - self._told >= EVERY_S:
            self._told = now
            self.console.say(f"  step {self._n} of {self.n_steps}, about {left:.0f} s left")
