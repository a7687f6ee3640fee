"""The spans of a choice: embed, fetch, select, hop, and the search around them.

Names and attributes are those of OpenTelemetry's GenAI conventions, with OpenInference's beside
them. The former have no reranking yet, so that "rerank" is an operation of our own there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from sift_core.embedders.prompts import model_of
from sift_core.explanation import Chosen
from sift_core.options import ChoiceOptions
from sift_core.protocols import CandidateSource, Embedder
from sift_core.tracing import KIND, STAGE, Attributes, Span, records_content, short, span
from sift_core.types import CandidatePool, Query

MAX_DOCUMENTS = 20  # of a list: the SDK keeps 128 attributes of a span by default
MAX_ID = 200  # characters


def search_span(_: Any = None, query: Any = None, *__: Any, **___: Any) -> Span:
    """Return the span around all that a search does, whatever it was called with."""
    return workflow_span("sift.search", getattr(query, "text", ""))


def workflow_span(name: str, question: object) -> Span:
    """Return the span around the stages of what a user asks for."""
    operation = {"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": name}
    return _asked(span(f"invoke_workflow {name}", {**operation, KIND: "CHAIN"}), question)


def embeddings_span(embedder: Embedder, texts: Sequence[str] = ()) -> Span:
    """Return the span in which texts are embedded."""
    name = model_name(model_of(embedder.name))
    operation = {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": name}
    about = {"embedding.model_name": name, KIND: "EMBEDDING", STAGE: "embed"}
    found = span(f"embeddings {name}", {**operation, **about})
    if found.is_recording and records_content():
        each = enumerate(texts[:MAX_DOCUMENTS])
        found.set({f"embedding.embeddings.{i}.embedding.text": short(one) for i, one in each})
    return found


def fetch_span(
    source: CandidateSource, query: Query, options: ChoiceOptions, stage: str = "fetch"
) -> Span:
    """Return the span in which a source is asked for candidates; `fetched` completes it."""
    name = data_source(source)
    about: Attributes = {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.data_source.id": name,
        "gen_ai.retrieval.top_k": int(options.n_candidates),
        KIND: "RETRIEVER",
        STAGE: stage,
    }
    found = span(f"retrieval {name}", about, "CLIENT")
    return _asked(found, query.text, "gen_ai.retrieval.query.text")


def fetched(found: Span, pool: CandidatePool, first: int = 0) -> None:
    """Tell a span of the candidates that were found.

    Args:
        found: The span.
        pool: The candidates.
        first: Row of the first that this fetch brought. Default: it brought all.
    """
    if not found.is_recording:
        return
    rows = range(first, min(len(pool), first + MAX_DOCUMENTS))
    scores = pool.similarities[first : first + MAX_DOCUMENTS].tolist()
    found.set({"sift.n_candidates": len(pool) - first})
    found.set(_documents("retrieval.documents", pool, rows, scores))
    if records_content():
        ids = (pool.document_ids[row][:MAX_ID] for row in rows)
        listed = [{"id": one, "score": score} for one, score in zip(ids, scores, strict=True)]
        found.set({"gen_ai.retrieval.documents": json.dumps(listed)})


def select_span(
    pool: CandidatePool, query: Query, options: ChoiceOptions, *_: Any, **__: Any
) -> Span:
    """Return the span in which chunks are chosen; `selected` completes it."""
    name = type(options.selector).__name__ if options.selector else "ContextSelector"
    about: Attributes = {
        "gen_ai.operation.name": "rerank",
        "gen_ai.request.model": name,
        "reranker.model_name": name,
        "reranker.top_k": int(options.n_select),
        KIND: "RERANKER",
        STAGE: "select",
    }
    found = span(f"rerank {name}", about)
    if found.is_recording:
        rows = range(min(len(pool), MAX_DOCUMENTS))
        scores = pool.similarities[: len(rows)].tolist()
        found.set({"sift.n_candidates": len(pool)})
        found.set(_documents("reranker.input_documents", pool, rows, scores, with_texts=False))
    return _asked(found, query.text, "reranker.query")


def selected(found: Span, chosen: Chosen) -> None:
    """Tell a span of what was chosen, with σ² before each pick as its score."""
    rows = chosen.positions[:MAX_DOCUMENTS].tolist()
    scores = chosen.variances[: len(rows)].tolist()
    found.set({"sift.n_chosen": len(chosen), "sift.stop_reason": chosen.stop_reason.value})
    found.set(_documents("reranker.output_documents", chosen.pool, rows, scores))


def searched(found: Span, chosen: Chosen) -> None:
    """Tell the span of a search what it came to."""
    found.set({"sift.n_candidates": len(chosen.pool), "sift.n_chosen": len(chosen)})
    if chosen.hop is not None:
        found.set({"sift.n_from_hop": chosen.n_from_hop})


def data_source(source: CandidateSource) -> str:
    """Return the name of a source: that of its collection if it has one, else of its class."""
    return str(getattr(source, "collection_name", "") or type(source).__name__)[:MAX_ID]


def model_name(name: str) -> str:
    """Return the name of a model; of one in a folder the folder's, so that no path is visible."""
    path = PurePath(name)
    return (path.name if path.is_absolute() else name)[:MAX_ID]


def _asked(found: Span, question: object, name: str | None = None) -> Span:
    """Return a span with the question that it is about, if texts may be recorded."""
    if found.is_recording and isinstance(question, str) and records_content():
        found.set({"input.value": short(question), **({name: short(question)} if name else {})})
    return found


def _documents(
    place: str,
    pool: CandidatePool,
    rows: Sequence[int],
    scores: Sequence[float],
    *,
    with_texts: bool = True,
) -> Attributes:
    """Return documents in OpenInference's flat form."""
    attributes: dict[str, str | float] = {}
    with_texts = with_texts and records_content()
    for i, (row, score) in enumerate(zip(rows, scores, strict=True)):
        attributes[f"{place}.{i}.document.id"] = pool.document_ids[row][:MAX_ID]
        attributes[f"{place}.{i}.document.score"] = score
        if with_texts:
            attributes[f"{place}.{i}.document.content"] = short(pool.texts[row])
    return attributes
