"""SIFTRetriever in a LangChain chain, and SIFTAnswer, which may also learn at query time.

    make demo                                     # fills the collection
    .venv/bin/python examples/langchain_chain.py

The model is small (135 million parameters), so that it runs anywhere. Any chat model of LangChain
takes ChatSIFT's place.
"""

from __future__ import annotations

from demo_store import COLLECTION, MODEL, QUESTION, demo_client, demo_source
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_qdrant import QdrantVectorStore
from qdrant_client import QdrantClient

from langchain_sift import ChatSIFT, SIFTAnswer, SIFTRetriever
from sift_core.answering import AnswerEngine, LearningOptions
from sift_core.embedders import SentenceTransformerEmbedder


class MiniLM(SentenceTransformerEmbedder, Embeddings):
    """all-MiniLM-L6-v2 without a hub; any LangChain embeddings will do."""


def main() -> None:
    with demo_client() as client:
        show(client)


def show(client: QdrantClient) -> None:
    embeddings = MiniLM()
    store = QdrantVectorStore(client, COLLECTION, embeddings, content_payload_key="text")
    engine = AnswerEngine.from_pretrained(
        MODEL,
        source=demo_source(client, embeddings),
        embedder=embeddings,
        learning=LearningOptions(n_steps=10),
        generation={"max_new_tokens": 24},
    )

    retriever = SIFTRetriever(vectorstore=store, k=4, fetch_k=200)
    print(QUESTION)
    for document in retriever.invoke(QUESTION):
        first_line = document.page_content.splitlines()[0]
        print(f"  {document.metadata['sift']['similarity']:.2f}  {first_line}")

    prompt = ChatPromptTemplate.from_template("{context}\n\n{question}")
    inputs = {"context": retriever | joined, "question": RunnablePassthrough()}
    chain = inputs | prompt | ChatSIFT(engine=engine, mode="base") | StrOutputParser()
    print("\nA chain, streamed:")
    for piece in chain.stream(QUESTION):
        print(piece.replace("\n", " "), end="", flush=True)

    answer = SIFTAnswer(engine=engine).invoke(QUESTION, mode="fine_tune")
    print(f"\n\nSIFTAnswer, mode {answer['mode']}: {' '.join(answer['answer'].split())}")
    print(f"  learned from {len(answer['context'])} documents; {'; '.join(answer['reasons'])}")


def joined(documents: list[Document]) -> str:
    return "\n\n".join(document.page_content for document in documents)


if __name__ == "__main__":
    main()
