"""A pace for what an event loop does for many queries at once: a few at a time.

A hundred answers of a store that come in together are parsed in one turn of the loop, several
milliseconds each where they hold vectors, and nothing else runs meanwhile. Asked for at a pace,
as many come a second, since one processor parses them either way, and the loop has its turns
in between. Where somebody else asked, and all hundred go on in the turn in which they were parsed,
each can at least wait for a turn of its own.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

__all__ = ["paced", "turn_of_ones_own"]

# Measured: `python -m benchmarks.integrations`, LOG.md 2026-11-21. qdrant-client takes 6 to 10 ms
# for the JSON of 200 vectors of 384 numbers; two such answers at a time keep a turn of the loop
# below 50 ms where they come within `TURN_S`, which is a guess.
MAX_NUMBERS = 2 * 200 * 384
TURN_S = 0.1


class _Gate:
    """Lets in blocks that together ask for so many numbers, in the order in which they came.

    One that asks for more than all waits until it is alone.
    """

    def __init__(self) -> None:
        self._n_inside = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    async def enter(self, n: int) -> None:
        if not self._waiting and self._fits(n):
            self._n_inside += n
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, n))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # let in, but nobody enters
                self.leave(n)
            raise

    def leave(self, n: int) -> None:
        self._n_inside -= n
        while self._waiting and (self._waiting[0][0].done() or self._fits(self._waiting[0][1])):
            turn, n_next = self._waiting.popleft()
            if not turn.done():  # not given up
                self._n_inside += n_next
                turn.set_result(None)

    def _fits(self, n: int) -> bool:
        return self._n_inside == 0 or self._n_inside + n <= MAX_NUMBERS


_gates: WeakKeyDictionary[AbstractEventLoop, _Gate] = WeakKeyDictionary()


@asynccontextmanager
async def paced(n_vectors: int, dimension: int) -> AsyncIterator[None]:
    """Wait for a turn to ask a store for vectors, and hold it for the `with` block.

    The blocks of an event loop that hold a turn ask for at most two times 200 vectors of 384
    numbers in all: two large answers at a time, or many small ones. A turn ends with its
    block, and after .1 s in any case, so that a slow store is asked by others meanwhile.
    A block within a block waits for a second turn, up to .1 s.

    Args:
        n_vectors: How many vectors the answer may hold, >= 0.
        dimension: d, of each.

    Example:
        >>> import asyncio
        >>> async def vectors():
        ...     async with paced(len(texts), dimension=256):
        ...         return embedder.embed_documents(texts)
        ...
        >>> asyncio.run(vectors()).shape
        (4, 256)
    """
    loop = asyncio.get_running_loop()
    gate = _gates.get(loop)
    if gate is None:
        gate = _gates[loop] = _Gate()
    n = n_vectors * dimension
    await gate.enter(n)
    is_inside = True

    def end() -> None:
        nonlocal is_inside
        if is_inside:
            is_inside = False
            gate.leave(n)

    timer = loop.call_later(TURN_S, end)
    try:
        yield
    finally:
        timer.cancel()
        end()


_waiting_for_a_turn: WeakKeyDictionary[AbstractEventLoop, deque[asyncio.Future[None]]]
_waiting_for_a_turn = WeakKeyDictionary()


async def turn_of_ones_own() -> None:
    """Wait for a turn of the event loop in which no other that waits here goes on.

    For a millisecond or two of work on an answer that came in with many: what waits for the loop
    waits for one such work, not for all of them. In the order of asking.

    Example:
        >>> import asyncio
        >>> async def answer():
        ...     await turn_of_ones_own()
        ...     return choose(pool, query, ChoiceOptions(n_select=2)).chunks.document_ids
        ...
        >>> asyncio.run(answer())
        ('prices', 'timetable')
    """
    loop = asyncio.get_running_loop()
    waiting = _waiting_for_a_turn.setdefault(loop, deque())
    turn: asyncio.Future[None] = loop.create_future()
    waiting.append(turn)
    if len(waiting) == 1:
        loop.call_soon(_next_turn, loop, waiting)
    await turn


def _next_turn(loop: AbstractEventLoop, waiting: deque[asyncio.Future[None]]) -> None:
    """Let the first go on that still waits, and the next one in the next turn."""
    while waiting:
        turn = waiting[0]
        if not turn.done():
            turn.set_result(None)
            loop.call_soon(_next_turn, loop, waiting)
            return
        waiting.popleft()  # has had its turn, or has given up
