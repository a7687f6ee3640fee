"""Context or fine-tuning, chosen per query: the answer says which, and why.

    make demo                                          # fills the collection
    .venv/bin/python examples/choose_at_query_time.py

The model is small (135 million parameters), so that it runs anywhere: the choices are the point
here, not the prose. Any causal LM of transformers takes its place.
"""

from __future__ import annotations

from demo_store import MODEL, QUESTION, demo_client, demo_source
from qdrant_client import QdrantClient

from sift_core import AnswerMode, ChoiceOptions
from sift_core.answering import (
    AnswerEngine,
    CostModel,
    LanguageModel,
    LearningOptions,
    Strategy,
    VariancePolicy,
)
from sift_core.embedders import SentenceTransformerEmbedder

CASES = [  # question, chunks chosen for the prompt, whether the caller waits half of what they take
    (QUESTION, 4, False),  # they fit into any model's window
    (QUESTION, 40, False),  # they do not where the window has 1,024 tokens
    (QUESTION, 40, True),
    ("Who won the football match in Lisbon yesterday?", 5, False),  # the store knows nothing of it
]


def main() -> None:
    with demo_client() as client:
        show(client)


def show(client: QdrantClient) -> None:
    embedder = SentenceTransformerEmbedder()
    source = demo_source(client, embedder)
    language_model = LanguageModel.from_pretrained(MODEL)
    costs = CostModel.measure(language_model)  # a few seconds; `calibrate` keeps them
    for question, n_context, is_in_a_hurry in CASES:
        engine = AnswerEngine(
            language_model=language_model,
            source=source,
            embedder=embedder,
            options=ChoiceOptions(n_select=n_context),
            # With a cache the third question would find what the second learned.
            learning=LearningOptions(n_steps=10, cache=None),
            generation={"max_new_tokens": 24},
            policy=VariancePolicy(cost_model=costs),
        )
        latency_s, budget = None, ""
        if is_in_a_hurry:
            features = engine.choose(question).features  # what mode "auto" goes by
            latency_s = costs.seconds(features, Strategy(AnswerMode.CONTEXT)) / 2
            budget = f", within {latency_s:.2g} s"
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
