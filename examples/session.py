"""A session: documents chosen and learned once, then many questions, two people's side by side.

    make demo                                # fills the collection
    .venv/bin/python examples/session.py

The model is small (135 million parameters), so that it runs anywhere: what counts here is what is
computed once and what each question costs, not the prose.
"""

from __future__ import annotations

import asyncio
import time

from demo_store import MODEL, demo_client, demo_source
from qdrant_client import QdrantClient

from sift_core.answering import AnswerEngine, LearningOptions, Session
from sift_core.embedders import SentenceTransformerEmbedder

TOPICS = {
    "crane": [
        "What may the crane Marta lift, and who looks after it?",
        "Where does the crane stand?",
        "When was the crane inspected?",
    ],
    "marina": [
        "What does a night in the marina cost, and when does the boat hoist work?",
        "How long may a visitor's boat be?",
        "Who looks after the marina?",
    ],
}


def main() -> None:
    with demo_client() as client:
        show(client)


def show(client: QdrantClient) -> None:
    embedder = SentenceTransformerEmbedder()
    engine = AnswerEngine.from_pretrained(
        MODEL,
        source=demo_source(client, embedder),
        embedder=embedder,
        learning=LearningOptions(n_steps=10),
        generation={"max_new_tokens": 24},
    )
    sessions = {topic: opened(engine, topic) for topic in TOPICS}
    for topic, session in sessions.items():
        for question in TOPICS[topic]:
            started = time.perf_counter()
            answer = session.answer(question)
            print(f"\n[{topic}] {question}  ({time.perf_counter() - started:.2f} s)")
            print("  " + answer.text.replace("\n", " "))

    together = asyncio.run(asked_together(sessions))
    alone = [sessions[topic].answer(TOPICS[topic][0]).text for topic in TOPICS]
    print(f"\nasked at the same time, they answer as they do alone: {together == alone}")
    engine.language_model.verify_base()
    print("the model's own weights are what they were")


def opened(engine: AnswerEngine, topic: str) -> Session:
    """Learn from the documents about a topic, and say what that took."""
    session = engine.session(TOPICS[topic][0], mode="fine_tune")
    report = session.report
    if report is not None:
        seconds = session.timings["fine_tune"]
        print(
            f"[{topic}] learned from {report.n_steps} chunks in {seconds:.1f} s: loss "
            f"{report.losses[0]:.2f} before the first, {report.losses[-1]:.2f} before the last"
        )
    return session


async def asked_together(sessions: dict[str, Session]) -> list[str]:
    """Ask the first question of every topic at once, of one model with two adapters."""
    answers = [session.aanswer(TOPICS[topic][0]) for topic, session in sessions.items()]
    return [answer.text for answer in await asyncio.gather(*answers)]


if __name__ == "__main__":
    main()
