"""One corpus, put into every kind of store that a source can stand before."""

import asyncio
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import faiss
import numpy as np
import qdrant_client
from qdrant_client import models

from sift_core.errors import LossyVectorsWarning
from sift_core.sources import FaissSource, InMemorySource, MergedSource, QdrantSource
from sift_core.types import Document, Query
from tests.sources.qdrant_grpc import serving_grpc
from tests.sources.qdrant_rest import serving

N, D = 160, 16
NAME = "docs"
MODEL = "model-a"


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    embeddings: np.ndarray  # (N, D), unit rows
    texts: list
    ids: list  # integers, as both stores can keep them
    metadata: list

    @property
    def documents(self):
        return [
            Document(document_id=str(i), text=text, metadata=metadata)
            for i, text, metadata in zip(self.ids, self.texts, self.metadata, strict=True)
        ]

    @property
    def payloads(self):
        return [
            {"text": text, **metadata}
            for text, metadata in zip(self.texts, self.metadata, strict=True)
        ]

    def query(self, seed=0, **changes):
        """Return a query that is no candidate and is not of unit length."""
        embedding = np.random.default_rng([seed, 1]).standard_normal(D).astype(np.float32)
        return Query(**{"text": "?", "embedding": embedding, **changes})


def make_corpus():
    rng = np.random.default_rng(0)
    embeddings = rng.standard_normal((N, D))
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    return Corpus(
        embeddings=embeddings.astype(np.float32),
        texts=[f"№ {i}: наука, 漢字, \u0645\u0631\u062d\u0628\u0627, 🙂\n\t“ß”" for i in range(N)],
        ids=[1000 + 7 * i for i in range(N)],
        metadata=[{"parity": i % 2, "lang": "日本", "more": {"rank": [i]}} for i in range(N)],
    )


def in_memory(corpus):
    """Return the reference: exact search over the arrays themselves."""
    return InMemorySource(
        corpus.embeddings,
        corpus.texts,
        document_ids=[str(i) for i in corpus.ids],
        metadata=corpus.metadata,
        embedder_name=MODEL,
    )


def is_even(metadata):
    return metadata["parity"] == 0


def is_nothing(metadata):
    return metadata["parity"] == 7


@dataclass(frozen=True, kw_only=True, eq=False)
class Store:
    """A source with what its kind of store needs to be asked the same questions.

    With a `loop` everything is awaited there, else called.
    """

    source: Any
    even: Any = is_even
    nothing: Any = is_nothing
    recall: float = 1.0  # share of the reference's documents that must be found
    is_lossy: bool = False  # whether vectors come back as approximations
    loop: Any = None

    def fetch(self, query, n_candidates, **options):
        return self.ask("fetch", query, n_candidates, **options)

    def fetch_batch(self, queries, n_candidates, **options):
        return self.ask("fetch_batch", queries, n_candidates, **options)

    def ask(self, method, *arguments, **options):
        if self.loop is None:
            return getattr(self.source, method)(*arguments, **options)
        call = getattr(self.source, f"a{method}")(*arguments, **options)
        return asyncio.run_coroutine_threadsafe(call, self.loop).result(timeout=60)


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Give an event loop that runs in a thread, so that many threads may ask it at once."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def faiss_index(corpus, description, *, metric=faiss.METRIC_INNER_PRODUCT, own_ids=False):
    index = faiss.index_factory(D, description, metric)
    index.train(corpus.embeddings)
    if own_ids:
        index.add_with_ids(corpus.embeddings, np.array(corpus.ids))
    else:
        index.add(corpus.embeddings)
    return index


def faiss_store(
    corpus, description, *, own_ids=False, recall=1.0, inner=None, lossy=False, folder=None, **rest
):
    index = faiss_index(corpus, description, own_ids=own_ids, **rest)
    if inner is not None:
        inner(index)
    documents = corpus.documents
    by_id = dict(zip(corpus.ids, documents, strict=True)) if own_ids else documents
    if folder is not None:
        FaissSource(index, by_id, embedder_name=MODEL).save(folder)
    with warnings.catch_warnings():
        if lossy:
            warnings.simplefilter("ignore", LossyVectorsWarning)
        if folder is None:
            source = FaissSource(index, by_id, embedder_name=MODEL)
        else:
            source = FaissSource.load(folder)
    return Store(source=source, recall=recall, is_lossy=lossy)


def probe(n_probe):
    """Return what makes an IVF index search `n_probe` lists."""

    def prepare(index):
        faiss.extract_index_ivf(index).nprobe = n_probe

    return prepare


def look_wider(index):
    index.hnsw.efSearch = 128


# Four lists of forty; two of four probed find most of what is near.
FAISS = {
    "faiss flat, inner product": ("Flat", {}),
    "faiss flat, L2": ("Flat", {"metric": faiss.METRIC_L2}),
    "faiss IDMap flat": ("IDMap,Flat", {"own_ids": True}),
    "faiss HNSW": ("HNSW16,Flat", {"inner": look_wider, "recall": 0.95}),
    "faiss IVF, all lists": ("IVF4,Flat", {"inner": probe(4)}),
    "faiss IVF, two lists": ("IVF4,Flat", {"inner": probe(2), "recall": 0.5}),
    "faiss IVF, own ids": ("IVF4,Flat", {"own_ids": True, "inner": probe(4)}),
    "faiss SQ8": ("SQ8", {"lossy": True, "recall": 0.9}),
    "faiss folder, flat": ("Flat", {"folder": True}),
    "faiss folder, IDMap2 IVF": (
        "IDMap2,IVF4,Flat",
        {"folder": True, "own_ids": True, "inner": probe(4)},
    ),
}


def collection_settings(named, distance):
    vectors = models.VectorParams(size=D, distance=distance)
    return {
        "collection_name": NAME,
        "vectors_config": {"dense": vectors, "other": vectors} if named else vectors,
    }


def points(corpus, named):
    for i, vector, payload in zip(
        corpus.ids, corpus.embeddings.tolist(), corpus.payloads, strict=True
    ):
        vectors = {"dense": vector, "other": vector[::-1]} if named else vector
        yield models.PointStruct(id=i, vector=vectors, payload=payload)


def parity_filter(value):
    match = models.MatchValue(value=value)
    return models.Filter(must=[models.FieldCondition(key="parity", match=match)])


def qdrant_store(client, **options):
    return Store(
        source=QdrantSource(client, NAME, embedder_name=MODEL, **options),
        even=parity_filter(0),
        nothing=parity_filter(7),
    )


def filled(client, corpus, *, named=False, distance=models.Distance.COSINE):
    client.create_collection(**collection_settings(named, distance))
    client.upsert(NAME, list(points(corpus, named)))
    return client


async def afilled(corpus):
    client = qdrant_client.AsyncQdrantClient(":memory:")
    await client.create_collection(**collection_settings(False, models.Distance.COSINE))
    await client.upsert(NAME, list(points(corpus, False)))
    return client


@contextmanager
def qdrant_in_memory(corpus, **options):
    with closing(filled(qdrant_client.QdrantClient(":memory:"), corpus, **options)) as client:
        yield client


def remote_client(url, kind=qdrant_client.QdrantClient):
    return kind(url=url, timeout=30, check_compatibility=False)


QDRANT = {
    "qdrant memory": {},
    "qdrant named": {"named": True},
    "qdrant dot": {"distance": models.Distance.DOT},
    "qdrant Euclid": {"distance": models.Distance.EUCLID},
}


@contextmanager
def qdrant(corpus, folder, *, named=False, distance=models.Distance.COSINE):
    with qdrant_in_memory(corpus, named=named, distance=distance) as client:
        yield qdrant_store(client, vector_name="dense" if named else "")


@contextmanager
def qdrant_folder(corpus, folder):
    with closing(filled(qdrant_client.QdrantClient(path=str(folder)), corpus)) as client:
        yield qdrant_store(client)


@contextmanager
def qdrant_rest(corpus, folder):
    with (
        qdrant_in_memory(corpus) as local,
        serving(local) as server,
        closing(remote_client(server.url)) as client,
    ):
        yield qdrant_store(client)


def grpc_client(port, kind=qdrant_client.QdrantClient):
    return kind(
        url="http://127.0.0.1",
        grpc_port=port,
        prefer_grpc=True,
        timeout=30,
        check_compatibility=False,
    )


@contextmanager
def qdrant_grpc(corpus, folder):
    with (
        qdrant_in_memory(corpus) as local,
        serving_grpc(local) as port,
        closing(grpc_client(port)) as client,
    ):
        yield qdrant_store(client)


@contextmanager
def async_memory(corpus, loop):
    client = asyncio.run_coroutine_threadsafe(afilled(corpus), loop).result()
    yield qdrant_store(client)
    asyncio.run_coroutine_threadsafe(client.close(), loop).result()


@contextmanager
def async_rest(corpus, loop):
    with qdrant_in_memory(corpus) as local, serving(local) as server:
        client = remote_client(server.url, qdrant_client.AsyncQdrantClient)
        yield qdrant_store(client)
        asyncio.run_coroutine_threadsafe(client.close(), loop).result()


@contextmanager
def async_grpc(corpus, loop):
    with qdrant_in_memory(corpus) as local, serving_grpc(local) as port:

        async def connect():  # the channel belongs to the loop that it was made in
            return grpc_client(port, qdrant_client.AsyncQdrantClient)

        client = asyncio.run_coroutine_threadsafe(connect(), loop).result()
        yield qdrant_store(client)
        asyncio.run_coroutine_threadsafe(client.close(), loop).result()


def memory(corpus, folder):
    return Store(source=in_memory(corpus))


def merged(corpus, folder):
    slices = {}
    for i in range(3):
        part = replace(
            corpus,
            embeddings=corpus.embeddings[i::3],
            texts=corpus.texts[i::3],
            ids=corpus.ids[i::3],
            metadata=corpus.metadata[i::3],
        )
        slices[f"machine {i}"] = in_memory(part)
    return Store(source=MergedSource(slices))


ASYNC_ONLY = {
    "qdrant async client": async_memory,
    "qdrant async client, REST": async_rest,
    "qdrant async client, gRPC": async_grpc,
}
SYNC_AND_ASYNC = [
    "in memory",
    "merged",
    *FAISS,
    *QDRANT,
    "qdrant folder",
    "qdrant REST",
    "qdrant gRPC",
]
AWAITED = ["in memory", "merged", "faiss flat, inner product", "qdrant REST", "qdrant gRPC"]
KINDS = [
    *(f"{kind}, called" for kind in SYNC_AND_ASYNC),
    *(f"{kind}, awaited" for kind in AWAITED),
    *(f"{kind}, awaited" for kind in ASYNC_ONLY),
]


@contextmanager
def opened(name, corpus, folder):
    """Open the store that `KINDS` has under a name, filled with the corpus."""
    kind, mode = name.rsplit(", ", 1)
    with ExitStack() as stack:
        loop = stack.enter_context(running_loop()) if mode == "awaited" else None
        if kind in ASYNC_ONLY:
            store = stack.enter_context(ASYNC_ONLY[kind](corpus, loop))
        elif kind in FAISS:
            description, options = FAISS[kind]
            if "folder" in options:
                options = {**options, "folder": folder}
            store = faiss_store(corpus, description, **options)
        elif kind in QDRANT:
            store = stack.enter_context(qdrant(corpus, folder, **QDRANT[kind]))
        elif kind == "qdrant folder":
            store = stack.enter_context(qdrant_folder(corpus, folder))
        elif kind == "qdrant REST":
            store = stack.enter_context(qdrant_rest(corpus, folder))
        elif kind == "qdrant gRPC":
            store = stack.enter_context(qdrant_grpc(corpus, folder))
        else:
            store = {"in memory": memory, "merged": merged}[kind](corpus, folder)
        yield replace(store, loop=loop)
