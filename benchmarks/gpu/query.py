"""How long does a query take that learns from 50 chunks, and what does a plain PEFT script take?

Chunks, weights and vectors are random: speed does not depend on their values. So the time of an
embedder is not in the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch

from benchmarks.answering_ways import Ask, engine_over, ours, peft_script
from benchmarks.fine_tuning_shapes import Shape
from benchmarks.gpu.fine_tuning import shapes
from benchmarks.report import Report
from sift_core import InMemorySource
from sift_core.answering.settings import EFFORTS
from sift_core.types import FloatArray

D = 384


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
    """Ask every way some questions; add medians over all of them but the first."""
    n_texts, n_tokens, n_asked = (60, 24, 1) if tiny else (1000, 256, 3)
    for shape in shapes(tiny):
        texts = shape.texts(n_texts, n_tokens)
        questions = shape.texts(1 + n_asked, 12, seed=1)
        for name, ask in ways(shape, texts, device, "quick" if tiny else "thorough").items():
            report.heading(f"A query: {shape.name}, {name}")
            found = [ask(question) for question in questions][1:]
            report.add(
                case=f"query, {shape.name}, {name}",
                weights="random",
                n=n_asked,
                p50_s=round(median(sum(stages.values()) for stages in found), 4),
                **{f"{stage}_s": round(median(s[stage] for s in found), 5) for stage in found[0]},
            )


def ways(shape: Shape, texts: Sequence[str], device: torch.device, effort: str) -> dict[str, Ask]:
    """Return each way to answer, by name; ours and the rival's have a model each."""
    n, embedder = EFFORTS[effort].n_steps, RandomEmbedder()
    vectors = embedder.embed_documents(texts)
    model, plain = (shape.language_model(torch.bfloat16, device=str(device)) for _ in range(2))
    engine = engine_over(InMemorySource(vectors, texts), model, embedder)

    def nearest(vector: FloatArray, n: int) -> list[str]:
        return [texts[row] for row in np.argsort(-(vectors @ vector))[:n]]

    return {
        f"fine_tune, {n} chunks": ours(engine, mode="fine_tune", effort=effort),
        "context": ours(engine, mode="context"),
        f"PEFT script, {n} chunks": peft_script(nearest, plain, embedder, n),
    }
