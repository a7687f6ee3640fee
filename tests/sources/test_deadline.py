import asyncio
import contextvars

import pytest

from sift_core.sources.qdrant.calls import awithin, within

VARIABLE = contextvars.ContextVar("VARIABLE", default="none")


@pytest.mark.parametrize("seconds", [None, 300])
def test_returns_what_the_call_returns_in_the_callers_context(seconds):
    VARIABLE.set("the caller's")
    assert within(seconds, VARIABLE.get) == "the caller's"


@pytest.mark.parametrize("raised", [ValueError, TimeoutError, KeyboardInterrupt])
def test_raises_what_the_call_raises(raised):
    def fail():
        raise raised("its own")

    with pytest.raises(raised, match="its own"):
        within(300, fail)


async def test_an_awaited_call_is_cancelled():
    cancelled = []

    async def never():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(TimeoutError, match=r"within 0\.05 s"):
        await awithin(0.05, never())
    assert cancelled
    assert await awithin(None, asyncio.sleep(0, "done")) == "done"
