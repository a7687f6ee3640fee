"""Many async queries at once through both frameworks, against Qdrant's REST on real sockets.

How fast that is, and whether the event loop stalls, is measured by `benchmarks.integrations`.
"""

import itertools
import threading

import pytest

pytest.importorskip("llama_index.postprocessor.sift")
pytest.importorskip("langchain_sift")

from tests.integrations import loads
from tests.integrations.loads import question

pytestmark = pytest.mark.parametrize("way", loads.WAYS)
# One object kept a query would be 500 blocks in each of three rounds; what is kept once is in one.
# Measured, of which none leaks: 10 to 139 a round; 757 in all, once, beside other tests.
BLOCKS_ALLOWED = 250
EVERY_QUESTION = [question(number) for number in range(loads.N_QUESTIONS)]


@pytest.fixture(scope="module")
def server():
    with loads.served() as server:
        yield server


@pytest.fixture
async def ask(way, server):
    """The way's function from a question to the texts chosen, after its first query."""
    server.fail(None)
    async with loads.asking(way, server.url) as ask:
        await ask(question(0))  # stores look at their collection first
        yield ask
    server.fail(None)


async def one_after_another(ask, texts):
    return [await ask(text) for text in texts]


@pytest.mark.slow
async def test_a_hundred_queries_at_once_get_what_they_get_one_after_another(ask):
    expected = await one_after_another(ask, EVERY_QUESTION)
    assert await loads.outcomes(ask, EVERY_QUESTION) == expected
    owners = [[loads.number_of(text) for text in answer] for answer in expected]
    assert owners == [[number] * loads.N_CHOSEN for number in range(loads.N_QUESTIONS)]


async def test_a_query_that_waits_for_the_server_lets_another_ask(ask, server):
    """The server answers no request before two are there; a blocked loop sends one alone."""
    both = threading.Barrier(2)

    def answer_both(call):
        both.wait(timeout=200)
        call.respond(*call.genuine())

    server.fail(answer_both)
    outcomes = await loads.outcomes(ask, [question(1), question(2)])
    owners = [loads.number_of(answer[0]) for answer in outcomes]
    assert owners == [1, 2]


@pytest.mark.slow
async def test_memory_is_flat_over_2000_queries(way):
    async with loads.asking_locally(way) as ask:
        kept = []
        for _ in range(4):
            await ask_in_turns(ask, 500)
            kept.append(loads.kept_blocks())
    assert min(later - earlier for earlier, later in itertools.pairwise(kept)) < BLOCKS_ALLOWED


async def ask_in_turns(ask, n):
    """Ask `n` questions, half of them at once: in contexts of their own, and in one for all."""
    for start in range(0, n, 50):
        texts = [question((start + i) % loads.N_QUESTIONS) for i in range(25)]
        await loads.outcomes(ask, texts)
        await one_after_another(ask, texts)
