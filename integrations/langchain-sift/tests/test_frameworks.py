"""SIFTRetriever and SIFTAnswer in the places where LangChain and LangGraph take a runnable."""

import importlib
from typing import Any, TypedDict

import pytest
from langchain_core.documents import Document
from langchain_core.language_models import ParrotFakeChatModel
from langchain_core.prompts import ChatPromptTemplate

from langchain_sift import SIFTAnswer, SIFTRetriever
from sift_core import ChoiceOptions

pytestmark = pytest.mark.slow

K = 3


def of_langchain(module):
    """Import a module of `langchain_classic`, or of the `langchain` that it was before 1.0."""
    try:
        return importlib.import_module(f"langchain_classic.{module}")
    except ModuleNotFoundError:
        return importlib.import_module(f"langchain.{module}")


@pytest.fixture
def store(make_qdrant, documents):
    return make_qdrant(documents)


@pytest.fixture
def retriever(store):
    return SIFTRetriever(vectorstore=store, k=K)


@pytest.fixture
def answer(store, language_model):
    options = {"mode": "context", "options": ChoiceOptions(n_select=3)}
    options["generation"] = {"max_new_tokens": 6}
    return SIFTAnswer.from_vectorstore(store, language_model, **options)


@pytest.fixture
def answered(answer, retriever, question):
    return answer.invoke({"input": question, "context": retriever.invoke(question)})


@pytest.fixture(params=["invoke", "ainvoke"])
def call(request):
    """Call a runnable by one of its two methods."""

    async def put(runnable, value, *config):
        result = getattr(runnable, request.param)(value, *config)
        return result if request.param == "invoke" else await result

    return put


def numbers(documents):
    """Return which documents these are; sums in their metadata may differ in the last bit."""
    return [document.metadata["number"] for document in documents]


async def test_a_retrieval_chain_keeps_the_explanation_out_of_the_prompt(call, retriever, question):
    documents_chain = of_langchain("chains.combine_documents").create_stuff_documents_chain
    prompt = ChatPromptTemplate.from_template("{context}\n\nQuestion: {input}")
    chain = of_langchain("chains").create_retrieval_chain(
        retriever, documents_chain(ParrotFakeChatModel(), prompt)
    )
    result = await call(chain, {"input": question})
    assert numbers(result["context"]) == numbers(retriever.invoke(question))
    assert all("sift" in document.metadata for document in result["context"])
    assert "variance" not in result["answer"]


async def test_a_retrieval_chain_answers_with_sift(call, retriever, answer, answered, question):
    chain = of_langchain("chains").create_retrieval_chain(retriever, answer.pick("answer"))
    result = await call(chain, {"input": question})
    assert result["answer"] == answered["answer"]
    assert result["context"] == retriever.invoke(question)
    pieces = [p["answer"] for p in chain.stream({"input": question}) if "answer" in p]
    assert len(pieces) > 3
    assert "".join(pieces) == answered["answer"]
    history = [("human", "What are plants?"), ("ai", "Green, mostly.")]
    after = await call(chain, {"input": question, "chat_history": history})
    assert after["answer"] != answered["answer"]


class State(TypedDict, total=False):
    input: str
    steps: int  # the graph's own; no business of the answer's
    context: list[Document]
    answer: str
    mode: str
    variance: Any


async def test_it_is_a_node_of_a_graph(call, retriever, answer, answered, question):
    graphs = pytest.importorskip("langgraph.graph", reason="needs langgraph")
    graph = graphs.StateGraph(State)
    graph.add_node("retrieve", lambda state: {"context": retriever.invoke(state["input"])})
    graph.add_node("reply", answer)
    graph.add_edge(graphs.START, "retrieve")
    graph.add_edge("retrieve", "reply")
    graph.add_edge("reply", graphs.END)
    state = await call(graph.compile(), {"input": question, "steps": 1})
    expected = {name: answered[name] for name in ("answer", "context", "mode", "variance")}
    assert state == expected | {"input": question, "steps": 1}
