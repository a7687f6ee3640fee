"""What do the integrations cost, alone and under load?

    python -m benchmarks.integrations [--quick] [--only overhead load] [--json FILE]

One thread. integrations_overhead.py: `SIFTReranker` in a LlamaIndex query engine over Faiss,
against the same engine without it and against a cross-encoder; every time is a median of one
run in which both alternate. integrations_load.py: 100 async queries at once through LlamaIndex
and LangChain against Qdrant's REST. bars.toml has what must be reached; a test has the memory.
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy and Faiss load their libraries
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["NUMBA_NUM_THREADS"] = "1"

from pathlib import Path

from benchmarks import integrations_load, integrations_overhead
from benchmarks.bars import load_bars
from benchmarks.records import write_record
from benchmarks.report import Report
from sift_core import load_compiled

PACKAGES = [
    "numpy",
    "numba",
    "faiss-cpu",
    "langchain-core",
    "langchain-qdrant",
    "langchain-sift",
    "llama-index-core",
    "llama-index-postprocessor-sift",
    "llama-index-vector-stores-faiss",
    "llama-index-vector-stores-qdrant",
    "qdrant-client",
    "sentence-transformers",
    "sift-rerank",
    "torch",
    "transformers",
]
PARTS = {
    "overhead": (integrations_overhead.measure, integrations_overhead.Effort),
    "load": (integrations_load.measure, integrations_load.Effort),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer documents, fewer rounds")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to run")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    load_compiled()  # what a process that selects a lot runs
    report = Report(bar_numbers=load_bars("integrations"))
    for part in arguments.only:
        measure, effort = PARTS[part]
        measure(report, effort.quick() if arguments.quick else effort())
    report.summarize()
    if arguments.json:
        write_record(arguments.json, rows=report.rows, bars=report.bars, packages=PACKAGES)


if __name__ == "__main__":
    main()
