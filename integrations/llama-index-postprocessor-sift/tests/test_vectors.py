"""Vectors of queries and nodes: from what was embedded already, from stores, from a model."""

import copy
import gc
import pickle
import sys
import uuid
import weakref
from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np
import pytest
from llama_index.core import Settings
from llama_index.core.bridge.pydantic import Field
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from llama_index.vector_stores.faiss import FaissMapVectorStore
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient

from llama_index.postprocessor.sift import SIFTReranker, SIFTRetriever
from llama_index.postprocessor.sift.stores import store_of
from llama_index.postprocessor.sift.tracking import sources_of, track_retrievals
from llama_index.postprocessor.sift.vectors import embedded_before, query_embedding
from sift_core import InvalidInputError
from sift_core.errors import EmptyEntryWarning


@pytest.fixture(autouse=True)
def _tracking():
    """Watch retrievals from the beginning, as where an engine is built before it is asked."""
    track_retrievals()


@pytest.fixture
def index(build_index, nodes, embed_model):
    return build_index("simple", nodes, embed_model)


@pytest.fixture
def other_model(new_model):
    """Puts the same words into other buckets."""

    class Reversed(new_model):
        def vector(self, text):
            return super().vector(text)[::-1]

    return Reversed(model_name="others")


# LlamaIndex leaves event loops of fused retrievals unclosed, which a collection may find.
left_by_others = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def ids_of(nodes):
    return [node.node_id for node in nodes]


def assert_are_vectors_of(found, nodes, embed_model):
    assert len(found) == len(nodes)
    for vector, node in zip(found, nodes, strict=True):
        assert vector == pytest.approx(embed_model.vector(node.text), abs=1e-6)


async def test_neither_twin_embeds_again_what_a_retrieval_embedded(index, embed_model, question):
    await index.as_retriever().aretrieve(question)
    query = QueryBundle(question)
    expected = embed_model.vector(question)
    for is_awaited in (False, True):
        found = await query_embedding(query, lambda: embed_model, is_awaited=is_awaited)
        assert found.tolist() == expected
    assert embed_model.queries == [question]
    assert query.embedding is None


async def test_several_texts_of_a_query_are_put_together_as_the_model_does_it(index, embed_model):
    texts = ["bees dance", "steel melts"]
    bundle = QueryBundle("bees", custom_embedding_strs=texts)
    await index.as_retriever().aretrieve(bundle)
    found = await query_embedding(bundle, lambda: embed_model, is_awaited=True)
    assert embed_model.queries == texts
    assert found.tolist() == embed_model.get_agg_embedding_from_queries(texts)


@pytest.mark.parametrize("is_awaited", [False, True])
async def test_each_text_of_a_query_has_its_vector_where_these_made_the_query_s(
    index, embed_model, is_awaited
):
    texts = ["bees dance", "steel melts"]
    bundle = QueryBundle("both", custom_embedding_strs=texts)
    retriever = index.as_retriever()
    _ = await retriever.aretrieve(bundle) if is_awaited else retriever.retrieve(bundle)
    how = {"model": lambda: embed_model, "apart": True, "is_awaited": is_awaited}
    found = await query_embedding(bundle, **how)
    assert found.tolist() == [embed_model.vector(text) for text in texts]
    assert embed_model.queries == texts  # once, by the retriever
    bundle.embedding = embed_model.vector("ants")  # the caller's own: not of these texts
    found = await query_embedding(bundle, **how)
    assert found.tolist() == bundle.embedding


async def test_another_model_embeds_anew(index, new_model, question):
    other = new_model(dimension=32)
    await index.as_retriever().aretrieve(question)
    found = await query_embedding(QueryBundle(question), lambda: other, is_awaited=True)
    assert len(found) == 32
    assert other.queries == [question]


async def test_the_vector_of_an_earlier_retrieval_is_not_taken_for_a_later_ones(
    index, embed_model, question
):
    await index.as_retriever().aretrieve(question)
    await index.as_retriever().aretrieve("ants")
    assert embedded_before([question], lambda: embed_model) is None


@left_by_others
async def test_a_model_is_not_kept_alive(build_index, nodes, new_model, question):
    model = new_model()
    await build_index("simple", nodes, model).as_retriever().aretrieve(question)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_vector_that_no_retrieval_made_is_used_as_it_is(index, embed_model):
    found = index.as_retriever(similarity_top_k=20).retrieve("bees")
    query = QueryBundle("bees", embedding=embed_model.vector("steel"))
    embed_model.forget()
    SIFTReranker(top_n=3).postprocess_nodes(found, query)
    assert embed_model.queries == []


def assert_compared_by(model, kept, question):
    for node in kept:
        cosine = np.dot(model.vector(question), model.vector(node.node.text))
        assert node.metadata["sift"]["similarity"] == pytest.approx(float(cosine), abs=1e-6)


async def test_a_query_is_compared_with_the_vectors_of_another_index_by_that_indexs_model(
    index, build_index, nodes, embed_model, other_model, question
):
    query = QueryBundle(question)
    found = index.as_retriever(similarity_top_k=20).retrieve(query)
    assert query.embedding == embed_model.vector(question)  # LlamaIndex leaves it there
    reranker = SIFTReranker(top_n=3, index=build_index("simple", nodes, other_model))
    assert_compared_by(other_model, reranker.postprocess_nodes(found, query), question)
    assert_compared_by(other_model, await reranker.apostprocess_nodes(found, query), question)


def test_a_fused_retriever_does_not_take_the_query_of_another_model(
    build_index, nodes, embed_model, other_model, question, llm
):
    first = build_index("simple", nodes[:10], embed_model).as_retriever(similarity_top_k=5)
    second = SIFTRetriever(build_index("simple", nodes[10:], other_model), top_n=3)
    fusion = QueryFusionRetriever(
        [first, second], llm=llm, num_queries=1, use_async=False, similarity_top_k=20
    )
    of_second = [n for n in fusion.retrieve(question) if "sift" in n.node.metadata]
    assert len(of_second) == 3
    assert_compared_by(other_model, of_second, question)


def test_stored_vectors_decide_which_model_the_query_is_for(
    index, embed_model, other_model, question
):
    found = index.as_retriever(similarity_top_k=20).retrieve(question)
    reranker = SIFTReranker(top_n=3, embed_model=other_model)
    assert_compared_by(embed_model, reranker.postprocess_nodes(found, query_str=question), question)
    assert other_model.queries == []


def test_an_index_with_another_model_than_the_latest_is_left_out(
    build_index, nodes, embed_model, other_model, question
):
    parts = [(nodes[:10], embed_model), (nodes[10:], other_model)]
    first, second = (build_index("simple", *part) for part in parts)
    found = [node for each in (first, second) for node in each.as_retriever().retrieve(question)]
    assert [s.index for s in sources_of([node.node.node_id for node in found])] == [second]


async def test_no_model_where_one_is_needed_is_an_error_that_says_what_to_do(monkeypatch):
    monkeypatch.setattr(Settings, "_embed_model", None)
    given = [NodeWithScore(node=TextNode(text=text)) for text in ("bees", "ants")]
    with pytest.raises(InvalidInputError, match="pass `embed_model`"):
        SIFTReranker(top_n=1).postprocess_nodes(given, query_str="bees")


async def test_nodes_that_share_an_id_have_each_the_vector_of_its_own_text(
    index, nodes, embed_model, question
):
    texts = ["bees dance", "steel melts", "honey is stored in wax"]
    shared = [NodeWithScore(node=TextNode(text=text, id_=nodes[0].node_id)) for text in texts]
    reranker = SIFTReranker(top_n=3, index=index)
    for kept in (
        reranker.postprocess_nodes(shared, query_str=question),
        await reranker.apostprocess_nodes(shared, query_str=question),
    ):
        assert sorted(node.node.text for node in kept) == sorted(texts)
        assert_compared_by(embed_model, kept, question)


async def test_every_store_gives_the_vectors_it_was_given(
    store_kind, build_index, nodes, embed_model
):
    index = build_index(store_kind, nodes, embed_model)
    some = nodes[3:9]
    assert_are_vectors_of(store_of(index).vectors(ids_of(some)), some, embed_model)
    found = await store_of(index).avectors(ids_of(some), dimension=96)
    assert_are_vectors_of(found, some, embed_model)


async def test_an_async_client_alone_gives_them_awaited(async_qdrant_index, nodes, embed_model):
    found = await store_of(async_qdrant_index).avectors(ids_of(nodes), dimension=96)
    assert_are_vectors_of(found, nodes, embed_model)
    assert store_of(async_qdrant_index).vectors(ids_of(nodes[:1])) == [None]


@pytest.mark.parametrize("unknown", ["not a uuid", "99999999-0000-4000-8000-000000000000", "17"])
def test_a_node_that_a_store_does_not_have_is_left_out(
    unknown, store_kind, build_index, nodes, embed_model
):
    index = build_index(store_kind, nodes, embed_model)
    nothing, vector = store_of(index).vectors([unknown, nodes[0].node_id])
    assert nothing is None
    assert_are_vectors_of([vector], nodes[:1], embed_model)


class KeepingStore(BasePydanticVectorStore):
    """A store that searches and gives no vectors back."""

    stores_text: bool = False
    inner: SimpleVectorStore = Field(default_factory=SimpleVectorStore)

    @property
    def client(self):
        return None

    def add(self, nodes, **options):
        return self.inner.add(nodes)

    def delete(self, ref_doc_id, **options):
        raise NotImplementedError

    def query(self, query, **options):
        return self.inner.query(query)


async def test_a_look_up_serves_a_store_that_gives_nothing(
    build_index, index_over, nodes, embed_model, question, caplog
):
    store = KeepingStore()
    index = index_over(store, nodes, embed_model)
    held = dict(store.inner.data.embedding_dict)
    gone = held.popitem()[0]
    asked = []

    def vectors(ids):
        asked.append(ids)
        return {key: held[key] for key in reversed(ids) if key in held}

    simple = build_index("simple", nodes, embed_model)
    expected = ids_of(SIFTRetriever.from_index(simple, top_n=5).retrieve(question))
    searched = index.as_retriever(similarity_top_k=200).retrieve(question)
    embed_model.forget()
    reranker = SIFTReranker(top_n=5, vectors=vectors)
    retriever = SIFTRetriever.from_index(index, top_n=5, vectors=vectors)
    for found in (
        reranker.postprocess_nodes(searched, query_str=question),
        await reranker.apostprocess_nodes(searched, query_str=question),
        retriever.retrieve(question),
        await retriever.aretrieve(question),
    ):
        assert ids_of(found) == expected
    assert embed_model.texts == [node.text for node in nodes if node.node_id == gone]
    assert len(asked) == 4
    assert [f"embedding 1 of {len(nodes)} nodes" in each.message for each in caplog.records] == [
        True
    ]
    assert copy.deepcopy(reranker).vectors is vectors
    assert pickle.loads(pickle.dumps(reranker)).vectors is None


def test_a_faiss_id_given_twice_is_not_confused(index_over, nodes, embed_model):
    """FaissMapVectorStore gives a node added after a deletion an id that is in use."""
    store = FaissMapVectorStore(faiss.IndexIDMap2(faiss.IndexFlatIP(embed_model.dimension)))
    index = index_over(store, nodes[:3], embed_model)
    index.delete_nodes([nodes[0].node_id], delete_from_docstore=True)
    index.insert_nodes([nodes[9]])  # gets the Faiss id of nodes[2]
    found = store_of(index).vectors(ids_of([nodes[0], nodes[1], nodes[2], nodes[9]]))
    assert found[0] is None
    assert found[2] is None
    assert_are_vectors_of([found[1], found[3]], [nodes[1], nodes[9]], embed_model)


class CountingDict(dict):
    """Counts how often all of it is read."""

    n_copies = 0

    def copy(self):
        self.n_copies += 1
        return dict(self)


@pytest.fixture
def faiss_index(build_index, nodes, embed_model):
    index = build_index("faiss", nodes[:10], embed_model)
    index.index_struct.nodes_dict = CountingDict(index.index_struct.nodes_dict)
    store_of(index).vectors(ids_of(nodes[:1]))
    return index


def test_all_ids_of_a_faiss_index_are_read_once_for_any_number_of_queries(faiss_index, nodes):
    for node in nodes[:15] * 3:  # five of them are nowhere
        store_of(faiss_index).vectors([node.node_id])
    assert faiss_index.index_struct.nodes_dict.n_copies == 1


def test_a_node_added_again_with_another_text_has_its_newest_vector(
    faiss_index, nodes, embed_model
):
    changed = nodes[0].model_copy(update={"text": "bees dance no more", "embedding": None})
    faiss_index.insert_nodes([changed])
    found = store_of(faiss_index).vectors(ids_of(nodes[:1]))
    assert_are_vectors_of(found, [changed], embed_model)


def test_a_row_that_has_come_to_mean_another_node_is_not_given(faiss_index, nodes):
    faiss_index.index_struct.nodes_dict["0"] = nodes[12].node_id
    assert store_of(faiss_index).vectors(ids_of(nodes[:1])) == [None]


@left_by_others
def test_a_faiss_index_is_not_kept_alive(build_index, nodes, embed_model):
    index = build_index("faiss", nodes, embed_model)
    store_of(index).vectors(ids_of(nodes[:1]))
    gone = weakref.ref(index)
    del index
    gc.collect()
    assert gone() is None


@pytest.mark.slow
def test_threads_that_ask_while_nodes_are_added_get_right_vectors(
    build_index, nodes, new_nodes, embed_model
):
    index = build_index("faiss", nodes, embed_model)
    more = [f"a late text number {i}" for i in range(300)]
    late = new_nodes(["x"] * len(nodes) + more)[len(nodes) :]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def ask(_):
        return store_of(index).vectors(ids_of(nodes + late))

    try:
        with ThreadPoolExecutor(4) as pool:
            adding = pool.submit(lambda: [index.insert_nodes([node]) for node in late])
            answers = list(pool.map(ask, range(60)))
            adding.result()
    finally:
        sys.setswitchinterval(interval)
    for answer in answers:
        pairs = [p for p in zip(answer, nodes + late, strict=True) if p[0] is not None]
        assert_are_vectors_of(*zip(*pairs, strict=True), embed_model)
        assert len(pairs) >= len(nodes)
    assert_are_vectors_of(ask(0), nodes + late, embed_model)


@pytest.mark.parametrize("spelling", [lambda u: u.hex, lambda u: str(u).upper()])
def test_ids_that_qdrant_spells_its_own_way_are_found(spelling, index_over, embed_model):
    """Ids of digits alone among them: 32 digits are a UUID and not a number."""
    numbers = [0x1234, 0xABCD_EF00_0000_4000_8000_0000_0000_0001, 7 << 100]
    nodes = [
        TextNode(id_=spelling(uuid.UUID(int=number)), text=f"bees {i}")
        for i, number in enumerate(numbers)
    ]
    store = QdrantVectorStore("docs", client=QdrantClient(":memory:"), index_doc_id=False)
    index = index_over(store, nodes, embed_model)
    embed_model.forget()
    assert len(SIFTRetriever(index).retrieve("bees")) == 3
    assert embed_model.texts == []


async def test_a_node_without_text_or_direction_is_left_out(nodes, embed_model):
    """Its text is not embedded, or its vector is zero."""
    found = [NodeWithScore(node=node) for node in nodes]
    reranker = SIFTReranker(embed_model=embed_model, top_n=50)
    expected = [each.node.node_id for each in reranker.postprocess_nodes(found, query_str="cats")]
    zero = [0.0] * len(embed_model.get_text_embedding("cats"))
    found.append(NodeWithScore(node=TextNode(id_="bare", text="")))
    found.append(NodeWithScore(node=TextNode(id_="zero", text="z", embedding=zero)))
    with pytest.warns(EmptyEntryWarning, match="'bare', 'zero'") as caught:
        chosen = reranker.postprocess_nodes(found, query_str="cats")
    assert len(caught) == 1
    assert [each.node.node_id for each in chosen] == expected
    with pytest.warns(EmptyEntryWarning, match="'bare', 'zero'"):
        awaited = await reranker.apostprocess_nodes(found, query_str="cats")
    assert [each.node.node_id for each in awaited] == expected
