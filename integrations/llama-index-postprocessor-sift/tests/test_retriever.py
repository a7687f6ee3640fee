"""SIFTRetriever over real stores."""

import asyncio
import logging

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.schema import IndexNode, MetadataMode, QueryBundle
from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.types import VectorStoreQueryMode
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import AsyncQdrantClient, QdrantClient, models

from llama_index.postprocessor.sift import SIFTReranker, SIFTRetriever
from sift_core import CandidateSourceError, InvalidInputError, MMRSelector


def ids(scored_nodes):
    return [node.node.node_id for node in scored_nodes]


def reranked(index, question, **settings):
    """Return what the reranker keeps of the same candidates."""
    fetched = index.as_retriever(similarity_top_k=settings.pop("candidates", 200))
    nodes = fetched.retrieve(question)
    return SIFTReranker(index=index, **settings).postprocess_nodes(nodes, query_str=question)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"candidates": 6},
        {"use_scores": True},
        {"keep_embeddings": True},
        {"max_tokens": 90, "count_tokens": len},
        {"merge_neighbors": True},
    ],
    ids=str,
)
async def test_it_finds_what_the_reranker_keeps_of_the_same_candidates(
    settings, store_kind, build_index, nodes, embed_model, question
):
    index = build_index(store_kind, nodes, embed_model)
    retriever = SIFTRetriever.from_index(index, top_n=5, **settings)
    expected = reranked(index, question, top_n=5, **settings)
    for found in (retriever.retrieve(question), await retriever.aretrieve(question)):
        assert ids(found) == ids(expected)
        for one, other in zip(found, expected, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-9)
            told, expected_told = one.metadata["sift"], other.metadata["sift"]
            assert told.keys() == expected_told.keys()
            for name, value in expected_told.items():
                # Scores of Qdrant's local mode have single precision and differ by search.
                is_number = isinstance(value, float)
                assert told[name] == (pytest.approx(value, abs=1e-7) if is_number else value)
            assert one.node.excluded_llm_metadata_keys == other.node.excluded_llm_metadata_keys
            assert (one.node.embedding is None) is (other.node.embedding is None)


async def test_each_text_of_a_query_has_its_turns(
    store_kind, build_index, nodes, embed_model, question
):
    index = build_index(store_kind, nodes, embed_model)
    texts = [question, nodes[-1].text]
    retriever = SIFTRetriever.from_index(index, top_n=2)
    found = retriever.retrieve(QueryBundle("both", custom_embedding_strs=texts))
    assert embed_model.queries == texts
    first = [SIFTRetriever.from_index(index, top_n=1).retrieve(text)[0] for text in texts]
    assert sorted(ids(found)) == sorted(ids(first))
    awaited = await retriever.aretrieve(QueryBundle("both", custom_embedding_strs=texts))
    assert ids(awaited) == ids(found)
    mean = SIFTRetriever.from_index(index, top_n=2, selector=MMRSelector())
    assert len(mean.retrieve(QueryBundle("both", custom_embedding_strs=texts))) == 2


async def test_a_query_is_embedded_once_and_no_document(
    store_kind, build_index, nodes, embed_model, question, caplog
):
    retriever = SIFTRetriever.from_index(build_index(store_kind, nodes, embed_model))
    retriever.retrieve(question)
    assert embed_model.queries == [question]
    embed_model.forget()
    await retriever.aretrieve(question)
    assert embed_model.queries == [question]
    assert embed_model.texts == []
    assert caplog.records == []


@pytest.fixture
async def served(index_over, nodes, embed_model):
    """An index over a Qdrant server, built over HTTP, and the paths that were asked for."""
    rest = pytest.importorskip("tests.sources.qdrant_rest", reason="is in the repository alone")
    with rest.serving(QdrantClient(":memory:")) as server:
        server.client.create_collection(
            "docs", vectors_config={"text-dense": models.VectorParams(size=96, distance="Cosine")}
        )
        quiet = {"check_compatibility": False}  # which would be one more request
        client, aclient = QdrantClient(server.url, **quiet), AsyncQdrantClient(server.url, **quiet)
        store = QdrantVectorStore("docs", client=client, aclient=aclient, index_doc_id=False)
        index = index_over(store, nodes, embed_model)
        paths, answer = [], server.api.answer

        def noted(method, path, body):
            paths.append(path)
            return answer(method, path, body)

        server.api.answer = noted
        yield index, paths
        client.close()
        await aclient.close()


@pytest.mark.parametrize("use_async", [False, True], ids=["called", "awaited"])
async def test_one_trip_to_the_store_a_query(use_async, served, embed_model, question):
    index, paths = served
    retriever = SIFTRetriever.from_index(index, top_n=4)
    if use_async:
        await retriever.aretrieve(question)  # LlamaIndex asks for the names of vectors as well
        paths.clear()
    for _ in range(3):
        found = await retriever.aretrieve(question) if use_async else retriever.retrieve(question)
        assert len(found) == 4
    assert paths == ["/collections/docs/points/query"] * 3
    assert embed_model.texts == []


@pytest.mark.slow
async def test_concurrent_queries_over_one_retriever_do_not_mix(served, nodes):
    index, _ = served
    retriever = SIFTRetriever.from_index(index, top_n=3, keep_embeddings=True)
    questions = [node.text for node in nodes]
    alone = [ids(retriever.retrieve(question)) for question in questions]
    together = await asyncio.gather(*(retriever.aretrieve(question) for question in questions))
    assert [ids(found) for found in together] == alone


async def most_in_a_turn(count, together):
    """Return by how much a count grows at most in a turn of the event loop, until all is done."""
    seen, most = count(), 0
    while not together.done():
        await asyncio.sleep(0)
        most, seen = max(most, count() - seen), count()
    return most


async def test_of_many_asked_at_once_each_begins_in_a_turn_of_its_own(
    build_index, nodes, embed_model
):
    retriever = SIFTRetriever.from_index(build_index("simple", nodes, embed_model), top_n=2)
    together = asyncio.gather(*(retriever.aretrieve(f"question {i}") for i in range(8)))
    assert await most_in_a_turn(lambda: len(embed_model.queries), together) == 1
    assert len(embed_model.queries) == 8


class AnswersAtOnce(AsyncQdrantClient):
    """Answers all queries in one turn of the event loop, and notes which answers were read."""

    def __init__(self, n):
        super().__init__(":memory:")
        self.n_missing, self.are_all_there, self.read = n, asyncio.Event(), set()

    async def query_points(self, *args, **options):
        found = await super().query_points(*args, **options)
        self.n_missing -= 1
        if not self.n_missing:
            self.are_all_there.set()
        await self.are_all_there.wait()
        read = self.read

        class Points(list):
            def __iter__(self):
                read.add(id(self))
                return super().__iter__()

        found.points = Points(found.points)
        return found


async def test_of_many_answered_at_once_each_is_read_in_a_turn_of_its_own(nodes, embed_model):
    client = AnswersAtOnce(8)
    store = QdrantVectorStore("docs", aclient=client, index_doc_id=False)
    index = VectorStoreIndex.from_vector_store(store, embed_model=embed_model)
    await index.ainsert_nodes(nodes)
    retriever = SIFTRetriever.from_index(index, top_n=2, candidates=4)
    together = asyncio.gather(*(retriever.aretrieve(f"question {i}") for i in range(8)))
    assert await most_in_a_turn(lambda: len(client.read), together) == 1
    assert len(client.read) == 8
    await client.close()


@pytest.fixture
def numbered(new_nodes):
    """Twenty texts with a number in their metadata."""
    nodes = new_nodes([f"bees number {i} fly" for i in range(20)])
    for i, node in enumerate(nodes):
        node.metadata = {"number": i}
    return nodes


def below(limit):
    return MetadataFilters(
        filters=[MetadataFilter(key="number", value=limit, operator=FilterOperator.LT)]
    )


@pytest.mark.parametrize("kind", ["qdrant", "qdrant named", "simple"])
async def test_filters_are_pushed_down(kind, build_index, numbered, embed_model):
    index = build_index(kind, numbered, embed_model)
    # Were they applied afterwards, 5 candidates would hardly hold all 3 that pass.
    retriever = SIFTRetriever.from_index(index, top_n=5, candidates=5, filters=below(3))
    expected = {node.node_id for node in numbered[:3]}
    assert set(ids(retriever.retrieve("bees number 17"))) == expected
    assert set(ids(await retriever.aretrieve("bees number 17"))) == expected
    nothing = SIFTRetriever.from_index(index, filters=below(0))
    assert nothing.retrieve("bees number 17") == []
    assert await nothing.aretrieve("bees number 17") == []


@pytest.mark.parametrize("kind", ["qdrant", "simple"])
def test_node_ids_are_pushed_down(kind, build_index, numbered, embed_model):
    index = build_index(kind, numbered, embed_model)
    wanted = [numbered[4].node_id, numbered[9].node_id]
    retriever = SIFTRetriever.from_index(index, candidates=12, node_ids=wanted)
    assert set(ids(retriever.retrieve("bees"))) == set(wanted)


def test_what_only_the_store_understands_reaches_it(build_index, numbered, embed_model):
    index = build_index("qdrant", numbered, embed_model)
    condition = models.FieldCondition(key="number", range=models.Range(gte=18))
    only = {"qdrant_filters": models.Filter(must=[condition])}
    retriever = SIFTRetriever.from_index(index, vector_store_kwargs=only)
    assert set(ids(retriever.retrieve("bees"))) == {n.node_id for n in numbered[18:]}


def sparse(texts):
    """Count letters: enough for a sparse vector."""
    counts = [{ord(c): text.count(c) for c in set(text)} for text in texts]
    return [list(c) for c in counts], [[float(v) for v in c.values()] for c in counts]


def hybrid_store(**client):
    return QdrantVectorStore(
        "docs",
        **client,
        enable_hybrid=True,
        sparse_doc_fn=sparse,
        sparse_query_fn=sparse,
        index_doc_id=False,
    )


@pytest.mark.parametrize("mode", ["hybrid", "sparse", "default"])
def test_a_hybrid_collection_gives_vectors_in_one_trip(
    mode, index_over, nodes, embed_model, question, caplog
):
    index = index_over(hybrid_store(client=QdrantClient(":memory:")), nodes, embed_model)
    found = SIFTRetriever.from_index(index, top_n=4, vector_store_query_mode=mode)
    fetched = index.as_retriever(similarity_top_k=200, vector_store_query_mode=mode)
    fetched = fetched.retrieve(question)

    def reranked(**settings):
        reranker = SIFTReranker(top_n=4, **settings)
        return ids(reranker.postprocess_nodes(fetched, query_str=question))

    assert ids(found.retrieve(question)) == reranked()
    if mode == "hybrid":  # whose scores are fused ranks
        assert reranked() == reranked(use_scores=True) != reranked(use_scores=False)
    assert embed_model.texts == []
    assert caplog.records == []


def test_an_async_client_alone_is_an_error_that_says_so_where_it_is_called(
    async_qdrant_index, question
):
    retriever = SIFTRetriever.from_index(async_qdrant_index)
    with pytest.raises(InvalidInputError, match="has an async client alone"):
        retriever.retrieve(question)


async def test_nodes_that_a_docstore_has_get_their_vectors_from_the_hits(
    build_index, embed_model, caplog
):
    """LlamaIndex replaces index nodes among hits by those of the docstore, without vectors."""
    texts = ["bees dance", "bees sting", "ants walk"]
    doors = [
        IndexNode(id_=f"00000000-0000-4000-8000-{i:012d}", text=text, index_id=text)
        for i, text in enumerate(texts)
    ]
    index = build_index("qdrant", doors, embed_model)
    retriever = SIFTRetriever.from_index(index, top_n=2)
    assert len(retriever.retrieve("bees")) == 2
    assert len(await retriever.aretrieve("bees")) == 2
    assert embed_model.texts == []
    assert caplog.records == []


def test_points_without_a_dense_vector_are_embedded_with_a_warning(
    index_over, nodes, embed_model, caplog, monkeypatch
):
    store = hybrid_store(client=QdrantClient(":memory:"))
    index = index_over(store, nodes[:5], embed_model)
    store.client.delete_vectors("docs", ["text-dense"], [nodes[0].node_id])
    monkeypatch.setattr(store.client, "retrieve", None)  # would be a second trip, in vain
    SIFTRetriever.from_index(index, vector_store_query_mode="sparse").retrieve("bees")
    assert embed_model.texts == [nodes[0].text]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "embedding 1 of 5 nodes" in record.getMessage()


async def test_it_fetches_more_where_candidates_are_versions_of_few_texts(
    build_index, new_nodes, embed_model
):
    copies = [f"bees find the way home by the sun{'!' * i}" for i in range(30)]
    others = [f"bees find the way to flower number {i} by smell" for i in range(6)]
    index = build_index("faiss", new_nodes(copies + others), embed_model)
    question = copies[0]
    few = SIFTRetriever.from_index(index, top_n=4, candidates=8)
    assert len({node.text.rstrip("!") for node in few.retrieve(question)}) == 1
    more = SIFTRetriever.from_index(index, top_n=4, candidates=8, max_candidates=64)
    for found in (more.retrieve(question), await more.aretrieve(question)):
        assert len({node.text.rstrip("!") for node in found}) == 4


async def test_an_empty_index_finds_nothing(build_index, embed_model):
    retriever = SIFTRetriever.from_index(build_index("faiss", [], embed_model))
    assert retriever.retrieve("bees") == []
    assert await retriever.aretrieve("bees") == []
    adaptive = SIFTRetriever.from_index(build_index("faiss", [], embed_model), max_candidates=300)
    assert adaptive.retrieve("bees") == []


def test_the_stored_nodes_are_not_changed(build_index, nodes, embed_model, question):
    index = build_index("simple", nodes, embed_model)
    for found in SIFTRetriever.from_index(index, keep_embeddings=True).retrieve(question):
        stored = index.docstore.get_node(found.node.node_id)
        assert stored.metadata == {}
        assert stored.embedding is None
        assert "sift" not in found.node.get_content(MetadataMode.LLM)


def test_a_reranker_after_it_embeds_nothing(build_index, nodes, embed_model, question):
    index = build_index("qdrant", nodes, embed_model)
    found = SIFTRetriever.from_index(index, top_n=8).retrieve(question)
    SIFTReranker(top_n=3).postprocess_nodes(found, query_str=question)
    assert embed_model.texts == []
    assert embed_model.queries == [question]


def test_another_embedding_model_may_embed_queries(build_index, nodes, embed_model, new_model):
    other = new_model()
    index = build_index("qdrant", nodes, embed_model)
    SIFTRetriever.from_index(index, embed_model=other).retrieve("bees")
    assert other.queries == ["bees"]
    assert embed_model.queries == []


IGNORED = "cannot take `{}` into account".format


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("faiss", {"filters": below(3)}, IGNORED("filters")),
        ("faiss map", {"filters": below(3)}, IGNORED("filters")),
        ("faiss", {"node_ids": ["1"]}, IGNORED("node_ids")),
        ("simple", {"doc_ids": ["1"]}, IGNORED("doc_ids")),
        ("simple", {"alpha": 0.5}, IGNORED("alpha")),
        ("qdrant", {"top_n": 0}, "must be 1 <= `top_n`"),
        (
            "qdrant",
            {"top_n": 9, "candidates": 8},
            "`candidates` <= `max_candidates`, got 9 and 8; raise",
        ),
        ("qdrant", {"max_candidates": 100}, "got 10 and 200 and 100"),
        ("qdrant", {"max_tokens": 0}, "`max_tokens` must be >= 1, got 0"),
        ("qdrant", {"max_tokens": 9, "selector": MMRSelector()}, "got MMRSelector"),
        ("qdrant", {"vector_store_query_mode": "mmr"}, "must not be 'mmr'"),
        ("qdrant", {"vector_store_query_mode": "best"}, "not a valid VectorStoreQueryMode"),
        ("qdrant", {"vector_store_query_mode": "hybrid"}, "enable_hybrid"),
        ("qdrant", {"vector_store_query_mode": VectorStoreQueryMode.SPARSE}, "enable_hybrid"),
        ("qdrant", {"node_ids": []}, "`node_ids` must not be empty"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_settings_are_checked_at_once(kind, settings, message, build_index, nodes, embed_model):
    index = build_index(kind, nodes, embed_model)
    with pytest.raises(ValueError, match=message):
        SIFTRetriever.from_index(index, **settings)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("n_select", "top_n"),
        ("top_k", "top_n"),
        ("similarity_top_k", "candidates"),
        ("n_candidates", "candidates"),
        ("max_token", "max_tokens"),
    ],
)
def test_a_name_that_is_no_option_is_refused(name, meant, build_index, nodes, embed_model):
    index = build_index("simple", nodes, embed_model)
    with pytest.raises(TypeError, match=f"no option '{name}'; do you mean `{meant}`"):
        SIFTRetriever.from_index(index, **{name: 5})
    with pytest.raises(ValueError, match="must be a VectorStoreIndex, got SimpleVectorStore"):
        SIFTRetriever.from_index(index.vector_store)


async def test_a_store_that_fails_is_an_error_that_names_it(build_index, nodes, embed_model):
    index = build_index("qdrant", nodes, embed_model)
    retriever = SIFTRetriever.from_index(index)
    index.vector_store.client.delete_collection("docs")
    with pytest.raises(CandidateSourceError, match="QdrantVectorStore 'docs' could not find"):
        retriever.retrieve("bees")
    with pytest.raises(CandidateSourceError, match="QdrantVectorStore 'docs' could not find"):
        await retriever.aretrieve("bees")


def test_a_collection_of_another_tool_is_advised_of(build_index, nodes, embed_model):
    index = build_index("qdrant", nodes, embed_model)
    client = index.vector_store.client
    points, _ = client.scroll("docs", limit=100)
    ids = [point.id for point in points]
    client.overwrite_payload("docs", {"page_content": "bees", "metadata": {}}, points=ids)
    with pytest.raises(CandidateSourceError, match="did another tool fill it"):
        SIFTRetriever.from_index(index).retrieve("bees")


def test_a_simple_store_that_indexes_share_gives_nodes_of_its_own_index_only(
    build_index, index_over, nodes, embed_model
):
    first = build_index("simple", nodes[:9], embed_model)
    second = index_over(first.vector_store, nodes[9:], embed_model)
    found = SIFTRetriever.from_index(second, top_n=50).retrieve("bees")
    assert set(ids(found)) == {node.node_id for node in nodes[9:]}


def test_a_query_of_another_length_than_a_faiss_indexs_vectors_is_refused(
    build_index, nodes, embed_model, new_model
):
    index = build_index("faiss", nodes, embed_model)
    retriever = SIFTRetriever.from_index(index, embed_model=new_model(dimension=32))
    with pytest.raises(InvalidInputError, match=r"must have 96 numbers .* got 32"):
        retriever.retrieve("bees")
