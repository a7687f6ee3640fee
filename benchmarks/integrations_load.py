"""100 async queries at once through each framework: answers, and stalls of the loop.

The Qdrant that is asked runs in a process of its own (qdrant_servers.py), so that its
work and its interpreter lock are not counted as ours. A task in the loop sleeps 1 ms again and
again; what a sleep takes beyond that is a stall. Others who work on the machine stall it too, so
that the bar is held against what this process computed meanwhile, at most the stall itself.
Frameworks also stall the loop by themselves, when they read answers: the same load without SIFT
is measured in the same run. What both frameworks, torch and their data leave in memory is frozen
(`gc.freeze`, as servers do after start-up): else one full collection of all that, some 200 ms,
falls into some round or other, with and without SIFT.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_qdrant import QdrantVectorStore as LangChainQdrant
from llama_index.core import VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import BaseQueryEngine, RetrieverQueryEngine
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.utils import node_to_metadata_dict
from llama_index.vector_stores.qdrant import QdrantVectorStore as LlamaQdrant
from qdrant_client import AsyncQdrantClient, QdrantClient

from benchmarks.integrations_engines import (
    DIMENSION,
    N_CANDIDATES,
    N_CHOSEN,
    TEXT,
    FirstNodes,
    PreparedQueries,
    engine,
    question,
)
from benchmarks.qdrant_servers import Served, point_id, serving
from benchmarks.report import Report
from benchmarks.selection_data import collection, queries
from langchain_sift import SIFTRetriever as LangChainRetriever
from llama_index.postprocessor.sift import SIFTReranker
from llama_index.postprocessor.sift import SIFTRetriever as LlamaRetriever
from sift_core import ContextSelector

N_AT_ONCE, ROUNDS = 100, 5  # of each way
BEAT_S = 0.001
VECTOR_NAME = "text-dense"  # LlamaIndex's own
WITHOUT, RERANKER = "without SIFT", "SIFTReranker"

# Answers one question: the texts that were chosen.
Ask = Callable[[str], Awaitable[list[str]]]


@dataclass(frozen=True, kw_only=True)
class Load:
    """What one round of queries at once showed.

    Args:
        stall_ms: The longest time that the loop was away, beyond the sleep.
        own_ms: The longest such time counting only what this process computed.
        foreign: How many texts were another query's.
        unanswered: How many queries had not the number of texts that they should.
    """

    stall_ms: float
    own_ms: float
    foreign: int
    unanswered: int


def measure(report: Report, *, quick: bool) -> None:
    """Run the load through both frameworks and judge the bars."""
    asyncio.run(_measure(report, 2 if quick else ROUNDS))


async def _measure(report: Report, n_rounds: int) -> None:
    selection_ms = longest_selection_ms()
    report.heading(f"{N_AT_ONCE} queries at once against Qdrant's REST, K {N_CANDIDATES}")
    report.add(case="selection alone", method="longest of 100", ms=selection_ms)
    async with load_ways() as ways:
        for framework, asks in ways.items():
            rounds: dict[str, list[Load]] = {name: [] for name in asks}
            for ask in asks.values():
                await at_once(ask)
            gc.collect()
            gc.freeze()
            for _ in range(n_rounds):
                for name, ask in asks.items():
                    rounds[name].append(await at_once(ask))
            for name, loads in rounds.items():
                case = f"{framework}, {N_AT_ONCE} at once"
                report.add(case=case, method=name, **summary(loads))
            ours = {name: loads for name, loads in rounds.items() if name != WITHOUT}
            for name, loads in ours.items():
                worst_ms = max_own_ms(loads)
                if name == RERANKER:  # the search before it is the framework's
                    other, beyond_ms = "the engine without it", max_own_ms(rounds[WITHOUT])
                    key = "stall_beyond_engine_ms"
                else:
                    other, beyond_ms, key = "a selection", selection_ms, "stall_beyond_selection_ms"
                report.judge(
                    f"{framework}, {name}: worst stall beyond {other} (ms)",
                    worst_ms - beyond_ms,
                    key,
                    better="lower",
                )
            wrong = sum(x.foreign + x.unanswered for loads in ours.values() for x in loads)
            report.judge(
                f"{framework}: texts of others, and queries without an answer",
                wrong,
                "wrong_answers",
                better="lower",
            )


def max_own_ms(loads: list[Load]) -> float:
    return max(load.own_ms for load in loads)


def summary(loads: list[Load]) -> dict[str, Any]:
    """Return one row of several rounds."""
    return {
        "worst_stall_ms": round(max(load.stall_ms for load in loads), 1),
        "worst_own_ms": round(max_own_ms(loads), 1),
        "median_own_ms": round(float(np.median([load.own_ms for load in loads])), 1),
        "foreign": sum(load.foreign for load in loads),
        "unanswered": sum(load.unanswered for load in loads),
    }


async def at_once(ask: Ask) -> Load:
    """Return what all queries at once do, each of which expects texts of its own."""
    gc.collect()
    stalls: list[tuple[float, float]] = []
    heart = asyncio.create_task(beat(stalls))
    await asyncio.sleep(5 * BEAT_S)
    answers = await asyncio.gather(*(ask(question(i)) for i in range(N_AT_ONCE)))
    await asyncio.sleep(5 * BEAT_S)  # the beat that waits now counts too
    heart.cancel()
    return Load(
        stall_ms=1000 * max(wall for wall, _ in stalls),
        own_ms=1000 * max(min(stall) for stall in stalls),
        foreign=sum(not is_own(text, i) for i, texts in enumerate(answers) for text in texts),
        unanswered=sum(len(texts) < N_CHOSEN for texts in answers),
    )


async def beat(stalls: list[tuple[float, float]]) -> None:
    """Sleep again and again, and note of each sleep two times in seconds.

    They are how much longer than asked for it took, and how long this process computed.
    """
    while True:
        slept, computed = time.perf_counter(), time.process_time()
        await asyncio.sleep(BEAT_S)
        late = time.perf_counter() - slept - BEAT_S
        stalls.append((late, time.process_time() - computed))


def longest_selection_ms() -> float:
    """Return the longest of 100 selections alone, in milliseconds."""
    asked, vectors = problem()
    selector = ContextSelector()
    selector.select(asked[0], vectors, N_CHOSEN)
    times = []
    for query in asked:
        started = time.perf_counter()
        selector.select(query, vectors, N_CHOSEN)
        times.append(time.perf_counter() - started)
    return round(1000 * max(times), 3)


def problem() -> tuple[np.ndarray, np.ndarray]:
    """Return unit queries (100, d), and documents (k, d) nearest to the first one first."""
    generator = np.random.default_rng(N_CANDIDATES)
    vectors = collection("text", 10 * N_CANDIDATES, DIMENSION, generator)
    base = queries(vectors, 1, generator)[0]
    nearest = vectors[np.argsort(-(vectors @ base))[:N_CANDIDATES]]
    noise = generator.standard_normal((N_AT_ONCE, DIMENSION)).astype(np.float32)
    noise[0] = 0.0
    asked = base + 0.3 * noise / np.linalg.norm(noise, axis=1, keepdims=True).clip(1e-9)
    asked /= np.linalg.norm(asked, axis=1, keepdims=True)
    return asked, nearest


def text_of(group: int, position: int) -> str:
    return f"group {group}, document {position}: {TEXT}"


def is_own(text: str, group: int) -> bool:
    return text.startswith(f"group {group},")


@asynccontextmanager
async def load_ways() -> AsyncIterator[dict[str, dict[str, Ask]]]:
    """Yield framework → way → function that answers a question, all against one server."""
    asked, vectors = problem()
    prepared = {question(i): row.tolist() for i, row in enumerate(asked)}
    served = {"asked": asked, "vectors": vectors}
    llama = Served(
        name="llama", vector_name=VECTOR_NAME, payloads=llama_payloads(vectors), **served
    )
    chain = Served(name="chain", vector_name="", payloads=chain_payloads(vectors), **served)
    with serving(llama, chain) as url:
        options = {"url": url, "timeout": 60, "check_compatibility": False}
        aclient, client = AsyncQdrantClient(**options), QdrantClient(**options)
        try:
            yield {
                "LlamaIndex": llama_ways(aclient, prepared),
                "LangChain": chain_ways(client, aclient, prepared),
            }
        finally:
            await aclient.close()
            client.close()


def llama_payloads(vectors: np.ndarray) -> list[list[dict[str, Any]]]:
    return [
        [
            node_to_metadata_dict(
                TextNode(id_=point_id(group, i), text=text_of(group, i), metadata={"page": i}),
                remove_text=False,
            )
            for i in range(len(vectors))
        ]
        for group in range(N_AT_ONCE)
    ]


def chain_payloads(vectors: np.ndarray) -> list[list[dict[str, Any]]]:
    return [
        [{"page_content": text_of(group, i), "metadata": {"page": i}} for i in range(len(vectors))]
        for group in range(N_AT_ONCE)
    ]


def llama_ways(aclient: AsyncQdrantClient, prepared: dict[str, list[float]]) -> dict[str, Ask]:
    embed_model = PreparedQueries(prepared)
    store = LlamaQdrant("llama", aclient=aclient, index_doc_id=False)
    index = VectorStoreIndex.from_vector_store(store, embed_model=embed_model)

    def asking(query_engine: BaseQueryEngine) -> Ask:
        async def ask(text: str) -> list[str]:
            response = await query_engine.aquery(text)
            return [node.text for node in response.source_nodes]

        return ask

    retriever = LlamaRetriever.from_index(index, top_n=N_CHOSEN, candidates=N_CANDIDATES)
    return {
        WITHOUT: asking(engine(index, embed_model, [])),
        RERANKER: asking(engine(index, embed_model, [SIFTReranker(top_n=N_CHOSEN)])),
        "SIFTRetriever": asking(RetrieverQueryEngine(retriever, FirstNodes(llm=MockLLM()))),
    }


class PreparedEmbeddings(Embeddings):
    """Looks the embedding of a query up."""

    def __init__(self, prepared: dict[str, list[float]]) -> None:
        self._prepared = prepared

    def embed_query(self, text: str) -> list[float]:
        return self._prepared.get(text) or next(iter(self._prepared.values()))  # stores try one

    async def aembed_query(self, text: str) -> list[float]:
        return self.embed_query(text)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


def chain_ways(
    client: QdrantClient,
    aclient: AsyncQdrantClient,
    prepared: dict[str, list[float]],
) -> dict[str, Ask]:
    store = LangChainQdrant(client, "chain", embedding=PreparedEmbeddings(prepared))
    settings = {"vectorstore": store, "k": N_CHOSEN, "fetch_k": N_CANDIDATES}
    retrievers = {
        WITHOUT: store.as_retriever(search_kwargs={"k": N_CANDIDATES}),
        "SIFTRetriever": LangChainRetriever(**settings),
        "SIFTRetriever, async client": LangChainRetriever(**settings, async_client=aclient),
    }

    def asking(retriever: Any) -> Ask:
        async def ask(text: str) -> list[str]:
            return [document.page_content for document in await retriever.ainvoke(text)]

        return ask

    return {name: asking(retriever) for name, retriever in retrievers.items()}
