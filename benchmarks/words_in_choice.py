"""What words beside embeddings find: recall of ten choices among the 200 nearest passages.

    python -m benchmarks.words_in_choice --data FOLDER [--json FILE]

Each share of words chooses from the same candidates, which embeddings found. Shares were tuned on
the first half of each set's questions, in random order. The rows are of at most 100 questions of
the second half. The first run embeds the corpora with all-MiniLM-L6-v2 by ONNX Runtime, which
takes 10 to 20 minutes on two cores.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.embedding_cache import project_cache
from benchmarks.records import write_record
from sift_core import CandidatePool, ChoiceOptions, Query, choose
from sift_core.embedders import OnnxEmbedder
from sift_core.evaluation.data import RetrievalSet, read_retrieval_set
from sift_core.evaluation.retrieval import embed_questions
from sift_core.evaluation.search import as_is

SETS = ("2wikimultihopqa", "musique", "hotpotqa", "squad", "entailmentbank")
SHARES = (0.0, 0.5, 0.7, 0.9)
N_CANDIDATES, N_SELECT, N_QUESTIONS, SEED = 200, 10, 100, 3
NEAREST = "nearest"
MEASURES = ("recall@5", "recall@10", "all_gold@10")
BEYOND = tuple(f"{name} over nearest" for name in MEASURES)


def rows_of(found: RetrievalSet) -> list[dict[str, Any]]:
    """Return a row for nearest neighbours, and one for each share of words."""
    cache = replace(project_cache(), make_embedder=OnnxEmbedder)  # the same vectors to 2e-7, sooner
    vectors = as_is(found.passages, cache).embeddings
    order = np.random.default_rng(SEED).permutation(len(found.questions))
    held = [found.questions[i] for i in order[len(order) // 2 :][:N_QUESTIONS]]
    measured: dict[str, list[list[float]]] = {}
    for question, embedding in zip(held, embed_questions(held, cache), strict=True):
        cosines = vectors @ embedding
        near = np.argsort(-cosines, kind="stable")[:N_CANDIDATES]
        passages = [found.passages[row] for row in near.tolist()]
        pool = CandidatePool(
            document_ids=[str(row) for row in near.tolist()],
            texts=[one.text for one in passages],
            embeddings=vectors[near],
            similarities=np.minimum(cosines[near], 1.0),
            metadata=[{"title": one.title} for one in passages],
        )
        query = Query(text=question.text, embedding=embedding)
        chosen = {NEAREST: near[:N_SELECT].tolist()}
        for share in SHARES:
            options = ChoiceOptions(n_select=N_SELECT, words=share)
            chosen[f"words {share}"] = near[choose(pool, query, options).positions].tolist()
        for name, rows in chosen.items():
            gold = question.gold
            recalls = [len(gold.intersection(rows[:k])) / len(gold) for k in (5, 10)]
            measured.setdefault(name, []).append([*recalls, float(gold <= set(rows))])
    nearest = np.mean(measured[NEAREST], axis=0)
    return [
        {
            "set": found.name,
            "method": name,
            "n_questions": len(held),
            **dict(zip(MEASURES, means.round(4).tolist(), strict=True)),
            **dict(zip(BEYOND, (means - nearest).round(4).tolist(), strict=True)),
        }
        for name, means in ((name, np.mean(values, axis=0)) for name, values in measured.items())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the corpora")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in SETS:
        corpus = arguments.data / "corpus" / name / "corpus.jsonl.gz"
        queries = arguments.data / "dev" / name / "queries.jsonl.gz"
        for row in rows_of(read_retrieval_set(corpus, queries)):
            rows.append(row)
            print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if arguments.json:
        write_record(arguments.json, rows=rows, bars=[], packages=["numpy", "sift-rerank"])


if __name__ == "__main__":
    main()
