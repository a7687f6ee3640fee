import asyncio

import pytest

from sift_core import pacing
from sift_core.pacing import MAX_NUMBERS, paced, turn_of_ones_own

LARGE = MAX_NUMBERS // 2
GRACE = 30  # turns of the loop, enough for whoever can go on


async def settle():
    for _ in range(GRACE):
        await asyncio.sleep(0)


class Crowd:
    """Tasks that hold a turn each until they are told to leave; notes who is inside."""

    def __init__(self):
        self.inside, self.order, self.leave = set(), [], {}
        self.tasks = []

    def add(self, name, n):
        self.leave[name] = asyncio.Event()

        async def hold():
            async with paced(n, 1):
                self.inside.add(name)
                self.order.append(name)
                await self.leave[name].wait()
                self.inside.discard(name)

        self.tasks.append(asyncio.create_task(hold()))
        return self.tasks[-1]

    async def finish(self):
        for event in self.leave.values():
            event.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def crowd(monkeypatch):
    monkeypatch.setattr(pacing, "TURN_S", 600.0)
    crowd = Crowd()
    yield crowd
    await crowd.finish()


async def test_two_large_answers_are_asked_for_at_a_time(crowd):
    for name in "abcd":
        crowd.add(name, LARGE)
    await settle()
    assert crowd.inside == {"a", "b"}
    crowd.leave["b"].set()
    await settle()
    assert crowd.inside == {"a", "c"}


async def test_turns_come_in_the_order_of_asking(crowd):
    crowd.add("first", LARGE)
    crowd.add("large", MAX_NUMBERS)
    crowd.add("small", 1)  # would fit, but came later
    await settle()
    assert crowd.inside == {"first"}
    await crowd.finish()
    assert crowd.order == ["first", "large", "small"]


async def test_an_answer_larger_than_all_gets_a_turn_alone(crowd):
    crowd.add("huge", 3 * MAX_NUMBERS)
    crowd.add("next", 1)
    await settle()
    assert crowd.inside == {"huge"}
    await crowd.finish()
    assert crowd.order == ["huge", "next"]


async def test_whoever_gives_up_while_waiting_keeps_nobody_out(crowd):
    crowd.add("inside", MAX_NUMBERS)
    waiting = crowd.add("waiting", MAX_NUMBERS)
    crowd.add("last", LARGE)
    await settle()
    waiting.cancel()
    await settle()
    crowd.leave["inside"].set()
    await settle()
    assert crowd.inside == {"last"}


async def test_whoever_gives_up_just_when_its_turn_comes_passes_it_on(crowd):
    crowd.add("inside", MAX_NUMBERS)
    called = crowd.add("called", MAX_NUMBERS)
    crowd.add("last", MAX_NUMBERS)
    await settle()
    crowd.leave["inside"].set()
    while "inside" in crowd.inside:
        await asyncio.sleep(0)
    called.cancel()  # its turn is there or comes now
    await settle()
    assert crowd.inside == {"last"}


async def test_an_error_inside_ends_the_turn(crowd):
    with pytest.raises(KeyError):
        async with paced(MAX_NUMBERS, 1):
            raise KeyError
    crowd.add("next", MAX_NUMBERS)
    await settle()
    assert crowd.inside == {"next"}


async def test_a_slow_store_is_asked_by_others_meanwhile(monkeypatch):
    monkeypatch.setattr(pacing, "TURN_S", 0.01)
    crowd = Crowd()
    for name in "abc":
        crowd.add(name, MAX_NUMBERS)
    while len(crowd.inside) < 3:  # hangs where a turn has no end
        await asyncio.sleep(0.01)
    await crowd.finish()
    crowd = Crowd()  # a turn that ended by itself was not given back twice
    monkeypatch.setattr(pacing, "TURN_S", 600.0)
    for name in "ab":
        crowd.add(name, MAX_NUMBERS)
    await settle()
    assert crowd.inside == {"a"}
    await crowd.finish()


def test_each_event_loop_has_a_pace_of_its_own():
    async def twice():
        async with paced(MAX_NUMBERS, 1):  # hangs where the other loop waits for it
            await asyncio.wait_for(asyncio.to_thread(asyncio.run, once()), timeout=60)

    async def once():
        async with paced(MAX_NUMBERS, 1):
            pass

    asyncio.run(twice())


async def gone_on(n, *, giving_up=()):
    """Return what n tasks that wait for a turn of their own have done, turn by turn."""
    turns, now = [[]], []

    async def work(name):
        await turn_of_ones_own()
        now.append(name)

    tasks = [asyncio.create_task(work(name)) for name in range(n)]
    await asyncio.sleep(0)  # all ask
    for name in giving_up:
        tasks[name].cancel()
    for _ in range(GRACE):
        await asyncio.sleep(0)
        turns.append(now.copy())
        now.clear()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [names for names in turns if names]


async def test_each_has_a_turn_of_its_own_in_the_order_of_asking():
    assert await gone_on(5) == [[0], [1], [2], [3], [4]]
    assert await gone_on(2) == [[0], [1]]  # also after all have gone


async def test_whoever_gives_up_is_passed_over():
    assert await gone_on(5, giving_up=[0, 2, 4]) == [[1], [3]]


def test_a_loop_that_was_left_keeps_no_other_waiting():
    async def leave():
        left = asyncio.create_task(turn_of_ones_own())
        await asyncio.sleep(0)
        assert not left.done()

    asyncio.run(leave())
    assert asyncio.run(gone_on(2)) == [[0], [1]]
