import asyncio
import contextvars
import threading

import pytest

from sift_core.sources.qdrant.calls import Deadline, awithin, within

VARIABLE = contextvars.ContextVar("VARIABLE", default="none")


@pytest.mark.parametrize("seconds", [None, 5])
def test_returns_what_the_call_returns_in_the_callers_context(seconds):
    VARIABLE.set("the caller's")
    assert within(seconds, VARIABLE.get) == "the caller's"


def test_no_deadline_means_no_thread():
    assert within(None, threading.get_ident) == threading.get_ident()


@pytest.mark.parametrize("raised", [ValueError, TimeoutError, KeyboardInterrupt])
def test_raises_what_the_call_raises(raised):
    def fail():
        raise raised("its own")

    with pytest.raises(raised, match="its own"):
        within(5, fail)


def test_gives_up_a_call_that_does_not_end():
    release = threading.Event()
    with pytest.raises(TimeoutError, match=r"no complete answer within 0\.1 s"):
        within(0.1, release.wait)
    release.set()


async def test_an_awaited_call_is_cancelled():
    cancelled = []

    async def never():
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(TimeoutError, match=r"within 0\.05 s"):
        await awithin(0.05, never())
    assert cancelled
    assert await awithin(None, asyncio.sleep(0, "done")) == "done"


def test_a_deadline_runs_down_to_nothing():
    assert Deadline(None).left_s is None
    assert 9 < Deadline(10).left_s <= 10
    assert Deadline(-1).left_s == 0
