"""What a response says about how it came about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llama_index.core.schema import NodeWithScore

from llama_index.postprocessor.sift.nodes import METADATA_KEY, NODE
from sift_core import Answer, CandidatePool, posterior_variances

if TYPE_CHECKING:
    from sift_core.answering import Choice

# What an answer alone tells, before it is there.
_UNKNOWN = {"finish_reason": None, "n_prompt_tokens": None, "n_new_tokens": None}


def nodes_of(choice: Choice) -> list[NodeWithScore]:
    """Return the nodes that are read, then those that are learned from, each once."""
    return [choice.pool.metadata[i][NODE] for i in dict.fromkeys(_positions(choice))]


def chosen_chunks(choice: Choice) -> CandidatePool:
    """Return what is read, then what is learned from, in order of choice, repeats kept."""
    return choice.pool.take(_positions(choice))


def empty_report() -> dict[str, Any]:
    """Return what `response.metadata` says where nothing was retrieved and no model ran."""
    report: dict[str, Any] = {
        "mode": None,
        "model": None,
        "reasons": ["nothing was retrieved"],
        "variance": None,
        "standard_deviation": None,
        "node_ids": [],
        "timings": {},
    }
    return {METADATA_KEY: {**report, **_UNKNOWN}}


def report_of(choice: Choice, *, model: str) -> dict[str, Any]:
    """Return what `response.metadata` says before an answer is there.

    Args:
        choice: Of the query.
        model: Which model answers: "engine" or "llm".
    """
    chunks = chosen_chunks(choice)
    variance = None
    if len(chunks):
        variance = float(posterior_variances(choice.query.vector, chunks.embeddings)[-1])
    report = {
        "mode": choice.mode.value,
        "model": model,
        "reasons": list(choice.reasons),
        "variance": variance,
        "standard_deviation": None if variance is None else variance**0.5,
        "node_ids": list(dict.fromkeys(chunks.document_ids)),
        "timings": dict(choice.timings),
    }
    return {METADATA_KEY: {**report, **_UNKNOWN}}


def complete_report(metadata: dict[str, Any], answer: Answer) -> None:
    """Write into `metadata` what only the finished answer says."""
    chunks, deviation = answer.chunks, answer.standard_deviation
    n_used = 0 if chunks is None else len(chunks)
    metadata[METADATA_KEY] |= {
        "mode": answer.mode.value,
        "reasons": list(answer.reasons),
        "variance": deviation**2 if n_used else None,
        "standard_deviation": deviation if n_used else None,
        "node_ids": [] if chunks is None else list(dict.fromkeys(chunks.document_ids)),
        "timings": dict(answer.timings),
        "finish_reason": answer.finish_reason,
        "n_prompt_tokens": answer.n_prompt_tokens,
        "n_new_tokens": answer.n_new_tokens,
    }


def _positions(choice: Choice) -> list[int]:
    """Return rows of the pool: what is read, then what is learned from, repeats kept."""
    chosen = [selection for selection in (choice.read, choice.learned) if selection is not None]
    return [i for selection in chosen for i in selection.positions.tolist()]
