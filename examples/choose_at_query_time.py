"""Context or fine-tuning, chosen per query: the answer says which, and why.

    make demo                                          # once; fills the collection
    .venv/bin/python examples/choose_at_query_time.py

The model is small (135 million parameters), so that it runs anywhere: the choices are the point
here, not the prose. Any causal LM of transformers takes its place.
"""

from __future__ import annotations

import os
from pathlib import Path

from demo_store import MODEL, QUESTION, ROOT, demo_client, demo_source
from qdrant_client import QdrantClient

from sift_core.answering import AnswerEngine, LanguageModel, cached_cost_model
from sift_core.embedders import SentenceTransformerEmbedder

CASES = [  # question, chunks chosen for the prompt, seconds that the caller will wait
    (QUESTION, 5, None),  # they fit into any model's window
    (QUESTION, 40, None),  # they do not where the window has 1,024 tokens
    (QUESTION, 40, 0.6),  # and there is little time
    ("Who won the football match in Lisbon yesterday?", 5, None),  # the store knows nothing of it
]


def main() -> None:
    with demo_client() as client:
        show(client)


def show(client: QdrantClient) -> None:
    embedder = SentenceTransformerEmbedder()
    source = demo_source(client, embedder)
    language_model = LanguageModel.from_pretrained(MODEL)
    folder = Path(os.environ.get("SIFT_DEMO_CACHE", ROOT / ".cache/demo"))
    costs = cached_cost_model(language_model, folder=folder)  # a few seconds, the first time
    for question, n_context, latency_s in CASES:
        engine = AnswerEngine(
            language_model=language_model,
            cost_model=costs,
            adapter_cache=None,  # else the third question would find what the second learned
            source=source,
            embedder=embedder,
            n_context=n_context,
            n_steps=10,
            max_new_tokens=24,
        )
        budget = "" if latency_s is None else f", within {latency_s} s"
        print(f"\n{question}  (at most {n_context} chunks in the prompt{budget})")
        stream = engine.stream(question, latency_s=latency_s)  # mode="auto"
        print("  ", end="")
        for piece in stream:
            print(piece.replace("\n", " "), end="", flush=True)
        answer = stream.answer()
        n_chunks = 0 if answer.chunks is None else len(set(answer.chunks.document_ids))
        seconds = sum(answer.timings.values())
        print(f"\n  mode {answer.mode.value}, {n_chunks} chunks, {seconds:.1f} s")
        for reason in answer.reasons:
            print(f"  - {reason}")


if __name__ == "__main__":
    main()
