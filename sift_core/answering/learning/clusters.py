"""Adapters learned beforehand, one a cluster of a collection, and summed for a question.

After Bertolissi et al. (2025), "Local Mixtures of Experts: Essentially Free Test-Time Training via
Model Merging", arXiv 2505.14136. Paper symbols: β → `beta`, τ → `least`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sift_core.answering.learning.fine_tuning import OnStep, fine_tune
from sift_core.answering.learning.settings import FineTuningSettings
from sift_core.answering.model.adapters import CONFIG_NAME, Adapter, sum_of_adapters
from sift_core.answering.model.base_check import digest_of
from sift_core.answering.model.language_model import LanguageModel
from sift_core.checks import as_count
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.files import seal, unseal, write_whole
from sift_core.selection.kernels import unit_rows
from sift_core.types import DocumentSample, FloatArray, Query

MANIFEST = "clusters.json"
FORMAT = 1  # of the folder, and of what is learned: raise it when either changes
RANK, ALPHA, LEARNING_RATE = 16, 16, 1e-3  # docs/decisions/0028

OnClusterStep = Callable[[int, int, float], object]


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterAdapters:
    """An adapter for each cluster of a collection, and which of them a question gets.

    Made by `learn_clusters`, or `load` where that was done before. All adapters are in memory
    (`n_bytes`).

    Args:
        centroids: Shape (n, d), of unit length.
        adapters: n, all on the same layers.
        embedder_name: The model of the centroids' vectors.
        beta: Of the softmax over cosines with the centroids: the larger, the more the nearest
            cluster counts.
        least: Share below which an adapter is left out, in [0, 1).
        at_most: How many adapters are summed, those of the largest shares; each adds its rank to
            the sum's.
    """

    centroids: FloatArray
    adapters: Sequence[Adapter]
    embedder_name: str
    beta: float = 10.0
    least: float = 0.05
    at_most: int = 3

    @property
    def n_bytes(self) -> int:
        """Return the memory of all adapters."""
        return sum(one.n_bytes for one in self.adapters)

    def shares(self, query: Query) -> FloatArray:
        """Return the weight of each adapter for a question, shape (n,), >= 0, of sum 1.

        Raises:
            InvalidInputError: If the question is of another embedder, or not embedded.
        """
        if query.embedder_name not in (None, self.embedder_name):
            raise InvalidInputError(
                f"the adapters were learned with vectors of {self.embedder_name!r}, the question's "
                f"is of {query.embedder_name!r}; use one model for both"
            )
        vectors = np.atleast_2d(query.vectors)
        if vectors.shape[1] != self.centroids.shape[1]:
            raise InvalidInputError(
                f"the adapters were learned with vectors of {self.centroids.shape[1]} dimensions "
                f"({self.embedder_name}), the question's has {vectors.shape[1]}; use one model for "
                f"both"
            )
        exponents = self.beta * (unit_rows(vectors) @ self.centroids.T)
        weights = np.exp(exponents - exponents.max(axis=1, keepdims=True))
        shares: FloatArray = (weights / weights.sum(axis=1, keepdims=True)).mean(axis=0)
        kept = shares >= min(self.least, shares.max())
        kept[np.argsort(-shares, kind="stable")[self.at_most :]] = False
        shares[~kept] = 0.0
        shares /= shares.sum()
        return shares

    def reason(self, query: Query) -> str:
        """Return a sentence on what a question gets."""
        shares = self.shares(query)
        percentages = " + ".join(f"{share:.0%}" for share in -np.sort(-shares) if share)
        return f"the nearest of {len(shares)} adapters are merged ({percentages})"

    def adapter_for(self, query: Query) -> Adapter:
        """Return one adapter, the sum of those near the question; nothing is learned.

        Takes the time to copy their weights: tens of ms for 135 M parameters.

        Raises:
            InvalidInputError: If the question is of another embedder, or not embedded.
        """
        shares = self.shares(query)
        used = np.flatnonzero(shares)
        some = [self.adapters[int(i)] for i in used]
        key = digest_of([*(one.key for one in some), shares[used].tobytes()])
        return sum_of_adapters(some, shares[used].tolist(), key=key)

    @classmethod
    def load(cls, folder: str | Path, language_model: LanguageModel) -> ClusterAdapters:
        """Return what `learn_clusters` has written to a folder.

        Raises:
            InvalidInputError: If there is nothing, learning was not finished, a file is damaged,
                or it was made for another model.
        """
        place = Path(folder)
        manifest = _read_manifest(place)
        if manifest is None:
            raise InvalidInputError(
                f"no adapters at {str(folder)!r}; make some: sift learn, or `learn_clusters`"
            )
        if manifest["fingerprint"] != language_model.fingerprint:
            raise InvalidInputError(
                f"the adapters at {str(folder)!r} were learned by {manifest['model']!r}, or other "
                f"weights of that name, not by {language_model.name!r}; use that model, or learn "
                f"again"
            )
        n = len(manifest["centroids"])
        n_there = sum(_is_there(place, cluster) for cluster in range(n))
        if n_there < n:
            raise InvalidInputError(
                f"{n_there} of {n} adapters at {str(folder)!r} were learned before that was "
                f"interrupted; the same call or command goes on"
            )
        keys = (digest_of([manifest["identity"], str(cluster)]) for cluster in range(n))
        return cls(
            centroids=np.array(manifest["centroids"]),
            adapters=[
                Adapter.load(_place(place, cluster), key=key) for cluster, key in enumerate(keys)
            ],
            embedder_name=manifest["embedder"],
        )


def learn_clusters(
    language_model: LanguageModel,
    sample: DocumentSample,
    folder: str | Path,
    *,
    embedder_name: str,
    n_clusters: int = 24,
    n_chunks: int = 1000,
    settings: FineTuningSettings | None = None,
    on_step: OnClusterStep | None = None,
) -> ClusterAdapters:
    """Return an adapter for each cluster of a collection, learned once and kept in a folder.

    Clusters are those of k-means over the vectors. Each chunk is one step of `fine_tune`, in
    random order. What a call that was ended had written is not learned again by the next one.
    The model stays as it is.

    Args:
        language_model: The model to learn with.
        sample: The collection, or a part of it (`SamplableSource.sample`), in any order.
        folder: Made where it is missing. A folder an adapter, in PEFT's format, and a manifest.
        embedder_name: The model of the sample's vectors.
        n_clusters: How many adapters at most, >= 1; each takes memory and disk: 20 MB at rank
            16 for 135 M parameters.
        n_chunks: How many chunks are learned from in all at most, drawn at random, >= 1.
        settings: How each learns; rank 16, alpha 16 and a rate of 1e-3 if None.
        on_step: Called after each step with the number of steps taken, those of earlier calls
            counted, the number of all, and the loss before it in nats a token. What it raises
            ends the learning.

    Raises:
        AnswerError: If the model fails.
        InvalidInputError: If a number is out of its range, the folder has adapters of something
            else, or the model cannot learn so.
        MissingDependencyError: If scikit-learn is missing.
    """
    settings = settings or usual_settings()
    if settings.kind == "full":
        raise InvalidInputError('clusters are learned by adapters; pass another scope than "full"')
    as_count("n_chunks", n_chunks, minimum=1)
    clusters = _clusters(sample, as_count("n_clusters", n_clusters, minimum=1), n_chunks)
    place = Path(folder)
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "model": language_model.name,
        "fingerprint": language_model.fingerprint,
        "embedder": embedder_name,
        "settings": settings.as_record(),
        "n_chunks": [len(texts) for _, texts in clusters],
        "centroids": [centroid.tolist() for centroid, _ in clusters],
        "texts": digest_of(text for _, texts in clusters for text in texts),
    }
    manifest["identity"] = digest_of([json.dumps(manifest, sort_keys=True)])
    earlier = _read_manifest(place)
    if earlier is not None and earlier["identity"] != manifest["identity"]:
        raise InvalidInputError(
            f"the adapters at {str(folder)!r} were learned from other chunks, by another model or "
            f"with other settings; delete that folder, or pass another"
        )
    if earlier is None:
        place.mkdir(parents=True, exist_ok=True)
        write_whole(place / MANIFEST, seal(manifest, MANIFEST))
    done, total = 0, sum(manifest["n_chunks"])
    for cluster, (_, texts) in enumerate(clusters):
        if not _is_there(place, cluster):
            counted = _counted(on_step, done, total)
            tuned = fine_tune(language_model, texts, settings, on_step=counted)
            assert isinstance(tuned.adapter, Adapter)  # a copy of the model in scope "full" alone
            tuned.adapter.save(_place(place, cluster))
        done += len(texts)
    return ClusterAdapters.load(place, language_model)


def usual_settings() -> FineTuningSettings:
    """Return how clusters are learned where nobody says: a LoRA of rank 16, a rate of 1e-3."""
    from peft import LoraConfig  # takes seconds

    lora = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear")
    return FineTuningSettings(lora=lora, learning_rate=LEARNING_RATE)


def _clusters(
    sample: DocumentSample, n_clusters: int, n_chunks: int
) -> list[tuple[FloatArray, list[str]]]:
    """Return each cluster's centroid, of unit length, and the texts to learn from, in order.

    The same whatever the order of the sample.
    """
    try:
        from sklearn.cluster import KMeans
    except ImportError as error:
        raise MissingDependencyError("scikit-learn", extra="fine-tune") from error
    order = sorted(range(len(sample.texts)), key=lambda row: sample.document_ids[row])
    rows = unit_rows(sample.embeddings[order])
    n_distinct = len(np.unique(rows, axis=0))  # no more clusters than points, or KMeans warns
    means = KMeans(min(n_clusters, n_distinct), n_init=1, random_state=0).fit(rows).cluster_centers_
    centroids = unit_rows(means)
    owners = (rows @ centroids.T).argmax(axis=1)
    drawn = np.random.default_rng(0).permutation(len(rows))[:n_chunks]
    found = []
    for cluster, centroid in enumerate(centroids):
        own = drawn[owners[drawn] == cluster]
        if len(own):
            found.append((centroid, [sample.texts[order[row]] for row in own]))
    return found


def _counted(on_step: OnClusterStep | None, done: int, total: int) -> OnStep | None:
    """Return what is called after each step of one cluster."""
    if on_step is None:
        return None
    steps = iter(range(done + 1, total + 1))
    return lambda loss: on_step(next(steps), total, loss)


def _read_manifest(place: Path) -> dict[str, Any] | None:
    """Return what a folder's manifest says; None where there is none.

    Raises:
        InvalidInputError: If it is damaged, or of another format.
    """
    try:
        manifest: dict[str, Any] = unseal((place / MANIFEST).read_bytes(), MANIFEST)
        if manifest["format"] != FORMAT:
            raise ValueError(f"its format is {manifest['format']}, not {FORMAT}")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InvalidInputError(
            f"the adapters at {str(place)!r} are of no use: {error}; delete that folder and learn "
            f"again"
        ) from error
    return manifest


def _place(place: Path, cluster: int) -> Path:
    return place / f"{cluster:04}"


def _is_there(place: Path, cluster: int) -> bool:
    return (_place(place, cluster) / CONFIG_NAME).is_file()  # written last
