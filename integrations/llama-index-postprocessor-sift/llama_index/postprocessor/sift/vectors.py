"""The vectors that a choice among retrieved nodes needs: the query's and the nodes'.

A node's vector comes from the first of: the vector store, the caller's look-up by id, the node
itself, the embedding model. Nothing that arrives is changed. A store that does not have a node
leaves it to the others; one that fails raises.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from llama_index.core import Settings, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from llama_index.postprocessor.sift.nodes import ids_of, node_pool, query_of
from llama_index.postprocessor.sift.stores import Vectors, VectorsById, store_of
from llama_index.postprocessor.sift.tracking import (
    Vector,
    VectorSource,
    embedded_queries,
    is_same_model,
    sources_of,
)
from sift_core import CandidatePool, InvalidInputError, Query
from sift_core.plugins import MissingVectors, fill_gaps

Model: TypeAlias = Callable[[], BaseEmbedding]  # asked only where something must be embedded

missing_vectors: MissingVectors = MissingVectors(
    logging.getLogger(__name__),
    "embedding %d of %d nodes again: their vectors are neither on the nodes nor in a vector store "
    "that was found and can be read (Chroma, Qdrant, Faiss, SimpleVectorStore), but in %s; pass a "
    "function that looks them up as vectors=..., or give a reranker or synthesizer the "
    "VectorStoreIndex that has them as index=.... Their vectors are kept; this is said once",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class VectorLookup:
    """Makes candidates of nodes that LlamaIndex has retrieved, with their vectors.

    `index`, `embed_model` and `given` are `index`, `embed_model` and `vectors` of `SIFTReranker`,
    the others arguments of `query_embedding` and `node_pool`.
    """

    index: VectorStoreIndex | None = None
    embed_model: BaseEmbedding | None = None
    given: VectorsById | None = None
    apart: bool = False
    use_scores: bool | None = None
    for_llm: bool = False

    async def candidates(
        self, bundle: QueryBundle, nodes: Sequence[NodeWithScore], *, is_awaited: bool
    ) -> tuple[CandidatePool, Query]:
        """Return the nodes as a pool, and the query with its embedding; it has none without nodes.

        Stores and models are awaited if `is_awaited`. Else nothing waits.

        Raises:
            CandidateSourceError: If a vector store fails.
            InvalidInputError: If the query is empty, vectors cannot be used or differ in length,
                or something must be embedded and there is no model.
        """
        if not nodes:
            return CandidatePool.empty(), Query(text=bundle.query_str)
        if self.index is None:
            sources = sources_of(ids_of(nodes))
        else:
            sources = [VectorSource(index=self.index, embed_model=self.index._embed_model)]
        stores = [store_of(source.index) for source in sources]
        target = await query_embedding(
            bundle, partial(self._model_of_query, sources), apart=self.apart, is_awaited=is_awaited
        )
        vectors: Vectors = [None] * len(nodes)
        for store in stores:
            pairs = zip(ids_of(nodes), vectors, strict=True)
            if ids := [name for name, row in pairs if row is None]:
                if is_awaited:
                    found = await store.avectors(ids, dimension=target.shape[-1])
                else:
                    found = store.vectors(ids)
                vectors = fill_gaps(vectors, found)
        vectors = await node_vectors(
            nodes,
            _of_own_ids(nodes, vectors),
            partial(self._model, sources),
            place=", ".join(store.name for store in stores) or "no vector store",
            given=self.given,
            is_awaited=is_awaited,
        )
        pool = node_pool(target, nodes, vectors, use_scores=self.use_scores, for_llm=self.for_llm)
        return pool, query_of(bundle, target)

    def _model(self, sources: Sequence[VectorSource]) -> BaseEmbedding:
        """Return what embeds nodes without a vector."""
        if self.embed_model is not None:
            return self.embed_model
        return sources[0].embed_model if sources else _default_model()

    def _model_of_query(self, sources: Sequence[VectorSource]) -> BaseEmbedding:
        """Return the model of the vectors that the query is compared with."""
        stored = [each for each in sources if store_of(each.index).gives_vectors]
        if stored and self.index is None:
            return stored[0].embed_model
        return self._model(sources)


def _default_model() -> BaseEmbedding:
    try:
        return Settings.embed_model
    except (ImportError, ValueError) as error:  # unset: OpenAI's, without its package or a key
        raise InvalidInputError(
            f"there is no model to embed what has no vector: {error}; pass `embed_model`, or the "
            f"`index` that holds the vectors, or set Settings.embed_model"
        ) from error


def _of_own_ids(nodes: Sequence[NodeWithScore], vectors: Vectors) -> Vectors:
    """Return the vectors without those of an id that several nodes share: it has but one."""
    counts = Counter(ids_of(nodes))
    if len(counts) == len(nodes):
        return vectors
    pairs = zip(nodes, vectors, strict=True)
    return [row if counts[node.node.node_id] == 1 else None for node, row in pairs]


async def node_vectors(
    nodes: Sequence[NodeWithScore],
    vectors: Vectors,
    model: Model,
    *,
    place: str,
    given: VectorsById | None,
    is_awaited: bool,
) -> Vectors:
    """Return n vectors, of which those that a store does not have (None) come from elsewhere.

    The arguments are those of `sift_core.plugins.MissingVectors`; a node may bring its own.
    """

    def embedder() -> Any:
        one = model()
        return one, one.get_text_embedding_batch, one.aget_text_embedding_batch

    return await missing_vectors.completed(
        vectors,
        ids_of(nodes),
        lambda row: nodes[row].node.get_content(MetadataMode.EMBED),  # as for an index
        embedder,
        place=place,
        look_up=given,
        brought=lambda row: nodes[row].node.embedding,
        is_awaited=is_awaited,
    )


async def query_embedding(
    bundle: QueryBundle, model: Model, *, apart: bool = False, is_awaited: bool
) -> Vector:
    """Return the query's vector, shape (d,), embedding the query if that was not done yet.

    It was done if the query has a vector, or the retrieval before embedded its text by the model.
    An awaited retriever of LlamaIndex does not put its vector on the query.

    Args:
        bundle: Has a vector or a text.
        model: Returns the model of the nodes' vectors; called if the result depends on it.
        apart: Whether m >= 2 texts give m vectors, shape (m, d), in place of their mean. A vector
            of the query's own that is not their mean is used as it is.
        is_awaited: Whether to await the model.

    Raises:
        InvalidInputError: If the query is empty, or its vector all zero or not finite.
    """
    found = _made_before(bundle, model, apart=apart)
    if found is None:
        embedder, texts = model(), bundle.embedding_strs
        if is_awaited:
            each = [await embedder.aget_query_embedding(text) for text in texts]
        else:
            each = [embedder.get_query_embedding(text) for text in texts]
        found = _apart_or_mean(each, apart=apart)
    vector = np.asarray(found, dtype=np.float64)
    if not (np.isfinite(vector).all() and vector.any(axis=-1).all()):
        raise InvalidInputError(
            "the query's embedding must be finite and must not be all zero; was an empty text "
            "embedded?"
        )
    return vector


def _made_before(
    bundle: QueryBundle, model: Model, *, apart: bool
) -> Sequence[float] | Vector | None:
    """Return the vector that a query has, or those that the retrieval before made of its texts."""
    texts, brought = bundle.embedding_strs, bundle.embedding
    if brought is None and not texts:
        raise InvalidInputError("the query has neither an embedding nor a text to embed")
    if brought is None or (apart and len(texts) > 1):
        each = embedded_before(texts, model)
        if each is not None and (brought is None or np.allclose(each.mean(axis=0), brought)):
            return _apart_or_mean(each, apart=apart)
    if brought is None:
        return None
    made = embedded_queries().get(texts[0]) if texts else None
    made_by = made[0]() if made else None
    return brought if made_by is None or is_same_model(made_by, model()) else None


def embedded_before(texts: Sequence[str], model: Model) -> Vector | None:
    """Return what the model made of m texts in the latest retrieval here, shape (m, d), or None."""
    embedded = embedded_queries()
    made = [embedded[text] for text in texts if text in embedded]
    if not made or len(made) < len(texts):
        return None
    embedder = model()
    if any(made_by() is not embedder for made_by, _ in made):
        return None
    return np.stack([vector for _, vector in made])


def _apart_or_mean(each: Sequence[Sequence[float]] | Vector, *, apart: bool) -> Vector:
    """Return the vectors of a query's m texts, or their mean, as LlamaIndex's retrievers take."""
    vectors = np.asarray(each)
    return vectors if apart and len(vectors) > 1 else np.mean(vectors, axis=0)
