"""A bounded queue before costly work: some run, some wait, the rest is told to come back."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

from sift_core.errors import MissingDependencyError
from sift_core.service.errors import RefusedError

try:
    from anyio import fail_after
except ImportError as error:
    raise MissingDependencyError("fastapi", extra="serve") from error

LEAST_RETRY_S, MOST_RETRY_S = 1.0, 60.0
_WEIGHT = 0.2  # of the latest in the running mean of seconds


class Ticket:
    """A place in the queue. Enter it to wait for the turn; leave it, or `give_back`, at the end."""

    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue
        self._turn: asyncio.Future[None] | None = None
        self._started: float | None = None
        self._is_over = False

    async def __aenter__(self) -> Ticket:
        self._turn = asyncio.get_running_loop().create_future()
        self._queue._wait(self._turn)
        try:
            await self._turn
        except BaseException:
            self.give_back()
            raise
        self._started = time.monotonic()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.give_back()

    async def enter_within(self, seconds: float) -> None:
        """Wait for the turn, at most so long.

        Before Python 3.12 `asyncio.wait_for` loses a cancellation that comes with the turn.

        Raises:
            TimeoutError: If it has not come.
        """
        with fail_after(seconds):
            await self.__aenter__()

    def give_back(self) -> None:
        """Leave the queue, whether the turn came or not; a second time does nothing."""
        if self._is_over:
            return
        self._is_over = True
        seconds = None if self._started is None else time.monotonic() - self._started
        has_run = self._turn is not None and self._turn.done() and not self._turn.cancelled()
        self._queue._leave(self._turn, has_run=has_run, seconds=seconds)


class WorkQueue:
    """Lets a number of pieces of work run at once, in the order in which they came.

    For one event loop.

    Args:
        n_running: At once, >= 1.
        n_waiting: That wait, >= 0.
        on_change: Called with how many run and wait, whenever that changes.
    """

    def __init__(
        self,
        n_running: int,
        n_waiting: int,
        *,
        on_change: Callable[[int, int], object] = lambda running, waiting: None,
    ) -> None:
        self._n_running, self._n_places = n_running, n_running + n_waiting
        self._on_change = on_change
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._n_tickets = self._n_inside = 0
        self._mean_s = LEAST_RETRY_S

    @property
    def is_full(self) -> bool:
        """Whether the next one would be refused."""
        return self._n_tickets >= self._n_places

    def ticket(self) -> Ticket:
        """Return a place, to be entered by `async with`: that waits for the turn, and holds it.

        Raises:
            RefusedError: If there is none: 429, with the seconds after which one may be free.
        """
        if self.is_full:
            rounds = 1 + (self._n_tickets - self._n_running) / self._n_running
            raise RefusedError(
                f"{self._n_tickets} requests run or wait already; ask again later",
                status=429,
                code="overloaded",
                retry_after_s=min(max(self._mean_s * rounds, LEAST_RETRY_S), MOST_RETRY_S),
            )
        self._n_tickets += 1
        self._changed()
        return Ticket(self)

    def _wait(self, turn: asyncio.Future[None]) -> None:
        self._waiting.append(turn)
        self._let_in()

    def _leave(
        self, turn: asyncio.Future[None] | None, *, has_run: bool, seconds: float | None
    ) -> None:
        self._n_tickets -= 1
        if has_run:
            self._n_inside -= 1
        elif turn is not None and turn in self._waiting:
            self._waiting.remove(turn)
        if seconds is not None:
            self._mean_s += _WEIGHT * (seconds - self._mean_s)
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._n_inside < self._n_running:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._n_inside += 1
        self._changed()

    def _changed(self) -> None:
        self._on_change(self._n_inside, self._n_tickets - self._n_inside)
