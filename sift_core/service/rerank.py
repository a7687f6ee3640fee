"""Rerank in the dialects of Cohere, Jina, TEI, vLLM, Infinity and Open WebUI; no ranking here."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Literal
from uuid import uuid4

import numpy as np
from anyio import from_thread
from fastapi import APIRouter
from pydantic import Discriminator, Field, PlainValidator, Tag, WithJsonSchema

from sift_core.checks import as_finite_array, short_repr
from sift_core.choice import choose
from sift_core.choice_spans import embeddings_span
from sift_core.errors import InvalidInputError
from sift_core.option_fields import LIVE, with_option_fields
from sift_core.options import ChoiceOptions
from sift_core.selection.cosines import cosine_similarities
from sift_core.service.errors import RefusedError
from sift_core.service.http import (
    MAX_CANDIDATES,
    MAX_CHOICES,
    MAX_KEYS,
    Body,
    ChoiceBody,
    JsonAnswer,
    JsonRoute,
    Many,
)
from sift_core.service.state import Service
from sift_core.types import CandidatePool, FloatArray, Metadata, Query

logger: logging.Logger = logging.getLogger(__name__)
_BLOCK = 256  # vectors that are read in one step


def _vector(value: object) -> FloatArray:
    """Return a vector from a list of numbers, or little-endian float32 in base64."""
    if isinstance(value, str):
        try:
            return np.frombuffer(base64.b64decode(value, validate=True), dtype="<f4")
        except ValueError as error:
            raise ValueError("no little-endian float32 numbers in base64") from error
    if not isinstance(value, list):
        raise ValueError(
            f"must be a list of numbers, or float32 in base64, got {short_repr(value)}"
        )
    return _numbers("embedding", value, n_dimensions=1)


def _vectors(rows: Sequence[Any]) -> FloatArray:
    """Return vectors, lists of numbers or base64 each, as one matrix of shape (n, d).

    Rows are read in blocks of some milliseconds: an array of millions of numbers would keep all
    other threads waiting.

    Raises:
        InvalidInputError: If they are no such vectors, or not all of one length.
    """
    blocks = []
    try:
        for start in range(0, len(rows), _BLOCK):
            from_thread.check_cancelled()
            block = rows[start : start + _BLOCK]
            if isinstance(block[0], str):
                blocks.append(np.stack([_vector(row) for row in block]))
            else:
                blocks.append(_numbers("embeddings", block, n_dimensions=2))
        return as_finite_array("embeddings", np.concatenate(blocks), n_dimensions=2)
    except InvalidInputError:
        raise
    except ValueError as error:
        raise InvalidInputError(
            f"`embeddings`: must be lists of numbers, or float32 in base64, of one length: {error}"
        ) from error


def _numbers(name: str, value: Sequence[Any], *, n_dimensions: int) -> FloatArray:
    """Return numbers as an array; without a type NumPy would give all texts the longest's room."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError("must be numbers, of vectors as many each") from error
    return as_finite_array(name, array, n_dimensions=n_dimensions)


_ROW = {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string"}]}
_Vector = Annotated[Any, PlainValidator(_vector), WithJsonSchema(_ROW)]
_Vectors = Annotated[
    list[Any], Field(min_length=1), WithJsonSchema({"type": "array", "items": _ROW})
]


class _Vectored(Body):
    """Vectors that a client may send, so that nothing is embedded."""

    query: str
    embeddings: _Vectors | None = Field(
        default=None,
        description="Vectors of the documents in their order: lists of numbers, or little-endian "
        "float32 in base64, which is read ten times as fast.",
    )
    query_embedding: _Vector | None = Field(
        default=None, description="The question's vector, by the documents' model."
    )


@with_option_fields(leave_out=("n_select", "n_candidates", "merge_neighbors", *LIVE))
class DocumentsRequest(ChoiceBody, _Vectored):
    """What Cohere, Jina, vLLM, Infinity and Open WebUI send.

    With a rule the results are the choice alone; documents with fields have metadata.
    """

    model: str | None = None
    documents: Many[str | dict[str, Any]]
    top_n: int | None = Field(default=None, ge=0, description="0 or nothing for all.")
    return_documents: bool | None = None
    rank_fields: Annotated[Many[str], Field(max_length=MAX_KEYS)] | None = None


class TextsRequest(_Vectored):
    """What TEI's clients send."""

    texts: Many[str]
    raw_scores: bool = False
    return_text: bool = False
    truncate: bool | None = None


_TEI, _OTHERS = "of TEI", "of others"  # no names of fields: Pydantic puts them before those


def _kind(body: Any) -> str:
    """Return which clients send such a body; what is none of either is refused as the others'."""
    has_texts = isinstance(body, dict) and "texts" in body and "documents" not in body
    return _TEI if has_texts or isinstance(body, TextsRequest) else _OTHERS


AnyRequest = Annotated[
    Annotated[TextsRequest, Tag(_TEI)] | Annotated[DocumentsRequest, Tag(_OTHERS)],
    Discriminator(_kind),
]


def rerank_router(service: Service) -> APIRouter:
    """Return the routes; each dialect's clients know one of them."""
    router = APIRouter(route_class=JsonRoute, default_response_class=JsonAnswer, tags=["rerank"])

    @router.post("/rerank", operation_id="rerank")
    async def rerank(body: AnyRequest) -> JsonAnswer:
        """Rank as Jina, vLLM and Infinity do (`documents`), or as TEI does (`texts`)."""
        if isinstance(body, TextsRequest):
            return JsonAnswer(await _scored_texts(service, body))
        return JsonAnswer(await _results(service, body, version="1", with_documents=True))

    @router.post("/v1/rerank", operation_id="rerank_v1")
    async def rerank_v1(body: DocumentsRequest) -> JsonAnswer:
        """Rank as Cohere's first version, Jina, vLLM and Infinity do."""
        return JsonAnswer(await _results(service, body, version="1"))

    @router.post("/v2/rerank", operation_id="rerank_v2")
    async def rerank_v2(body: DocumentsRequest) -> JsonAnswer:
        """Rank as Cohere's second version and vLLM do."""
        return JsonAnswer(await _results(service, body, version="2"))

    return router


@dataclass(frozen=True, kw_only=True)
class _Ranking:
    """The positions of all documents in order, of which the first `n_chosen` were chosen."""

    order: list[int]
    n_chosen: int
    n_tokens: int  # embedded for it

    def scored(self) -> Iterator[tuple[int, float]]:
        """Yield positions in order, with scores that fall from 1 to 1 / n.

        They give the rank and nothing else: a client that sorts by them keeps the order.
        """
        n = len(self.order)
        return ((position, (n - i) / n) for i, position in enumerate(self.order))


async def _results(
    service: Service,
    request: DocumentsRequest,
    *,
    version: Literal["1", "2"],
    with_documents: bool = False,
) -> dict[str, Any]:
    """Return the answer to a request with `documents`: all keys that any of its clients reads."""
    service.check_n("documents", len(request.documents))
    texts = [_text(document, request.rank_fields) for document in request.documents]
    top_n = request.top_n or len(texts)
    metadata = [one if isinstance(one, dict) else {} for one in request.documents]
    options = request.choice_options(
        n_select=min(top_n, MAX_CHOICES),
        selector=service.selector,
    )
    ranking = await _ranked(service, request, "documents", texts, metadata, options)
    if options.rules:
        top_n = min(top_n, ranking.n_chosen)
    if request.return_documents is not None:
        with_documents = request.return_documents
    return {
        "id": str(uuid4()),
        "model": request.model or "sift",
        "results": [
            {
                "index": i,
                "relevance_score": score,
                **({"document": {"text": texts[i]}} if with_documents else {}),
            }
            for i, score in islice(ranking.scored(), top_n)
        ],
        "usage": {"total_tokens": ranking.n_tokens, "prompt_tokens": ranking.n_tokens},
        "meta": {
            "api_version": {"version": version},
            "billed_units": {"search_units": 1},
            "tokens": {"input_tokens": ranking.n_tokens, "output_tokens": 0},
        },
    }


async def _scored_texts(service: Service, request: TextsRequest) -> list[dict[str, Any]]:
    """Return the answer to a request with `texts`: each of them with its score."""
    texts = request.texts
    service.check_n("texts", len(texts))
    options = ChoiceOptions(n_select=min(len(texts), MAX_CHOICES), selector=service.selector)
    ranking = await _ranked(service, request, "texts", texts, [{}] * len(texts), options)
    return [
        {"index": i, "score": score, **({"text": texts[i]} if request.return_text else {})}
        for i, score in ranking.scored()
    ]


async def _ranked(
    service: Service,
    request: _Vectored,
    field: str,
    texts: Sequence[str],
    metadata: Sequence[Metadata],
    options: ChoiceOptions,
) -> _Ranking:
    """Return the ranking, made in a thread."""
    service.check_length("query", [request.query])
    service.check_length(field, texts)
    given = request.embeddings
    if given is not None and len(given) != len(texts):
        raise RefusedError(
            f"`embeddings` must have one vector for each of the {len(texts)} `{field}`, got "
            f"{len(given)}",
            param="embeddings",
        )

    def rank() -> _Ranking:
        question: Any = request.query_embedding
        vectors: Any = None if given is None else _vectors(given)
        n_tokens = 0
        positions: Sequence[int] = range(len(texts))
        if given is None:
            if not request.query.strip():
                raise InvalidInputError("`query` is empty; ask something")
            positions = [i for i, text in enumerate(texts) if text.strip()]  # others have no vector
            embedder, go_on = service.needed_embedder(), from_thread.check_cancelled
            filled = [texts[i] for i in positions]
            with embeddings_span(embedder, [request.query, *filled]):
                question = embedder.embed_query(request.query)
                vectors = np.empty((0, len(question)), dtype=np.float32)
                if positions:
                    vectors = embedder.embed_documents(filled, go_on=go_on)
            if positions:
                known = np.flatnonzero(vectors.any(axis=1))  # a model may not know any word
                vectors, positions = vectors[known], [positions[i] for i in known.tolist()]
            go_on()
            n_tokens = embedder.n_tokens([request.query, *texts])
        elif question is None:
            embedder = service.needed_embedder()
            with embeddings_span(embedder, [request.query]):
                question = embedder.embed_query(request.query)
        query = Query(text=request.query, embedding=_checked(question, vectors))
        if not (is_filled := vectors.any(axis=1)).all():
            empty = [positions[row] for row in np.flatnonzero(~is_filled).tolist()]
            logger.warning("vectors of zeros come last in a rerank, of %s: %s", field, empty[:5])
            positions = [positions[row] for row in np.flatnonzero(is_filled).tolist()]
            vectors = vectors[is_filled]
        order, n_chosen = _ordered(texts, metadata, query, vectors, options, positions)
        return _Ranking(order=order, n_chosen=n_chosen, n_tokens=n_tokens)

    ranking = await service.in_thread("rerank", rank)
    service.metrics.tokens(embedding=ranking.n_tokens)
    return ranking


def _checked(question: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return the question's vector.

    Raises:
        InvalidInputError: If the vectors have another dimension.
    """
    question = as_finite_array("query_embedding", question, n_dimensions=1)
    if vectors.shape[1] != len(question):
        raise InvalidInputError(
            f"`embeddings` must have {len(question)} numbers each like the query's, got "
            f"{vectors.shape[1]}; were both made by one model?"
        )
    return question


def _ordered(
    texts: Sequence[str],
    metadata: Sequence[Metadata],
    query: Query,
    vectors: FloatArray,
    options: ChoiceOptions,
    positions: Sequence[int],
) -> tuple[list[int], int]:
    """Return positions of all n documents in order, and how many of them are chosen.

    The others follow by similarity, and then those that have no vector. `positions` are of those
    that have one, row by row of `vectors`, shape (m, d). Takes
    O(min(n, 256) · min(n, 1000) · (d + k)) time and one pass over all vectors.
    """
    cosines = cosine_similarities(query.vector, vectors)
    rows = np.argsort(-cosines, kind="stable")
    places = [positions[row] for row in rows.tolist()]
    near, nearest = rows[:MAX_CANDIDATES], places[:MAX_CANDIDATES]
    first: list[int] = []
    n_chosen = 0
    if nearest:
        pool = CandidatePool(
            document_ids=[str(place) for place in nearest],
            texts=[texts[place] for place in nearest],
            embeddings=vectors[near],
            similarities=cosines[near],
            metadata=[metadata[place] for place in nearest],
        )
        chosen = choose(pool, query, options)
        first, n_chosen = [int(name) for name in chosen.ranking()], len(chosen)
    return list(dict.fromkeys([*first, *places, *range(len(texts))])), n_chosen


def _text(document: str | dict[str, Any], fields: Sequence[str] | None) -> str:
    """Return a document's text; of one with fields, those to rank by or "text"."""
    if isinstance(document, str):
        return document
    if fields:
        names = [name for name in dict.fromkeys(fields) if name in document]  # each once
        return "\n".join(f"{name}: {document[name]}" for name in names)
    text = document.get("text")
    if not isinstance(text, str):
        raise InvalidInputError(
            f'a document must be a text or have one under "text", got {short_repr(document)}; '
            f"`rank_fields` names others"
        )
    return text
