"""What a response says about how it came about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llama_index.core.schema import NodeWithScore

from llama_index.postprocessor.sift.chosen_nodes import METADATA_KEY
from llama_index.postprocessor.sift.node_pools import NODE
from sift_core import Answer, CandidatePool, posterior_variances

if TYPE_CHECKING:
    from sift_core.answering import Choice


def nodes_of(choice: Choice) -> list[NodeWithScore]:
    """Return the nodes that are read, then those that are learned from, each once."""
    nodes: dict[str, NodeWithScore] = {}
    chunks = chosen_chunks(choice)
    for document_id, metadata in zip(chunks.document_ids, chunks.metadata, strict=True):
        nodes.setdefault(document_id, metadata[NODE])
    return list(nodes.values())


def chosen_chunks(choice: Choice) -> CandidatePool:
    """Return what is read, then what is learned from, in order of choice, repeats kept."""
    chosen = [selection for selection in (choice.read, choice.learned) if selection is not None]
    return choice.pool.take([i for selection in chosen for i in selection.positions.tolist()])


def report_of(choice: Choice, *, model: str) -> dict[str, Any]:
    """Return what `response.metadata` says before an answer is there.

    Args:
        choice: Of the query.
        model: Which model answers: "engine" or "llm".
    """
    chunks = chosen_chunks(choice)
    variance = float(posterior_variances(choice.query.embedding, chunks.embeddings)[-1])
    report = {
        "mode": choice.mode.value,
        "model": model,
        "reasons": list(choice.reasons),
        "variance": variance if len(chunks) else None,
        "standard_deviation": variance**0.5 if len(chunks) else None,
        "node_ids": list(dict.fromkeys(chunks.document_ids)),
        "timings": dict(choice.timings),
    }
    return {METADATA_KEY: report}


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
