"""An agent that looks things up with SIFT: a retriever as a tool in a LangGraph graph.

    make demo                                # fills the collection
    .venv/bin/python examples/agent_tool.py

No model that calls tools fits in here, so a script plays the model: it calls the tool once
and then reports what it was given. Put a chat model with `bind_tools` in its place.
"""

from __future__ import annotations

from demo_store import COLLECTION, QUESTION, demo_client
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import create_retriever_tool
from langchain_qdrant import QdrantVectorStore
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from qdrant_client import QdrantClient

from langchain_sift import SIFTRetriever
from sift_core.embedders import SentenceTransformerEmbedder


class MiniLM(SentenceTransformerEmbedder, Embeddings):
    """all-MiniLM-L6-v2 without a hub; any LangChain embeddings will do."""


def main() -> None:
    with demo_client() as client:
        show(client)


def show(client: QdrantClient) -> None:
    store = QdrantVectorStore(client, COLLECTION, MiniLM(), content_payload_key="text")
    look_up = create_retriever_tool(
        SIFTRetriever(vectorstore=store, k=8, fetch_k=200),
        name="search_model_docs",
        description="Find passages of transformers' documentation that together answer a question.",
    )
    graph = StateGraph(MessagesState)
    graph.add_node("agent", lambda state: {"messages": [scripted_model(state["messages"])]})
    graph.add_node("tools", ToolNode([look_up]))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    agent = graph.compile()

    state = agent.invoke({"messages": [HumanMessage(QUESTION)]})
    for message in state["messages"]:
        message.pretty_print()


def scripted_model(messages: list[BaseMessage]) -> AIMessage:
    """Call the tool with the user's words, then say what came back."""
    last = messages[-1]
    if isinstance(last, ToolMessage):
        passages = str(last.content).split("\n\n")
        return AIMessage(f"The tool gave me {len(passages)} paragraphs to answer from.")
    call = {"name": "search_model_docs", "args": {"query": last.content}, "id": "1"}
    return AIMessage("", tool_calls=[call])


if __name__ == "__main__":
    main()
