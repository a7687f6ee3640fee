"""Context or fine-tuning, chosen per query: the answer says which, and why.

    make demo                                          # once; fills the collection
    .venv/bin/python examples/choose_at_query_time.py

The model is a tiny one (8 million parameters), so that it runs anywhere: the choices are the
point here, not the prose. Any causal LM of transformers takes its place.
"""

from __future__ import annotations

from demo_store import QUESTION, TINY_LM, demo_client, demo_source
from qdrant_client import QdrantClient

from sift_core.answering import AnswerEngine
from sift_core.embedders import SentenceTransformerEmbedder

CASES = [  # question, chunks chosen for the prompt
    (QUESTION, 5),  # they fit into the model's window of 1,024 tokens
    (QUESTION, 40),  # they do not
    ("Who won the football match in Lisbon yesterday?", 5),  # the store knows nothing of it
]


def main() -> None:
    with demo_client() as client:
        show(client)


def show(client: QdrantClient) -> None:
    embedder = SentenceTransformerEmbedder()
    source = demo_source(client, embedder)
    for question, n_context in CASES:
        engine = AnswerEngine.from_pretrained(
            TINY_LM,
            source=source,
            embedder=embedder,
            n_context=n_context,
            n_steps=10,
            max_new_tokens=24,
            generation={"min_new_tokens": 12, "repetition_penalty": 1.3},
        )
        print(f"\n{question}  (at most {n_context} chunks in the prompt)")
        stream = engine.stream(question)  # mode="auto"
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
