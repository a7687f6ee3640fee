"""What eight bits cost: recall of gold passages with vectors of either precision.

All development questions and passages of five sets, as `benchmarks.retrieval` has them. Passages
are embedded in float32 and in eight bits, questions in float32, as `sift index` and `sift search`
do; and once questions in eight bits, too.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.embedding_cache import CACHE
from benchmarks.report import Report
from sift_core.embedders import OnnxEmbedder
from sift_core.embedders.precision import Precision
from sift_core.evaluation.data import RetrievalSet, read_retrieval_set
from sift_core.evaluation.embedding_cache import MINILM, EmbeddingCache
from sift_core.evaluation.metrics import recall
from sift_core.evaluation.retrieval import choose, default_methods
from sift_core.evaluation.search import pools
from sift_core.evaluation.statistics import mean
from sift_core.types import FloatArray

SETS = ("hotpotqa", "musique", "2wikimultihopqa", "squad", "entailmentbank")
COMPARED = ("nn", "sift")
N_CHOSEN = 10
# Precision of passages and of questions, the one that all others are held against first.
PRECISIONS: tuple[tuple[Precision, Precision], ...] = (
    ("float32", "float32"),
    ("int8", "float32"),
    ("int8", "int8"),
)
OURS = PRECISIONS[1]


def measure_recall(data: Path, report: Report) -> None:
    """Add and print a row a set, method and precision, and judge what `sift` does."""
    report.heading(f"recall@{N_CHOSEN} in points, passages / questions")
    lost: list[float] = []
    for name in SETS:
        corpus, queries = (
            data / "corpus" / name / "corpus.jsonl.gz",
            data / "dev" / name / "queries.jsonl.gz",
        )
        read = read_retrieval_set(corpus, queries, name=name)
        found = {pair: _recalls(read, *pair) for pair in PRECISIONS}
        for method in COMPARED:
            exact = found[PRECISIONS[0]][method]
            for pair in PRECISIONS:
                change = mean(found[pair][method] - exact)
                row = {
                    "case": name,
                    "method": method,
                    "passages": pair[0],
                    "questions": pair[1],
                    "n_questions": len(exact),
                    "recall": round(float(found[pair][method].mean()), 3),
                    "change": round(change.value, 3),
                    "ci": [round(change.low, 3), round(change.high, 3)],
                }
                report.rows.append(row)
                print(
                    f"  {name:>15} {method:>4} {' / '.join(pair):>17} {row['recall']:6.2f}  "
                    f"{change.value:+.2f} [{change.low:+.2f}, {change.high:+.2f}]",
                    flush=True,
                )
        lost.append(float((found[OURS]["sift"] - found[PRECISIONS[0]]["sift"]).mean()))
    report.judge("recall with passages in eight bits, change", float(np.mean(lost)), "recall")


def _recalls(
    read: RetrievalSet, passages: Precision, questions: Precision
) -> dict[str, FloatArray]:
    """Return the recall of each method for each question, in points."""
    rows = _cache(passages).embed([one.to_embed for one in read.passages], "passages")
    asked = _cache(questions).embed([one.text for one in read.questions], "questions")
    methods = default_methods()
    found: dict[str, list[float]] = {name: [] for name in COMPARED}
    for question, pool in zip(read.questions, pools(asked, rows), strict=True):
        for name in COMPARED:
            chosen = pool.rows[choose(name, methods[name], pool, N_CHOSEN)]
            found[name].append(100 * recall(chosen.tolist(), question.gold, N_CHOSEN))
    return {name: np.array(values) for name, values in found.items()}


def _cache(precision: Precision) -> EmbeddingCache:
    return EmbeddingCache(
        folder=CACHE,
        model=MINILM,
        version=f"ONNX Runtime, {precision}",
        make_embedder=partial(OnnxEmbedder, MINILM, precision=precision),
    )
