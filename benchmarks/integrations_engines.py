"""What the runners of `benchmarks.integrations` share: an engine whose LLM costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import BaseQueryEngine
from llama_index.core.response_synthesizers.no_text import NoText
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.vector_stores.faiss import FaissVectorStore

DIMENSION = 384
N_CANDIDATES = 200
N_CHOSEN = 10
SYLLABLES = [a + b + c for a in "bdfglmnprst" for b in "aeiou" for c in ("", "n", "st")]
TEXT = "About eight hundred characters of text, as a chunk of documentation has. " * 11


class FirstNodes(NoText):
    """Answers with nothing, from the first ten nodes whatever comes.

    No LLM, and no prompt either: an engine without a reranker would put 200 nodes into its
    prompt and its response, one with a reranker ten, and a cost of 190 nodes that is not the
    reranker's would count in its favour.
    """

    def synthesize(self, query: Any, nodes: list[NodeWithScore], *rest: Any, **more: Any) -> Any:
        return super().synthesize(query, nodes[:N_CHOSEN], *rest, **more)

    async def asynthesize(
        self, query: Any, nodes: list[NodeWithScore], *rest: Any, **more: Any
    ) -> Any:
        return await super().asynthesize(query, nodes[:N_CHOSEN], *rest, **more)


class PreparedQueries(BaseEmbedding):
    """Looks the embedding of a query up; `model` embeds it too, where one is given, for its cost.

    So both cases search for the same vectors.
    """

    _prepared: dict[str, list[float]] = PrivateAttr()
    _model: Any = PrivateAttr()

    def __init__(self, prepared: dict[str, list[float]], model: Any = None) -> None:
        super().__init__(model_name="prepared")
        self._prepared = prepared
        self._model = model

    def _get_query_embedding(self, query: str) -> list[float]:
        if self._model is not None:
            self._model.embed_query(query)
        return self._prepared[query]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        raise AssertionError(f"nothing is embedded again here, but got {text[:40]!r}")


def question(number: int) -> str:
    return f"What does chunk number {number} of the documentation say about its own length?"


def text_of(number: int) -> str:
    """Return some eight hundred characters of a document, which no other has."""
    pairs = np.random.default_rng(number).integers(len(SYLLABLES), size=(120, 2))
    return " ".join(SYLLABLES[i] + SYLLABLES[j] for i, j in pairs)


def faiss_index(
    vectors: np.ndarray, batch: int = 2_000, text: Callable[[int], str] | None = None
) -> VectorStoreIndex:
    """Return an index of documents with the given vectors, built by LlamaIndex itself.

    In batches: a vector as a list of Python floats takes eight times its room.
    """
    text = text or text_of
    storage = StorageContext.from_defaults(
        vector_store=FaissVectorStore(faiss.IndexFlatIP(vectors.shape[1]))
    )
    index = VectorStoreIndex([], storage_context=storage, embed_model=PreparedQueries({}))
    for start in range(0, len(vectors), batch):
        rows = vectors[start : start + batch]
        index.insert_nodes(
            [
                TextNode(
                    id_=f"00000000-0000-4000-8000-{i:012d}",
                    text=text(i),
                    metadata={"source": f"{i % 97}.md", "page": i},
                    embedding=row.tolist(),
                )
                for i, row in enumerate(rows, start)
            ]
        )
    return index


def engine(
    index: VectorStoreIndex,
    embed_model: BaseEmbedding,
    postprocessors: list[BaseNodePostprocessor],
) -> BaseQueryEngine:
    """Return a query engine that answers nothing, at once."""
    llm = MockLLM()  # is not asked; without one, OpenAI's would be built
    return index.as_query_engine(
        llm=llm,
        similarity_top_k=N_CANDIDATES,
        embed_model=embed_model,
        node_postprocessors=postprocessors,
        response_synthesizer=FirstNodes(llm=llm),
    )
