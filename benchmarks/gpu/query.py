"""How long does a query take that learns from 50 chunks, and what does a plain PEFT script take?

Chunks, weights and vectors are random: speed does not depend on their values. So the time of an
embedder is not in the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.answering_ways import Ask, engine_over, ours, peft_script
from benchmarks.fine_tuning_shapes import Shape
from benchmarks.gpu.fine_tuning import shapes
from benchmarks.report import Report
from sift_core import InMemorySource
from sift_core.types import FloatArray

N_CHUNKS, N_TOKENS, N_LEARNED, D = 1000, 256, 50, 384
N_QUESTIONS = 3


@dataclass
class RandomEmbedder:
    """Stands for an embedder: the vector of a text is a direction that its letters draw."""

    name: str = "random directions"

    def embed_query(self, text: str) -> FloatArray:
        drawn = np.random.default_rng(list(text.encode())).standard_normal(D, dtype=np.float32)
        return np.asarray(drawn / np.linalg.norm(drawn))

    def embed_documents(self, texts: Sequence[str]) -> FloatArray:
        return np.stack([self.embed_query(text) for text in texts])


def measure(report: Report, device: torch.device, *, tiny: bool) -> None:
    """Ask every way some questions, each with a model of its own; a first one does not count."""
    n_learned = 3 if tiny else N_LEARNED
    for shape in shapes(tiny):
        texts = shape.texts(60 if tiny else N_CHUNKS, 24 if tiny else N_TOKENS)
        for name, ask in ways(shape, texts, device, n_learned, tiny=tiny):
            report.heading(f"A query: {shape.name}, {name}")
            add_row(
                report, shape, name, ask, shape.texts(1 + (1 if tiny else N_QUESTIONS), 12, seed=1)
            )


def ways(
    shape: Shape, texts: Sequence[str], device: torch.device, n_learned: int, *, tiny: bool
) -> list[tuple[str, Ask]]:
    """Return each way to answer, by name."""
    embedder = RandomEmbedder()
    vectors = embedder.embed_documents(texts)
    model, plain = (shape.language_model(torch.bfloat16, device=str(device)) for _ in range(2))
    engine = engine_over(InMemorySource(vectors, texts), model, embedder)

    def nearest(vector: FloatArray, n: int) -> list[str]:
        return [texts[row] for row in np.argsort(-(vectors @ vector))[:n]]

    learned: dict[str, Any] = {"mode": "fine_tune", "effort": "quick" if tiny else "thorough"}
    return [
        (f"fine_tune, {'5' if tiny else '50'} chunks", ours(engine, **learned)),
        ("context", ours(engine, mode="context")),
        (f"PEFT script, {n_learned} chunks", peft_script(nearest, plain, embedder, n_learned)),
    ]


def add_row(report: Report, shape: Shape, name: str, ask: Ask, questions: Sequence[str]) -> None:
    """Add the medians over all questions but the first."""
    found = [ask(question) for question in questions][1:]
    report.add(
        case=f"query, {shape.name}, {name}",
        weights="random",
        n=len(found),
        p50_s=round(median(sum(stages.values()) for stages in found), 4),
        **{f"{stage}_s": round(median(one[stage] for one in found), 5) for stage in found[0]},
    )
