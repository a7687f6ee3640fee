"""A LangGraph agent on call: a node that retrieves with SIFT, and one that answers.

    .venv/bin/python examples/langgraph_node.py

The question needs two facts. The two nearest texts are months of one runbook, so that the answer
lacks the host. SIFT takes one month and the host, and its reasons go into the state of the graph.
The model is small (135 million parameters), so that it runs anywhere.
"""

from __future__ import annotations

from typing import TypedDict

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from transformers.utils import logging as transformers_logging

from langchain_sift import ChatSIFT, SIFTRetriever
from sift_core.answering import AnswerEngine
from sift_core.embedders import SentenceTransformerEmbedder

QUESTION = "Payments time out: what do I restart, and on which host?"
TEXTS = [
    "Runbook of March: if payments time out, restart the payment worker.",
    "Runbook of April: restart the payment worker if payments time out.",
    "Runbook of May: payments time out? Restart the payment worker.",
    "The payment worker runs on the host pay-2.",
    "Payments are refunded by the finance team on Fridays.",
    "The search index is rebuilt every night.",
]


class MiniLM(SentenceTransformerEmbedder, Embeddings):
    """all-MiniLM-L6-v2 from a package; any LangChain embeddings will do."""


class State(TypedDict, total=False):
    question: str
    passages: list[Document]
    answer: str


def main() -> None:
    transformers_logging.disable_progress_bar()
    store = InMemoryVectorStore.from_texts(TEXTS, MiniLM())
    model = ChatSIFT(engine=AnswerEngine.from_pretrained(), mode="base")  # your model goes here
    retrievers = {
        "nearest neighbours": store.as_retriever(search_kwargs={"k": 2}),
        "SIFT": SIFTRetriever(vectorstore=store, k=2),
    }
    print(QUESTION)
    for name, retriever in retrievers.items():
        state = graph_of(retriever, model).invoke({"question": QUESTION})
        print(f"\n{name}")
        for passage in state["passages"]:
            print(f"  {passage.page_content}{reason_of(passage)}")
        print(f"answer: {state['answer']}")


def graph_of(retriever: BaseRetriever, model: BaseChatModel) -> CompiledStateGraph:
    """Return START -> retrieve -> answer -> END."""

    def retrieve(state: State) -> State:
        return {"passages": retriever.invoke(state["question"])}

    def answer(state: State) -> State:
        known = "\n".join(passage.page_content for passage in state["passages"])
        return {"answer": model.invoke(f"{known}\n\n{state['question']}").text.strip()}

    graph = StateGraph(State)
    graph.add_node("retrieve", retrieve)
    graph.add_node("answer", answer)
    graph.add_edge(START, "retrieve")
    graph.add_edge("retrieve", "answer")
    graph.add_edge("answer", END)
    return graph.compile()


def reason_of(passage: Document) -> str:
    """Return what a passage adds to those before it, if SIFT chose it."""
    pick = passage.metadata.get("sift")
    if not pick:
        return ""
    shares = f", shares: {', '.join(pick['shares'])}" if "shares" in pick else ""
    return f" (adds {pick['gain']:.0%}{shares})"


if __name__ == "__main__":
    main()
