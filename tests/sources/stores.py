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
from sift_core.sources import (
    CombinedSource,
    FaissSource,
    InMemorySource,
    QdrantSource,
    content_id,
)
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

    def look_up(self, query, lookups, **options):
        return self.ask("look_up", query, lookups, **options)

    def ask(self, method, *arguments, **options):
        if self.loop is None:
            return getattr(self.source, method)(*arguments, **options)
        call = getattr(self.source, f"a{method}")(*arguments, **options)
        return asyncio.run_coroutine_threadsafe(call, self.loop).result(timeout=300)


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
    corpus, description, folder, *, own_ids=False, prepare=None, lossy=False, recall=1.0, **rest
):
    index = faiss_index(corpus, description, own_ids=own_ids, **rest)
    if prepare is not None:
        prepare(index)
    documents = corpus.documents
    by_id = dict(zip(corpus.ids, documents, strict=True)) if own_ids else documents
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if lossy else "error", LossyVectorsWarning)
        source = FaissSource(index, by_id, embedder_name=MODEL)
        if folder is not None:
            source.save(folder)
            source = FaissSource.load(folder)
    return Store(source=source, recall=recall, is_lossy=lossy)


def probe(n_probe):
    """Return what makes an IVF index search `n_probe` lists."""
    return lambda index: setattr(faiss.extract_index_ivf(index), "nprobe", n_probe)


def look_wider(index):
    index.hnsw.efSearch = 128


# Four lists of forty; two of four probed find most of what is near.
FAISS = {
    "faiss flat, inner product": ("Flat", {}),
    "faiss flat, L2": ("Flat", {"metric": faiss.METRIC_L2}),
    "faiss IDMap flat": ("IDMap,Flat", {"own_ids": True}),
    "faiss HNSW": ("HNSW16,Flat", {"prepare": look_wider, "recall": 0.95}),
    "faiss IVF, all lists": ("IVF4,Flat", {"prepare": probe(4)}),
    "faiss IVF, two lists": ("IVF4,Flat", {"prepare": probe(2), "recall": 0.5}),
    "faiss IVF, own ids": ("IVF4,Flat", {"own_ids": True, "prepare": probe(4)}),
    "faiss SQ8": ("SQ8", {"lossy": True, "recall": 0.9}),
    "faiss folder, flat": ("Flat", {}),
    "faiss folder, IDMap2 IVF": ("IDMap2,IVF4,Flat", {"own_ids": True, "prepare": probe(4)}),
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


def filled(client, corpus, *, named=False, distance=models.Distance.COSINE, words=False):
    if words:  # as `index_documents` creates and fills a collection
        source = QdrantSource(client, NAME)
        source.prepare(embedder_name=MODEL, dimension=D)
        source.add(list(map(content_id, corpus.documents)), corpus.documents, corpus.embeddings)
        return client
    client.create_collection(**collection_settings(named, distance))
    client.upsert(NAME, list(points(corpus, named)))
    return client


UUID = "5b0b0000-0000-4000-8000-00000000000a"


def beside_others(client):
    """Fill the collection "small": dense vectors beside a multivector and words."""
    dense = models.VectorParams(size=2, distance=models.Distance.COSINE)
    many = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
    config = {
        "dense": dense,
        "title": models.VectorParams(size=7, distance=models.Distance.DOT),
        "tokens": dense.model_copy(update={"multivector_config": many}),
    }
    sparse = {"words": models.SparseVectorParams()}
    client.create_collection("small", vectors_config=config, sparse_vectors_config=sparse)
    others = {"title": [1.0] * 7, "words": models.SparseVector(indices=[1], values=[0.5])}
    payload = {"text": "grün", "page": 3, "share": 0.5, "tags": ["a", None, True], "of": {"k": 1}}
    for name, vector in {1: [1.0, 0.25], UUID: [0.25, 1.0]}.items():
        vectors = {"dense": vector, "tokens": [vector, vector], **others}
        client.upsert("small", [models.PointStruct(id=name, vector=vectors, payload=payload)])


@contextmanager
def qdrant_in_memory(corpus, **options):
    with closing(filled(qdrant_client.QdrantClient(":memory:"), corpus, **options)) as client:
        yield client


LOCAL = {
    "qdrant memory": {},
    "qdrant named": {"named": True},
    "qdrant dot": {"distance": models.Distance.DOT},
    "qdrant Euclid": {"distance": models.Distance.EUCLID},
}
SERVED = ["qdrant REST", "qdrant gRPC"]


@contextmanager
def connected(kind, corpus, folder, loop, *, words=False):
    """Give a client of a kind; one of a server where the kind says so."""
    with ExitStack() as stack:
        if kind in LOCAL:
            yield stack.enter_context(qdrant_in_memory(corpus, **LOCAL[kind], words=words))
            return
        if kind == "qdrant folder":
            client = qdrant_client.QdrantClient(path=str(folder))
            yield stack.enter_context(closing(filled(client, corpus, words=words)))
            return
        is_async = kind.startswith("async ")
        connect = qdrant_client.AsyncQdrantClient if is_async else qdrant_client.QdrantClient
        settings = {"timeout": 300, "check_compatibility": False}
        local = stack.enter_context(qdrant_in_memory(corpus, words=words))
        if kind.endswith("gRPC"):
            settings["grpc_port"] = stack.enter_context(serving_grpc(local))
            settings |= {"url": "http://127.0.0.1", "prefer_grpc": True}
        else:
            settings["url"] = stack.enter_context(serving(local)).url
        if not is_async:
            yield stack.enter_context(closing(connect(**settings)))
            return

        async def begin():  # a channel of gRPC belongs to the loop that it was made in
            return connect(**settings)

        client = asyncio.run_coroutine_threadsafe(begin(), loop).result()
        yield client
        asyncio.run_coroutine_threadsafe(client.close(), loop).result()


def slices(corpus, n):
    """Return n sources by name, with every n-th document of the corpus in each."""
    columns = ("embeddings", "texts", "ids", "metadata")
    parts = [{name: getattr(corpus, name)[i::n] for name in columns} for i in range(n)]
    return {f"machine {i}": in_memory(Corpus(**part)) for i, part in enumerate(parts)}


class Fetching:
    """A source that takes one query at a time and finds by vectors alone."""

    def __init__(self, source):
        self.fetch, self.afetch = source.fetch, source.afetch


CALLED = ["in memory", "combined", *FAISS, *LOCAL, "qdrant folder", *SERVED]
AWAITED = ["in memory", "combined", "faiss flat, inner product", *SERVED]
AWAITED += [f"async {kind}" for kind in SERVED]
KINDS = [*(f"{kind}, called" for kind in CALLED), *(f"{kind}, awaited" for kind in AWAITED)]


@contextmanager
def opened(name, corpus, folder, *, words=False):
    """Open the store that `KINDS` has under a name, filled with the corpus.

    With `words`, Qdrant keeps words; the others do in any case.
    """
    kind, mode = name.rsplit(", ", 1)
    with ExitStack() as stack:
        loop = stack.enter_context(running_loop()) if mode == "awaited" else None
        if kind in FAISS:
            description, options = FAISS[kind]
            kept_in = folder if "folder" in kind else None
            store = faiss_store(corpus, description, kept_in, **options)
        elif "qdrant" in kind:
            client = stack.enter_context(connected(kind, corpus, folder, loop, words=words))
            vector_name = "dense" if kind == "qdrant named" else ""
            store = Store(
                source=QdrantSource(client, NAME, vector_name=vector_name, embedder_name=MODEL),
                even=parity_filter(0),
                nothing=parity_filter(7),
            )
        else:
            store = Store(source=in_memory(corpus))
            if kind == "combined":
                store = Store(source=CombinedSource(slices(corpus, 3)))
        yield replace(store, loop=loop)
