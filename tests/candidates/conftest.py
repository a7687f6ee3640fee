"""One corpus, put into every kind of store, and the tables of what the tests found."""

import asyncio
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from sift_core.candidates import FaissSource, InMemorySource, QdrantSource
from sift_core.types import Document, Query
from tests.candidates.outcome_tables import MARKS, FaultAnswer, contract_table, fault_table

faiss = pytest.importorskip("faiss")
qdrant_client = pytest.importorskip("qdrant_client")
models = qdrant_client.models

from tests.candidates.qdrant_rest import serving  # noqa: E402  # needs qdrant_client

N, D = 160, 16
NAME = "docs"


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


@pytest.fixture(scope="session")
def corpus():
    rng = np.random.default_rng(0)
    embeddings = rng.standard_normal((N, D))
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    return Corpus(
        embeddings=embeddings.astype(np.float32),
        texts=[f"№ {i}: наука, 漢字, \u0645\u0631\u062d\u0628\u0627, 🙂\n\t“ß”" for i in range(N)],
        ids=[1000 + 7 * i for i in range(N)],
        metadata=[{"parity": i % 2, "lang": "日本", "more": {"rank": [i]}} for i in range(N)],
    )


@pytest.fixture(scope="session")
def reference(corpus):
    return InMemorySource(
        corpus.embeddings,
        corpus.texts,
        document_ids=[str(i) for i in corpus.ids],
        metadata=corpus.metadata,
        embedder_name="model-a",
    )


def is_even(metadata):
    return metadata["parity"] == 0


def is_nothing(metadata):
    return metadata["parity"] == 7


@dataclass(frozen=True, kw_only=True, eq=False)
class Store:
    """A source with what its kind of store needs to be asked the same questions."""

    source: Any
    even: Any = is_even
    nothing: Any = is_nothing
    recall: float = 1.0  # share of the reference's documents that must be found

    def fetch(self, query, n_candidates, **options):
        return self.source.fetch(query, n_candidates, **options)

    def afetch(self, query, n_candidates, **options):
        return asyncio.run(self.source.afetch(query, n_candidates, **options))


class AsyncStore(Store):
    """A source that can only be awaited."""

    def fetch(self, query, n_candidates, **options):
        return self.afetch(query, n_candidates, **options)


def faiss_index(corpus, description, *, metric=faiss.METRIC_INNER_PRODUCT, own_ids=False):
    index = faiss.index_factory(D, description, metric)
    index.train(corpus.embeddings)
    if own_ids:
        index.add_with_ids(corpus.embeddings, np.array(corpus.ids))
    else:
        index.add(corpus.embeddings)
    return index


def faiss_store(corpus, description, *, own_ids=False, recall=1.0, inner=None, **options):
    index = faiss_index(corpus, description, own_ids=own_ids, **options)
    if inner is not None:
        inner(index)
    documents = corpus.documents
    by_id = dict(zip(corpus.ids, documents, strict=True)) if own_ids else documents
    return Store(source=FaissSource(index, by_id, embedder_name="model-a"), recall=recall)


def probe(n_probe):
    """Return what makes an IVF index search `n_probe` lists and able to reconstruct by id."""

    def prepare(index):
        ivf = faiss.extract_index_ivf(index)
        ivf.nprobe = n_probe
        ivf.set_direct_map_type(faiss.DirectMap.Hashtable)

    return prepare


def look_wider(index):
    if isinstance(index, faiss.IndexIDMap2):
        index = faiss.downcast_index(index.index)
    index.hnsw.efSearch = 128


# Four lists of forty; two of four probed find most of what is near.
FAISS = {
    "faiss-flat-ip": ("Flat", {}),
    "faiss-flat-l2": ("Flat", {"metric": faiss.METRIC_L2}),
    "faiss-idmap2-flat": ("IDMap2,Flat", {"own_ids": True}),
    "faiss-hnsw": ("HNSW16,Flat", {"inner": look_wider, "recall": 0.95}),
    "faiss-idmap2-hnsw": (
        "IDMap2,HNSW16,Flat",
        {"own_ids": True, "inner": look_wider, "recall": 0.95},
    ),
    "faiss-ivf-all-lists": ("IVF4,Flat", {"inner": probe(4)}),
    "faiss-ivf-two-lists": ("IVF4,Flat", {"inner": probe(2), "recall": 0.5}),
    "faiss-ivf-own-ids": ("IVF4,Flat", {"own_ids": True, "inner": probe(4)}),
    "faiss-idmap2-ivf": ("IDMap2,IVF4,Flat", {"own_ids": True, "inner": probe(4)}),
    "faiss-rotated-ivf": ("RR16,IVF4,Flat", {"inner": probe(4)}),
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


def qdrant_store(client, kind=Store, **options):
    source = QdrantSource(client, NAME, embedder_name="model-a", **options)
    return kind(source=source, even=parity_filter(0), nothing=parity_filter(7))


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


@pytest.fixture
def qdrant(corpus):
    """A filled in-memory client of one's own."""
    with qdrant_in_memory(corpus) as client:
        yield client


@pytest.fixture
def rest_server(qdrant):
    """A server of one's own."""
    with serving(qdrant) as server:
        yield server


@pytest.fixture(scope="module")
def shared_rest_server(corpus):
    """A server for the tests of a module, which leave its collection and it as they were."""
    with qdrant_in_memory(corpus) as client, serving(client) as server:
        yield server


@pytest.fixture
def refill(corpus):
    """A function that makes the corpus's collection anew."""
    return lambda client, **options: filled(client, corpus, **options)


@pytest.fixture
def rest_client(rest_server):
    """The real remote client, connected to `rest_server`."""
    with closing(remote_client(rest_server.url)) as client:
        yield client


def remote_client(url):
    return qdrant_client.QdrantClient(url=url, timeout=30, check_compatibility=False)


@contextmanager
def opened_qdrant(kind, corpus, folder):
    if kind == "qdrant-async":
        client = asyncio.run(afilled(corpus))
        yield qdrant_store(client, AsyncStore)
        asyncio.run(client.close())
    elif kind == "qdrant-rest":
        with (
            qdrant_in_memory(corpus) as local,
            serving(local) as server,
            closing(remote_client(server.url)) as client,
        ):
            yield qdrant_store(client)
    elif kind == "qdrant-folder":
        client = qdrant_client.QdrantClient(path=str(folder))
        with closing(filled(client, corpus)):
            yield qdrant_store(client)
    else:
        options = QDRANT_IN_MEMORY[kind]
        with qdrant_in_memory(corpus, **options) as client:
            yield qdrant_store(client, vector_name="dense" if options.get("named") else "")


QDRANT_IN_MEMORY = {
    "qdrant-memory": {},
    "qdrant-named": {"named": True},
    "qdrant-dot": {"distance": models.Distance.DOT},
    "qdrant-euclid": {"distance": models.Distance.EUCLID},
}
QDRANT = [*QDRANT_IN_MEMORY, "qdrant-folder", "qdrant-async", "qdrant-rest"]


@contextmanager
def opened(kind, corpus, reference, folder):
    if kind == "in-memory":
        yield Store(source=reference)
    elif kind in FAISS:
        description, options = FAISS[kind]
        yield faiss_store(corpus, description, **options)
    else:
        with opened_qdrant(kind, corpus, folder) as store:
            yield store


@pytest.fixture(scope="session", params=["in-memory", *FAISS, *QDRANT])
def store(request, corpus, reference, tmp_path_factory):
    """The corpus in one kind of store after another; opened once, as sources only read."""
    folder = tmp_path_factory.mktemp("store")
    with opened(request.param, corpus, reference, folder) as store:
        yield store


@pytest.fixture(
    scope="module",
    params=[
        "in-memory",
        "faiss-flat-ip",
        "faiss-ivf-all-lists",
        "faiss-hnsw",
        "qdrant-memory",
        "qdrant-rest",
    ],
)
def concurrent_store(request, corpus, reference, tmp_path_factory):
    """The corpus in the kinds of store that differ in what many threads at once do to them."""
    folder = tmp_path_factory.mktemp("store")
    with opened(request.param, corpus, reference, folder) as store:
        yield store


@pytest.fixture
def filled_async_client(corpus):
    """An async local client, to be closed by the test."""
    return asyncio.run(afilled(corpus))


contract_marks: dict[str, dict[str, str]] = {}  # source -> test -> worst mark of its cases
fault_answers: dict[tuple[str, str], dict[str, FaultAnswer]] = {}  # fault, client -> call


def pytest_itemcollected(item):
    callspec = getattr(item, "callspec", None)
    if item.path.name == "test_contract.py" and callspec and "store" in callspec.params:
        item.user_properties.append(("contract", (callspec.params["store"], item.originalname)))


def pytest_runtest_logreport(report):
    if report.when != "call" and report.passed:
        return
    properties = dict(report.user_properties)
    if "contract" in properties:
        source, test = properties["contract"]
        mark = MARKS[report.outcome] if report.when == "call" or report.skipped else "E"
        marks = contract_marks.setdefault(source, {})
        marks[test] = max(marks.get(test, "."), mark, key=".sFE".index)
    if "fault" in properties:
        fault, client, call = properties["fault"]
        seconds, words = properties.get("fault answer", (None, None))
        answer = FaultAnswer(outcome=report.outcome, seconds=seconds, words=words)
        fault_answers.setdefault((fault, client), {})[call] = answer


def pytest_terminal_summary(terminalreporter, config):
    if config.get_verbosity() <= 0:
        return
    if contract_marks:
        terminalreporter.section("contract: sources × cases")
        terminalreporter.write("\n".join(contract_table(contract_marks)) + "\n")
    if fault_answers:
        terminalreporter.section("faults × clients: the error, and seconds until it came")
        terminalreporter.write("\n".join(fault_table(fault_answers)) + "\n")
