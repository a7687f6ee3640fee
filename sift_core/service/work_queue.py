"""A bounded queue before costly work: some run, some wait, and the others must come back later."""

from __future__ import annotations

import time

from anyio import Semaphore, fail_after

from sift_core.service.errors import RefusedError

LEAST_RETRY_S, MOST_RETRY_S = 1.0, 60.0
_WEIGHT = 0.2  # of the latest in the running mean of seconds


class WorkQueue:
    """Lets a number of pieces of work run at once, in the order in which they came.

    For one event loop. anyio's semaphore lets tasks run in turn, but bounds no waiting ones.

    Args:
        n_running: Pieces of work that run at once, >= 1.
        n_waiting: Pieces of work that may wait beside them, >= 0.
    """

    def __init__(self, n_running: int, n_waiting: int) -> None:
        self._turns, self._n_turns = Semaphore(n_running), n_running
        self._n_places = n_running + n_waiting
        self._n_tickets = 0
        self._mean_s = LEAST_RETRY_S

    @property
    def is_full(self) -> bool:
        """Whether the next one would be refused."""
        return self._n_tickets >= self._n_places

    @property
    def n_running(self) -> int:
        """How many have their turn."""
        return self._n_turns - self._turns.value

    @property
    def n_waiting(self) -> int:
        """How many wait for theirs."""
        return self._n_tickets - self.n_running

    def ticket(self) -> Ticket:
        """Return a place, to be entered by `async with`: that waits for the turn, and holds it.

        Raises:
            RefusedError: If there is none: 429, with the seconds after which one may be free.
        """
        if self.is_full:
            rounds = 1 + (self._n_tickets - self._n_turns) / self._n_turns
            raise RefusedError(
                f"{self._n_tickets} requests run or wait already; ask again later",
                status=429,
                code="overloaded",
                retry_after_s=min(max(self._mean_s * rounds, LEAST_RETRY_S), MOST_RETRY_S),
            )
        self._n_tickets += 1
        return Ticket(self)


class Ticket:
    """A place in the queue. Enter it to wait for the turn; leave it, or `give_back`, at the end."""

    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue
        self._started: float | None = None
        self._is_over = False

    async def __aenter__(self) -> Ticket:
        try:
            await self._queue._turns.acquire()
        except BaseException:
            self.give_back()
            raise
        self._started = time.monotonic()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.give_back()

    async def enter_within(self, seconds: float) -> None:
        """Wait for the turn, at most a given number of seconds.

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
        queue = self._queue
        queue._n_tickets -= 1
        if self._started is not None:
            queue._mean_s += _WEIGHT * (time.monotonic() - self._started - queue._mean_s)
            queue._turns.release()
