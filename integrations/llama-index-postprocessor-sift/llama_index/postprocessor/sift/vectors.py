"""The vectors that a choice among retrieved nodes needs: the query's and the nodes'.

A node's vector comes from the first of: the vector store, the caller's look-up by id, the node
itself, the embedding model. Nothing that arrives is changed. A store that does not have a node
leaves it to the others; one that fails raises.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

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
from sift_core.plugins import fill_gaps, look_up_missing, mark_blank
from sift_core.vector_cache import KeptVectors

Model: TypeAlias = Callable[[], BaseEmbedding]  # asked only where something must be embedded

_logger = logging.getLogger(__name__)

_kept = KeptVectors()  # of texts that had to be embedded, whichever object of ours asked for them
_warned_of: set[str] = set()  # stores whose nodes were embedded, with one warning each


@dataclass(frozen=True, kw_only=True, eq=False)
class VectorLookup:
    """Makes candidates of nodes that LlamaIndex has retrieved, with their vectors.

    Args:
        index: Holds the vectors. Default: the indexes that were just searched.
        embed_model: Embeds nodes without a vector. Default: the index's own model.
        given: Looks up vectors that no index has, as in `sift_core.vectors_by_id`. Default: none.
        apart, use_scores, for_llm: As in `query_embedding` and `node_pool`.
    """

    index: VectorStoreIndex | None = None
    embed_model: BaseEmbedding | None = None
    given: VectorsById | None = None
    apart: bool = False
    use_scores: bool | None = None
    for_llm: bool = False

    def candidates(
        self, bundle: QueryBundle, nodes: Sequence[NodeWithScore]
    ) -> tuple[CandidatePool, Query]:
        """Return the nodes as a pool, and the query with its embedding; it has none without nodes.

        Raises:
            CandidateSourceError: If a vector store fails.
            InvalidInputError: If the query is empty, vectors cannot be used or differ in length,
                or something must be embedded and there is no model.
        """
        if not nodes:
            return CandidatePool.empty(), Query(text=bundle.query_str)
        sources = self._sources(nodes)
        target = query_embedding(bundle, lambda: self._model_of_query(sources), apart=self.apart)
        vectors: Vectors = [None] * len(nodes)
        for source in sources:
            if ids := _missing_ids(nodes, vectors):
                vectors = fill_gaps(vectors, store_of(source.index).vectors(ids))
        model, place = partial(self._model, sources), _stores_of(sources)
        vectors = node_vectors(nodes, vectors, model, place, self.given)
        return self._pool(target, nodes, vectors), query_of(bundle, target)

    async def acandidates(
        self, bundle: QueryBundle, nodes: Sequence[NodeWithScore]
    ) -> tuple[CandidatePool, Query]:
        """Return what `candidates` returns, awaiting stores and models."""
        if not nodes:
            return CandidatePool.empty(), Query(text=bundle.query_str)
        sources = self._sources(nodes)
        target = await aquery_embedding(
            bundle, lambda: self._model_of_query(sources), apart=self.apart
        )
        vectors: Vectors = [None] * len(nodes)
        for source in sources:
            if ids := _missing_ids(nodes, vectors):
                found = await store_of(source.index).avectors(ids, dimension=target.shape[-1])
                vectors = fill_gaps(vectors, found)
        model, place = partial(self._model, sources), _stores_of(sources)
        vectors = await anode_vectors(nodes, vectors, model, place, self.given)
        return self._pool(target, nodes, vectors), query_of(bundle, target)

    def _pool(
        self, target: Vector, nodes: Sequence[NodeWithScore], vectors: Vectors
    ) -> CandidatePool:
        return node_pool(target, nodes, vectors, use_scores=self.use_scores, for_llm=self.for_llm)

    def _sources(self, nodes: Sequence[NodeWithScore]) -> list[VectorSource]:
        if self.index is None:
            return sources_of(ids_of(nodes))
        return [VectorSource(index=self.index, embed_model=self.index._embed_model)]

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


def _stores_of(sources: Sequence[VectorSource]) -> str:
    return ", ".join(store_of(source.index).name for source in sources) or "no vector store"


def _missing_ids(nodes: Sequence[NodeWithScore], vectors: Vectors) -> list[str]:
    """Return the ids of the nodes without a vector."""
    return [name for name, row in zip(ids_of(nodes), vectors, strict=True) if row is None]


def node_vectors(
    nodes: Sequence[NodeWithScore],
    vectors: Vectors,
    model: Model,
    place: str,
    given: VectorsById | None = None,
) -> Vectors:
    """Return n vectors, after looking up and embedding those that are missing.

    A text is embedded once, as long as its vector is kept (`sift_core.vector_cache.KeptVectors`).

    Args:
        nodes: n nodes.
        vectors: n vectors. A node that the store does not have has None.
        model: Called if there is something to embed.
        place: Name of the store for the log, which has one warning for each.
        given: Looks up vectors, as in `sift_core.vectors_by_id`. Default: there is no function.
    """
    vectors, texts = _texts_to_embed(nodes, look_up_missing(vectors, ids_of(nodes), given), place)
    if not texts:
        return vectors
    embedder = model()
    made = _kept.embedded(embedder, texts, embedder.get_text_embedding_batch)
    return fill_gaps(vectors, made)


async def anode_vectors(
    nodes: Sequence[NodeWithScore],
    vectors: Vectors,
    model: Model,
    place: str,
    given: VectorsById | None = None,
) -> Vectors:
    """Return what `node_vectors` returns, awaiting the model; `given` runs in a thread."""
    if given is not None:
        vectors = await asyncio.to_thread(look_up_missing, vectors, ids_of(nodes), given)
    vectors, texts = _texts_to_embed(nodes, vectors, place)
    if not texts:
        return vectors
    embedder = model()
    made = await _kept.aembedded(embedder, texts, embedder.aget_text_embedding_batch)
    return fill_gaps(vectors, made)


def _texts_to_embed(
    nodes: Sequence[NodeWithScore], vectors: Vectors, place: str
) -> tuple[Vectors, list[str]]:
    """Return the vectors with those on the nodes, and the texts of nodes that still have none."""
    if isinstance(vectors, np.ndarray):
        return vectors, []
    pairs = zip(nodes, vectors, strict=True)
    vectors = [node.node.embedding if vector is None else vector for node, vector in pairs]
    if all(vector is not None for vector in vectors):
        return vectors, []
    texts = [node.node.get_content(MetadataMode.EMBED) for node in nodes]  # as for an index
    vectors = mark_blank(vectors, texts)
    missing = [text for text, vector in zip(texts, vectors, strict=True) if vector is None]
    if missing:
        level = logging.DEBUG if place in _warned_of else logging.WARNING
        _warned_of.add(place)
        _logger.log(
            level,
            "embedding %d of %d nodes again: their vectors are neither on the nodes nor in a "
            "vector store that was found and can be read (Chroma, Qdrant, Faiss, "
            "SimpleVectorStore), but in %s; pass a function that looks them up as vectors=..., "
            "or give a reranker or synthesizer the VectorStoreIndex that has them as "
            "index=.... Their vectors are kept; this is said once",
            len(missing),
            len(nodes),
            place,
        )
    return vectors, missing


def query_embedding(bundle: QueryBundle, model: Model, *, apart: bool = False) -> Vector:
    """Return the query's vector, shape (d,), embedding the query if that was not done yet.

    It was done if the query has a vector, or the retrieval before embedded its text by the model.
    An awaited retriever of LlamaIndex does not put its vector on the query.

    Args:
        bundle: Has a vector or a text.
        model: Returns the model of the nodes' vectors; called if the result depends on it.
        apart: Whether m >= 2 texts give m vectors, shape (m, d), in place of their mean. A vector
            of the query's own that is not their mean is used as it is.

    Raises:
        InvalidInputError: If the query is empty, or its vector all zero or not finite.
    """
    found = _made_before(bundle, model, apart=apart)
    if found is None:
        embedder = model()
        each = [embedder.get_query_embedding(text) for text in bundle.embedding_strs]
        found = _apart_or_mean(each, apart=apart)
    return _checked(found)


async def aquery_embedding(bundle: QueryBundle, model: Model, *, apart: bool = False) -> Vector:
    """Return what `query_embedding` returns, awaiting the model."""
    found = _made_before(bundle, model, apart=apart)
    if found is None:
        embedder = model()
        each = [await embedder.aget_query_embedding(text) for text in bundle.embedding_strs]
        found = _apart_or_mean(each, apart=apart)
    return _checked(found)


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


def _checked(embedding: Sequence[float] | Vector) -> Vector:
    vector = np.asarray(embedding, dtype=np.float64)
    if not (np.isfinite(vector).all() and vector.any(axis=-1).all()):
        raise InvalidInputError(
            "the query's embedding must be finite and must not be all zero; was an empty text "
            "embedded?"
        )
    return vector
