"""SIFTRetriever in the places where LangChain and LangGraph take a retriever."""

import asyncio
import importlib
import inspect
from typing import TypedDict

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import ParrotFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import RunnableLambda, RunnableParallel, RunnablePassthrough
from langchain_core.tools import create_retriever_tool

from langchain_sift import SIFTRetriever

K = 3


def of_langchain(module):
    """Import a module of `langchain_classic`, or of the `langchain` that it was before 1.0."""
    try:
        return importlib.import_module(f"langchain_classic.{module}")
    except ModuleNotFoundError:
        return importlib.import_module(f"langchain.{module}")


@pytest.fixture(params=["qdrant", "faiss"])
def retriever(request, documents):
    store = request.getfixturevalue(f"make_{request.param}")(documents)
    return SIFTRetriever(vectorstore=store, k=K)


@pytest.fixture(params=["invoke", "ainvoke"])
def call(request):
    """Call a runnable by one of its two methods."""

    async def put(runnable, value, *config):
        result = getattr(runnable, request.param)(value, *config)
        return result if request.param == "invoke" else await result

    return put


def joined(documents):
    return "\n\n".join(document.page_content for document in documents)


def numbers(documents):
    """Return which documents these are; sums in their metadata may differ in the last bit."""
    return [document.metadata["number"] for document in documents]


class Listener(BaseCallbackHandler):
    """Notes each retrieval: its tags, its metadata and how many documents it gave."""

    def __init__(self):
        self.began, self.ended = [], []

    def on_retriever_start(self, serialized, query, *, tags=None, metadata=None, **kwargs):
        self.began.append((query, tags, metadata))

    def on_retriever_end(self, documents, **kwargs):
        self.ended.append(len(documents))


class TestRetrievalChain:
    @pytest.fixture
    def chain(self, retriever):
        documents_chain = of_langchain("chains.combine_documents").create_stuff_documents_chain
        prompt = ChatPromptTemplate.from_template("{context}\n\nQuestion: {input}")
        return of_langchain("chains").create_retrieval_chain(
            retriever, documents_chain(ParrotFakeChatModel(), prompt)
        )

    async def test_it_answers_from_the_chosen_documents(self, call, chain, retriever, question):
        chosen = retriever.invoke(question)
        result = await call(chain, {"input": question})
        assert numbers(result["context"]) == numbers(chosen)
        assert result["answer"] == f"{joined(chosen)}\n\nQuestion: {question}"
        assert len(chosen) == K

    def test_the_explanation_stays_out_of_the_prompt(self, chain, question):
        result = chain.invoke({"input": question})
        assert all("sift" in document.metadata for document in result["context"])
        assert "variance_before" not in result["answer"]

    async def test_it_streams_documents_and_answer(self, chain, retriever, question):
        parts = [part async for part in chain.astream({"input": question})]
        (context,) = [part["context"] for part in parts if "context" in part]
        assert numbers(context) == numbers(retriever.invoke(question))
        answer = "".join(part["answer"] for part in parts if "answer" in part)
        assert answer == chain.invoke({"input": question})["answer"]


class TestRetrieverTool:
    async def test_it_gives_the_texts_in_order_of_choice(self, call, retriever, question):
        tool = create_retriever_tool(retriever, "plants", "Looks up facts about plants.")
        expected = joined(retriever.invoke(question))
        assert await call(tool, {"query": question}) == expected

    @pytest.mark.skipif(
        "response_format" not in inspect.signature(create_retriever_tool).parameters,
        reason="create_retriever_tool of this langchain-core has no response_format",
    )
    async def test_a_tool_call_brings_the_documents_along(self, call, retriever, question):
        tool = create_retriever_tool(
            retriever,
            "plants",
            "Looks up facts about plants.",
            document_prompt=PromptTemplate.from_template("{number}: {page_content}"),
            document_separator="\n",
            response_format="content_and_artifact",
        )
        asked = {"name": "plants", "args": {"query": question}, "id": "1", "type": "tool_call"}
        message = await call(tool, asked)
        chosen = retriever.invoke(question)
        assert numbers(message.artifact) == numbers(chosen)
        assert message.content == "\n".join(
            f"{document.metadata['number']}: {document.page_content}" for document in chosen
        )

    async def test_the_retrieval_is_reported_to_the_callers_callbacks(
        self, call, retriever, question
    ):
        tool = create_retriever_tool(retriever, "plants", "Looks up facts about plants.")
        listener = Listener()
        await call(tool, {"query": question}, {"callbacks": [listener]})
        assert [query for query, *_ in listener.began] == [question]
        assert listener.ended == [K]

    @pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")  # as_tool
    async def test_the_retriever_itself_becomes_a_tool(self, call, retriever, question):
        tool = retriever.as_tool(name="plants", description="Looks up facts about plants.")
        assert numbers(await call(tool, question)) == numbers(retriever.invoke(question))


class State(TypedDict, total=False):
    question: str
    documents: list[Document]
    answer: str


class TestLangGraph:
    """The node of a graph, and a tool that a model calls."""

    @pytest.fixture
    def graph(self, retriever):
        langgraph = pytest.importorskip("langgraph.graph", reason="langgraph is not installed")

        def retrieve(state):
            return {"documents": retriever.invoke(state["question"])}

        async def aretrieve(state):
            return {"documents": await retriever.ainvoke(state["question"])}

        graph = langgraph.StateGraph(State)
        graph.add_node("retrieve", RunnableLambda(retrieve, afunc=aretrieve))
        graph.add_node("write", lambda state: {"answer": joined(state["documents"])})
        graph.add_edge(langgraph.START, "retrieve")
        graph.add_edge("retrieve", "write")
        graph.add_edge("write", langgraph.END)
        return graph.compile()

    async def test_a_node_puts_the_chosen_documents_into_the_state(
        self, call, graph, retriever, question
    ):
        state = await call(graph, {"question": question})
        assert numbers(state["documents"]) == numbers(retriever.invoke(question))
        assert state["answer"] == joined(state["documents"])

    async def test_updates_are_streamed_by_node(self, graph, retriever, question):
        updates = [
            update async for update in graph.astream({"question": question}, stream_mode="updates")
        ]
        assert [name for update in updates for name in update] == ["retrieve", "write"]
        found = updates[0]["retrieve"]["documents"]
        assert numbers(found) == numbers(retriever.invoke(question))

    async def test_a_retrieval_in_a_node_is_reported_to_the_graphs_callbacks(
        self, call, graph, question
    ):
        listener = Listener()
        await call(graph, {"question": question}, {"callbacks": [listener], "tags": ["graph"]})
        ((query, tags, _),) = listener.began
        assert query == question
        assert "graph" in tags

    async def test_a_tool_node_answers_a_models_call(self, call, retriever, question):
        langgraph = pytest.importorskip("langgraph.graph", reason="langgraph is not installed")
        prebuilt = importlib.import_module("langgraph.prebuilt")
        tool = create_retriever_tool(retriever, "plants", "Looks up facts about plants.")
        asked = AIMessage(
            "", tool_calls=[{"name": "plants", "args": {"query": question}, "id": "1"}]
        )
        graph = langgraph.StateGraph(langgraph.MessagesState)
        graph.add_node("model", lambda state: {"messages": [asked]})
        graph.add_node("tools", prebuilt.ToolNode([tool]))
        graph.add_edge(langgraph.START, "model")
        graph.add_conditional_edges("model", prebuilt.tools_condition)
        state = await call(graph.compile(), {"messages": [("user", question)]})
        *_, answer = state["messages"]
        assert answer.type == "tool"
        assert answer.content == joined(retriever.invoke(question))


class TestComposition:
    async def test_parallel_branches_get_what_each_gets_alone(self, call, retriever, question):
        wide = SIFTRetriever(vectorstore=retriever.vectorstore, k=6)
        nearest = retriever.vectorstore.as_retriever(search_kwargs={"k": K})
        branches = RunnableParallel(few=retriever, many=wide, nearest=nearest)
        result = await call(branches, question)
        assert {name: numbers(found) for name, found in result.items()} == {
            "few": numbers(retriever.invoke(question)),
            "many": numbers(wide.invoke(question)),
            "nearest": numbers(nearest.invoke(question)),
        }
        assert (len(result["few"]), len(result["many"])) == (K, 6)

    def test_assign_keeps_the_question_beside_the_documents(self, retriever, question):
        picked = RunnableLambda(lambda state: state["question"]) | retriever
        result = RunnablePassthrough.assign(documents=picked).invoke({"question": question})
        assert result["question"] == question
        assert numbers(result["documents"]) == numbers(retriever.invoke(question))

    @pytest.mark.parametrize("method", ["batch", "abatch"])
    async def test_a_batch_gives_each_question_its_own_documents(self, method, retriever):
        questions = ["how do plants make sugar", "日本 の 植物", "interest rates of the bank"] * 4
        expected = [numbers(retriever.invoke(question)) for question in questions]
        found = getattr(retriever, method)(questions, {"max_concurrency": 6})
        found = await found if method == "abatch" else found
        assert [numbers(documents) for documents in found] == expected

    async def test_one_bad_question_of_a_batch_leaves_the_others_their_answers(self, retriever):
        questions = ["how do plants make sugar", "", "interest rates of the bank"]
        good, bad, other = await retriever.abatch(questions, return_exceptions=True)
        assert isinstance(bad, Exception)
        assert numbers(good) == numbers(retriever.invoke(questions[0]))
        assert numbers(other) == numbers(retriever.invoke(questions[2]))

    async def test_config_given_beforehand_reaches_the_callbacks(self, call, retriever, question):
        listener = Listener()
        configured = retriever.with_config(
            tags=["docs"], metadata={"user": 7}, callbacks=[listener], run_name="look up"
        )
        assert numbers(await call(configured, question)) == numbers(retriever.invoke(question))
        ((query, tags, metadata),) = listener.began
        assert (query, metadata["user"]) == (question, 7)
        assert "docs" in tags
        assert listener.ended == [K]

    async def test_arguments_bound_beforehand_hold_for_each_call(self, call, retriever, question):
        assert len(await call(retriever.bind(k=5), question)) == 5
        assert len(await call(retriever, question)) == K

    async def test_a_fallback_takes_over_where_the_store_is_gone(
        self, call, make_qdrant, make_faiss, documents, question
    ):
        store = make_qdrant(documents)
        gone = SIFTRetriever(vectorstore=store, k=K)
        spare = SIFTRetriever(vectorstore=make_faiss(documents), k=K)
        store.client.delete_collection("docs")
        found = await call(gone.with_fallbacks([spare]), question)
        assert numbers(found) == numbers(spare.invoke(question))

    async def test_events_of_a_stream_name_the_documents(self, retriever, question):
        chain = retriever | RunnableLambda(joined)
        ended = [
            event
            async for event in chain.astream_events(question, version="v2")
            if event["event"] == "on_retriever_end"
        ]
        found = [numbers(event["data"]["output"]) for event in ended]
        assert found == [numbers(retriever.invoke(question))]

    async def test_many_chains_at_once_keep_their_answers_apart(self, retriever):
        chain = RunnableParallel(question=RunnablePassthrough(), context=retriever | joined)
        questions = [f"how do plants number {i} make sugar" for i in range(20)]
        results = await asyncio.gather(*(chain.ainvoke(question) for question in questions))
        assert [result["question"] for result in results] == questions
        assert [result["context"] for result in results] == [
            joined(retriever.invoke(question)) for question in questions
        ]
