"""SIFTAnswer where LangChain and LangGraph want a runnable."""

import importlib
from pathlib import Path
from typing import Any, TypedDict

import pytest

pytest.importorskip("torch", reason="needs sift-rerank's extra fine-tune")

from langchain_core.documents import Document
from langchain_core.runnables import RunnablePassthrough

from langchain_sift import SIFTAnswer, SIFTRetriever
from sift_core.answering import LanguageModel

TINY_LM = Path(__file__).parents[3] / "examples/tiny_lm"


@pytest.fixture(scope="module")
def language_model():
    return LanguageModel.from_pretrained(TINY_LM, device="cpu")


@pytest.fixture
def store(make_in_memory, documents):
    return make_in_memory(documents)


@pytest.fixture
def answer(store, language_model):
    return SIFTAnswer.from_vectorstore(
        store, language_model, mode="context", n_context=3, max_new_tokens=6
    )


@pytest.fixture
def retriever(store):
    return SIFTRetriever(vectorstore=store, k=5)


@pytest.fixture
def expected(answer, retriever, question):
    return answer.invoke({"input": question, "context": retriever.invoke(question)})


@pytest.fixture
def retrieval_chain(retriever, answer):
    try:
        chains = importlib.import_module("langchain_classic.chains")
    except ModuleNotFoundError:  # before LangChain 1.0
        chains = pytest.importorskip("langchain.chains", reason="needs langchain-classic")
    return chains.create_retrieval_chain(retriever, answer.pick("answer"))


def test_a_retrieval_chain_answers_from_the_retrieved_documents(
    retrieval_chain, retriever, question, expected
):
    result = retrieval_chain.invoke({"input": question})
    assert result["answer"] == expected["answer"]
    assert result["context"] == retriever.invoke(question)


async def test_a_retrieval_chain_answers_asynchronously(retrieval_chain, question, expected):
    result = await retrieval_chain.ainvoke({"input": question})
    assert result["answer"] == expected["answer"]


def test_a_retrieval_chain_streams_text(retrieval_chain, question, expected):
    pieces = [p["answer"] for p in retrieval_chain.stream({"input": question}) if "answer" in p]
    assert len(pieces) > 3
    assert "".join(pieces) == expected["answer"]


def test_a_retrieval_chain_remembers_what_was_said(retrieval_chain, question, expected):
    history = [("human", "What are plants?"), ("ai", "Green, mostly.")]
    result = retrieval_chain.invoke({"input": question, "chat_history": history})
    assert result["answer"] != expected["answer"]


def test_it_is_a_step_of_an_expression(retriever, answer, question, expected):
    chain = {"input": RunnablePassthrough(), "context": retriever} | answer
    result = chain.invoke(question)
    assert result["answer"] == expected["answer"]
    assert result["context"] == expected["context"]


async def test_an_expression_streams_its_text(retriever, answer, question, expected):
    chain = {"input": RunnablePassthrough(), "context": retriever} | answer | (lambda r: r)
    assert (await chain.ainvoke(question))["answer"] == expected["answer"]
    chain = {"input": RunnablePassthrough(), "context": retriever} | answer.pick("answer")
    pieces = [piece async for piece in chain.astream(question)]
    assert len(pieces) > 3
    assert "".join(pieces) == expected["answer"]


class State(TypedDict, total=False):
    input: str
    steps: int  # the graph's own; no business of the answer's
    context: list[Document]
    answer: str
    mode: str
    variance: Any


async def test_it_is_a_node_of_a_graph(retriever, answer, question, expected):
    graphs = pytest.importorskip("langgraph.graph", reason="needs langgraph")
    graph = graphs.StateGraph(State)
    graph.add_node("retrieve", lambda state: {"context": retriever.invoke(state["input"])})
    graph.add_node("reply", answer)
    graph.add_edge(graphs.START, "retrieve")
    graph.add_edge("retrieve", "reply")
    graph.add_edge("reply", graphs.END)
    compiled = graph.compile()
    for state in (
        compiled.invoke({"input": question, "steps": 1}),
        await compiled.ainvoke({"input": question, "steps": 1}),
    ):
        assert state["answer"] == expected["answer"]
        assert state["context"] == expected["context"]
        assert state["mode"] == "context"
        assert state["variance"] == expected["variance"]
        assert state["steps"] == 1
