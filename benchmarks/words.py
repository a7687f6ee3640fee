"""What do words cost? Counting them in 200 chunks of 256 tokens and one question, and a choice.

    OMP_NUM_THREADS=1 python -m benchmarks.words [--json benchmarks/results/words.json]

Chunks have 192 English words, which is 256 tokens of prose and more of documentation. They come
from this repository's documentation, and from random words whose frequencies follow Zipf's law.
Warm calls find the words of all chunks in the cache, in new copies of the texts; cold calls find
none. The question is new in each call. All steps take turns. Medians count, and the fastest call
stands beside them. The first 20 MB that a process frees teach the C library to keep memory between
calls. Any model or store that is loaded does that.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.options import options
from benchmarks.records import environment
from benchmarks.report import Report
from sift_core import (
    CandidatePool,
    ChoiceOptions,
    Query,
    choose,
    cosine_similarities,
    load_compiled,
)
from sift_core.selection.word_counts import WordCountCache
from sift_core.selection.words import PoolWords, pool_words

N_CHUNKS, N_WORDS, DIMENSION, SHARE = 200, 192, 384, 0.7
N_AFTER_HOP = 300  # candidates, with those of a second hop
VOCABULARY = 20_000  # random words; 200 chunks have 8,000 of them, as passages of Wikipedia do
QUESTION = "How does the selector number {} choose among near duplicates of issue E1042?"
ROUNDS = 40
DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="in which all steps are timed")
    arguments = parser.parse_args()
    report = Report(section="words")
    processor = environment([], folder=Path(__file__).parent)["machine"]["processor"]
    print(f"{processor}, {os.environ.get('OMP_NUM_THREADS', 'all')} thread(s)")
    np.ones(20 * 2**20 // 8)
    for data, chunks in {"documentation": documentation(), "random words": random_chunks()}.items():
        report.heading(f"{N_CHUNKS} chunks of {N_WORDS} words of {data}")
        times = measure(chunks[:N_CHUNKS], arguments.rounds) | choices_ms(chunks, arguments.rounds)
        for step, taken in times.items():
            ms, fastest = round(statistics.median(taken), 4), round(min(taken), 4)
            report.add(data=data, step=step, ms=ms, fastest_ms=fastest)
        for kind in ("warm", "cold"):
            ms = statistics.median(times[f"pool_words, {kind}"])
            report.judge(f"pool_words, {kind}, {data}, ms", ms, f"{kind}_ms", "lower")
        ms = statistics.median(times[step_of(N_AFTER_HOP, SHARE)])
        report.judge(f"choice, {data}, ms", ms, "choice_ms", "lower")
    report.finish(arguments.json, ["numpy"])


def documentation() -> list[str]:
    """Return the pages of this repository in chunks, from the beginning again if they are few."""
    pages = [path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))]
    words = np.array(" ".join(pages).split(" "), dtype=object)
    return [" ".join(row) for row in np.resize(words, (N_AFTER_HOP, N_WORDS)).tolist()]


def random_chunks() -> list[str]:
    """Return chunks of random words."""
    rng = np.random.default_rng(0)
    letters = list("etaoinshrdlucmfwypvbgk")
    words = ["".join(rng.choice(letters, n)) for n in rng.integers(2, 10, VOCABULARY)]
    chances = 1 / np.arange(3, VOCABULARY + 3)
    drawn = rng.choice(np.array(words), (N_AFTER_HOP, N_WORDS), p=chances / chances.sum())
    return [" ".join(row) for row in drawn.tolist()]


def measure(chunks: list[str], rounds: int) -> dict[str, list[float]]:
    """Return what each step took in each round, in milliseconds."""
    cache = WordCountCache()
    pool_words(chunks, [QUESTION.format(0)], cache=cache)
    number = 0

    def pool(cache: WordCountCache, texts: list[str]) -> PoolWords:
        nonlocal number
        number += 1
        return pool_words(texts, [QUESTION.format(number)], cache=cache)

    times: dict[str, list[float]] = {}

    def clock(step: str, call: Callable[[], object]) -> None:
        begin = time.perf_counter()
        call()
        times.setdefault(step, []).append(1000 * (time.perf_counter() - begin))

    for _ in range(rounds):
        clock("pool_words, cold", partial(pool, WordCountCache(), copies(chunks)))
        for _ in range(3):
            clock("pool_words, warm", partial(pool, cache, copies(chunks)))
    return times


def choices_ms(chunks: list[str], rounds: int) -> dict[str, list[float]]:
    """Return what a choice of ten took in each round, words cached, in milliseconds."""
    load_compiled()
    times: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        for n in (N_CHUNKS, N_AFTER_HOP):
            pool, asked = pool_and_query(copies(chunks[:n]), QUESTION.format(number))
            for share in (0.0, SHARE):
                begin = time.perf_counter()
                choose(pool, asked, ChoiceOptions(words=share))
                taken = 1000 * (time.perf_counter() - begin)
                if number:  # the first round counts the words
                    times.setdefault(step_of(n, share), []).append(taken)
    return times


def pool_and_query(texts: list[str], question: str) -> tuple[CandidatePool, Query]:
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((N_AFTER_HOP, DIMENSION)).astype(np.float32)[: len(texts)]
    query = Query(text=question, embedding=rng.standard_normal(DIMENSION).astype(np.float32))
    cosines = cosine_similarities(query.vector, rows)
    names = [str(row) for row in range(len(rows))]
    pool = CandidatePool(document_ids=names, texts=texts, embeddings=rows, similarities=cosines)
    return pool, query


def step_of(n: int, share: float) -> str:
    return f"choose from {n}, words {share}"


def copies(texts: list[str]) -> list[str]:
    """Return new strings, as a store delivers: Python keeps the hash of one that it has seen."""
    return [text[:1] + text[1:] for text in texts]


if __name__ == "__main__":
    main()
