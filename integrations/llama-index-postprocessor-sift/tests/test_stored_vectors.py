"""Reading vectors back, store by store."""

import threading
import uuid

import faiss
import numpy as np
import pytest
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from llama_index.vector_stores.faiss import FaissMapVectorStore, FaissVectorStore
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import AsyncQdrantClient, QdrantClient, models

from llama_index.postprocessor.sift import SIFTRetriever
from llama_index.postprocessor.sift.stored_vectors import astored_vectors, stored_vectors
from sift_core import CandidateSourceError


def assert_are_vectors_of(found, nodes, embed_model):
    assert found.keys() == {node.node_id for node in nodes}
    for node in nodes:
        assert found[node.node_id] == pytest.approx(embed_model.vector(node.text), abs=1e-6)


def index_over(store, nodes, embed_model):
    storage = StorageContext.from_defaults(vector_store=store)
    return VectorStoreIndex(nodes, storage_context=storage, embed_model=embed_model)


def test_every_store_gives_the_vectors_it_was_given(store_kind, build_index, nodes, embed_model):
    index = build_index(store_kind, nodes, embed_model)
    some = nodes[3:9]
    found = stored_vectors(index, [node.node_id for node in some])
    assert_are_vectors_of(found, some, embed_model)


async def test_every_store_gives_them_asynchronously(store_kind, build_index, nodes, embed_model):
    index = build_index(store_kind, nodes, embed_model)
    found = await astored_vectors(index, [node.node_id for node in nodes], dimension=96)
    assert_are_vectors_of(found, nodes, embed_model)


async def test_an_async_client_gives_them(async_qdrant_index, nodes, embed_model):
    found = await astored_vectors(
        async_qdrant_index, [node.node_id for node in nodes], dimension=96
    )
    assert_are_vectors_of(found, nodes, embed_model)


class NoRetrieval(QdrantClient):
    """A sync client that must not be asked for points."""

    def retrieve(self, *args, **kwargs):
        raise AssertionError("the sync client was asked on the async path")


async def test_of_two_clients_the_async_one_is_awaited(nodes, embed_model):
    client, aclient = NoRetrieval(":memory:"), AsyncQdrantClient(":memory:")
    aclient._client.collections = client._client.collections  # two sides of one server
    store = QdrantVectorStore("docs", client=client, aclient=aclient, index_doc_id=False)
    index = index_over(store, nodes, embed_model)
    found = await astored_vectors(index, [node.node_id for node in nodes], dimension=96)
    assert_are_vectors_of(found, nodes, embed_model)


async def test_an_async_client_alone_gives_nothing_synchronously(async_qdrant_index, nodes):
    assert stored_vectors(async_qdrant_index, [nodes[0].node_id]) == {}


@pytest.mark.parametrize("unknown", ["not a uuid", "99999999-0000-4000-8000-000000000000", "17"])
def test_a_node_that_a_store_does_not_have_is_left_out(
    unknown, store_kind, build_index, nodes, embed_model
):
    index = build_index(store_kind, nodes, embed_model)
    found = stored_vectors(index, [unknown, nodes[0].node_id])
    assert_are_vectors_of(found, nodes[:1], embed_model)


def test_points_with_numbers_for_ids_are_found(embed_model):
    client = QdrantClient(":memory:")
    size = embed_model.dimension
    client.create_collection(
        "docs", vectors_config=models.VectorParams(size=size, distance=models.Distance.DOT)
    )
    vector = embed_model.vector("seven")
    client.upsert("docs", [models.PointStruct(id=7, vector=vector, payload={"text": "seven"})])
    store = QdrantVectorStore("docs", client=client)
    index = VectorStoreIndex.from_vector_store(store, embed_model=embed_model)
    found = stored_vectors(index, ["7"])
    assert found["7"] == pytest.approx(vector)


async def test_a_store_in_memory_is_not_read_in_the_event_loop(
    build_index, nodes, embed_model, monkeypatch
):
    get, threads = SimpleVectorStore.get, []

    def noted(store, text_id):
        threads.append(threading.current_thread())
        return get(store, text_id)

    monkeypatch.setattr(SimpleVectorStore, "get", noted)
    index = build_index("simple", nodes, embed_model)
    await astored_vectors(index, [nodes[0].node_id], dimension=96)
    (thread,) = threads
    assert thread is not threading.current_thread()


class OtherStore(BasePydanticVectorStore):
    """A store that this package does not know."""

    stores_text: bool = True

    @property
    def client(self):
        return None

    def add(self, nodes, **kwargs):
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id, **kwargs):
        raise NotImplementedError

    def query(self, query, **kwargs):
        raise NotImplementedError


def test_another_kind_of_store_gives_nothing(nodes, embed_model):
    index = index_over(OtherStore(), nodes, embed_model)
    assert stored_vectors(index, [nodes[0].node_id]) == {}


def test_a_faiss_index_emptied_meanwhile_gives_nothing(build_index, nodes, embed_model):
    index = build_index("faiss", nodes, embed_model)
    index.vector_store.client.reset()
    assert stored_vectors(index, [nodes[0].node_id]) == {}


def test_a_node_added_after_a_deletion_is_not_confused_with_another(nodes, embed_model):
    size = embed_model.dimension
    store = FaissMapVectorStore(faiss.IndexIDMap2(faiss.IndexFlatIP(size)))
    index = index_over(store, nodes[:3], embed_model)
    index.delete_nodes([nodes[0].node_id], delete_from_docstore=True)
    index.insert_nodes([nodes[9]])  # gets the Faiss id of nodes[2]
    found = stored_vectors(index, [node.node_id for node in nodes])
    assert_are_vectors_of(found, [nodes[1], nodes[9]], embed_model)


@pytest.mark.parametrize("kind", ["IVF without direct map", "IDMap"])
def test_a_faiss_index_that_cannot_reconstruct_is_logged_with_the_remedy(
    kind, nodes, embed_model, caplog
):
    size = embed_model.dimension
    flat = faiss.IndexFlatIP(size)
    if kind == "IDMap":
        store = FaissMapVectorStore(faiss.IndexIDMap(flat))
    else:
        ivf = faiss.IndexIVFFlat(flat, size, 2, faiss.METRIC_INNER_PRODUCT)
        ivf.train(np.random.default_rng(0).normal(size=(100, size)).astype(np.float32))
        store = FaissVectorStore(ivf)
    index = index_over(store, nodes, embed_model)
    assert stored_vectors(index, [nodes[0].node_id]) == {}
    assert "make_direct_map" in caplog.text


def test_a_failing_store_is_an_error_that_names_it(build_index, nodes, embed_model):
    index = build_index("qdrant", nodes, embed_model)
    index.vector_store.client.delete_collection("docs")
    with pytest.raises(CandidateSourceError, match="QdrantVectorStore 'docs'") as raised:
        stored_vectors(index, [nodes[0].node_id])
    assert isinstance(raised.value.__cause__, ValueError)


@pytest.mark.parametrize(
    "spelling", [uuid.UUID.__str__, lambda u: u.hex, lambda u: str(u).upper(), lambda u: u.urn]
)
async def test_ids_that_qdrant_spells_its_own_way_are_found(spelling, embed_model, caplog):
    """Ids of digits alone among them: 32 digits are a UUID and not a number."""
    numbers = [0x1234, 0xABCD_EF00_0000_4000_8000_0000_0000_0001, 7 << 100]
    nodes = [
        TextNode(id_=spelling(uuid.UUID(int=number)), text=f"bees {i}")
        for i, number in enumerate(numbers)
    ]
    store = QdrantVectorStore("docs", client=QdrantClient(":memory:"), index_doc_id=False)
    index = index_over(store, nodes, embed_model)
    found = stored_vectors(index, [node.node_id for node in nodes])
    assert_are_vectors_of(found, nodes, embed_model)
    embed_model.forget()
    for kept in (
        SIFTRetriever(index).retrieve("bees"),
        await SIFTRetriever(index).aretrieve("bees"),
    ):
        assert {node.node.node_id for node in kept} == {node.node_id for node in nodes}
    assert embed_model.texts == []
