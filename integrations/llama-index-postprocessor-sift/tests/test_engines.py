"""Reranker and retriever in everything of LlamaIndex's that takes one."""

import pytest
from llama_index.core import Document, StorageContext, VectorStoreIndex, async_utils
from llama_index.core.evaluation import RetrieverEvaluator
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.node_parser import HierarchicalNodeParser, get_leaf_nodes
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import AutoMergingRetriever
from llama_index.core.schema import MetadataMode
from llama_index.core.tools import RetrieverTool
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import AsyncQdrantClient, QdrantClient

from llama_index.postprocessor.sift import SIFTReranker, SIFTRetriever

TOP_N = 4


def ids(scored_nodes):
    return [node.node.node_id for node in scored_nodes]


@pytest.fixture(params=["qdrant", "faiss", "simple"])
def index(request, build_index, index_over, nodes, embed_model):
    if request.param != "qdrant":
        return build_index(request.param, nodes, embed_model)
    client, aclient = QdrantClient(":memory:"), AsyncQdrantClient(":memory:")
    aclient._client.collections = client._client.collections  # two sides of one server
    store = QdrantVectorStore("docs", client=client, aclient=aclient, index_doc_id=False)
    return index_over(store, nodes, embed_model)


@pytest.fixture
def expected(index, question):
    """What the reranker keeps of all nodes for the question."""
    fetched = index.as_retriever(similarity_top_k=200).retrieve(question)
    reranker = SIFTReranker(top_n=TOP_N, index=index)
    return ids(reranker.postprocess_nodes(fetched, query_str=question))


@pytest.fixture(params=["reranker", "retriever"])
def parts(request, index):
    """A retriever and postprocessors that keep `expected`: ours and LlamaIndex's, or ours."""
    if request.param == "reranker":
        return index.as_retriever(similarity_top_k=200), [SIFTReranker(top_n=TOP_N)]
    return SIFTRetriever.from_index(index, top_n=TOP_N), []


@pytest.fixture
def assert_nothing_embedded(embed_model, caplog):
    def check():
        assert embed_model.texts == []
        assert caplog.records == []

    return check


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["condense_question", "context", "condense_plus_context"])
async def test_chat_engines_of_an_index(
    mode, index, llm, question, expected, assert_nothing_embedded
):
    def engine():
        return index.as_chat_engine(
            chat_mode=mode,
            llm=llm,
            # Without the database of LlamaIndex's default memory, which nobody closes.
            memory=ChatMemoryBuffer.from_defaults(token_limit=3000),
            similarity_top_k=200,
            node_postprocessors=[SIFTReranker(top_n=TOP_N)],
        )

    assert ids(engine().chat(question).source_nodes) == expected
    assert ids((await engine().achat(question)).source_nodes) == expected
    streamed = engine().stream_chat(question)
    assert "".join(streamed.response_gen)
    assert ids(streamed.source_nodes) == expected
    assert_nothing_embedded()


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_retriever_query_engine(
    streaming, parts, llm, question, expected, assert_nothing_embedded
):
    retriever, postprocessors = parts
    engine = RetrieverQueryEngine.from_args(
        retriever, llm=llm, node_postprocessors=postprocessors, streaming=streaming
    )
    assert ids(engine.query(question).source_nodes) == expected
    assert ids((await engine.aquery(question)).source_nodes) == expected
    assert_nothing_embedded()


async def test_a_retriever_tool(parts, question, expected, assert_nothing_embedded):
    retriever, postprocessors = parts
    tool = RetrieverTool.from_defaults(retriever, node_postprocessors=postprocessors)
    assert ids(tool.call(question).raw_output) == expected
    output = await tool.acall(question)
    assert ids(output.raw_output) == expected
    assert "variance" not in output.content  # what an agent reads
    assert_nothing_embedded()


async def test_parents_of_auto_merging_are_embedded_once(embed_model, caplog):
    words = "bees find the way home by the sun".split()
    texts = [" ".join(words[i % 8 :] + [f"hive{i}"] * 8) for i in range(12)]
    parsed = HierarchicalNodeParser.from_defaults(chunk_sizes=[24, 12], chunk_overlap=0)
    nodes = parsed.get_nodes_from_documents([Document(text=text) for text in texts])
    storage = StorageContext.from_defaults()
    storage.docstore.add_documents(nodes)
    index = VectorStoreIndex(get_leaf_nodes(nodes), storage, embed_model=embed_model)
    embed_model.forget()
    leaves = index.as_retriever(similarity_top_k=200)
    merging = AutoMergingRetriever(leaves, storage, simple_ratio_thresh=0.1)
    reranker = SIFTReranker(top_n=3, index=index)
    for question in ("bees find home", "the sun", "which way"):
        found = merging.retrieve(question)
        assert reranker.postprocess_nodes(found, query_str=question)
        assert await reranker.apostprocess_nodes(found, query_str=question)
    parents = {node.node.get_content(MetadataMode.EMBED) for node in found}
    assert sorted(embed_model.texts) == sorted(parents)
    assert len([each for each in caplog.records if "nodes again" in each.message]) == 1


@pytest.mark.skipif(
    "contextvars" not in vars(async_utils),
    reason="asyncio_run of this LlamaIndex needs nest_asyncio in a running loop",
)
async def test_an_evaluator_that_calls_in_a_running_loop_does_not_block_on_itself(
    build_index, nodes, embed_model, question
):
    evaluator = RetrieverEvaluator.from_metric_names(
        ["recall"],
        retriever=build_index("faiss", nodes, embed_model).as_retriever(similarity_top_k=20),
        node_postprocessors=[SIFTReranker(top_n=4)],
    )
    others = [node.node_id for node in nodes[8:11]]  # the facts that are said once
    assert evaluator.evaluate(question, others).metric_vals_dict["recall"] == 1.0
    assert (await evaluator.aevaluate(question, others)).metric_vals_dict["recall"] == 1.0
    assert embed_model.texts == []
