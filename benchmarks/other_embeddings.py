"""Does the default hold for embedding models with another distribution of similarities?

    python -m benchmarks.other_embeddings --data FOLDER [--sets musique,hotpotqa,...] [--json FILE]

Each set of a data folder, as it is and with 4 noisy copies, under embeddings that
differ from all-MiniLM-L6-v2's: MiniLM's with a common direction added (the mean cosine rises from
.1 to .74), with coordinates scaled by log-normal factors after a rotation, the first 96 alone,
less their mean; and a second embedder of another kind, TF-IDF with a truncated SVD of 256
dimensions, fitted to the corpus. Noise is added after the change, so that it weighs more
where the embeddings lie closer together.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks.embedding_cache import project_cache
from benchmarks.records import write_record
from benchmarks.retrieval import PACKAGES, QuestionSet, measure, read_sets
from benchmarks.retrieval_bars import Row
from benchmarks.retrieval_methods import methods
from benchmarks.retrieval_tables import print_sets
from sift_core.evaluation.retrieval import Method
from sift_core.evaluation.search import Versions, as_is, noisy_copies

COMPARED = ("nn", "sift", "sift_paper", "mmr .7", "mmr .8", "mmr .9", "dpp a=4", "dpp a=8")
COMMON_LENGTH = 1.5  # of the direction that is added to every unit vector
LOG_SCALE = 0.8  # standard deviation of the logarithm of a coordinate's factor
N_LEADING = 96  # coordinates kept of 384
LEXICAL_DIMENSION = 256
N_COPIES = 4

Change = Callable[[np.ndarray, np.random.Generator], Callable[[np.ndarray], np.ndarray]]


def common_direction(
    passages: np.ndarray, generator: np.random.Generator
) -> Callable[[np.ndarray], np.ndarray]:
    direction = generator.standard_normal(passages.shape[1])
    direction *= COMMON_LENGTH / np.linalg.norm(direction)
    return lambda rows: rows + direction


def scaled_coordinates(
    passages: np.ndarray, generator: np.random.Generator
) -> Callable[[np.ndarray], np.ndarray]:
    dimension = passages.shape[1]
    factors = np.exp(LOG_SCALE * generator.standard_normal(dimension))
    rotation, _ = np.linalg.qr(generator.standard_normal((dimension, dimension)))
    return lambda rows: (rows @ rotation) * factors


def leading_coordinates(
    passages: np.ndarray, generator: np.random.Generator
) -> Callable[[np.ndarray], np.ndarray]:
    return lambda rows: rows[:, :N_LEADING]


def less_the_mean(
    passages: np.ndarray, generator: np.random.Generator
) -> Callable[[np.ndarray], np.ndarray]:
    mean = passages.mean(axis=0)
    return lambda rows: rows - mean


CHANGES: dict[str, Change] = {
    "common direction": common_direction,
    "scaled coordinates": scaled_coordinates,
    "96 of 384": leading_coordinates,
    "less the mean": less_the_mean,
}


def unit(rows: np.ndarray) -> np.ndarray:
    """Return unit rows, float32; a text without a known word gets a direction of its own."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    empty = lengths[:, 0] < 1e-9
    if empty.any():
        rows, lengths = rows.copy(), lengths.copy()
        rows[empty] = np.random.default_rng(0).standard_normal((int(empty.sum()), rows.shape[1]))
        lengths[empty] = np.linalg.norm(rows[empty], axis=1, keepdims=True)
    return (rows / lengths).astype(np.float32)


def lexical(questions: QuestionSet, plain: Versions) -> tuple[QuestionSet, Versions]:
    """Return the set under TF-IDF and a truncated SVD, both fitted to its passages."""
    vectorizer = TfidfVectorizer(sublinear_tf=True, stop_words="english")
    counts = vectorizer.fit_transform([passage.to_embed for passage in questions.passages])
    svd = TruncatedSVD(LEXICAL_DIMENSION, random_state=0).fit(counts)
    asked = svd.transform(vectorizer.transform([one.text for one in questions.questions]))
    return (
        replace(questions, embeddings=unit(asked)),
        replace(plain, embeddings=unit(svd.transform(counts))),
    )


def measured(name: str, questions: QuestionSet, plain: Versions, seed: int) -> list[Row]:
    compared: dict[str, Method] = {one: methods()[one] for one in COMPARED}
    rows = []
    for versions in (plain, noisy_copies(plain, N_COPIES, seed)):
        condition = f"{name}, {versions.condition}"
        rows += measure(questions, replace(versions, condition=condition), compared)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="has corpus/SET and dev/SET")
    parser.add_argument("--sets", type=lambda text: text.split(","), help="of the folder; all")
    parser.add_argument("--max-queries", type=int, default=150, help="a random subset of each set")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    cache = project_cache()
    rows: list[Row] = []
    for questions in read_sets(arguments, cache):
        plain = as_is(questions.passages, cache)
        for name, change in CHANGES.items():
            changed = change(plain.embeddings, np.random.default_rng(arguments.seed))
            rows += measured(
                name,
                replace(questions, embeddings=unit(changed(questions.embeddings))),
                replace(plain, embeddings=unit(changed(plain.embeddings))),
                arguments.seed,
            )
        rows += measured("TF-IDF and SVD", *lexical(questions, plain), arguments.seed)
    print_sets(rows)
    if arguments.json:
        write_record(arguments.json, rows=rows, bars=[], packages=[*PACKAGES, "scikit-learn"])


if __name__ == "__main__":
    main()
