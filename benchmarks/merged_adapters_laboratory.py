"""Adapters learned beforehand, one a cluster, and weighted for a prompt: what is measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from peft import LoraConfig

from benchmarks.embedding_cache import CACHE
from benchmarks.language_modeling.experiment import LanguageModelingExperiment, PreparedExperiment
from benchmarks.language_modeling.measuring import PromptTask
from benchmarks.language_modeling.running import ResultsFile, Row
from sift_core import posterior_variances
from sift_core.answering import Adapter, FineTuningSettings, fine_tune
from sift_core.answering.model.adapters import sum_of_adapters
from sift_core.answering.model.bundled import SMOLLM2
from sift_core.types import FloatArray, IntArray

TUNING_SKIP = 5  # prompts of each domain: the first are those of benchmarks.language_modeling
POINTS = (1, 2, 3, 5, 8, 10, 12, 16, 20, 25, 30, 40, 50)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How the adapter of a cluster learns: each chunk once an epoch, in random order.

    Args:
        rank: Of the LoRA, on every linear layer.
        alpha: Its output scaling.
        rate: Of Adam.
        epochs: How often the cluster is gone through.
    """

    rank: int = 16
    alpha: float = 16.0
    rate: float = 1e-3
    epochs: int = 1

    @property
    def settings(self) -> FineTuningSettings:
        lora = LoraConfig(r=self.rank, lora_alpha=self.alpha, target_modules="all-linear")
        return FineTuningSettings(lora=lora, learning_rate=self.rate)


@dataclass(frozen=True, kw_only=True)
class Weighting:
    """How adapters are weighted for a prompt.

    Args:
        by: "softmax" of beta times the cosine with the clusters' centroids, as TTMM; "sift": how
            much of σ² at the prompt SIFT's choices from each cluster take away, in shares;
            "uniform".
        beta: Of the softmax.
        least: Share below which an adapter is left out; the rest is scaled to the same sum.
        strength: Sum of all weights.
        at_most: How many adapters, those of the largest shares.
        average: Whether A's and B's are averaged each; else the updates are summed exactly.
    """

    by: str = "softmax"
    beta: float = 20.0
    least: float = 0.05
    strength: float = 1.0
    at_most: int = 10
    average: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Clusters:
    """The data space in k parts: centroids of unit length, shape (k, d), and each chunk's part."""

    centroids: FloatArray
    of_chunk: IntArray

    @property
    def n(self) -> int:
        return len(self.centroids)

    def rows(self, cluster: int) -> IntArray:
        return np.flatnonzero(self.of_chunk == cluster)


def clusters_of(vectors: FloatArray, n: int) -> Clusters:
    """Return the clusters of Faiss' k-means on the sphere."""
    d = vectors.shape[1]
    kmeans = faiss.Kmeans(d, n, niter=25, seed=0, spherical=True, min_points_per_centroid=1)
    kmeans.train(vectors)
    return Clusters(centroids=kmeans.centroids, of_chunk=(vectors @ kmeans.centroids.T).argmax(1))


class Laboratory:
    """Model, data space and rows of one run."""

    def __init__(self, prepared: PreparedExperiment, file: ResultsFile, folder: Path) -> None:
        self.prepared, self.file = prepared, file
        self.model = prepared.worker().load_model()
        self.vectors = prepared.space.chunks
        self.texts = [one.text for one in prepared.chunks]
        self._folder = folder / prepared.digest
        self.clusters = lru_cache(maxsize=None)(lambda n: clusters_of(self.vectors, n))
        self.experts = lru_cache(maxsize=1)(self._experts)

    def add(self, task: PromptTask | None, what: dict[str, Any], measure: Callable[[], Row]) -> Row:
        """Return the row of something measured; it is measured if the file lacks it."""
        about = {"experiment": self.prepared.digest, **what}
        if task is not None:
            about["prompt"] = task.prompt["id"]
        key = " ".join(f"{name}={value}" for name, value in about.items())
        if key not in self.file.keys:
            self.file.append({"key": key, **about, **measure()})
        return next(row for row in self.file.rows if row.get("key") == key)

    def lessons(self, rows: IntArray, recipe: Recipe) -> list[str]:
        draw = np.random.default_rng(0)
        return [self.texts[row] for _ in range(recipe.epochs) for row in draw.permutation(rows)]

    def _experts(self, n: int, recipe: Recipe) -> list[Adapter]:
        """Return the adapter of every cluster; what is not on disk is learned."""
        clusters = self.clusters(n)
        name = "-".join(f"{value:g}" for value in asdict(recipe).values())
        adapters = []
        for cluster in range(n):
            place = self._folder / name / f"{cluster} of {n}"

            def learned(cluster: int = cluster, place: Path = place) -> Row:
                texts = self.lessons(clusters.rows(cluster), recipe)
                begin = time.process_time()
                tuned = fine_tune(self.model, texts, recipe.settings)
                seconds = time.process_time() - begin
                tuned.adapter.save(place)
                losses = tuned.report.losses
                return {
                    "n_chunks": len(clusters.rows(cluster)),
                    "seconds": round(seconds, 2),
                    "losses": [round(float(np.mean(part)), 4) for part in (losses, losses[-10:])],
                    "bytes": tuned.adapter.n_bytes,
                }

            what = {"kind": "expert", "clusters": n, "cluster": cluster, "recipe": asdict(recipe)}
            self.add(None, what, learned)
            adapters.append(Adapter.load(place, key=f"{cluster} of {n}"))
            print(f"{cluster + 1} of {n} adapters", flush=True)
        return adapters


def curve(
    laboratory: Laboratory,
    task: PromptTask,
    texts: Sequence[str],
    settings: FineTuningSettings,
    start_from: Adapter | None = None,
) -> Row:
    """Return bits per byte and processor seconds after so many steps."""
    model, points = laboratory.model, []
    scoring = 0.0
    begin = time.process_time()

    def score(n: int) -> None:
        nonlocal scoring
        started = time.process_time()
        if n == 0 or n in POINTS or n == len(texts):
            bits = model.bits_per_byte(task.text)
            points.append((n, round(bits, 6), round(started - begin - scoring, 3)))
        scoring += time.process_time() - started

    fine_tune(model, texts, settings, on_state=score, start_from=start_from)
    return {"points": points}


def shares(laboratory: Laboratory, task: PromptTask, n: int, way: Weighting) -> FloatArray:
    """Return what each adapter is multiplied by, shape (n,)."""
    clusters = laboratory.clusters(n)
    query = laboratory.prepared.space.prompts[task.prompt["id"]]
    if way.by == "softmax":
        exponents = way.beta * (clusters.centroids @ query)
        found = np.exp(exponents - exponents.max())
    elif way.by == "sift":
        chosen = task.pool.embeddings[task.arms[-1].positions]
        falls = -np.diff(posterior_variances(query, chosen, noise_variance=0.1))
        owners = (chosen @ clusters.centroids.T).argmax(1)
        found = np.bincount(owners, weights=falls, minlength=n)
    else:
        found = np.ones(n)
    found /= found.sum()
    kept = found >= (0 if way.by == "uniform" else min(way.least, found.max()))
    kept[np.argsort(-found)[way.at_most :]] = False
    found = np.where(kept, found, 0)
    return way.strength * found / found.sum()


def merged(adapters: Sequence[Adapter], weights: FloatArray, *, average: bool) -> Adapter:
    """Return one adapter of the weighted ones."""
    used = np.flatnonzero(weights)
    some, own = [adapters[i] for i in used], [float(weights[i]) for i in used]
    if not average:
        return sum_of_adapters(some, own, key="sum")
    total = sum(own)
    values = sum(weight / total * one.values for weight, one in zip(own, some, strict=True))
    return replace(some[0], values=values, alpha=some[0].alpha * total, key="average")


def prepared_for(data: Path, *, tuning: bool, prompts: int, documents: int) -> PreparedExperiment:
    folder = data / "minipile"
    experiment = LanguageModelingExperiment(
        data_space=folder / "train.jsonl.xz",
        prompts=folder / "test_dev.jsonl.xz",
        base_model=SMOLLM2,
        documents_per_domain=documents,
        prompts_per_domain=1 if tuning else prompts,
        skipped_per_domain=TUNING_SKIP if tuning else 0,
        near_duplicates=folder / "neardup_test_dev.jsonl",
        device="cpu",
    )
    return PreparedExperiment(experiment, cache_folder=CACHE)
