"""How often is a question refused that the documents answer, and one answered that they do not?

    python -m benchmarks.off_topic --data FOLDER [--json FILE]

Mode "auto" refuses where neither ten chunks for a prompt nor the first ten lessons of a fine-tuning
explain enough of σ² at the question (`VariancePolicy.min_explained`). For each set: its own
questions over its passages, and as many of the other sets, which the passages do not answer but for
chance. FastAPI's pages and questions are a set, too. The threshold was read off FastAPI's.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dated_versions import smaller
from benchmarks.demo_questions import asked, explained_shares, read_lines, source_of
from benchmarks.embedding_cache import project_cache
from benchmarks.records import write_record
from benchmarks.retrieval import PACKAGES, read_set
from sift_core import InMemorySource
from sift_core.answering.policy import VariancePolicy
from sift_core.embedders import SentenceTransformerEmbedder
from sift_core.evaluation.search import as_is

N_PASSAGES, N_QUESTIONS = 700, 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="has corpus/, dev/ and demo/")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    cache, embedder = project_cache(), SentenceTransformerEmbedder()
    sources = {"fastapi": source_of(arguments.data / "demo", embedder)}
    lines = read_lines(arguments.data / "demo" / "questions.jsonl")
    questions = {"fastapi": [line["question"] for line in lines]}
    for folder in sorted((arguments.data / "corpus").iterdir()):
        whole = read_set(
            folder / "corpus.jsonl.gz",
            arguments.data / "dev" / folder.name / "queries.jsonl.gz",
            at_most=N_QUESTIONS,
            seed=0,
            cache=cache,
        )
        few = smaller(whole, N_PASSAGES, 0)
        sources[folder.name] = InMemorySource(
            as_is(few.passages, cache).embeddings, [one.text for one in few.passages]
        )
        questions[folder.name] = [one.text for one in few.questions]
    rows: list[dict[str, Any]] = []
    for name, source in sources.items():
        others = [text for other, texts in questions.items() if other != name for text in texts]
        drawn = np.random.default_rng(0).choice(len(others), N_QUESTIONS, replace=False)
        for kind, texts in (("own", questions[name]), ("others", [others[i] for i in drawn])):
            shares = [explained_shares(*asked(text, source, embedder)) for text in texts]
            told = np.array([max(one["read"], one["first_lessons"]) for one in shares])
            rows.append(
                {
                    "documents": name,
                    "questions": kind,
                    "n_questions": len(texts),
                    "refused": float((told < VariancePolicy().min_explained).mean()),
                    **{f"explained_{q}": float(np.quantile(told, q / 100)) for q in (5, 50, 95)},
                }
            )
            row = rows[-1]
            print(
                f"{name:18} {kind:8} refused {row['refused']:.2f}   explained "
                f"{row['explained_5']:.2f} {row['explained_50']:.2f} {row['explained_95']:.2f}"
            )
    if arguments.json is not None:
        write_record(arguments.json, rows=rows, bars=[], packages=PACKAGES)


if __name__ == "__main__":
    main()
